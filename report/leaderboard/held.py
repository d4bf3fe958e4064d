"""What plan a planner had by when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rematbench.rows.row import Row, known
from rematbench.strategies.registry import cards

HELD = (1, 5, 20)
"""Seconds after which it is asked what plan a planner had."""
LIMITED = 0.9
"""Share of its limit that a planner took which would have gone on."""
SHORTEST = 1.0
"""Seconds: no limit is shorter. Of a row that does not tell its limit, no more is known of it."""
BLIND = frozenset({"checkmate_o"})
"""They told the costs of a graph without the implementations that they then take."""
_SAME = 1e-6
"""Sums of the same costs in two orders differ by less, relatively."""
BY_THE_CLOCK = {"moccasin+anytime", *(c.name for c in cards().values() if c.wall_clock)}
"""They wait for a process of their own, and always go by the wall clock."""
PREPARED = frozenset(card.name for card in cards().values() if card.prepared)
"""Their jobs find what an earlier one of the same process asked PyTorch's partitioner."""


def took(row: Row) -> float | None:
    """Seconds of planning, by the clock that the planner's limit and incumbents go by.

    With one thread they are the processor's, where the row has them: beside other work on the
    machine a planner takes longer by the clock on the wall, and no better for it.
    """
    if row["threads"] == 1 and row["strategy"] not in BY_THE_CLOCK:
        return row["extra"].get("plan_cpu_seconds", row["plan_seconds"])
    return row["plan_seconds"]


def limit(row: Row) -> float:
    """Seconds that the planner was given; infinite: all that it wanted; missing: nobody knows."""
    if "time_limit" not in row["extra"]:
        return np.nan
    given = row["extra"]["time_limit"]
    return np.inf if given is None else given


def held(row: Row) -> Iterator[float]:
    """Cost of the plan that the planner had after :data:`HELD` seconds.

    Infinite: none; missing: nobody knows, since its limit ended it before, or is not known. (Those
    of unknown limit that took longer are left out with the others: they are the hard problems.)
    """
    final = known(row["cost"]) if row["status"] == "ok" else np.inf
    spent, given = took(row) or 0.0, limit(row)
    for at in HELD:
        if np.isnan(given) and at > SHORTEST:
            yield np.nan
        elif row["status"] == "not_applicable":
            yield np.inf
        elif spent > at:
            yield min((cost for seconds, cost in history(row) if seconds <= at), default=np.inf)
        else:
            cut = given < at and spent >= LIMITED * given
            yield np.nan if cut else final


def history(row: Row) -> tuple[tuple[float, float], ...]:
    """(seconds, cost) of each better plan that the planner told of on the way.

    Nothing of :data:`PREPARED`, whose plans are there at once where an earlier job prepared them,
    nor of :data:`BLIND` where what was told does not end with the row's own cost.
    """
    if row["strategy"] in PREPARED:
        return ()
    if row["status"] != "ok":
        return ()
    text = row["extra"].get("incumbents", ())
    found = tuple((seconds, cost) for seconds, cost, _ in text if cost is not None)
    return () if row["strategy"] in BLIND and not _ends(row, found) else found


def _ends(row: Row, told: Sequence[tuple[float, float]]) -> bool:
    least = min((cost for _, cost in told), default=0.0)
    return abs(least - known(row["cost"])) <= _SAME * least
