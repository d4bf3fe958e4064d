"""Judge a plan of the library: ``python verify.py GRAPH PLAN [BUDGET]``.

One file, standard library alone, so that nobody has to install or to trust the program that made
the records. RULES.md says what a plan may do; this says the same in code:

- residents are live from start to end; every other value is live from a compute of the op that
  writes it to its free;
- a compute needs what it reads to be live. While it runs, memory holds what is live, what it writes
  (also where an old copy is still live, which the new one then replaces) and its workspace. An
  implementation that overwrites values gives their storages to writes of the same bytes, in order;
- a free needs a live value that is no resident, and costs nothing; at the end outputs are live;
- random ops first run in program order. (Graphs outside of the library may have
  ``random_state_bytes``: what draws the same numbers again, the op or what ``replays`` it, then
  needs a saved state of the generator to the end, and room for the present one while it runs.)

Peak: the largest number of bytes at any statement. Cost: the sum over the computes.
GRAPH and PLAN are JSON, plain or gzip; BUDGET (bytes) takes the place of the plan's own. Prints
these, recomputations, and whether ops first run in program order (if not, the plan is valid, but no
record). Exits 0 if it is valid and within the budget, 1 if not, 2 if a file is bad.
"""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Mapping, Sequence
from operator import mul
from typing import Any, NamedTuple

Ints = Sequence[int]


class BadFile(Exception):
    """A file is not what it must be: one line that names it, and what is wrong."""


class Refused(Exception):
    """A plan is not valid: at which statement, from 0 (their count: at the end), and why."""

    def __init__(self, statement: int, reason: str) -> None:
        super().__init__(f"statement {statement}: {reason}")
        self.statement, self.reason = statement, reason


class Way(NamedTuple):
    """One implementation of an op, in numbers.

    Attributes:
        taken: per write, the value whose storage it takes over, or -1.
        draws: the op whose random numbers it draws, or -1.
    """

    op: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    taken: tuple[int, ...]
    cost: float
    workspace: int
    draws: int


class Numbered(NamedTuple):
    """A graph in numbers: values and ops by their places in the file.

    Attributes:
        values: numbers of values by name.
        ways: implementations by (op's name, implementation's name or None for the default).
        outputs: values that must be live at the end.
        random: ops that draw random numbers.
        state: bytes of the generator's state.
    """

    name: str
    size: list[int]
    resident: list[bool]
    values: dict[str, int]
    value_names: list[str]
    op_names: list[str]
    ways: dict[tuple[str, str | None], Way]
    outputs: list[int]
    random: set[int]
    state: int


class PlanFacts(NamedTuple):
    """What a valid plan does.

    Attributes:
        recomputations: computes beyond the first of each op.
        during: bytes while each statement runs.
        ops: per statement, the op that it computes, or -1.
        in_order: do ops first run in program order?
    """

    peak: int
    cost: float
    recomputations: int
    during: list[int]
    ops: list[int]
    in_order: bool


def read(path: str, kind: str) -> dict[str, Any]:
    """A graph or plan file's document; or ``BadFile``."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
        document = json.loads(text, parse_constant=int)  # which refuses NaN and Infinity
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise BadFile(f"{path}: cannot be read ({error}); fetch the file again") from None
    if not isinstance(document, dict) or document.get("format") != f"rematbench-{kind}":
        raise BadFile(f'{path}: no {kind}; its "format" must be "rematbench-{kind}"')
    if repr(document.get("version")) != "1":
        raise BadFile(f"{path}: version {document.get('version')!r}; this program reads version 1")
    return document


def net_of(document: Mapping[str, Any], path: str = "the graph") -> Numbered:
    """A graph's document in numbers; ``BadFile`` where it names what there is not."""
    try:
        return _net_of(document)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise BadFile(f"{path}: no valid graph ({error!r}); fetch the file again") from None


def _net_of(document: Mapping[str, Any]) -> Numbered:
    values = document["values"]
    names, size = ([value[key] for value in values] for key in ("name", "bytes"))
    resident = [value.get("resident", False) for value in values]
    numbers = {name: number for number, name in enumerate(names)}
    ops = {op["name"]: number for number, op in enumerate(document["ops"])}
    ways: dict[tuple[str, str | None], Way] = {}
    for number, op in enumerate(document["ops"]):
        ways |= _ways(number, op, numbers, ops, size)
    return Numbered(
        name=document["name"],
        size=size,
        resident=resident,
        values=numbers,
        value_names=names,
        op_names=list(ops),
        ways=ways,
        outputs=[numbers[name] for name in document["outputs"]],
        random={ops[op["name"]] for op in document["ops"] if op.get("random")},
        state=document.get("random_state_bytes", 0),
    )


def _ways(
    number: int, op: Any, numbers: Mapping[str, int], ops: Mapping[str, int], size: Sequence[int]
) -> dict[tuple[str, str | None], Way]:
    """An op's implementations by the op's name and theirs; the default by None, too."""
    writes, made = tuple(numbers[name] for name in op["writes"]), {}
    for each in op.get("implementations", [{**op, "name": "default"}]):
        reads = tuple(sorted({numbers[name] for name in each["reads"]}))
        taken = _taken(writes, reads, [numbers[n] for n in each.get("overwrites", ())], size)
        drawn = each.get("replays") or (op["name"] if op.get("random") else None)
        draws = -1 if drawn is None else ops[drawn]
        workspace = each.get("workspace_bytes", 0)
        way = Way(number, reads, writes, taken, each["cost"], workspace, draws)
        made[op["name"], each["name"]] = way
        made.setdefault((op["name"], None), way)
    return made


def _taken(writes: Ints, reads: Ints, over: Ints, size: Ints) -> tuple[int, ...]:
    taken = [-1] * len(writes)
    for value in over:
        free = [k for k, w in enumerate(writes) if taken[k] < 0 and size[w] == size[value]]
        if value not in reads or not free:
            raise ValueError("overwrites what is not read, or what no write can take over")
        taken[free[0]] = value
    return tuple(taken)


def judge(net: Numbered, statements: Sequence[Any]) -> PlanFacts:
    """Replay a plan; ``Refused`` where it is not valid, at which statement and why."""
    steps = [_step(net, number, statement) for number, statement in enumerate(statements)]
    live = net.resident.copy()
    highest = memory = sum(map(mul, net.size, net.resident))  # of the residents
    during: list[int] = []
    for number, step in enumerate(steps):
        running, memory = _run(net, number, step, live, memory)
        during.append(running)
    if gone := [net.value_names[value] for value in net.outputs if not live[value]]:
        raise Refused(len(steps), f"output {gone[0]!r} is not live at the end")
    if net.state:
        _add_states(net, steps, during)
    ops = [getattr(step, "op", -1) for step in steps]
    _check_draws(net, ops)
    first = [*dict.fromkeys([-1, *ops])][1:]
    again = len(ops) - ops.count(-1) - len(first)
    cost = sum(getattr(step, "cost", 0) for step in steps)
    return PlanFacts(max([highest, *during]), cost, again, during, ops, first == sorted(first))


def _step(net: Numbered, number: int, statement: Any) -> Way | int:
    """What a statement names: an implementation, or the value that it frees."""
    match statement:
        case ["compute", str(op)] if (op, None) in net.ways:
            return net.ways[op, None]
        case ["compute", str(op), str(name)] if (op, name) in net.ways:
            return net.ways[op, name]
        case ["free", str(value)] if value in net.values:
            return net.values[value]
    said = json.dumps(statement)[:80]
    raise Refused(number, f"{said} is neither a compute nor a free of what the graph has")


def _run(
    net: Numbered, number: int, step: Way | int, live: list[bool], memory: int
) -> tuple[int, int]:
    """Bytes during a statement, and after; ``live`` is brought up to date."""
    if isinstance(step, int):
        if net.resident[step] or not live[step]:
            raise Refused(number, f"free of {net.value_names[step]!r}, resident or not live")
        live[step] = False
        return memory, memory - net.size[step]
    gone = next((value for value in step.reads if not live[value]), None)
    if gone is not None:
        op, name = net.op_names[step.op], net.value_names[gone]
        raise Refused(number, f"op {op!r} reads {name!r}, which is not live")
    running = memory + step.workspace
    for value, taken in zip(step.writes, step.taken, strict=True):
        if taken < 0:
            running += net.size[value]
            memory += net.size[value]
        else:
            live[taken] = False
        memory -= net.size[value] if live[value] else 0  # the new copy replaces the old one
        live[value] = True
    return running, memory


def _add_states(net: Numbered, steps: Sequence[Way | int], during: list[int]) -> None:
    """Add the states of the random generator that repeated draws need."""
    places: dict[int, list[int]] = {}
    for number, step in enumerate(steps):
        if isinstance(step, Way) and step.draws >= 0:
            places.setdefault(step.draws, []).append(number)
    for first, *again in places.values():
        if again:
            for number in range(first, len(steps)):
                during[number] += net.state
            for number in again:
                during[number] += net.state


def _check_draws(net: Numbered, ops: Sequence[int]) -> None:
    done, last = {-1}, -1
    for at, op in enumerate(ops):
        if op in net.random and op not in done:
            if op < last:
                raise Refused(at, f"random op {net.op_names[op]!r} first runs out of program order")
            last = op
            done.add(op)


def _plan(path: str) -> dict[str, Any]:
    plan, keys = read(path, "plan"), "format version graph strategy budget_bytes statements"
    budget, kinds = plan.get("budget_bytes"), [type(plan.get(k, "")) for k in keys.split()[2:4]]
    sound = budget is None or (type(budget) is int and budget >= 0)
    sound = sound and kinds == [str, str] and type(plan.get("statements")) is list
    if not (sound and plan.keys() <= {*keys.split()}):
        raise BadFile(f"{path}: no plan as RULES.md has it; its keys are: {keys}")
    return plan


def main(words: Sequence[str]) -> int:
    """The command; returns its exit code."""
    if len(words) not in (2, 3) or (len(words) == 3 and not words[2].isdigit()):
        print("usage: python verify.py GRAPH PLAN [BUDGET in bytes]", file=sys.stderr)
        return 2
    try:
        net, plan = net_of(read(words[0], "graph"), words[0]), _plan(words[1])
        if plan.get("graph") != net.name:
            named = f"of graph {plan.get('graph')!r}, not of {net.name!r}"
            raise BadFile(f"{words[1]}: {named}; give another")
        budget = int(words[2]) if len(words) == 3 else plan.get("budget_bytes")
        verdict = judge(net, plan["statements"])
    except BadFile as error:
        print(f"verify.py: {error}", file=sys.stderr)
        return 2
    except Refused as error:
        print(f"verify.py: {words[1]}: {error}", file=sys.stderr)
        return 1
    said = f"cost={verdict.cost} recomputations={verdict.recomputations}"
    print(f"peak_bytes={verdict.peak} {said} program_order={('no', 'yes')[verdict.in_order]}")
    if budget is not None and verdict.peak > budget:
        over = f"the plan peaks at {verdict.peak} bytes, over its budget of {budget}"
        print(f"verify.py: {words[1]}: {over}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
