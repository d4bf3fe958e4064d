"""Figures 7 to 10 of the DTR paper (simrd): memory traces on the chain of 101 layers."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from rematbench.report.collect import Record
from rematbench.report.figures import ClaimLine, Drawing
from rematbench.report.style import hex_colour
from rematbench.rows.row import Row, details


@dataclass(frozen=True)
class _Trace:
    number: int
    root: str

    def title(self, row: Row) -> str:
        heuristic, length = details(row)["heuristic"], row["extra"]["length"]
        shown = {"full": "DTR-Full", "lru": "LRU"}.get(heuristic, heuristic)
        return f"Figure {self.number}: memory trace, B = {self.root}, h = {shown}, n = {length}"


_FIGURES = {
    "simrd_fig7": _Trace(7, "ceil(2 sqrt n)"),
    "simrd_fig8": _Trace(8, "ceil(2 sqrt n)"),
    "simrd_fig9": _Trace(9, "ceil(log2 n)"),
    "simrd_fig10": _Trace(10, "ceil(log2 n)"),
}


def draw(name: str, records: Sequence[Record]) -> Drawing | None:
    """One of the four traces; None where no run folder has it."""
    wanted = _FIGURES[name]
    for record in records:
        row, folder = record.row, record.folder
        if row["status"] == "ok" and folder is not None and (folder / "trace.csv").exists():
            data, title = intervals(folder / "trace.csv"), wanted.title(row)
            return Drawing(title, data, _picture(data, row, title), _notes(row, data))
    return None


def intervals(path: Path) -> pd.DataFrame:
    """When each tensor was in memory: layer, forward or gradient, first and last clock."""
    alive: dict[str, int] = {}
    found: list[tuple[int, str, int, int]] = []
    clock = 0
    with path.open(newline="") as file:
        for event in csv.DictReader(file):
            tensor, clock = event["tensor"], int(event["clock"])
            if event["event"] in ("computed", "recomputed"):
                alive[tensor] = clock
            elif event["event"] == "evicted" and tensor in alive:
                # It is in memory until the next op, which starts at this clock.
                found.append(_interval(tensor, alive.pop(tensor), clock))
    found += [_interval(tensor, since, clock) for tensor, since in alive.items()]
    return pd.DataFrame(sorted(found, key=lambda each: each[2]), columns=_COLUMNS)


_COLUMNS = ["layer", "kind", "from_clock", "to_clock"]


def _interval(tensor: str, since: int, until: int) -> tuple[int, str, int, int]:
    kind = {"t": "forward", "g": "gradient"}[tensor[0]]
    return int(tensor[1:]), kind, since, until


def _picture(data: pd.DataFrame, row: Row, title: str) -> Figure:
    last, length = int(data["to_clock"].max()), row["extra"]["length"]
    cells = np.zeros((length, last + 1), dtype=np.uint8)
    for each in data.itertuples():
        value = 1 if each.kind == "forward" else 2
        cells[each.layer - 1, each.from_clock : each.to_clock + 1] = value
    sns.set_theme("paper", "white")
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    inks = ["white", hex_colour("dtr"), "0.1"]
    axes.imshow(
        cells,
        cmap=ListedColormap(inks),
        vmin=0,
        vmax=2,
        aspect="auto",
        origin="lower",
        interpolation="nearest",
        extent=(-0.5, last + 0.5, 0.5, length + 0.5),
    )
    axes.set(xlabel="time (operators run)", ylabel="tensor (layer)")
    patches = [
        Patch(color=inks[1], label="t (forward)"),
        Patch(color=inks[2], label="g (gradient)"),
    ]
    figure.legend(handles=patches, loc="outside upper right", ncols=2, fontsize=8, frameon=False)
    axes.set_title(title.split(": memory trace, ")[1], loc="left", fontsize=9)
    return figure


def gaps(data: pd.DataFrame) -> list[int]:
    """Layers from one checkpoint to the next, when the first gradient is computed."""
    begin = data[data["kind"] == "gradient"]["from_clock"].min()
    alive = (data["from_clock"] < begin) & (data["to_clock"] >= begin)
    layers = sorted({0, *data[alive & (data["kind"] == "forward")]["layer"].tolist()})
    return [after - before for before, after in pairwise(layers)]


def _notes(row: Row, data: pd.DataFrame) -> tuple[ClaimLine, ...]:
    shape = {
        "full": "'an intricate recursive substructure', checkpoints 'more evenly' spaced",
        "lru": "'more completely filled, boxy regions', checkpoints less evenly spaced",
    }
    extra, apart = details(row), gaps(data)
    heuristic = extra["heuristic"]
    text = f"{len(apart)} checkpoints, {np.mean(apart):.1f} +- {np.std(apart):.1f} layers apart, "
    return (
        ClaimLine(
            f"trace of {heuristic}",
            f"{shape[heuristic]} (section 5.2)" if heuristic in shape else "not drawn",
            f"{text if apart else ''}up to {max(apart, default=0)}, when the backward pass begins; "
            f"{extra['rematerializations']} rematerializations, {extra['evictions']} evictions, "
            f"peak {row['peak_bytes']} of {row['budget_bytes']} bytes",
            "the paper prints pictures and no number: compare the pictures by eye",
        ),
    )
