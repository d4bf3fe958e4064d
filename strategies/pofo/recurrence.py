"""POFO's recurrence over a chain, by the states that it can come to.

A state stands before the forward pass of stage l: its input is on the device (the output of the
stage before, or all that this one saved), K bytes are kept for the backward pass, F bytes are given
to the link out and not yet gone, and B bytes must be back before the backward pass of l ends. The
time to come depends on the state alone, so that a state is followed once, by its least time.

One state makes another needless if it keeps no more and, its bytes that are yet to be moved beyond
the other's included, is no later: it can wait for them, as the recurrence does where it must.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from rematbench.base.clock import planning_seconds
from rematbench.base.kernels import kernel
from rematbench.engines.chain.chain import Chain, FloatArray
from rematbench.engines.chain.table import Table
from rematbench.graphs.ir import IntArray
from rematbench.graphs.link import Link

TIME, KEPT, OUT, IN = range(4)
"""Columns of states: time so far, K, F and B."""
FROM, STAGE, WHOLE, GOES = range(4)
"""Columns of where a state is from: row, stage and kind of the one before, and did its input go?"""
Place = tuple[int, bool]
"""A stage, and whether its input is all that the stage before saved."""


class ChainStep(NamedTuple):
    """What a schedule does from one stage on.

    Attributes:
        first, last: stages; equal where the stage is kept.
        kept: does all stay that backward reads of it? Else only the input of ``first`` does, and
            the backward pass over both is the chain table's.
        whole: is the input all that the stage before saved?
        goes: does the input go to the host?
        room: bytes that the table's schedule may use.
    """

    first: int
    last: int
    kept: bool
    whole: bool
    goes: bool
    room: int


class Claim(NamedTuple):
    """A schedule, and the time that the recurrence claims for it."""

    time: float
    steps: tuple[ChainStep, ...]


class _Before(NamedTuple):
    """States before one stage, by rows, and where each is from."""

    rows: FloatArray
    origin: IntArray


@dataclass
class StateProgram:
    """The recurrence of one chain.

    Args:
        table: of the chain (the last stage is the loss), in units of ``unit`` bytes.
        chain: its stages in bytes.
        link: bytes per cost unit; its latency is not looked at.
        most: states of a stage that are followed, those of the least time and bytes to move.
        deadline: when to give up, by :func:`~rematbench.base.clock.planning_seconds`.

    Attributes:
        cut: were there more?
    """

    table: Table
    chain: Chain
    unit: int
    link: Link
    most: int
    deadline: float = inf
    cut: bool = False

    def best(self, free: int) -> Claim | None:
        """The schedule of the least time with ``free`` bytes for the chain; None: none, or late."""
        loss = len(self.chain) - 1
        found: dict[Place, list[_Before]] = defaultdict(list)
        found[0, False].append(_Before(np.zeros((1, 4)), np.zeros((1, 4), dtype=np.int64)))
        known: dict[Place, _Before] = {}
        for at in ((stage, whole) for stage in range(loss + 1) for whole in (False, True)):
            if planning_seconds() > self.deadline:
                return None
            if not found[at]:
                continue
            known[at] = states = self._followed(found.pop(at), free - self._least(at[0]))
            steps = [(last, False) for last in range(at[0], loss)]
            for last, kept in [(at[0], True), *steps] if steps else ():
                found[last + 1, kept] += self._after(at, last, kept, states.rows, free)
        return self._ended(known, free)

    def _input(self, stage: int, whole: bool) -> int:
        if stage == 0:
            return self.chain.input_bytes
        return int((self.chain.kept if whole else self.chain.output)[stage - 1])

    def _least(self, stage: int) -> int:
        """Bytes that no schedule does without from a stage on, beside what is kept."""
        chain = self.chain
        alone = np.maximum(chain.gradient + chain.base_peak, chain.back_peak)
        kept = np.maximum(chain.kept_peak, chain.back_peak)
        return int(np.minimum(alone, kept)[stage:].max())

    def _followed(self, found: list[_Before], most: int) -> _Before:
        """All but what keeps too much, and what another state makes needless."""
        rows, origin = (np.concatenate(parts) for parts in zip(*found, strict=True))
        rows, origin = rows[rows[:, KEPT] <= most], origin[rows[:, KEPT] <= most]
        out, into = 1 / self.link.out, 1 / self.link.into
        order = np.lexsort((rows[:, KEPT], rows[:, TIME] + rows[:, OUT] * out + rows[:, IN] * into))
        chosen, more = _needed(rows[order], out, into, self.most)
        self.cut = self.cut or bool(more)
        return _Before(rows[order][chosen], origin[order][chosen])

    def _after(
        self, at: Place, last: int, kept: bool, rows: FloatArray, free: int
    ) -> list[_Before]:
        """What one step makes of states: their input stays, or goes."""
        (stage, _), size = at, self._input(*at)
        if kept:
            spent, sent, fetched = self._keeping(stage, size, rows, free)
        else:
            spent, sent, fetched = self._cutting(stage, last, size, rows, free)
        fits = np.flatnonzero(np.isfinite(spent))
        found: list[_Before] = []
        for goes in (False, True) if stage and size else (False,):
            new = rows[fits]
            new[:, TIME] += spent[fits]
            new[:, OUT] = np.maximum(0.0, new[:, OUT] + size * goes - sent[fits])
            new[:, IN] = np.maximum(0.0, new[:, IN] - fetched[fits]) + size * goes
            new[:, KEPT] += 0 if goes else size
            origin = np.stack([fits, *(np.full(len(fits), n) for n in (*at, goes))], axis=1)
            found.append(_Before(new, origin))
        return found if len(fits) else []

    def _keeping(
        self, stage: int, size: int, rows: FloatArray, free: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Time of a stage that is kept, forward and back, and bytes that move meanwhile."""
        chain, (out, into) = self.chain, (self.link.out, self.link.into)
        room = free - rows[:, KEPT] - size
        forward, back = int(chain.kept_peak[stage]), int(chain.back_peak[stage])
        idle_out = np.maximum(0.0, forward - room + rows[:, OUT])
        idle_in = np.maximum(0.0, back - room + rows[:, IN])
        ahead, behind = float(chain.kept_time[stage]), float(chain.back_time[stage])
        spent = ahead + behind + idle_out / out + idle_in / into
        spent = np.where(room >= max(forward, back), spent, np.inf)
        return spent, ahead * out + idle_out, behind * into + idle_in

    def _cutting(
        self, stage: int, last: int, size: int, rows: FloatArray, free: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The same for stages of which only the first one's input stays."""
        chain, (out, into) = self.chain, (self.link.out, self.link.into)
        room = free - rows[:, KEPT] - size
        times = chain.plain_time[stage : last + 1]
        needs = np.append(chain.plain_peak[stage], chain.moved_peak[stage + 1 : last + 1])
        sent_before = out * (np.cumsum(times) - times)
        idle = np.maximum(0.0, float((needs - sent_before).max()) - room + rows[:, OUT])
        back, copied = self._back(stage, last, room), rows[:, IN] / into
        back = (np.maximum(back, copied) + back + copied) / 2  # neither all hidden, nor nothing
        forward = float(times.sum())
        spent = np.where(room >= needs.max(), forward + idle / out + back, np.inf)
        fetched = np.where(np.isfinite(back), back, 0.0) * into
        return spent, forward * out + idle, fetched

    def _back(self, stage: int, last: int, room: FloatArray) -> FloatArray:
        """Time to go back over stages, by the chain table; infinite without room for it."""
        stairs, segment = self.table.stairs, stage * len(self.chain) + last
        part = slice(int(stairs.start[segment]), int(stairs.stop[segment]))
        at = np.searchsorted(stairs.memory[part], room // self.unit, side="right")
        return np.append(np.inf, stairs.time[part])[at]

    def _ended(self, known: dict[Place, _Before], free: int) -> Claim | None:
        """The best state before the loss, and the steps that lead to it."""
        chain, loss = self.chain, len(self.chain) - 1
        best, at = np.inf, (loss, False, 0)
        for whole in (False, True):
            if (loss, whole) in known:
                rows = known[loss, whole].rows
                room = free - rows[:, KEPT] - self._input(loss, whole)
                pending = rows[:, OUT] / self.link.out + rows[:, IN] / self.link.into
                total = rows[:, TIME] + pending + float(chain.back_time[loss])
                total[room < chain.back_peak[loss]] = np.inf
                if total.size and total.min() < best:
                    best, at = float(total.min()), (loss, whole, int(total.argmin()))
        return Claim(best, tuple(self._steps(known, at, free))) if best < np.inf else None

    def _steps(
        self, known: dict[Place, _Before], at: tuple[int, bool, int], free: int
    ) -> list[ChainStep]:
        after, kept, row = at
        steps: list[ChainStep] = []
        while after:
            row, first, number, goes = known[after, kept].origin[row].tolist()
            whole = bool(number)
            room = free - int(known[first, whole].rows[row, KEPT]) - self._input(first, whole)
            steps.append(ChainStep(first, after - 1, kept, whole, bool(goes), room // self.unit))
            after, kept = first, whole
        return steps[::-1]


@kernel
def _needed(rows: FloatArray, out: float, into: float, most: int) -> tuple[IntArray, bool]:
    """States, the best first, that none before them makes needless; were there more than that?"""
    kept, count = np.empty(most, dtype=np.int64), 0
    for i in range(rows.shape[0]):
        needless = False
        for j in range(count):
            k = kept[j]
            if rows[k, 1] <= rows[i, 1]:
                late = max(0.0, rows[k, 2] - rows[i, 2]) * out
                late += max(0.0, rows[k, 3] - rows[i, 3]) * into
                if rows[k, 0] + late <= rows[i, 0]:
                    needless = True
                    break
        if not needless:
            if count == most:
                return kept[:count], True
            kept[count] = i
            count += 1
    return kept[:count], False
