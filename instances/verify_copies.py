"""Judge a plan for two memories: ``python verify_copies.py GRAPH PLAN LINK [BUDGET]``.

For problems of ``two-memories/``, whose plans may copy values to a host and back. Standard library
alone, with ``verify.py`` beside it, which reads files and replays computes and frees.
two-memories/RULES.md says what the three further statements do; this says the same in code:

- compute, the link out and the link in do their tasks one after the other, in the plan's order;
- ``["offload", v]`` copies a live value that is no resident and has no copy on the host;
- ``["fetch", v]`` brings back a value that is on the host and not live; ``["drop", v]`` gives up
  the host's copy. On the device memory is taken and given back at the statement, whatever the time;
- whoever uses a value waits until it is there, whoever frees or replaces it until it is copied.

LINK is in bytes per cost unit, both ways; each copy takes 10000 units more. Prints the peak, the
host's peak, the cost (when compute is done and has the outputs, rounded up) and the number of
recomputations. Exit codes as those of ``verify.py``.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from operator import mul
from typing import Any, NamedTuple

import verify

COPY = 10_000
"""Cost units of each copy beside its bytes."""


class Move(NamedTuple):
    """A copy to the host, a copy back, or the end of the host's copy."""

    kind: str
    value: int


class CopyFacts(NamedTuple):
    """What a valid plan does.

    Attributes:
        makespan: cost units until compute is done and has the outputs.
    """

    peak: int
    host_peak: int
    makespan: float
    recomputations: int


class Engines:
    """When each engine is done with what it was given, and each value can be used.

    Attributes:
        compute, out, into: of the engines.
        ready, sent: when a value on the device is there, and when its last copy out is done.
        whole, fetched: when a copy on the host is there, and when its last copy back is done.
    """

    def __init__(self, values: int, link: float, latency: float) -> None:
        self.link, self.latency = link, latency
        self.compute = self.out = self.into = 0.0
        self.ready, self.sent = [0.0] * values, [0.0] * values
        self.whole, self.fetched = [0.0] * values, [0.0] * values

    def run(self, way: verify.Way, live: Sequence[bool]) -> None:
        """A compute, before ``live`` is brought up to date."""
        taken = [value for value in way.taken if value >= 0]
        waits = [self.ready[value] for value in way.reads] + [self.sent[value] for value in taken]
        end = self.compute = max([self.compute, *waits]) + way.cost
        for value in way.writes:
            if live[value] and value not in taken:  # the old copy goes, after what still copies it
                self.compute = max(self.compute, self.ready[value], self.sent[value])
            self.ready[value], self.sent[value] = end, 0.0

    def free(self, value: int) -> None:
        """Its memory is given back when no copy uses it any longer."""
        self.compute = max(self.compute, self.ready[value], self.sent[value])

    def end(self, outputs: Sequence[int]) -> float:
        """When compute is done and has the outputs."""
        return max([self.compute, *(self.ready[value] for value in outputs)])

    def move(self, kind: str, value: int, size: int) -> None:
        """An offload, a fetch or a drop."""
        time = self.latency + size / self.link
        if kind == "offload":
            self.out = max(self.out, self.ready[value]) + time
            self.whole[value] = self.sent[value] = self.out
            self.fetched[value] = 0.0
        elif kind == "fetch":
            self.into = max(self.into, self.compute, self.whole[value]) + time
            self.ready[value] = self.fetched[value] = self.into
            self.sent[value] = 0.0
        else:
            self.out = max(self.out, self.whole[value], self.fetched[value])


def judge(
    net: verify.Numbered, statements: Sequence[Any], link: float, latency: float = COPY
) -> CopyFacts:
    """Replay a plan; ``verify.Refused`` where it is not valid, at which statement and why."""
    steps = [_step(net, number, statement) for number, statement in enumerate(statements)]
    live, hosted = net.resident.copy(), [False] * len(net.size)
    residents = memory = sum(map(mul, net.size, net.resident))
    host, host_peak, during = 0, 0, list[int]()
    engines = Engines(len(net.size), link, latency)
    for number, step in enumerate(steps):
        if isinstance(step, Move):
            _check_move(net, number, step, live, hosted)
            size = net.size[step.value]
            engines.move(step.kind, step.value, size)
            hosted[step.value] = step.kind != "drop"
            host += {"offload": size, "fetch": 0, "drop": -size}[step.kind]
            host_peak = max(host_peak, host)
            memory += size if step.kind == "fetch" else 0
            live[step.value] = live[step.value] or step.kind == "fetch"
            running = memory
        else:
            if isinstance(step, verify.Way):
                engines.run(step, live)
            else:
                engines.free(step)
            running, memory = verify._run(net, number, step, live, memory)
        during.append(running)
    if gone := [net.value_names[value] for value in net.outputs if not live[value]]:
        raise verify.Refused(len(steps), f"output {gone[0]!r} is not live at the end")
    again = _add_states(net, steps, during)
    peak, makespan = max(during, default=residents), engines.end(net.outputs)
    return CopyFacts(peak, host_peak, makespan, again)


def _add_states(
    net: verify.Numbered, steps: Sequence[verify.Way | Move | int], during: list[int]
) -> int:
    """Add what repeated draws need, check their order; returns the number of recomputations."""
    ways = [step if isinstance(step, verify.Way) else -1 for step in steps]
    if net.state:
        verify._add_states(net, ways, during)
    ops = [getattr(way, "op", -1) for way in ways]
    verify._check_draws(net, ops)
    return len(ops) - ops.count(-1) - len({*ops} - {-1})


def _step(net: verify.Numbered, number: int, statement: Any) -> verify.Way | Move | int:
    match statement:
        case ["offload" | "fetch" | "drop" as kind, str(value)] if value in net.values:
            return Move(kind, net.values[value])
        case ["offload" | "fetch" | "drop", *_]:
            said = json.dumps(statement)[:80]
            raise verify.Refused(number, f"{said} names no value of the graph")
    return verify._step(net, number, statement)


def _check_move(
    net: verify.Numbered, number: int, move: Move, live: Sequence[bool], hosted: Sequence[bool]
) -> None:
    value, why = move.value, None
    if move.kind == "offload":
        if net.resident[value] or not live[value]:
            why = "resident or not live"
        elif hosted[value]:
            why = "of which the host has a copy"
    elif not hosted[value]:
        why = "of which the host has no copy"
    elif move.kind == "fetch" and live[value]:
        why = "which is live"
    if why:
        raise verify.Refused(number, f"{move.kind} of {net.value_names[value]!r}, {why}")


def _files(graph: str, path: str) -> tuple[verify.Numbered, dict[str, Any]]:
    net, plan = verify.net_of(verify.read(graph, "graph"), graph), verify._plan(path)
    if plan.get("graph") != net.name:
        named = f"of graph {plan.get('graph')!r}, not of {net.name!r}"
        raise verify.BadFile(f"{path}: {named}; give another")
    return net, plan


def main(words: Sequence[str]) -> int:
    """The command; returns its exit code."""
    numbers = words[2:]
    if len(words) not in (3, 4) or not all(word.isdigit() and int(word) for word in numbers):
        usage = "usage: python verify_copies.py GRAPH PLAN LINK [BUDGET in bytes]"
        print(usage, file=sys.stderr)
        return 2
    try:
        net, plan = _files(words[0], words[1])
        budget = int(words[3]) if len(words) == 4 else plan.get("budget_bytes")
        found = judge(net, plan["statements"], int(words[2]))
    except verify.BadFile as error:
        print(f"verify_copies.py: {error}", file=sys.stderr)
        return 2
    except verify.Refused as error:
        print(f"verify_copies.py: {words[1]}: {error}", file=sys.stderr)
        return 1
    cost = math.ceil(found.makespan - 1e-3)
    again = f"recomputations={found.recomputations}"
    print(f"peak_bytes={found.peak} host_peak_bytes={found.host_peak} cost={cost} {again}")
    if budget is not None and found.peak > budget:
        over = f"the plan peaks at {found.peak} bytes, over its budget of {budget}"
        print(f"verify_copies.py: {words[1]}: {over}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
