"""Graph and plan files: strict JSON, plain or gzip, written by atomic rename.

The formats are a contract, since other programs read and write them::

    {"format": "rematbench-graph", "version": 1, "name": "net", "cost_unit": "flop",
     "values": [{"name": "x", "bytes": 4096, "resident": true}, {"name": "y", "bytes": 8192}],
     "ops": [{"name": "f", "phase": "forward", "reads": ["x"], "writes": ["y"], "cost": 1.5,
              "workspace_bytes": 0}],
     "outputs": ["y"]}

    {"format": "rematbench-plan", "version": 1, "graph": "net", "strategy": "chen_sqrt",
     "budget_bytes": null, "statements": [["compute", "f"], ["free", "y"]]}

``resident``, ``workspace_bytes``, an op's ``scope`` (the module that it came from), its
``autograd_node`` (a number that backward ops share which autograd runs as one), ``random``
(true: it draws random numbers, and first runs in program order among such ops) and ``target`` (the
operator that it calls, as PyTorch spells it: ``aten.relu.default``) are optional; so
are an implementation's ``replays`` (the random op whose draws it repeats) and the graph's
``random_state_bytes``, of a generator's state that repeated draws begin from.
An op with several implementations has
``implementations`` (name, reads, cost, workspace_bytes, overwrites) instead of reads, cost and
workspace_bytes; a compute statement names the one that it runs as a third item.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rematbench.base.errors import GraphError, PlanError, RematbenchError
from rematbench.base.json_files import (
    read_json as read_json,
    write_bytes as write_bytes,
    write_json as write_json,
)
from rematbench.base.limits import BYTES_TOLD, MOST_BYTES, shown
from rematbench.graphs.ir import Graph, Implementation, Op, Phase, Value
from rematbench.graphs.plan import MOVES, Compute, Plan, Statement

GRAPH_FORMAT, PLAN_FORMAT, VERSION = "rematbench-graph", "rematbench-plan", 1
_MOVES = {kind.__name__.lower(): kind for kind in MOVES}
_DEFAULT = "default"
_STATE = "random_state_bytes"
_MARKS = ("scope", "autograd_node", "random", "target")


def read_graph(path: str | Path) -> Graph:
    """Read a graph file.

    Raises:
        GraphError: the file cannot be read, or is not a valid graph; one line that names the
            file, the offender and the remedy.
    """
    form = _Form(path, GraphError)
    top = form.document(
        GRAPH_FORMAT, required=("name", "values", "ops", "outputs"), optional=("cost_unit", _STATE)
    )
    try:
        return Graph(
            form.text(top, "name", "the graph"),
            tuple(_value(form, i, item) for i, item in enumerate(form.list(top, "values"))),
            tuple(_op(form, i, item) for i, item in enumerate(form.list(top, "ops"))),
            form.names(top, "outputs", "the graph"),
            form.text(top, "cost_unit", "the graph") if "cost_unit" in top else "unit",
            top.get(_STATE, 0),
        )
    except GraphError as error:
        raise form.error(str(error)) from None


def _value(form: _Form, position: int, item: Any) -> Value:
    where = form.where("value", position, item)
    form.keys(item, where, ("name", "bytes"), ("resident",))
    resident = item.get("resident", False)
    if not isinstance(resident, bool):
        raise form.error(f"{where}: resident is {resident!r}; give true or false")
    return Value(form.text(item, "name", where), item["bytes"], resident)


def _op(form: _Form, position: int, item: Any) -> Op:
    where = form.where("op", position, item)
    if isinstance(item, dict) and "implementations" in item:
        form.keys(item, where, ("name", "phase", "writes", "implementations"), _MARKS)
        implementations = tuple(
            _implementation(form, f"{where}, {form.where('implementation', i, each)}", each)
            for i, each in enumerate(form.list(item, "implementations", where))
        )
    else:
        required = ("name", "phase", "reads", "writes", "cost")
        form.keys(item, where, required, ("workspace_bytes", *_MARKS))
        reads = form.names(item, "reads", where)
        workspace = item.get("workspace_bytes", 0)
        implementations = (Implementation(_DEFAULT, reads, item["cost"], workspace),)
    if item["phase"] not in list(Phase):
        raise form.error(f"{where}: phase is {item['phase']!r}; give forward, loss or backward")
    writes = form.names(item, "writes", where)
    scope = form.text(item, "scope", where) if "scope" in item else ""
    node = item.get("autograd_node")
    if node is not None and (type(node) is not int or node < 0):
        raise form.error(f"{where}: autograd_node is {node!r}; give a whole number, 0 or more")
    random = item.get("random", False)
    if not isinstance(random, bool):
        raise form.error(f"{where}: random is {random!r}; give true or false")
    name, phase = form.text(item, "name", where), Phase(item["phase"])
    target = form.text(item, "target", where) if "target" in item else None
    return Op(name, phase, writes, implementations, scope, node, random, target)


def _implementation(form: _Form, where: str, item: Any) -> Implementation:
    form.keys(item, where, ("name", "reads", "cost"), ("workspace_bytes", "overwrites", "replays"))
    return Implementation(
        form.text(item, "name", where),
        form.names(item, "reads", where),
        item["cost"],
        item.get("workspace_bytes", 0),
        form.names(item, "overwrites", where) if "overwrites" in item else (),
        form.text(item, "replays", where) if "replays" in item else None,
    )


def write_graph(path: str | Path, graph: Graph) -> None:
    """Write a graph file (gzip when the name ends in ``.gz``)."""
    write_json(path, graph_document(graph))


def graph_document(graph: Graph) -> dict[str, Any]:
    """The JSON document of a graph."""
    return {
        "format": GRAPH_FORMAT,
        "version": VERSION,
        "name": graph.name,
        "cost_unit": graph.cost_unit,
        "values": [
            {"name": v.name, "bytes": v.bytes} | ({"resident": True} if v.resident else {})
            for v in graph.values
        ],
        "ops": [_op_document(op) for op in graph.ops],
        "outputs": list(graph.outputs),
    } | ({_STATE: graph.random_state_bytes} if graph.random_state_bytes else {})


def _op_document(op: Op) -> dict[str, Any]:
    head: dict[str, Any] = {"name": op.name, "phase": op.phase.value, "writes": list(op.writes)}
    head |= {"scope": op.scope} if op.scope else {}
    head |= {"autograd_node": op.autograd_node} if op.autograd_node is not None else {}
    head |= {"random": True} if op.random else {}
    head |= {"target": op.target} if op.target else {}
    first = op.implementations[0]
    if len(op.implementations) == 1 and first.name == _DEFAULT and not first.overwrites:
        return head | {
            "reads": list(first.reads),
            "cost": first.cost,
            "workspace_bytes": first.workspace_bytes,
        }
    implementations = [
        {
            "name": i.name,
            "reads": list(i.reads),
            "cost": i.cost,
            "workspace_bytes": i.workspace_bytes,
            "overwrites": list(i.overwrites),
        }
        | ({"replays": i.replays} if i.replays else {})
        for i in op.implementations
    ]
    return head | {"implementations": implementations}


def read_plan(path: str | Path) -> Plan:
    """Read a plan file. Whether its graph has these ops is for ``simulate`` to say.

    Raises:
        PlanError: the file cannot be read, or is not a valid plan.
    """
    form = _Form(path, PlanError)
    top = form.document(
        PLAN_FORMAT, required=("graph", "statements"), optional=("strategy", "budget_bytes")
    )
    budget = top.get("budget_bytes")
    if budget is not None and (type(budget) is not int or budget < 0):
        raise form.error(f"budget_bytes is {shown(budget)}; give a whole number or null")
    if budget is not None and budget > MOST_BYTES:
        raise form.error(f"budget_bytes is {shown(budget)}; {BYTES_TOLD}")
    items = form.list(top, "statements")
    return Plan(
        tuple(_statement(form, i, item) for i, item in enumerate(items)),
        form.text(top, "graph", "the plan"),
        form.text(top, "strategy", "the plan") if top.get("strategy", "") != "" else "",
        budget,
    )


def _statement(form: _Form, position: int, item: Any) -> Statement:
    if isinstance(item, list) and all(isinstance(word, str) for word in item):
        match item:
            case [word, value] if word in _MOVES:
                return _MOVES[word](value)
            case ["compute", op]:
                return Compute(op)
            case ["compute", op, implementation]:
                return Compute(op, implementation)
    raise form.error(
        f'statement {position} is {json.dumps(item)[:80]}; give ["compute", op], '
        '["compute", op, implementation], ["free", value], ["offload", value], ["fetch", value] '
        'or ["drop", value]'
    )


def write_plan(path: str | Path, plan: Plan) -> None:
    """Write a plan file (gzip when the name ends in ``.gz``)."""
    write_json(path, plan_document(plan))


def plan_document(plan: Plan) -> dict[str, Any]:
    """The JSON document of a plan."""
    return {
        "format": PLAN_FORMAT,
        "version": VERSION,
        "graph": plan.graph,
        "strategy": plan.strategy,
        "budget_bytes": plan.budget_bytes,
        "statements": [
            ["compute", s.op, *([s.implementation] if s.implementation else [])]
            if isinstance(s, Compute)
            else [type(s).__name__.lower(), s.value]
            for s in plan.statements
        ],
    }


class _Form:
    """A document of one file, whose faults are told with the file's name."""

    def __init__(self, path: str | Path, kind: type[RematbenchError]) -> None:
        self.path, self.kind = path, kind

    def error(self, message: str) -> RematbenchError:
        # A part's own error, caught with those of the whole, names the file already.
        return self.kind(f"{self.path}: {message.removeprefix(f'{self.path}: ')}")

    def document(
        self, name: str, *, required: tuple[str, ...], optional: tuple[str, ...]
    ) -> dict[str, Any]:
        top = read_json(self.path, self.kind)
        if not isinstance(top, dict) or top.get("format") != name:
            raise self.error(f'not a {name} file; its "format" must be "{name}"')
        if type(top.get("version")) is not int or top["version"] != VERSION:
            found = top.get("version")
            raise self.error(f"version is {found!r}; this program reads version {VERSION}")
        self.keys(top, "the file", ("format", "version", *required), optional)
        return top

    def keys(
        self, item: Any, where: str, required: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> None:
        if not isinstance(item, Mapping):
            raise self.error(f"{where} is not an object; give one with {', '.join(required)}")
        for key in required:
            if key not in item:
                raise self.error(f"{where}: key {key!r} is missing; add it")
        for key in item:
            if key not in required and key not in optional:
                raise self.error(f"{where}: unknown key {key!r}; remove it")

    @staticmethod
    def where(kind: str, position: int, item: Any) -> str:
        name = item.get("name") if isinstance(item, dict) else None
        return f"{kind} {name!r}" if isinstance(name, str) else f"{kind} number {position}"

    def list(self, item: Mapping[str, Any], key: str, where: str = "the file") -> list[Any]:
        found = item[key]
        if not isinstance(found, list):
            raise self.error(f"{where}: {key} is {found!r}; give a list")
        return found

    def names(self, item: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
        found = self.list(item, key, where)
        if not all(isinstance(name, str) for name in found):
            raise self.error(f"{where}: {key} holds something that is no name; give strings")
        return tuple(found)

    def text(self, item: Mapping[str, Any], key: str, where: str) -> str:
        found = item[key]
        if not isinstance(found, str) or not found:
            raise self.error(f"{where}: {key} is {found!r}; give a non-empty string")
        return found
