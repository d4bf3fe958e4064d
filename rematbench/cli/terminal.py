"""What a user sees while jobs run: progress, one line per finished job, a summary table."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from rich.console import Console

from rematbench.base.sizes import size
from rematbench.cli import progress
from rematbench.cli.progress import Progress
from rematbench.rows.row import Row, is_over_budget

console = Console(stderr=True, highlight=False)
# Seconds between two lines where there is no terminal.
PERIOD = 10.0
_COLOURS = {"ok": "green", "infeasible": "yellow", "not_applicable": "dim", "failed": "red"}


@contextmanager
def _telling(first: str) -> Iterator[Callable[[str], None]]:
    """A spinner beside the latest text; without a terminal, now and then a plain line of it."""
    if console.is_terminal:
        with console.status(first) as status:
            yield status.update
        return
    latest, over, began = [first], threading.Event(), monotonic()

    def tell() -> None:
        while not over.wait(PERIOD):
            print(f"{monotonic() - began:4.0f} s  {latest[-1]}", file=sys.stderr, flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield latest.append
    finally:
        over.set()
        teller.join()


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Tell which phase a job is in."""
    with _telling(f"{what}: start") as tell:
        yield lambda phase: tell(f"{what}: {phase}")


@contextmanager
def following(folder: Path) -> Iterator[None]:
    """Tell how far a sweep is whose jobs run elsewhere."""
    over = threading.Event()
    with _telling(str(progress.read(folder))) as tell:

        def follow() -> None:
            while not over.wait(1.0):
                tell(str(progress.read(folder)))

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        try:
            yield
        finally:
            over.set()
            follower.join()


def announce(row: Row, far: Progress | None) -> None:
    """One line for a finished job of a sweep."""
    colour = _COLOURS.get(str(row["status"]), "red")
    summary = row["reason"] if row["overhead"] is None else _brief(row)
    cached = " (cached)" if row["extra"].get("cached") else ""
    console.print(
        f"{f'[{far}] ' if far else ''}{_input(row)} {row['strategy']} budget {_budget(row)}: ",
        end="",
        markup=False,
    )
    console.print(f"[{colour}]{row['status']}[/]{cached} ", end="")
    console.print(summary or "", markup=False, soft_wrap=True)


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
    wide = None if console.is_terminal else 140
    Console(highlight=False, width=wide).print(table)


def _measured_peak(row: Row) -> str:
    shown = size(row["measured_peak_bytes"])
    return f"[red]{shown} > budget[/]" if is_over_budget(row) else shown


def _gradients(row: Row) -> str:
    """How the gradients compare with eager training's."""
    error, rounding = row["gradient_max_error"], row["extra"].get("rounding") or {}
    verdict = row["extra"].get("verdict")
    if row["gradient_bitwise"]:
        return "bitwise"
    if verdict == "rounding" and rounding.get("float64_error") is not None:
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
