"""What a column of a row, or a key of its ``extra``, means: words, unit and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Source = Literal["job", "planned", "simulated", "measured", "run"]


@dataclass(frozen=True, slots=True)
class Means:
    """What a column of the row, or a key of ``extra``, stands for.

    Attributes:
        text: in a few words.
        unit: bytes, seconds, ratio, pixels, cost_unit (see that column), or none.
        source: where a column's numbers come from; never two of them on one axis.
        length: how many a list holds; None: as many as there are.
    """

    text: str
    unit: str = ""
    source: Source = "job"
    length: int | None = None
