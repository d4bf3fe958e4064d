"""DTR beside the best plan of the same log's graph, and beside the highest bound proven."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from rematbench.report.collect import Record
from rematbench.report.figures import ClaimLine, Drawing
from rematbench.report.tables import table_picture
from rematbench.rows.row import Row, known

_TITLE = "DTR's distance from the optimum, on logs (overhead; simulated)"


def distances(rows: Sequence[Row]) -> pd.DataFrame:
    """Per log and ratio of memory.

    Returns:
        ``dtr``, ``best`` and ``bound`` are overheads (ratios): DTR's, the cheapest static plan's
        (``by`` names its strategy) and the highest lower bound, for plans in ``bound_of``. Missing
        is what no strategy met, or nobody proved.
    """
    groups: dict[tuple[str, float], list[Row]] = {}
    for row in rows:
        if row["budget_fraction"] is not None:
            groups.setdefault((str(row["model"]), row["budget_fraction"]), []).append(row)
    lines = [{"log": log, "ratio": ratio} | _line(mine) for (log, ratio), mine in groups.items()]
    frame = pd.DataFrame([line for line in lines if line.keys() >= {"dtr", "best"}])
    if frame.empty:
        return frame
    return frame.sort_values(["log", "ratio"], ascending=[True, False], ignore_index=True)


def _line(rows: Sequence[Row]) -> dict[str, object]:
    online = [row for row in rows if row["strategy"] == "dtr"]
    static = [row for row in rows if row["strategy"] != "dtr"]
    if not online or not static:
        return {}
    best, own = _cheapest(static), _cheapest(online)
    proven = [row for row in static if row["bound"] is not None]
    bound = max(proven, key=lambda row: known(row["bound"]), default=None)
    return {
        "ops": static[-1]["ops"],
        "dtr": own and own["overhead"],
        "best": best and best["overhead"],
        "by": best and best["strategy"],
        "bound": bound and known(bound["bound"]) / known(bound["checkpoint_all_cost"]) - 1,
        "bound_of": bound and bound["bound_of"],
    }


def _cheapest(rows: Sequence[Row]) -> Row | None:
    """The plan of least overhead."""
    found = [row for row in rows if row["status"] == "ok"]
    return min(found, key=lambda row: known(row["overhead"]), default=None)


def draw(name: str, records: Sequence[Record]) -> Drawing | None:
    """The table, as a picture."""
    data = distances([record.row for record in records])
    if data.empty:
        return None
    shown = pd.DataFrame(
        {
            "log": data["log"],
            "memory": data["ratio"],
            "DTR": data["dtr"].map(_percent),
            "best plan": data["best"].map(_percent),
            "by": data["by"].fillna("–"),
            "proven bound": data["bound"].map(_percent),
        }
    )
    notes = tuple(
        ClaimLine(
            f"{each.log} at {each.ratio:g}",
            "not known to it",
            f"DTR {_percent(each.dtr)}, best plan {_percent(each.best)}, "
            f"bound {_percent(each.bound)} (plans of {each.bound_of})",
            "an online runtime knows no future; a static plan does",
        )
        for each in data.itertuples()
    )
    return Drawing(_TITLE, data, table_picture(shown, _TITLE), notes)


def _percent(overhead: float | None) -> str:
    return "–" if overhead is None or pd.isna(overhead) else f"{100 * overhead:.1f} %"
