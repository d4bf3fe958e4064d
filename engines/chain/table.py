"""The dynamic program over a chain: the least time of every segment, for every memory.

C(s, t, m) is the least time to turn the gradient after stage t into the one before stage s, with
the input of s at hand and m bytes for all else (the recurrence of RR-9302, section 4). As a
function of m it is a staircase; its steps are kept as two lists, from the least memory that
suffices to the least time, so that sizes need no unit, and one table answers for every memory.
A stage may have several options to be kept (Rockmate, section 4.1).

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

from rematbench.engines.chain.chain import Chain, FloatArray
from rematbench.engines.chain.program import (
    CUT,
    KEEP,
    RETAIN,
    Recurrence,
    StageOptions,
    Stairs,
    choose,
    fill,
)
from rematbench.graphs.ir import IntArray

Operation = Literal["keep", "plain", "base", "back"]
"""Forward keeping what backward reads, in an option; keeping the output only; right before going
back (what backward reads only); backward. The loss is the last stage's ``back``."""


@dataclass(frozen=True)
class Table:
    """The staircases of all segments of a chain.

    Attributes:
        chain: whose.
        options: to keep its stages.
        rules: of the recurrence.
        stairs: per segment, s * n + t for C and (n + s) * n + t for C1.
    """

    chain: Chain
    options: StageOptions
    rules: Recurrence
    stairs: Stairs

    def steps(self) -> tuple[IntArray, FloatArray]:
        """Memory (without the input of the chain) and time of the whole chain."""
        whole = len(self.chain) - 1
        part = slice(int(self.stairs.start[whole]), int(self.stairs.stop[whole]))
        return self.stairs.memory[part], self.stairs.time[part]

    def time_within(self, memory: int) -> float | None:
        """The least time of the whole chain with ``memory`` bytes, its input included."""
        memories, times = self.steps()
        place = int(np.searchsorted(memories, memory - self.chain.input_bytes, side="right"))
        return float(times[place - 1]) if place else None

    def schedule(self, memory: int) -> Iterator[tuple[Operation, int, int]]:
        """What to do with which stage, in the least time within ``memory``, input included.

        ``memory`` is at least what the first of :meth:`steps` needs, and the input.

        Yields:
            Operation, stage, and the number of the stage's option; -1 where it is kept in none.
        """
        return self.segment(0, len(self.chain) - 1, memory - self.chain.input_bytes)

    def segment(self, s: int, t: int, memory: int) -> Iterator[tuple[Operation, int, int]]:
        """The same for stages s to t, with ``memory`` for all but the input of s."""
        n, chain = len(self.chain), self.chain
        output, first, sizes = chain.output.tolist(), self.options.first.tolist(), self.options.kept
        kernel: Any = choose
        choice = partial(kernel, chain.stages(), self.options, self.rules, self.stairs)
        pending = [(s, t, memory, False)]
        while pending:
            s, t, m, saved = pending.pop()
            if t < s:  # the way back over a stage that was kept; m says how
                yield "back", s, m
                continue
            kind, place = choice(s, t, m, saved)
            if kind == KEEP:
                yield "keep", s, place - first[s]
                pending.append((s, -1, place - first[s], False))
                if s < t:
                    pending.append((s + 1, t, m - int(sizes[place]), saved))
            elif kind in (CUT, RETAIN):
                retained = kind == RETAIN
                yield from (("plain", stage, -1) for stage in range(s, place - retained))
                left = m - (int(chain.kept[place - 1]) if retained else output[place - 1])
                if retained:
                    yield "keep", place - 1, -1
                pending.append((s, place - 1, left if retained else m, retained))
                pending.append((place, t, left, saved))
            else:
                if not saved and s < n - 1:
                    yield "base", s, -1
                yield "back", s, -1


def own_option(chain: Chain) -> StageOptions:
    """The one option to keep a stage that the chain itself has; the loss is not kept."""
    n = len(chain) - 1
    kept, forward, back = chain.kept[:n], chain.kept_peak[:n], chain.back_peak[:n]
    time = chain.kept_time[:n] + chain.back_time[:n]
    return StageOptions(np.minimum(np.arange(n + 2), n), kept, forward, back, time)


def build(
    chain: Chain,
    memory: int,
    *,
    options: StageOptions | None = None,
    published: bool = False,
    retain: bool = False,
    most: int = 20_000_000,
    least: bool = False,
) -> Table | None:
    """The table of a chain, for any memory up to ``memory``, the chain's input included.

    Args:
        options: to keep stages; None for each one's own.
        published: by the authors' recurrence, which tests the forward of a kept stage with the
            gradient after it instead of the one that is live.
        retain: let what a stage saved outlive its input.
        most: steps of all staircases together.
        least: only the first step of each staircase, the least memory, exact for any sizes.

    Returns:
        None where there are more steps than that; round the sizes then.
    """
    free_bytes = max(-1, memory - chain.input_bytes)
    rules = Recurrence(published, retain, options is not None)
    options = own_option(chain) if options is None else options
    kernel: Any = fill
    enough, stairs = kernel(chain.stages(), options, rules, free_bytes, most, least)
    return Table(chain, options, rules, stairs) if enough else None
