"""What a person wants to know of a row: how it ended, what it costs and holds, and how soon."""

from __future__ import annotations

from pathlib import Path

from rematbench.base.origin import printable
from rematbench.base.sizes import size
from rematbench.rows.row import Row


def closing_line(row: Row, folder: Path) -> str:
    """Status, overhead, peak and planning time of a row, and the file that has the rest."""
    parts = [_cost(row), _peak(row), _time(row)]
    text = ", ".join(part for part in parts if part)
    ended = printable(f"{row['status']}: {text}" if text else f"{row['status']}")
    return f"{ended}; all of it: {folder / 'row.json'}"


def _cost(row: Row) -> str:
    if row["overhead"] is None or row["status"] != "ok":
        return ""
    measured = row["measured_overhead"]
    facts = [f"measured {100 * measured:+.3g} %"] if measured is not None else []
    if row["gap"] is not None:
        facts.append(f"at most {100 * row['gap']:.2g} % above the bound")
    return f"{100 * row['overhead']:+.3g} % cost" + (f" ({'; '.join(facts)})" if facts else "")


def _peak(row: Row) -> str:
    peak, budget = row["peak_bytes"], row["budget_bytes"]
    if peak is None:
        return ""
    text = f"peak {size(peak)}" + (f" of {size(budget)}" if budget is not None else "")
    excess = row["extra"].get("over_budget_bytes")
    # In whole bytes: rounded, the measured peak and the budget may look the same.
    return text if excess is None else f"{text} (MEASURED {excess} bytes ABOVE the budget)"


def _time(row: Row) -> str:
    seconds = row["plan_seconds"]
    return "" if seconds is None else f"planned in {seconds:.2g} s"
