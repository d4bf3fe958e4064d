"""A plan of a compiled module as two functions: its forward pass and its backward pass.

The plan's statements up to the border (:data:`rematbench.tracing.halves.BORDER`) are the forward
function, the rest is the backward function. What the second reads of the first is handed over:
tensors, copies of inputs that change in between, and the states of the random generator from which
draws are repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from rematbench.base.errors import PlanError
from rematbench.graphs.link import NONE, Link
from rematbench.graphs.plan import Plan
from rematbench.graphs.simulate import Trace, simulate
from rematbench.tracing.captured import Ref
from rematbench.tracing.halves import BORDER, Halves, tensors_among
from rematbench.validator.call_copies import CallCopies
from rematbench.validator.codegen import CodeLine, Writer, issued, release
from rematbench.validator.execute import RandomReplay


@dataclass(frozen=True)
class TwoPrograms:
    """A plan as two Python functions.

    Attributes:
        source: their text.
        forward: ``forward(primals)`` returns results, then what is handed over: tensors, copies
            of changed inputs, random states; with copies it takes what copies, too.
        backward: ``backward(given)`` takes the list of what was handed over, then the tangents,
            empties it, and returns the gradients; with copies as ``forward``.
        saved: the tensors handed over.
        copied: the changed inputs among the primals whose copies are handed over.
        states: the random ops whose generator states are handed over, by number.
        trace: the plan as simulated.
        split: the statement at which the border is.
        copies: of its calls to the host; None: there are none.
    """

    source: str
    forward: Callable[..., tuple[Any, ...]]
    backward: Callable[..., tuple[Any, ...]]
    saved: tuple[str, ...]
    copied: tuple[str, ...]
    states: tuple[int, ...]
    trace: Trace
    split: int
    copies: CallCopies | None = None


def border_of(halves: Halves, plan: Plan) -> int:
    """The position of the border among a plan's statements.

    Raises:
        PlanError: the plan computes it more than once.
    """
    codes, code = plan.codes(halves.captured.graph).tolist(), _border(halves)
    found = [i for i, each in enumerate(codes) if each == code]
    if len(found) != 1:
        raise PlanError(f"the plan goes from forward to backward {len(found)} times, not once")
    return found[0]


def generate_halves(
    halves: Halves, plan: Plan, link: Link = NONE, paced: bool = True, host: int | None = None
) -> TwoPrograms:
    """Compile ``plan`` to two functions.

    Args:
        link: to the host.
        paced: on a CPU copies are slowed to it, where costs are in seconds.
        host: bytes there for all calls that are pending at once; None: no limit.

    Raises:
        InvalidPlan, ExecutionError: as :func:`rematbench.validator.codegen.generate` does.
        PlanError: the plan computes the border more than once.
    """
    captured = halves.captured
    trace, split = simulate(captured.graph, plan, link), border_of(halves, plan)
    writer = Writer(captured)
    codes, copies = issued(captured.graph, plan, link, paced)
    statements, at = writer.statements(codes), codes.tolist().index(_border(halves))
    prologue = writer.prologue()
    first = [*prologue, *chain.from_iterable(statements[:at])]
    first += [line for line in statements[at] if line.waits]
    # Of the border only views of the tangents are ours to make.
    views = [line for line in statements[at] if line.reads and line.makes != halves.tangents]
    second = [*prologue, *views, *chain.from_iterable(statements[at + 1 :])]
    text = _Halving(halves, first, second, len(prologue), "" if copies is None else ", host")
    scope = {
        **writer.scope,
        **{n: t.to(captured.device) for n, t in captured.constants.items()},
        "make_rng": RandomReplay,
        "device": captured.device,
    }
    source = text.source()
    exec(compile(source, f"<plan of {captured.graph.name}>", "exec"), scope)
    return TwoPrograms(
        source,
        scope["forward"],
        scope["backward"],
        tuple(text.saved),
        tuple(text.copied),
        tuple(text.states),
        trace,
        split,
        None if copies is None else CallCopies(copies, captured.device, host),
    )


def _border(halves: Halves) -> int:
    """The code of the border."""
    graph = halves.captured.graph
    return int(graph.tables.op_first[graph.op_index[BORDER]])


class _Halving:
    """Decides what is handed over, and writes both functions."""

    def __init__(
        self,
        halves: Halves,
        first: list[CodeLine],
        second: list[CodeLine],
        views: int,
        host: str,
    ) -> None:
        self.halves, self.host = halves, host
        self.first = first
        ends = tensors_among(halves.gradients)
        wanted = _wanted(second, views, ends)
        there = {*halves.tangents, *halves.captured.constants}
        reads = [n for n in _outside(wanted, ends) if n not in there]
        self.copied = [n for n in reads if n in halves.changed]
        self.saved = [n for n in reads if n not in halves.changed]
        self.second = list(_tidied(wanted, {*reads, *halves.tangents}, ends))
        replayed = {line.replays for line in second}
        self.states = [n for n in _recorded(first) if n in replayed]
        self.second_rng = bool(replayed.union(_recorded(second)) - {None})

    def source(self) -> str:
        halves = self.halves
        copies = {n: f"old_{n}" for n in self.copied}
        first = [
            f"({_listed(halves.primals)}) = primals",
            *["rng = make_rng(device)"] * bool(_recorded(self.first)),
            *(line.text for line in self.first),
            *[f"{copy} = {name}.clone()" for name, copy in copies.items()],
            *[f"{name}.copy_({new})" for name, new in halves.written],
        ]
        ends = [
            *map(_written, halves.results),
            *self.saved,
            *copies.values(),
            *(f"rng.state({n})" for n in self.states),
        ]
        first.append(f"return ({_listed(ends)})")
        states = [f"state_{n}" for n in self.states]
        second = [
            f"({_listed([*self.saved, *self.copied, *states, *halves.tangents])}) = given",
            "given.clear()",
            *["rng = make_rng(device)"] * self.second_rng,
            *(f"rng.restore({n}, state_{n})" for n in self.states),
            *(line.text for line in self.second),
            f"return ({_listed(map(_written, halves.gradients))})",
        ]
        heads = f"def forward(primals{self.host}):", f"def backward(given{self.host}):"
        parts = [[heads[0], *first], [heads[1], *second]]
        return "\n\n\n".join("\n    ".join(part) for part in parts)


def _wanted(lines: list[CodeLine], views: int, ends: Iterable[str]) -> list[CodeLine]:
    """The backward lines without those of the first ``views`` that nobody reads."""
    later, kept = {*ends}, []
    for position in range(len(lines) - 1, -1, -1):
        line = lines[position]
        if position < views and later.isdisjoint(line.makes):
            continue
        later = later.difference(line.makes) | line.reads
        kept.append(line)
    return kept[::-1]


def _outside(lines: list[CodeLine], ends: Iterable[str]) -> list[str]:
    """The tensors that lines read, or leave, and do not make."""
    made, found = set[str](), dict[str, None]()
    for line in lines:
        found.update(dict.fromkeys(sorted(line.reads - made)))
        made.update(line.makes)
    found.update(dict.fromkeys(n for n in ends if n not in made))
    return list(found)


def _tidied(lines: list[CodeLine], there: set[str], ends: Iterable[str]) -> Iterator[CodeLine]:
    """The lines, which release only what is there, and what the caller held when it was captured.

    He may have let go of it by now.
    """
    over = _last_read(lines, there, ends)
    for place, line in enumerate(lines):
        names = [n for n in line.releases if n in there] + over.get(place, [])
        if not line.releases:
            there.update(line.makes)
            yield line
        there.difference_update(names)
        if names:
            yield release(names)


def _last_read(lines: list[CodeLine], there: set[str], ends: Iterable[str]) -> dict[int, list[str]]:
    """By line: what is there, is read for the last time, and is released by none."""
    last = {name: place for place, line in enumerate(lines) for name in line.reads}
    stays = {*ends, *(name for line in lines for name in line.releases)}
    found: dict[int, list[str]] = {}
    for name in sorted(there & last.keys() - stays):
        found.setdefault(last[name], []).append(name)
    return found


def _recorded(lines: list[CodeLine]) -> list[int]:
    return [line.records for line in lines if line.records is not None]


def _listed(names: Any) -> str:
    return "".join(f"{name}, " for name in names)


def _written(end: Any) -> str:
    return end.name if isinstance(end, Ref) else repr(end)
