"""Plan to Python: one readable line per statement, with explicit ``del``.

Straight-line code is as fast as eager training, and a ``del`` really drops the last
reference, which no interpreter over dictionaries guarantees as plainly.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.kinds import ImplementationName, implementations_of
from rematbench.graphs.link import NONE, Link
from rematbench.graphs.plan import FREE, Plan, has_copies, move_of
from rematbench.graphs.simulate import check_draws, simulate
from rematbench.tracing.captured import Captured, Ref, TorchCall, call_reads, target_name
from rematbench.validator.copier import Copier
from rematbench.validator.copiers import make_copier
from rematbench.validator.copies import WAIT, CopyLine, CopyLines, CopyPlan, copy_plan, issue_order
from rematbench.validator.merged import merged_calls

_WORD = re.compile(r"\W+")


@dataclass(frozen=True)
class Program:
    """A plan as a Python function.

    Attributes:
        source: its text.
        step: ``step(residents, rng)`` returns loss, gradients and buffer updates in one tuple,
            in the order of ``results``; with copies it takes what copies, too.
        results: tensor names.
        implementations: the implementations that it runs besides the default ones, by op.
        peak_bytes: as simulated.
        device: ``cpu`` or ``cuda``.
        copies: what it needs of the host; None: nothing.
    """

    source: str
    step: Callable[..., tuple[Any, ...]]
    results: tuple[str, ...]
    implementations: tuple[ImplementationName, ...] = ()
    peak_bytes: int = 0
    device: str = "cpu"
    copies: CopyPlan | None = None

    @cached_property
    def copier(self) -> Copier | None:
        """What copies to the host and back; None: the plan copies nothing.

        Raises:
            ExecutionError: the host has too little memory.
        """
        return None if self.copies is None else make_copier(self.copies, self.device)

    def run(self, residents: Any, rng: Any) -> tuple[Any, ...]:
        """One step, with its copies.

        Raises:
            ExecutionError: what copies has failed.
        """
        if self.copier is None:
            return self.step(residents, rng)
        with self.copier as host:
            return self.step(residents, rng, host)


def generate(captured: Captured, plan: Plan, link: Link = NONE, paced: bool = True) -> Program:
    """Compile ``plan`` to a function over the captured ops.

    Args:
        link: to the host.
        paced: on a CPU copies are slowed to it, where costs are in seconds.

    Raises:
        InvalidPlan: as for :func:`rematbench.graphs.simulate.simulate`; a value that was
            overwritten in place, say, is read again; a random op is first computed out of
            program order.
    """
    graph, trace = captured.graph, simulate(captured.graph, plan, link)
    check_draws(graph, plan)
    writer = Writer(captured)
    codes, copies = issued(graph, plan, link, paced)
    lines = [*writer.prologue(), *chain.from_iterable(writer.statements(codes))]
    results = (captured.loss, *captured.gradients.values(), *captured.updates.values())
    names = [resident.tensor for resident in captured.residents]
    source = "\n    ".join(
        [
            f"def step(residents, rng{'' if copies is None else ', host'}):",
            f"({', '.join(names)},) = residents",
            *(line.text for line in lines),
            f"return ({', '.join(results)},)",
        ]
    )
    scope = dict(writer.scope)
    exec(compile(source, f"<plan of {captured.graph.name}>", "exec"), scope)
    run = (scope["step"], results, implementations_of(graph, plan))
    return Program(source, *run, trace.peak_bytes, captured.device, copies)


def issued(
    graph: Graph, plan: Plan, link: Link, paced: bool = True
) -> tuple[IntArray, CopyPlan | None]:
    """A plan's statements in the order in which a program issues them, and its copies.

    Args:
        paced: on a CPU copies are slowed to the link, where costs are in seconds.
    """
    codes = plan.codes(graph)
    if not has_copies(graph, codes):
        return codes, None
    order = issue_order(graph, codes.tolist(), link.shared)
    copies = copy_plan(graph, order, link)
    return np.array(order), copies if paced else replace(copies, pace=None)


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of a program.

    Attributes:
        makes, reads: tensors, by name.
        releases: tensors that it lets go.
        records, replays: the random op whose generator state it keeps, or goes back to.
        waits: it waits for a copy to the host, or back.
    """

    text: str
    makes: tuple[str, ...] = ()
    reads: frozenset[str] = frozenset()
    releases: tuple[str, ...] = ()
    records: int | None = None
    replays: int | None = None
    waits: bool = False


def release(names: Iterable[str]) -> CodeLine:
    """A line that lets tensors go."""
    gone = tuple(names)
    return CodeLine(f"del {', '.join(gone)}", releases=gone)


def _lines(copies: Iterable[CopyLine]) -> list[CodeLine]:
    return [
        CodeLine(line.text, line.makes, line.reads, waits=line.text.startswith(WAIT))
        for line in copies
    ]


class Writer:
    """Writes a captured step's ops as Python; ``scope`` holds what the lines name."""

    def __init__(self, captured: Captured) -> None:
        self.captured = captured
        self.scope: dict[str, Any] = {}
        self.constants: dict[int, str] = {}
        # The tensor names (root and views) that hold each value's storage.
        self.names: dict[str, list[str]] = defaultdict(list)
        for implementations in captured.code.values():
            for call in next(iter(implementations.values())):
                for out in call.outs:
                    if out is not None:
                        self.names[captured.value_of[out]].append(out)

    def prologue(self) -> list[CodeLine]:
        """The lines that make views of residents."""
        return [self._call(call) for call in self.captured.prologue]

    def statements(self, codes: np.ndarray[Any, Any]) -> list[list[CodeLine]]:
        """The lines of each statement of a plan."""
        graph, tables = self.captured.graph, self.captured.graph.tables
        copies = CopyLines(graph, self.names)
        recorded = self._recorded(codes)
        merged = merged_calls(self.captured, codes.tolist())
        unrecorded = set(recorded)
        found: list[list[CodeLine]] = []
        for position, code in enumerate(codes.tolist()):
            if code < 0:
                found.append(self._moved(copies, *move_of(code, len(graph.values))))
                continue
            number = int(tables.op_of[code])
            op = graph.ops[number]
            chosen = op.implementations[code - int(tables.op_first[number])]
            root, *views = self.captured.code[op.name][chosen.name]
            calls = [self._call(call) for call in (merged.get(position, root), *views)]
            if position - 1 in merged:
                del calls[0]
            replayed = self._replayed(op.name, chosen.name)
            if number in unrecorded:
                unrecorded.remove(number)
                calls.insert(0, CodeLine(f"rng.record({number})", records=number))
            elif number in recorded or replayed is not None:
                source = number if replayed is None else replayed
                replay = CodeLine(f"rng.replay({source})", replays=source)
                calls = [replay, *calls, CodeLine("rng.resume()")]
            calls += [release(self.names[name]) for name in chosen.overwrites]
            before, after = _lines(copies.before(code)), _lines(copies.after(code))
            found.append([*before, *calls, *after])
        found.append(_lines(copies.end()))
        return found

    def _moved(self, copies: CopyLines, kind: int, v: int) -> list[CodeLine]:
        if kind == FREE:
            name = self.captured.graph.values[v].name
            return [*_lines(copies.before_free(v)), release(self.names[name])]
        return _lines([copies.move(kind, v)])

    def _recorded(self, codes: np.ndarray[Any, Any]) -> set[int]:
        """The random ops that run more than once, or whose draws another op repeats."""
        graph, tables = self.captured.graph, self.captured.graph.tables
        computes = codes[codes >= 0]
        ops, counts = np.unique(tables.op_of[computes], return_counts=True)
        found = {number for number in ops[counts > 1].tolist() if graph.ops[number].random}
        for code in set(computes.tolist()):
            number = int(tables.op_of[code])
            implementation = graph.ops[number].implementations[code - int(tables.op_first[number])]
            source = self._replayed(graph.ops[number].name, implementation.name)
            found |= set() if source is None else {source}
        return found

    def _replayed(self, op: str, implementation: str) -> int | None:
        """The random op whose draws an implementation repeats."""
        traits = self.captured.traits.get((op, implementation))
        if traits is None or traits.replays is None:
            return None
        return self.captured.graph.op_index[traits.replays]

    def _call(self, call: TorchCall) -> CodeLine:
        target = self._target(call.target)
        arguments = [self._literal(a) for a in call.args]
        arguments += [f"{key}={self._literal(a)}" for key, a in call.kwargs.items()]
        outs = ", ".join(out or "_" for out in call.outs)
        comma = "," if call.unpack and len(call.outs) == 1 else ""
        text = f"{outs}{comma} = {target}({', '.join(arguments)})"
        return CodeLine(text, tuple(filter(None, call.outs)), frozenset(call_reads(call)))

    def _target(self, target: Callable[..., Any]) -> str:
        name = _WORD.sub("_", target_name(target)).strip("_")
        name = name if self.scope.get(name, target) is target else f"{name}_{len(self.scope)}"
        self.scope[name] = target
        return name

    def _literal(self, argument: Any) -> str:
        if isinstance(argument, Ref):
            return argument.name
        if isinstance(argument, (bool, int, str, type(None))):
            return repr(argument)
        if isinstance(argument, float) and math.isfinite(argument):
            return repr(argument)
        if isinstance(argument, list):
            return f"[{', '.join(map(self._literal, argument))}]"
        if isinstance(argument, tuple):
            return f"({' '.join(self._literal(a) + ',' for a in argument)})"
        name = self.constants.setdefault(id(argument), f"constant_{len(self.constants)}")
        self.scope[name] = argument
        return name
