"""Our own search for the least cost."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card


class Facts(TypedDict, total=False):
    """anytime."""

    peak_bound_bytes: Annotated[int, Means("minimise=peak: no plan of (9) peaks lower", "bytes")]
    proven: Annotated[bool, Means("minimise=peak: the plan's peak is that bound")]


CARDS = (
    Card(
        name="anytime",
        planner="planner.Anytime",
        problem="least cost within so many bytes, by search and bounds: ours, and no paper's",
        guarantee="optimal, bound: any plan, (9) or F, as the row says",
        scope="everything, 50,000 ops",
        page="anytime.md",
        golden="(9) as printed; every schedule of seven ops",
        knobs="`minimise=peak`: the smallest budget",
        ours=True,
        turn="first",
        place=14,
        colour="#121212",
        facts=Facts,
    ),
)
