"""The chain program with several options per stage (section 4.1 of the paper, after rotor).

C(s, t, m) is the least time to turn the gradient after stage t into the one before stage s, with
the input of s at hand and m bytes for all else, as in
:mod:`rematbench.strategies.chain_dp.table`; what keeps a stage is one of its options.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rematbench.graphs.ir import IntArray
from rematbench.graphs.kernels import kernel
from rematbench.strategies.chain_dp.chain import Chain, FloatArray
from rematbench.strategies.chain_dp.staircases import SAME, at, grown, lower_of, push, sum_of
from rematbench.strategies.rockmate.options import Option

Operation = Literal["forward", "plain", "base", "alone", "back"]
"""Forward by an option; keeping the output only; all of a stage at once (keeping what backward
reads, or by an option); back by an option."""


@dataclass(frozen=True)
class Choices:
    """The options of all stages in numbers, of sizes in bytes or units.

    Attributes:
        chain: the stages themselves.
        start: per stage, its first option; one more at the end.
        kept, forward_peak, back_peak, time: per option, as :class:`Option` has them.
    """

    chain: Chain
    start: IntArray
    kept: IntArray
    forward_peak: IntArray
    back_peak: IntArray
    time: FloatArray

    @classmethod
    def of(cls, chain: Chain, options: Sequence[Sequence[Option]]) -> Choices:
        """Options per stage."""
        flat = [option for each in options for option in each]
        counts = np.cumsum([0, *map(len, options)])
        sizes = np.array(
            [(each.kept, each.forward_peak, each.back_peak) for each in flat], dtype=np.int64
        ).reshape(-1, 3)
        times = np.array([option.time for option in flat], dtype=np.float64)
        kept, forward, back = (np.ascontiguousarray(each) for each in sizes.T)
        return cls(chain, counts.astype(np.int64), kept, forward, back, times)

    def in_units(self, unit: int) -> Choices:
        """Sizes rounded up to units."""
        kept, forward, back = (
            -(-each // unit) for each in (self.kept, self.forward_peak, self.back_peak)
        )
        return Choices(self.chain.in_units(unit), self.start, kept, forward, back, self.time)

    @property
    def ample(self) -> int:
        """Bytes beyond which more do not help."""
        largest = max(int(self.forward_peak.max(initial=0)), int(self.back_peak.max(initial=0)))
        most = (self.kept[a:b].max(initial=0) for a, b in zip(self.start, self.start[1:]))  # noqa: B905
        return max(self.chain.ample, int(sum(most)) + int(self.chain.gradient.max()) + largest)

    def arrays(self) -> tuple[Any, ...]:
        """For the kernels."""
        chain = self.chain
        return (
            *(chain.output, chain.gradient, chain.plain_time, chain.plain_peak, chain.moved_peak),
            *(chain.base_time, chain.base_peak, chain.back_time, chain.back_peak),
            *(self.start, self.kept, self.forward_peak, self.back_peak, self.time),
        )


@dataclass(frozen=True)
class Table:
    """The staircases of all segments of a chain.

    Attributes:
        choices: whose.
        start, stop: per segment s * n + t, where its steps lie.
        memory, time: of each step: the least memory, and the least time from there on.
    """

    choices: Choices
    start: IntArray
    stop: IntArray
    memory: IntArray
    time: FloatArray

    def steps(self) -> tuple[IntArray, FloatArray]:
        """Memory and time of the whole chain."""
        whole = len(self.choices.chain) - 1
        part = slice(int(self.start[whole]), int(self.stop[whole]))
        return self.memory[part], self.time[part]

    def time_within(self, memory: int) -> float | None:
        """The least time of the whole chain with ``memory`` bytes."""
        memories, times = self.steps()
        place = int(np.searchsorted(memories, memory, side="right"))
        return float(times[place - 1]) if place else None

    def schedule(self, memory: int) -> Iterator[tuple[Operation, int, int]]:
        """(what, stage, option) in the least time within ``memory``, which suffices."""
        n, choices = len(self.choices.chain), self.choices
        output, first = choices.chain.output.tolist(), choices.start.tolist()
        found = (self.start, self.stop, self.memory, self.time)
        choose: Any = _choose
        pending = [(0, n - 1, memory)]
        while pending:
            s, t, m = pending.pop()
            if t < s:  # the way back over a stage that was kept; m is its option
                yield "back", s, m
                continue
            cut = int(choose(*choices.arrays(), *found, s, t, m))
            if s == t:
                yield ("base", s, -1) if cut < 0 else ("alone", s, cut - first[s])
            elif cut >= n:
                option = cut - n
                yield "forward", s, option - first[s]
                pending += [(s, -1, option - first[s]), (s + 1, t, m - int(choices.kept[option]))]
            else:
                yield from (("plain", stage, -1) for stage in range(s, cut))
                pending += [(s, cut - 1, m), (cut, t, m - output[cut - 1])]


def build(choices: Choices, memory: int, *, most: int = 20_000_000, least: bool = False) -> Any:
    """The table of a chain for any memory up to ``memory``; None where it has too many steps.

    Args:
        most: steps of all staircases together.
        least: only the first step of each.
    """
    enough, *found = _build(*choices.arrays(), memory, most, least)
    return Table(choices, *found) if enough else None


@kernel
def _build(
    output, gradient, plain_time, plain_peak, moved_peak, base_time, base_peak, back_time,
    back_peak, first, kept, o_forward, o_back, o_time, room, most, least,
):  # fmt: skip
    n = output.size
    start, stop = np.zeros(n * n, dtype=np.int64), np.zeros(n * n, dtype=np.int64)
    memory, time = np.empty(1024, dtype=np.int64), np.empty(1024, dtype=np.float64)
    best_m, best_t = np.empty(1024, dtype=np.int64), np.empty(1024, dtype=np.float64)
    next_m, next_t = np.empty(1024, dtype=np.int64), np.empty(1024, dtype=np.float64)
    more_m, more_t = np.empty(1024, dtype=np.int64), np.empty(1024, dtype=np.float64)
    used = 0
    for length in range(n):
        for s in range(n - length):
            t = s + length
            segment = s * n + t
            count = 0
            if length == 0:
                alone = max(0, max(gradient[s] + base_peak[s], back_peak[s]))
                if alone <= room:
                    count = push(best_m, best_t, count, alone, base_time[s] + back_time[s])
            for o in range(first[s], first[s + 1]):
                # Keep what the option keeps.
                found = 0
                test = max(0, max(gradient[t] + o_forward[o], o_back[o]))
                if length == 0:
                    if test <= room:
                        found = push(more_m, more_t, found, test, o_time[o])
                else:
                    after = segment + n
                    size = stop[after] - start[after] + 1
                    more_m, more_t = grown(more_m, size), grown(more_t, size)
                    for i in range(start[after], stop[after]):
                        m = max(memory[i] + kept[o], test)
                        if m <= room:
                            found = push(more_m, more_t, found, m, time[i] + o_time[o])
                next_m = grown(next_m, count + found + 1)
                next_t = grown(next_t, count + found + 1)
                count = lower_of(best_m, best_t, count, more_m, more_t, found, next_m, next_t)
                best_m, next_m = next_m, best_m
                best_t, next_t = next_t, best_t
            # Keep the input of s, go on to c, and keep its input.
            forward, test = 0.0, max(0, gradient[t] + plain_peak[s])
            for c in range(s + 1, t + 1):
                right, left = c * n + t, s * n + c - 1
                shift = output[c - 1]
                if c - 1 > s:
                    test = max(test, gradient[t] + moved_peak[c - 1])
                forward += plain_time[c - 1]
                if start[right] == stop[right] or start[left] == stop[left]:
                    continue
                lowest = max(memory[start[right]] + shift, max(test, memory[start[left]]))
                fastest = time[stop[right] - 1] + time[stop[left] - 1] + forward
                if lowest > room or at(best_m, best_t, 0, count, lowest) <= fastest:
                    continue
                size = stop[right] - start[right] + stop[left] - start[left] + 1
                more_m, more_t = grown(more_m, size), grown(more_t, size)
                found = sum_of(
                    memory, time, start[right], stop[right], shift, start[left], stop[left], 0,
                    test, forward, room, more_m, more_t,
                )  # fmt: skip
                next_m = grown(next_m, count + found + 1)
                next_t = grown(next_t, count + found + 1)
                count = lower_of(best_m, best_t, count, more_m, more_t, found, next_m, next_t)
                best_m, next_m = next_m, best_m
                best_t, next_t = next_t, best_t
            if least:
                count = min(count, 1)
            if used + count > most:
                return False, start, stop, memory[:used], time[:used]
            memory, time = grown(memory, used + count), grown(time, used + count)
            memory[used : used + count] = best_m[:count]
            time[used : used + count] = best_t[:count]
            start[segment], stop[segment] = used, used + count
            used += count
    return True, start, stop, memory[:used], time[:used]


@kernel
def _choose(
    output, gradient, plain_time, plain_peak, moved_peak, base_time, base_peak, back_time,
    back_peak, first, kept, o_forward, o_back, o_time, start, stop, memory, time, s, t, m,
):  # fmt: skip
    """What to do with a segment: n + o to keep option o, c to cut before stage c.

    Of one stage: -1 without an option, or o.
    """
    n = output.size
    best, place = np.inf, -1
    if s == t and m >= max(gradient[s] + base_peak[s], back_peak[s]):
        best = base_time[s] + back_time[s]
    for o in range(first[s], first[s + 1]):
        if m < max(0, max(gradient[t] + o_forward[o], o_back[o])):
            continue
        total = o_time[o]
        if s < t:
            after = (s + 1) * n + t
            total += at(memory, time, start[after], stop[after], m - kept[o])
        if total < best - SAME * abs(best) or (best == np.inf and total < np.inf):
            best, place = total, (o if s == t else n + o)
    forward, test = 0.0, max(0, gradient[t] + plain_peak[s])
    for c in range(s + 1, t + 1):
        right, left = c * n + t, s * n + c - 1
        if c - 1 > s:
            test = max(test, gradient[t] + moved_peak[c - 1])
        forward += plain_time[c - 1]
        if m < test:
            continue
        total = forward + at(memory, time, start[right], stop[right], m - output[c - 1])
        total += at(memory, time, start[left], stop[left], m)
        if total <= best + SAME * abs(best) and total < np.inf:
            best, place = total, c
    return place
