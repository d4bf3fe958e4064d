"""The dynamic program over a chain: the least time of every segment, for every memory.

C(s, t, m) is the least time to turn the gradient after stage t into the one before stage s, with
the input of s at hand and m bytes for all else (the recurrence of RR-9302, section 4). As a
function of m it is a staircase; its steps are kept as two lists, from the least memory that
suffices to the least time, so that sizes need no unit, and one table answers for every memory.

Persistent schedules drop what a stage saved only by going back over it, and hold its input as long.
With ``retain`` what a stage saved may also outlive its input, which is computed again: Chen's
checkpoints, of use to the backward pass on both of their sides, are such. C1(s, t, m) is then C
with what t saved at hand, besides the m bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from rematbench.graphs.ir import IntArray
from rematbench.graphs.kernels import kernel
from rematbench.strategies.chain_dp.chain import Chain, FloatArray
from rematbench.strategies.chain_dp.staircases import SAME, at, grown, lower_of, push, sum_of

Operation = Literal["all", "plain", "base", "back"]
"""Forward keeping all that backward reads; keeping the output only; right before going back (what
backward reads only); backward. The loss is the last stage's ``back``."""


@dataclass(frozen=True)
class Table:
    """The staircases of all segments of a chain.

    Attributes:
        chain: whose.
        published: by the authors' recurrence?
        retain: may what a stage saved outlive its input?
        start, stop: per segment, s * n + t for C and (n + s) * n + t for C1, where its steps lie.
        memory, time: of each step: the least memory, and the least time from there on.
    """

    chain: Chain
    published: bool
    retain: bool
    start: IntArray
    stop: IntArray
    memory: IntArray
    time: FloatArray

    def steps(self) -> tuple[IntArray, FloatArray]:
        """Memory (without the input of the chain) and time of the whole chain."""
        whole = len(self.chain) - 1
        part = slice(int(self.start[whole]), int(self.stop[whole]))
        return self.memory[part], self.time[part]

    def time_within(self, memory: int) -> float | None:
        """The least time of the whole chain with ``memory`` bytes, its input included."""
        memories, times = self.steps()
        place = int(np.searchsorted(memories, memory - self.chain.input_bytes, side="right"))
        return float(times[place - 1]) if place else None

    def schedule(self, memory: int) -> Iterator[tuple[Operation, int]]:
        """What to do with which stage, in the least time within ``memory``, input included.

        ``memory`` is at least what the first of :meth:`steps` needs, and the input.
        """
        n, chain = len(self.chain), self.chain
        kept, output = chain.kept.tolist(), chain.output.tolist()
        found = (self.start, self.stop, self.memory, self.time)
        kernel: Any = _choose
        choose = partial(kernel, *chain.arrays(), self.published, self.retain, *found)
        pending = [(0, n - 1, memory - chain.input_bytes, False)]
        while pending:
            s, t, m, saved = pending.pop()
            if t < s:  # the way back over a stage that was kept
                yield "back", s
                continue
            if s == t:
                if not saved and s < n - 1:
                    yield "base", s
                yield "back", s
                continue
            cut = int(choose(s, t, m, saved))
            if cut < 0:
                yield "all", s
                pending += [(s, -1, 0, False), (s + 1, t, m - kept[s], saved)]
                continue
            cut, retained = cut % n, cut >= n
            yield from (("plain", stage) for stage in range(s, cut - retained))
            left = m - (kept if retained else output)[cut - 1]
            if retained:
                yield "all", cut - 1
            pending += [(s, cut - 1, left if retained else m, retained), (cut, t, left, saved)]


def build(
    chain: Chain,
    memory: int,
    *,
    published: bool = False,
    retain: bool = False,
    most: int = 20_000_000,
    least: bool = False,
) -> Table | None:
    """The table of a chain, for any memory up to ``memory``, the chain's input included.

    Args:
        published: by the authors' recurrence, which tests the forward of a kept stage with the
            gradient after it instead of the one that is live.
        retain: let what a stage saved outlive its input.
        most: steps of all staircases together.
        least: only the first step of each staircase, the least memory, exact for any sizes.

    Returns:
        None where there are more steps than that; round the sizes then.
    """
    room = max(-1, memory - chain.input_bytes)
    found = _build(*chain.arrays(), room, published, retain, most, least)
    enough, start, stop, memories, times = found
    return Table(chain, published, retain, start, stop, memories, times) if enough else None


@kernel
def _whole_test(s, t, gradient, plain_peak, moved_peak):
    """What the authors' recurrence asks of every choice: room to go from s to t."""
    most = plain_peak[s]
    for j in range(s + 1, t):
        most = max(most, moved_peak[j])
    return gradient[t] + most


@kernel
def _keep_test(s, t, published, gradient, kept_peak, plain_peak, moved_peak, base_peak, back_peak):
    """Room to keep all of s, and to go back over it at the end."""
    if published:
        alone = max(gradient[s] + base_peak[s], back_peak[s])
        return max(0, max(alone, _whole_test(s, t, gradient, plain_peak, moved_peak)))
    return max(0, max(gradient[t] + kept_peak[s], back_peak[s]))


@kernel
def _build(
    output, kept, saved, gradient, kept_time, kept_peak, plain_time, plain_peak, moved_peak,
    base_time, base_peak, back_time, back_peak, room, published, retain, most, least,
):  # fmt: skip
    n = output.size
    start, stop = np.zeros(2 * n * n, dtype=np.int64), np.zeros(2 * n * n, dtype=np.int64)
    memory, time = np.empty(1024, dtype=np.int64), np.empty(1024, dtype=np.float64)
    best_m, best_t = np.empty(1024, dtype=np.int64), np.empty(1024, dtype=np.float64)
    next_m, next_t = np.empty(1024, dtype=np.int64), np.empty(1024, dtype=np.float64)
    sum_m, sum_t = np.empty(1024, dtype=np.int64), np.empty(1024, dtype=np.float64)
    used = 0
    for length in range(n):
        for s in range(n - length):
            t = s + length
            for with_saved in range(1 + (retain and base_time[t] > 0)):
                segment = (with_saved * n + s) * n + t
                count = 0
                if length == 0:
                    if with_saved:
                        alone, spent = back_peak[s] - saved[s], back_time[s]
                    else:
                        alone = max(gradient[s] + base_peak[s], back_peak[s])
                        spent = base_time[s] + back_time[s]
                    if alone <= room:
                        best_m[0], best_t[0] = max(0, alone), spent
                        count = 1
                else:
                    # Keep all of s.
                    test = _keep_test(
                        s, t, published, gradient, kept_peak, plain_peak, moved_peak, base_peak,
                        back_peak,
                    )  # fmt: skip
                    after = segment + n
                    best_m = grown(best_m, stop[after] - start[after] + 1)
                    best_t = grown(best_t, stop[after] - start[after] + 1)
                    spent = kept_time[s] + back_time[s]
                    for i in range(start[after], stop[after]):
                        m = max(memory[i] + kept[s], test)
                        if m <= room:
                            count = push(best_m, best_t, count, m, time[i] + spent)
                    # Keep the input of s, go on to c, and keep its input, or all of c - 1.
                    forward, test = 0.0, max(0, gradient[t] + plain_peak[s])
                    if published:
                        test = max(test, _whole_test(s, t, gradient, plain_peak, moved_peak))
                    for c in range(s + 1, t + 1):
                        right = (with_saved * n + c) * n + t
                        for retained in range(1 + (retain and c - 1 > s and base_time[c - 1] > 0)):
                            left = (retained * n + s) * n + c - 1
                            if start[right] == stop[right] or start[left] == stop[left]:
                                continue
                            if retained:
                                room_for = gradient[t] + output[c - 2] + kept_peak[c - 1]
                                need, added = max(test, room_for), forward + kept_time[c - 1]
                                shift = kept[c - 1]
                            else:
                                need, added = test, forward + plain_time[c - 1]
                                if c - 1 > s:
                                    need = max(need, gradient[t] + moved_peak[c - 1])
                                shift = output[c - 1]
                            left_shift = shift * retained
                            first = max(memory[start[right]] + shift, need)
                            first = max(first, memory[start[left]] + left_shift)
                            fastest = time[stop[right] - 1] + time[stop[left] - 1] + added
                            if first > room or at(best_m, best_t, 0, count, first) <= fastest:
                                continue
                            size = stop[right] - start[right] + stop[left] - start[left] + 1
                            sum_m, sum_t = grown(sum_m, size), grown(sum_t, size)
                            found = sum_of(
                                memory, time, start[right], stop[right], shift, start[left],
                                stop[left], left_shift, need, added, room, sum_m, sum_t,
                            )  # fmt: skip
                            next_m = grown(next_m, count + found + 1)
                            next_t = grown(next_t, count + found + 1)
                            count = lower_of(
                                best_m, best_t, count, sum_m, sum_t, found, next_m, next_t
                            )
                            best_m, next_m = next_m, best_m
                            best_t, next_t = next_t, best_t
                        forward += plain_time[c - 1]
                        if c - 1 > s:
                            test = max(test, gradient[t] + moved_peak[c - 1])
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
    output, kept, saved, gradient, kept_time, kept_peak, plain_time, plain_peak, moved_peak,
    base_time, base_peak, back_time, back_peak, published, retain, start, stop, memory, time,
    s, t, m, with_saved,
):  # fmt: skip
    """What to do with a segment: -1 to keep all of its first stage, c to cut before stage c.

    c + n keeps what stage c - 1 saved as well. Equal times prefer the cut.
    """
    n = output.size
    best, place = np.inf, -1
    test = _keep_test(
        s, t, published, gradient, kept_peak, plain_peak, moved_peak, base_peak, back_peak
    )
    if m >= test:
        after = (with_saved * n + s + 1) * n + t
        rest = at(memory, time, start[after], stop[after], m - kept[s])
        best = kept_time[s] + back_time[s] + rest
    forward, test = 0.0, max(0, gradient[t] + plain_peak[s])
    if published:
        test = max(test, _whole_test(s, t, gradient, plain_peak, moved_peak))
    for c in range(s + 1, t + 1):
        right = (with_saved * n + c) * n + t
        for retained in range(1 + (retain and c - 1 > s and base_time[c - 1] > 0)):
            left = (retained * n + s) * n + c - 1
            shift = output[c - 1]
            need, added = test, forward + plain_time[c - 1]
            if retained:
                need = max(test, gradient[t] + output[c - 2] + kept_peak[c - 1])
                shift, added = kept[c - 1], forward + kept_time[c - 1]
            elif c - 1 > s:
                need = max(test, gradient[t] + moved_peak[c - 1])
            if m < need:
                continue
            total = added + at(memory, time, start[right], stop[right], m - shift)
            total += at(memory, time, start[left], stop[left], m - shift * retained)
            if total <= best + SAME * abs(best) and total < np.inf:
                best, place = total, c + n * retained
        forward += plain_time[c - 1]
        if c - 1 > s:
            test = max(test, gradient[t] + moved_peak[c - 1])
    return place
