"""What a step holds outside of its compiled graphs, measured in its second time.

Uncompiled code between the graphs holds memory, too: an embedding, what autograd saves of a loss,
the optimizer's temporaries. What is counted while the step runs, less what its graphs hold as
simulated, is *outside*. The count ends where the next step begins, so that what the caller does in
between (optimizer step, the next batch) is a part of it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from rematbench.costmodel.levels import LevelMeter, Levels
from rematbench.graphs.ir import Graph
from rematbench.graphs.link import Link
from rematbench.graphs.plan import Plan
from rematbench.graphs.simulate import simulate
from rematbench.training.compiled.gathered import Gathered, Watched

ANY = Link(1.0, 1.0)
"""Bytes are the same by any link."""
GRAIN = 1024
"""Bytes that counts are rounded up to, so that a scalar more is no other step."""
_optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
"""Those that have made a step."""
register_optimizer_step_post_hook(lambda optimizer, *_: _optimizers.add(optimizer))


@dataclass(frozen=True)
class Outside:
    """Bytes outside of the graphs of a step of n halves.

    Attributes:
        held: while each half runs.
        between: the most before each half and, the last, from the last half to the end of the
            optimizer's step; less than held: nothing more.
        gathered: of what is held, parameters of the graphs that are not there all the time.
        beyond: what each half took itself, above its plan.
    """

    held: tuple[int, ...]
    between: tuple[int, ...]
    gathered: tuple[int, ...] = ()
    beyond: tuple[int, ...] = ()

    @property
    def stays(self) -> int:
        """Bytes that are held all the time."""
        return int(np.subtract(self.held, self.gathered or 0).min())

    def most(self, other: Outside) -> Outside:
        """The larger number of each two, of the same step on two ranks."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Outside(*(_larger(one, two) for one, two in pairs))

    @property
    def most_beyond(self) -> int:
        """The most that a half took above its plan."""
        return max(self.beyond, default=0)

    @property
    def beside(self) -> int:
        """The most bytes while a half runs, or between the first and the last."""
        return max(*self.held, *self.between[1:-1])

    @property
    def always(self) -> int:
        """Bytes that are held all the time."""
        return min(self.held)

    def stretches(self) -> list[tuple[int, int, int]]:
        """(bytes, first gap, last gap) of values that add up to what else is held."""
        found, open_ = list[tuple[int, int, int]](), list[tuple[int, int]]()
        height = self.always
        for place, level in enumerate((*self.held, height)):
            while height > level:
                size, first = open_.pop()
                gone = min(size, height - level)
                found.append((gone, first, place))
                if size > gone:
                    open_.append((size - gone, first))
                height -= gone
            if level > height:
                open_.append((level - height, place))
                height = level
        return found

    def workspace(self, place: int) -> int:
        """Bytes in a gap above what is held before and after it."""
        around = (*self.held[max(0, place - 1) : place], *self.held[place : place + 1])
        return max(0, self.between[place] - max(around, default=0))


class StepMeter:
    """Counts live bytes from the beginning of a step to that of the next.

    On the CPU the count does not see what was there before, nor that it goes. Optimizers are looked
    at: their state, and parameters that are not the graphs'. What is new at the end (the batch,
    what precedes the first graph) was there at the beginning, too, and goes when the graphs are
    done; only gradients are looked at one by one.

    Args:
        device: of the graphs.
        trained: parameters of the graphs.
        gathered: looks at their parameters.
        passing: those of their storages that are freed on the way.

    Attributes:
        peak_bytes: the most that was live, graphs and what is outside; None before :meth:`outside`.
        ending_bytes: of that, from the last half to the end of the optimizer's step.
    """

    peak_bytes: int | None = None
    ending_bytes = 0
    _turn, _ended = 0, -2

    def __init__(
        self,
        device: str,
        trained: Iterable[nn.Parameter],
        gathered: Gathered,
        passing: frozenset[int],
    ) -> None:
        trained, self._gathered = list(trained), gathered
        self._trained = {id(each) for each in trained}
        self._own = Watched(trained).sizes
        self._stays: dict[int, int] = {}
        self._seen: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        owners = [each for each in _optimizers if self._trains(each)]
        for each in owners:
            self._looks_at(each)
        self._before = _gradients([*trained, *(p for each in owners for p in _parameters(each))])
        self._halves, self._old = [False], [self._alive()]
        self._levels: Levels | None = None
        self._meter: LevelMeter | None = LevelMeter(device)
        if device == "cpu" and passing:
            gathered.come_again(passing)
            self.mark(half=False)
        self._start = len(self._halves) - 1
        self._done = 0  # the mark after which evaluation may come, which is none of the step
        self._hooks = [
            register_optimizer_step_pre_hook(lambda optimizer, *_: self._steps(optimizer, True)),
            register_optimizer_step_post_hook(lambda optimizer, *_: self._steps(optimizer)),
        ]

    @classmethod
    def begins(cls) -> None:
        """A step begins, whether it is counted or not."""
        cls._turn += 1

    @classmethod
    def can_start(cls, device: str) -> bool:
        """Is nobody counting, and no backward pass under way, which would end the count?"""
        return not (in_backward() or cls.must_wait(device)) and LevelMeter.can_start(device)

    @classmethod
    def must_wait(cls, device: str) -> bool:
        """Has a count ended just now?

        What PyTorch's profiler has seen begin writes when it ends, if a profiler runs then, to
        where the first one was: a step goes by before the next one.
        """
        return device == "cpu" and cls._turn - cls._ended < 2

    def mark(self, half: bool = True) -> None:
        """A half begins, or has ended; or something else does."""
        if self._meter is not None:
            self._meter.mark()
            self._halves.append(half)
            self._old.append(self._alive())

    def _steps(self, optimizer: Optimizer, begins: bool = False) -> None:
        """An optimizer's step begins, or has ended."""
        if self._trains(optimizer):
            if begins and optimizer not in self._seen:  # what it has by now, it had before
                self._looks_at(optimizer)
            self.mark(half=False)
            self._done = len(self._halves) - 1

    def _trains(self, optimizer: Optimizer) -> bool:
        own = any(id(each) in self._trained for each in _parameters(optimizer))
        return own or self._gathered.trained_by(optimizer)

    def _looks_at(self, optimizer: Optimizer) -> None:
        """Note what it has, and the graphs have not."""
        self._seen.add(optimizer)
        states = (t for each in optimizer.state.values() for t in each.values())
        found = Watched([*_parameters(optimizer), *(t for t in states if isinstance(t, Tensor))])
        self._stays |= {key: size for key, size in found.sizes.items() if key not in self._own}

    def stop(self) -> None:
        """The next step begins."""
        if self._meter is not None and not in_backward():
            self.mark(half=False)
            meter, self._meter = self._meter, None
            self._levels = meter.stop()
            StepMeter._ended = StepMeter._turn
            for hook in self._hooks:
                hook.remove()

    def outside(
        self, graph: Graph, plan: Plan, gaps: Sequence[int], beside: Sequence[int]
    ) -> Outside | None:
        """What was held outside; None: the count failed.

        Args:
            graph, plan: the step as one graph, and as it ran.
            gaps: the ops that stand for what the caller does: before each half, and at the end.
            beside: bytes that halves had handed over then, besides values of the graph.
        """
        levels, marks = self._levels, [i for i, half in enumerate(self._halves) if half]
        if levels is None or (len(levels.at), len(marks)) != (len(self._halves), 2 * len(gaps) - 2):
            return None
        inside = _Inside(graph, plan, dict(zip(gaps, beside, strict=True)), levels.absolute)
        begins = [*marks[::2], max(self._done, marks[-1])]
        ends = [self._start, *marks[1::2]]
        unseen = [self._unseen(levels, mark) for mark in range(len(levels.at))]
        at = np.add(levels.at, unseen)
        until = np.add(levels.until, unseen[:-1])
        self.ending_bytes = int(until[ends[-1] : begins[-1]].max(initial=0)) + inside.known
        before = int(until[self._start : ends[-1]].max(initial=0)) + inside.known
        self.peak_bytes = max(before, self.ending_bytes)
        held = [at[i] - inside.after(op) for i, op in zip(marks[::2], gaps, strict=False)]
        halves = zip(marks[::2], marks[1::2], gaps, held, strict=False)
        return Outside(
            tuple(map(_rounded, held)),
            tuple(
                _rounded(until[end:begin].max(initial=0) - inside.within(op))
                for end, begin, op in zip(ends, begins, gaps, strict=True)
            ),
            self._gathered.held,
            tuple(
                _rounded(until[begin:end].max(initial=0) - inside.behind(op) - size)
                for begin, end, op, size in halves
            ),
        )

    def _alive(self) -> int:
        """Bytes of the gradients that were there at the beginning, and still are."""
        return sum(size for weak, size in self._before.values() if not weak.expired())

    def _unseen(self, levels: Levels, mark: int) -> int:
        """Bytes of shards, and of what was there at the beginning and is gone by the end."""
        if levels.absolute:
            return 0
        last = max(i for i, half in enumerate(self._halves) if half)
        new = levels.at[-1] - levels.at[self._start] - self._old[0]
        ends = 0 if mark > last else max(0, new)
        return sum(self._stays.values()) + self._old[mark] + ends


class _Inside:
    """Bytes that the graphs of a step hold, as simulated.

    Args:
        gaps: the ops that stand for what the caller does; bytes beside the graph's values then.
        absolute: residents included.

    Attributes:
        known: bytes of residents that are not included.
    """

    def __init__(self, graph: Graph, plan: Plan, gaps: dict[int, int], absolute: bool) -> None:
        self._gaps = gaps
        self._trace = simulate(graph, plan, ANY)
        self.known: int = 0 if absolute else graph.resident_bytes
        self._computes = np.flatnonzero(self._trace.codes >= 0)
        self._ops = graph.tables.op_of[self._trace.codes[self._computes]].tolist()

    def within(self, op: int) -> int:
        """While an op runs."""
        at = self._computes[self._ops.index(op)]
        return int(self._trace.bytes_during[at]) + self._gaps[op] - self.known

    def after(self, op: int) -> int:
        """Before the op after it begins."""
        at = self._computes[self._ops.index(op) + 1] - 1
        return int(self._trace.bytes_after[at]) + self._gaps[op] - self.known

    def behind(self, op: int) -> int:
        """The most while the ops of the half after a gap run."""
        place = self._ops.index(op)
        end = next(i for i in range(place + 1, len(self._ops)) if self._ops[i] in self._gaps)
        stretch = self._computes[[place + 1, end]]
        beside = max(self._gaps[op], self._gaps[self._ops[end]])
        most = int(self._trace.bytes_during[stretch[0] : stretch[1]].max(initial=0))
        return most + beside - self.known


def _larger(one: tuple[int, ...], two: tuple[int, ...]) -> tuple[int, ...]:
    """The larger number of each two; of none where there are none."""
    return tuple(np.maximum(one or 0, two or 0).tolist()) if one or two else ()


def _gradients(parameters: Iterable[nn.Parameter]) -> dict[int, tuple[StorageWeakRef, int]]:
    """Signs of life and bytes of the gradients that are there, by address."""
    found = (each.grad.untyped_storage() for each in parameters if each.grad is not None)
    return {grad.data_ptr(): (StorageWeakRef(grad), grad.nbytes()) for grad in found}


def _parameters(optimizer: Optimizer) -> list[nn.Parameter]:
    return [each for group in optimizer.param_groups for each in group["params"]]


def in_backward() -> bool:
    """Does autograd's engine run, in this thread?"""
    return bool(torch._C._current_graph_task_id() != -1)


def _rounded(size: int) -> int:
    return max(0, -(-int(size) // GRAIN) * GRAIN)
