"""What the README quotes from committed rows, so that a test can make it again."""

from __future__ import annotations

import pandas as pd

from rematbench.report.leaderboard.board import Board
from rematbench.report.leaderboard.tables import winners

_KINDS = {"CNN": "convolutional", "joins": "several towers"}
_MOST = 3  # names in a cell


def front_table(field: Board) -> str:
    """Which strategy to use, in Markdown."""
    lines = [
        "| network | budget | problems | cheapest plans | overhead | quick planners | overhead |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in winners(field).to_dict("records"):
        cells = [
            _KINDS.get(row["family"], row["family"]),
            f"{row['fraction']:g}",
            str(row["problems"]),
            _names(row["best"]),
            _percent(row["best_overhead"]),
            _names(row["quick"]),
            _percent(row["quick_overhead"]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _names(text: str) -> str:
    names = text.split(", ") if text else []
    shown = ", ".join(f"`{name}`" for name in names[:_MOST])
    return shown + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "") or "none"


def _percent(overhead: float) -> str:
    return "–" if pd.isna(overhead) else f"{100 * overhead:+.1f} %"
