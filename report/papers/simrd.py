"""Figures 2 to 6 and 11 to 14 of the DTR paper (simrd): chains, heuristics, ablations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rematbench.report.collect import Record
from rematbench.report.figures import Drawing
from rematbench.report.papers.simrd_notes import chain_notes, notes
from rematbench.report.style import heuristic_colour, heuristic_marker, hex_colour, marker
from rematbench.report.tables import latest
from rematbench.rows.row import Row, details, known

Style = Literal["-", "--", "-.", ":"]
Look = tuple[str, str, Style]
"""Colour, marker and line style of a curve."""


@dataclass(frozen=True)
class _Figure:
    """What a figure on logs shows.

    Attributes:
        title: the paper's figure.
        curves: what tells one curve from another, by names in ``extra``.
        accesses: show storage accesses instead of the slowdown.
    """

    title: str
    curves: tuple[str, ...] = ("heuristic",)
    accesses: bool = False


_ABLATION = ("staleness", "size")
FIGURES = {
    "simrd_fig4": _Figure("Figure 4: slowdown of each heuristic against the memory ratio"),
    "simrd_fig5": _Figure("Figure 5: DTR-Full, banishing and eager eviction", ("dealloc",)),
    "simrd_fig6": _Figure(
        "Figure 6: storage accesses of the three variants of h_DTR", accesses=True
    ),
} | {
    f"simrd_fig{number}": _Figure(
        f"Figure {number}: ablation of h(s, m, c) with c = {shown}",
        _ABLATION,
    )
    for number, shown in ((11, "e*"), (12, "EqClass"), (13, "local"), (14, "no"))
}
_CHAINS = {
    "simrd_fig2": ("Figure 2: additional computations on a chain, B = ceil(2 sqrt n)", "sqrt"),
    "simrd_fig3": ("Figure 3: additional computations on a chain, B = ceil(log2 n)", "log"),
}


def draw(name: str, records: Sequence[Record]) -> Drawing | None:
    """One of the figures of this module."""
    rows = [record.row for record in records]
    return _draw_chain(name, rows) if name in _CHAINS else _draw_logs(name, rows)


# Figures 2 and 3


def chain_table(rows: Sequence[Row]) -> pd.DataFrame:
    """Additional computations by length: of DTR, and of static strategies on the same chain."""
    found = []
    for row in rows:
        length = row["extra"].get("length")
        if row["status"] != "ok" or length is None:
            continue
        dtr = row["strategy"] == "dtr"
        extra = details(row)["additional_compute"] if dtr else None
        found.append(
            {
                "strategy": details(row)["heuristic"] if dtr else row["strategy"],
                "dealloc": details(row)["dealloc"] if dtr else "",
                "length": length,
                "budget": row["budget_bytes"],
                "additional": extra
                if dtr
                else known(row["cost"]) - known(row["checkpoint_all_cost"]),
            }
        )
    return latest(found, ["strategy", "dealloc", "length", "budget"])


def _draw_chain(name: str, rows: Sequence[Row]) -> Drawing | None:
    title, kind = _CHAINS[name]
    data = chain_table(rows)
    if data.empty:
        return None
    sns.set_theme("paper", "whitegrid")
    figure = Figure(figsize=(5.6, 3.9))
    axes = figure.subplots()
    for (strategy, dealloc), curve in data.groupby(["strategy", "dealloc"], sort=False):
        look, label = _chain_look(strategy, dealloc)
        axes.plot(
            curve["length"],
            curve["additional"],
            color=look[0],
            marker=look[1],
            linestyle=look[2],
            markersize=7 if dealloc == "eager" else 4,
            fillstyle="none" if dealloc == "eager" else "full",
            label=label,
        )
    lengths = np.array(sorted(set(data["length"])), dtype=float)
    if kind == "sqrt":
        axes.plot(lengths, lengths, color="0.25", linestyle=":", label="n (Chen, in theory)")
    else:
        axes.plot(
            lengths, lengths * np.log2(lengths), color="0.25", linestyle=":", label="n log2 n"
        )
    axes.set(xscale="log", yscale="log", xlabel="layers n", ylabel="additional computations")
    axes.set_xticks(lengths, [f"{int(n)}" for n in lengths], rotation=45)
    axes.minorticks_off()
    axes.legend(fontsize=7.5)
    return Drawing(title, data, figure, chain_notes(data, kind))


def _chain_look(strategy: str, dealloc: str) -> tuple[Look, str]:
    if not dealloc:
        return (hex_colour(strategy), marker(strategy), "-."), strategy
    style: Style = "-" if dealloc == "banish" else "--"
    shown = {"full": "DTR-Full", "lru": "LRU"}.get(strategy, strategy)
    return (heuristic_colour(strategy), heuristic_marker(strategy), style), f"{shown}, {dealloc}"


# Figures 4 to 6 and 11 to 14


def log_table(rows: Sequence[Row], shown: _Figure) -> pd.DataFrame:
    """One line per model, curve and memory ratio, failures included."""
    found = []
    for row in rows:
        extra = details(row)
        if extra.get("judge") != "dtr" or row["budget_fraction"] is None:
            continue  # it did not run
        peak = extra["banishing_peak_bytes"]
        found.append(
            {
                "model": row["model"],
                "curve": curve_name(extra, shown.curves),
                "memory_ratio": row["budget_fraction"],
                "status": row["status"],
                "slowdown": row["cost"] / known(row["checkpoint_all_cost"])
                if row["cost"]
                else None,
                "storage_accesses": extra["storage_accesses"],
                "constant_ratio": extra["constant_bytes"] / peak,
                "largest_op_ratio": extra["largest_op_bytes"] / peak,
            }
        )
    return latest(found, ["model", "curve", "memory_ratio"])


def curve_name(extra: Mapping[str, Any], parts: Sequence[str]) -> str:
    """``full``, ``banish``, or ``s=yes, m=no``."""
    if tuple(parts) == _ABLATION:
        yes = {True: "yes", False: "no"}
        return f"s={yes[extra['staleness']]}, m={yes[extra['size']]}"
    return str(extra["dealloc"] if parts[0] == "dealloc" else extra["heuristic"])


_ABLATION_LOOKS: dict[str, tuple[str, Style]] = {
    "s=yes, m=yes": ("full", "-"),
    "s=yes, m=no": ("lru", "--"),
    "s=no, m=yes": ("largest", "-."),
    "s=no, m=no": ("random", ":"),
}
_SHOWN = {
    "full": "DTR-Full",
    "eqclass": "DTR-EqClass",
    "local": "DTR-Local",
    "lru": "LRU",
    "largest": "largest",
    "random": "random",
    "eager": "eager eviction",
    "banish": "banishing",
    "s=yes, m=yes": "staleness s and size m",
    "s=yes, m=no": "staleness s only",
    "s=no, m=yes": "size m only",
    "s=no, m=no": "neither",
}


def _look(curve: str) -> Look:
    if curve in _ABLATION_LOOKS:
        like, style = _ABLATION_LOOKS[curve]
        return heuristic_colour(like), heuristic_marker(like), style
    known: dict[str, tuple[str, Style]] = {"eager": ("full", "--"), "banish": ("local", "-")}
    like, style = known.get(curve, (curve, "-"))
    return heuristic_colour(like), heuristic_marker(like), style


def _draw_logs(name: str, rows: Sequence[Row]) -> Drawing | None:
    shown = FIGURES[name]
    data = log_table(rows, shown)
    if data.empty:
        return None
    sns.set_theme("paper", "whitegrid")
    models = sorted(set(data["model"]))
    columns = min(3, len(models))
    lines = -(-len(models) // columns)
    figure = Figure(figsize=(3.1 * columns, 2.5 * lines + 0.5), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True)
    for axes, model in zip(grid.flat, models, strict=False):
        _panel(axes, data[data["model"] == model], shown)
        axes.set_title(model)
    for axes in list(grid.flat)[len(models) :]:
        axes.set_visible(False)
        # The panel above an empty place keeps its own labels.
    for column in range(columns):
        last = max(i for i in range(len(models)) if i % columns == column)
        grid.flat[last].tick_params(labelbottom=True)
        grid.flat[last].set_xlabel("memory ratio")
    label = "storage accesses" if shown.accesses else "slowdown (compute / unlimited)"
    for line in grid:
        line[0].set_ylabel(label)
    _legend(figure, data, shown)
    return Drawing(shown.title, data, figure, notes(name, data))


def _panel(axes: Axes, data: pd.DataFrame, shown: _Figure) -> None:
    """One model: its curves, the memory that nothing can save, the last ratio of each curve."""
    constant, largest = data["constant_ratio"].iloc[0], data["largest_op_ratio"].iloc[0]
    axes.axvspan(0, constant, color="0.15", linewidth=0)
    axes.axvspan(constant, min(1.0, constant + largest), color="0.75", linewidth=0)
    value = "storage_accesses" if shown.accesses else "slowdown"
    for curve in _in_order(data):
        mine = data[data["curve"] == curve]
        fine = mine[(mine["status"] == "ok") & (mine[value] > 0)]  # no access has no logarithm
        ink, sign, style = _look(curve)
        axes.plot(
            fine["memory_ratio"], fine[value], color=ink, marker=sign, linestyle=style, markersize=4
        )
        below = mine[mine["memory_ratio"] < fine["memory_ratio"].min()] if len(fine) else mine[:0]
        if len(below) and not shown.accesses:
            thrashed = below.iloc[-1]["status"] == "thrashed"
            axes.axvline(
                fine["memory_ratio"].min(),
                color=ink,
                linewidth=0.8,
                linestyle=(0, (5, 3)) if thrashed else (0, (1, 2)),
                zorder=1,
            )
    axes.set_xlim(0, 1.04)
    axes.margins(y=0.1)
    if shown.accesses:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0.97)


def _in_order(data: pd.DataFrame) -> list[str]:
    known = [*_SHOWN]
    return sorted(set(data["curve"]), key=lambda c: known.index(c) if c in known else len(known))


def _legend(figure: Figure, data: pd.DataFrame, shown: _Figure) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Line2D | Patch] = []
    for curve in _in_order(data):
        ink, sign, style = _look(curve)
        label = _SHOWN.get(curve, curve)
        handles.append(Line2D([], [], color=ink, marker=sign, linestyle=style, label=label))
    handles += [
        Patch(color="0.15", label="inputs, weights"),
        Patch(color="0.75", label="largest single op"),
    ]
    if not shown.accesses:
        for dashes, before in (((5, 3), "thrashing"), ((1, 2), "out of memory")):
            label, look = f"last before {before}", (0, dashes)
            line = Line2D([], [], linestyle=look, label=label, color="0.4", linewidth=0.8)
            handles.append(line)
    figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=7.5, frameon=False)
