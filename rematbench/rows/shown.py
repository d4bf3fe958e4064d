"""Rows as a terminal shows them: a line for each finished job, a table for a sweep."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from rematbench.base.sizes import size
from rematbench.rows.row import Row, is_over_budget

if TYPE_CHECKING:
    from rich.console import Console

_COLOURS = {"ok": "green", "infeasible": "yellow", "not_applicable": "dim", "failed": "red"}


@cache
def console() -> Console:
    """The terminal; imported once something is shown there."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def announce(row: Row, far: object = None) -> None:
    """One line for a finished job; ``far`` says how far its sweep is."""
    colour = _COLOURS.get(str(row["status"]), "red")
    summary = row["reason"] if row["overhead"] is None else _brief(row)
    cached = " (cached)" if row["extra"].get("cached") else ""
    console().print(
        f"{f'[{far}] ' if far else ''}{_input(row)} {row['strategy']} budget {_budget(row)}: ",
        end="",
        markup=False,
    )
    console().print(f"[{colour}]{row['status']}[/]{cached} ", end="")
    console().print(summary or "", markup=False, soft_wrap=True)


def _input(row: Row) -> str:
    """The model, and the batch and resolution where it has them."""
    sizes = (row["batch_size"], row["resolution"])
    return " ".join([str(row["model"]), " x ".join(str(s) for s in sizes if s is not None)]).strip()


def _brief(row: Row) -> str:
    text = f"overhead {row['overhead']:+.1%}, peak {size(row['peak_bytes'])}"
    if row["measured_seconds"] is not None:
        text += f", measured {size(row['measured_peak_bytes'])} {row['measured_seconds']:.3f} s"
    return text


def _budget(row: Row) -> str:
    if row["budget_fraction"] is not None:
        return f"{row['budget_fraction']:g}"
    return size(row["budget_bytes"]) or "none"


def _percent(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:+.1%}"


def summarise(rows: list[Row], title: str) -> None:
    """The table at the end of a sweep: simulated and measured figures in columns of their own."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in ("model", "strategy", "budget", "status"):
        table.add_column(name, no_wrap=True)
    for name in ("simulated\noverhead", "simulated\npeak", "measured\noverhead", "measured\npeak"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("gradients", no_wrap=True)
    for row in sorted(rows, key=_rank):
        table.add_row(
            _input(row),
            str(row["strategy"]),
            _budget(row),
            f"[{_COLOURS.get(str(row['status']), 'red')}]{row['status']}[/]",
            _percent(row["overhead"]),
            size(row["peak_bytes"]),
            _percent(row["measured_overhead"]),
            _measured_peak(row),
            _gradients(row),
        )
    wide = None if console().is_terminal else 140
    Console(highlight=False, width=wide).print(table)


def _measured_peak(row: Row) -> str:
    shown = size(row["measured_peak_bytes"])
    return f"[red]{shown} > budget[/]" if is_over_budget(row) else shown


def _gradients(row: Row) -> str:
    """How the gradients compare with eager training's."""
    error, verdict = row["gradient_max_error"], row["extra"].get("verdict")
    rounding = row["extra"].get("rounding")
    if row["gradient_bitwise"]:
        return "bitwise"
    if verdict == "rounding" and rounding and rounding["float64_error"] is not None:
        return f"{rounding['float64_error']:.1g} off in float64"
    if verdict == "lossy" and error is not None:
        return f"lossy, {error:.1g} off"
    return "" if error is None else f"{error:.1g} off"


def _rank(row: Row) -> tuple[object, ...]:
    budget = -(row["budget_fraction"] or (row["budget_bytes"] or float("inf")))
    overhead = row["overhead"] if row["status"] == "ok" else None
    return (
        str(row["model"]),
        budget,
        row["status"] != "ok",
        overhead if overhead is not None else float("inf"),
        str(row["strategy"]),
    )
