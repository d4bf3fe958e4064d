"""The chain program with several options per stage (section 4.1 of the paper, after rotor)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rematbench.engines.chain.chain import Chain
from rematbench.engines.chain.program import StageOptions
from rematbench.strategies.rockmate.options import RunOption


@dataclass(frozen=True)
class Choices:
    """The options of all stages in numbers, of sizes in bytes or units.

    Attributes:
        chain: the stages themselves.
        options: their options.
    """

    chain: Chain
    options: StageOptions

    @classmethod
    def of(cls, chain: Chain, options: Sequence[Sequence[RunOption]]) -> Choices:
        """Options per stage."""
        flat = [option for each in options for option in each]
        first = np.cumsum([0, *map(len, options)]).astype(np.int64)
        sizes = np.array(
            [(each.kept, each.forward_peak, each.back_peak) for each in flat], dtype=np.int64
        ).reshape(-1, 3)
        times = np.array([option.time for option in flat], dtype=np.float64)
        kept, forward, back = (np.ascontiguousarray(each) for each in sizes.T)
        return cls(chain, StageOptions(first, kept, forward, back, times))

    def in_units(self, unit: int) -> Choices:
        """Sizes rounded up to units."""
        first, *sizes, time = self.options
        kept, forward, back = (-(-each // unit) for each in sizes)
        return Choices(self.chain.in_units(unit), StageOptions(first, kept, forward, back, time))

    @property
    def ample(self) -> int:
        """Bytes beyond which more do not help."""
        first, kept, forward, back, _ = self.options
        largest = max(int(forward.max(initial=0)), int(back.max(initial=0)))
        most = (kept[a:b].max(initial=0) for a, b in pairwise(first))
        return max(self.chain.ample, int(sum(most)) + int(self.chain.gradient.max()) + largest)
