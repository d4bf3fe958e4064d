"""Judge a plan of the library: ``python verify.py GRAPH PLAN [BUDGET]``.

One file, standard library alone, so that nobody has to install or to trust the program that made
the records. RULES.md says what a plan may do; this says the same in code, and nothing else:

- residents are live from start to end; every other value is live from a compute of the op that
  writes it to its free;
- a compute needs what it reads to be live. While it runs, memory holds what is live, what it writes
  (also where an old copy is still live, which the new one then replaces) and its workspace. An
  implementation that overwrites values gives their storages to writes of the same bytes, in order;
- a free needs a live value that is no resident. It costs nothing;
- at the end every output is live;
- random ops first run in program order. What draws the same numbers again needs a saved state of
  the generator (the graph's ``random_state_bytes``, if it has any), from the first draw to the end,
  and room for the present state while it runs.

Peak: the largest number of bytes at any statement. Cost: the sum over the computes.
GRAPH and PLAN are JSON, plain or gzip; BUDGET is in bytes, the plan's own where it is left out.
Prints peak, cost and the number of recomputations. Exits 0 if the plan is valid and within the
budget, 1 if not, 2 if a file cannot be read; each with one line.
"""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class BadFile(Exception):
    """A file is not what it must be: one line that names it, and what is wrong."""


class Refused(Exception):
    """A plan is not valid.

    Attributes:
        statement: its number in the plan, from 0; their count, for what is missing at the end.
        reason: in words.
    """

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
    """

    peak: int
    cost: float
    recomputations: int
    during: list[int]
    ops: list[int]


def read(path: str, kind: str) -> dict[str, Any]:
    """A graph or plan file's document; or ``BadFile``."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise BadFile(f"{path}: cannot be read ({error}); fetch the file again") from None
    wanted = f"rematbench-{kind}"
    if not isinstance(document, dict) or document.get("format") != wanted:
        raise BadFile(f'{path}: no {kind}; its "format" must be "{wanted}"')
    if document.get("version") != 1:
        raise BadFile(f"{path}: version {document.get('version')!r}; this program reads version 1")
    return document


def net_of(document: Mapping[str, Any], path: str = "the graph") -> Numbered:
    """A graph's document in numbers; ``BadFile`` where it names what there is not."""
    try:
        return _net_of(document)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        raise BadFile(f"{path}: no valid graph ({what}); fetch the file again") from None


def _net_of(document: Mapping[str, Any]) -> Numbered:
    names = [value["name"] for value in document["values"]]
    size = [int(value["bytes"]) for value in document["values"]]
    resident = [bool(value.get("resident", False)) for value in document["values"]]
    numbers = {name: number for number, name in enumerate(names)}
    ops = {op["name"]: number for number, op in enumerate(document["ops"])}
    ways: dict[tuple[str, str | None], Way] = {}
    for number, op in enumerate(document["ops"]):
        writes = tuple(numbers[name] for name in op["writes"])
        for place, each in enumerate(op.get("implementations", [op])):
            replayed = each.get("replays") or (op["name"] if op.get("random") else None)
            way = Way(
                op=number,
                reads=tuple(sorted({numbers[name] for name in each["reads"]})),
                writes=writes,
                taken=_taken(writes, [numbers[n] for n in each.get("overwrites", ())], size),
                cost=each["cost"],
                workspace=each.get("workspace_bytes", 0),
                draws=-1 if replayed is None else ops[replayed],
            )
            ways[op["name"], each["name"] if "implementations" in op else "default"] = way
            if place == 0:
                ways[op["name"], None] = way
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


def _taken(writes: Sequence[int], over: Sequence[int], size: Sequence[int]) -> tuple[int, ...]:
    taken = [-1] * len(writes)
    for value in over:
        free = (k for k, w in enumerate(writes) if taken[k] < 0 and size[w] == size[value])
        taken[next(free)] = value
    return tuple(taken)


def judge(net: Numbered, statements: Sequence[Any]) -> PlanFacts:
    """Replay a plan.

    Raises:
        Refused: it is not valid, at which statement and why.
    """
    steps = [_step(net, number, statement) for number, statement in enumerate(statements)]
    live = net.resident.copy()
    memory = sum(s for s, r in zip(net.size, net.resident, strict=True) if r)
    highest, cost, during = memory, 0, []
    for number, step in enumerate(steps):
        if isinstance(step, Way):
            for value in step.reads:
                if not live[value]:
                    op, name = net.op_names[step.op], net.value_names[value]
                    raise Refused(number, f"op {op!r} reads {name!r}, which is not live")
            running, memory = _run(net, step, live, memory)
            during.append(running)
            cost += step.cost
        else:
            if net.resident[step] or not live[step]:
                what = "is resident and stays" if net.resident[step] else "is not live"
                raise Refused(number, f"free of {net.value_names[step]!r}, which {what}")
            live[step] = False
            during.append(memory)
            memory -= net.size[step]
    for value in net.outputs:
        if not live[value]:
            name = net.value_names[value]
            raise Refused(len(steps), f"output {name!r} is not live at the end")
    ops = [step.op if isinstance(step, Way) else -1 for step in steps]
    if net.state:
        _add_states(net, steps, during)
    _check_draws(net, ops)
    computed = len(ops) - ops.count(-1)
    again = computed - len({*ops} - {-1})
    return PlanFacts(max([highest, *during]), cost, again, during, ops)


def _step(net: Numbered, number: int, statement: Any) -> Way | int:
    """What a statement names: an implementation, or the value that it frees."""
    words = statement if isinstance(statement, list) else []
    if not all(isinstance(word, str) for word in words):
        words = []
    if words[:1] == ["compute"] and len(words) in (2, 3):
        way = net.ways.get((words[1], words[2] if len(words) == 3 else None))
        if way is None:
            raise Refused(number, f"compute of {' by '.join(words[1:])!r}, which there is not")
        return way
    if words[:1] == ["free"] and len(words) == 2:
        if words[1] not in net.values:
            raise Refused(number, f"free of {words[1]!r}, which there is not")
        return net.values[words[1]]
    raise Refused(number, f"{json.dumps(statement)[:80]} is neither a compute nor a free")


def _run(net: Numbered, way: Way, live: list[bool], memory: int) -> tuple[int, int]:
    """Bytes while it runs, and after; ``live`` is brought up to date."""
    running = memory + way.workspace
    for value, taken in zip(way.writes, way.taken, strict=True):
        if taken < 0:
            running += net.size[value]
            memory += net.size[value]
        else:
            live[taken] = False
        if live[value]:  # the new copy replaces the old one
            memory -= net.size[value]
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
    for number, op in enumerate(ops):
        if op in net.random and op not in done:
            if op < last:
                name = net.op_names[op]
                raise Refused(number, f"random op {name!r} first runs out of program order")
            last = op
            done.add(op)


def main(words: Sequence[str]) -> int:
    """The command; returns its exit code."""
    if len(words) not in (2, 3) or (len(words) == 3 and not words[2].isdigit()):
        print("usage: python verify.py GRAPH PLAN [BUDGET in bytes]", file=sys.stderr)
        return 2
    try:
        net, plan = net_of(read(words[0], "graph"), words[0]), read(words[1], "plan")
        if plan.get("graph") != net.name or not isinstance(plan.get("statements"), list):
            named = f"of graph {plan.get('graph')!r}, not of {net.name!r}"
            raise BadFile(f"{words[1]}: {named}, or without statements; give another")
        budget = int(words[2]) if len(words) == 3 else plan.get("budget_bytes")
        verdict = judge(net, plan["statements"])
    except BadFile as error:
        print(f"verify.py: {error}", file=sys.stderr)
        return 2
    except Refused as error:
        print(f"verify.py: {words[1]}: {error}", file=sys.stderr)
        return 1
    print(f"peak_bytes={verdict.peak} cost={verdict.cost} recomputations={verdict.recomputations}")
    if budget is not None and verdict.peak > budget:
        over = f"the plan peaks at {verdict.peak} bytes, over its budget of {budget}"
        print(f"verify.py: {words[1]}: {over}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
