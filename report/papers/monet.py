"""Figures 3, 4, 6 and 8 of the MONeT paper: cost against memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rematbench.report.collect import Record
from rematbench.report.figures import ClaimLine, Drawing
from rematbench.report.style import hex_colour, marker, shown
from rematbench.report.tables import latest
from rematbench.rows.row import Row, known

SHOWN = {
    **{"vgg16": "VGG-16", "resnet50": "ResNet-50", "googlenet": "GoogleNet"},
    **{"mobilenet_v2": "MobileNet-V2", "unet": "U-Net", "unet3d": "3D-UNet"},
}
_ABLATION = ("noop", "conv", "output", "intermediate", "full")
_STRATEGIES = ("gist", "checkmate_d", "checkmate_o", "anytime", "anytime_joint", "monet")
# The strategies' own, and for MONeT's variants those that no strategy of these figures has.
INKS = {each: hex_colour(each) for each in (*_STRATEGIES, "checkpoint_all")} | {
    "anytime_joint noop": "#de8f05",
    "anytime_joint conv": "#029e73",
    "anytime_joint output": "#d55e00",
    "anytime_joint intermediate": "#cc78bc",
}
_MARKS = {each: marker(each) for each in _STRATEGIES} | {
    "anytime_joint noop": "s",
    "anytime_joint conv": "^",
    "anytime_joint output": "D",
    "anytime_joint intermediate": "o",
}
_LABELS = {
    "checkmate_d": "checkmate_d (default convolutions)",
    "checkmate_o": "checkmate_o (fastest convolutions)",
    "anytime": "anytime (ours: no choice of implementations)",
    "anytime_joint": "anytime_joint (ours: MONeT's problem)",
    "monet": "monet (the published program)",
    "anytime_joint noop": "ours, none (recomputation only)",
    "anytime_joint conv": "ours, conv (algorithms of convolutions)",
    "anytime_joint output": "ours, output (gradients from outputs)",
    "anytime_joint intermediate": "ours, intermediate (masks)",
}
_FIG4_RATIO = 0.53  # of the memory
_BASELINE: dict[str, Any] = {"color": "0.3", "linewidth": 0.8, "linestyle": ":"}
_HOLLOW = ("checkmate_d", "anytime_joint noop")  # often hidden by another: drawn around it
WHY = "a V100 roofline in place of a measured P100; HiGHS and a search with a short limit"


def draw(name: str, records: Sequence[Record]) -> Drawing | None:
    """One of the figures of this module."""
    data = tradeoffs([record.row for record in records])
    if data.empty:
        return None
    functions = {
        "monet_fig3": _draw_comparison,
        "monet_fig4": _draw_bars,
        "monet_fig6": _draw_ablation,
        "monet_fig8": _draw_volume,
    }
    return functions[name](data)


def tradeoffs(rows: Sequence[Row]) -> pd.DataFrame:
    """One line per job: budget, memory as simulated, and overhead.

    Workspace-blind Checkmate is taken with its true peak, over the budget or not.
    """
    found = [
        {
            "model": row["model"],
            "system": system(row),
            "budget": row["budget_fraction"],
            "status": row["status"],
            "memory": _over(row["peak_bytes"], row["checkpoint_all_peak_bytes"], row),
            "peak_GB": known(row["peak_bytes"]) / 1e9 if row["cost"] is not None else None,
            "overhead": row["overhead"] if row["cost"] is not None else None,
            "cost": row["cost"],
            "gap": row["gap"],
            "bound_of": row["bound_of"],
            "measured_overhead": row["measured_overhead"],
            "checkpoint_all_GB": known(row["checkpoint_all_peak_bytes"]) / 1e9,
            "costmodel": row["costmodel"],
        }
        for row in rows
        if system(row) is not None and row["checkpoint_all_peak_bytes"]
    ]
    return latest(found, ["model", "system", "budget"])


def system(row: Row) -> str | None:
    """What a row is called in MONeT's figures; None: it is not in them."""
    if row["strategy"] == "anytime_joint":
        variant = row["variant"]
        return {"full": row["strategy"], None: None}.get(variant, f"anytime_joint {variant}")
    return row["strategy"] if row["strategy"] in INKS else None


def _over(peak: int | None, base: int | None, row: Row) -> float | None:
    return peak / base if peak and base and row["cost"] is not None else None


def of(data: pd.DataFrame, systems: Sequence[str]) -> pd.DataFrame:
    """The rows of these systems."""
    return data[data["system"].isin(systems)].reset_index(drop=True)


def networks(data: pd.DataFrame, order: Iterable[str] = SHOWN) -> list[str]:
    """The models, the paper's first, in its order."""
    there, first = set(data["model"]), list(order)
    return [model for model in first if model in there] + sorted(there - {*first})


def called(model: str) -> str:
    """What the paper calls a model."""
    return SHOWN.get(model, model)


# Figures 3, 6 and 8


def _panels(data: pd.DataFrame, systems: Sequence[str]) -> Figure:
    models = networks(data)
    sns.set_theme("paper", "whitegrid")
    width = max(5.4, 0.9 + 2.9 * len(models))
    figure = Figure(figsize=(width, 3.4), layout="constrained")
    panels = figure.subplots(1, len(models), squeeze=False)[0]
    for axes, model in zip(panels, models, strict=True):
        for each in systems:
            mine = data[(data["model"] == model) & (data["system"] == each)]
            _curve(axes, each, mine.dropna(subset="memory").sort_values("memory"))
        axes.axhline(0, label="checkpoint-all, default convolutions", **_BASELINE)
        axes.margins(0.08)
        axes.set_title(called(model), fontsize=9)
        axes.set(xlabel="memory / checkpoint-all's", ylabel="")
    panels[0].set_ylabel("modelled overhead (%)")
    look: dict[str, Any] = {"ncols": 2 if len(models) == 1 else 3, "fontsize": 7.5}
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", frameon=False, **look)
    return figure


def _curve(axes: Axes, name: str, mine: pd.DataFrame) -> None:
    axes.plot(
        mine["memory"],
        100 * mine["overhead"],
        label=_LABELS.get(name, name) + ("" if len(mine) else ": no plan"),
        color=INKS[name],
        marker=_MARKS[name],
        markersize=10 if name in _HOLLOW else 5,
        fillstyle="none" if name in _HOLLOW else "full",
        linewidth=1.6 if name == "anytime_joint" else 1.0,
    )


def _draw_comparison(data: pd.DataFrame) -> Drawing | None:
    systems = ("checkmate_d", "checkmate_o", "anytime", "anytime_joint", "monet")
    data = of(data, systems)
    if data.empty:
        return None
    blind = data[data["system"].isin(["checkmate_d", "checkmate_o"]) & data["memory"].notna()]
    over = blind[blind["memory"] > blind["budget"] * (1 + 1e-9)]
    notes = (
        ClaimLine(
            "plans of MONeT's problem lie below Checkmate-D's and Checkmate-O's",
            "yes (section 5)",
            _below(data),
            WHY,
        ),
        ClaimLine(
            "workspace-blind schedules over their budget",
            "'Checkmate does not consider workspace cost and overestimates its savings'",
            f"{len(over)} of {len(blind)} (simulated)",
            "ours run at their true peak, where they are drawn",
        ),
        published(data),
    )
    title = "Figure 3: MONeT and Checkmate, overhead against memory"
    return Drawing(title, data, _panels(data, systems), notes)


def _below(data: pd.DataFrame) -> str:
    """How often a plan of MONeT's problem costs less at no more memory than Checkmate's."""
    ours, hits, asked = data[data["system"] == "anytime_joint"].dropna(subset="memory"), 0, 0
    for other in data[data["system"].isin(["checkmate_d", "checkmate_o"])].itertuples():
        if pd.isna(other.memory):
            continue
        rivals = ours[(ours["model"] == other.model) & (ours["memory"] <= other.memory + 1e-9)]
        asked += 1
        hits += bool(len(rivals)) and bool(rivals["overhead"].min() <= other.overhead + 1e-9)
    text = f"at {hits} of {asked} of their points anytime_joint (ours) has one"
    return f"{text} of no more memory and cost"


def _draw_ablation(data: pd.DataFrame) -> Drawing | None:
    systems = (*_of_the_ablation(), "monet")
    data = of(data, systems)
    if data.empty:
        return None
    title = "Figure 6: ablation of anytime_joint (ours), overhead against memory; monet beside it"
    return Drawing(title, data, _panels(data, systems), (ranked(data), published(data)))


def published(data: pd.DataFrame) -> ClaimLine:
    """What the program as published has at the budgets of a figure, in its time limit."""
    asked = data[data["system"] == "monet"]
    met = asked.dropna(subset="overhead")
    text = f"plans at {len(met)} of {len(asked)} budgets"
    if len(met):
        text += ": " + "; ".join(
            f"{called(each.model)} {each.overhead:+.1%} at {each.memory:.2f}"
            for each in met.itertuples()
        )
    return ClaimLine(
        "monet, the program as published",
        "a plan at each of its points, in up to a day",
        text if len(asked) else "no row of monet",
        "HiGHS with a short limit in place of Gurobi; curves of anytime_joint are our search's",
    )


def _of_the_ablation() -> tuple[str, ...]:
    joint = "anytime_joint"
    return tuple(joint if each == "full" else f"{joint} {each}" for each in _ABLATION)


def ranked(data: pd.DataFrame) -> ClaimLine:
    """Is full the cheapest, and noop the dearest, at every budget that all were asked for?

    No plan counts as a cost without limit.
    """
    data = of(data, _of_the_ablation())  # the published program was asked for fewer budgets
    costs = data.assign(cost=data["cost"].astype(float).fillna(np.inf))
    table = costs.pivot_table(index=["model", "budget"], columns="system", values="cost").dropna()
    near = 1 + 1e-6
    good = (table["anytime_joint"] <= table.min(axis=1) * near) & (
        table["anytime_joint noop"] * near >= table.max(axis=1)
    )
    return ClaimLine(
        "full <= each ablation <= none, of anytime_joint (ours)",
        "yes (Figures 4 and 6)",
        f"at {int(good.sum())} of {len(good)} budgets (modelled cost; no plan counts as dearest)",
        WHY,
    )


def _draw_volume(data: pd.DataFrame) -> Drawing | None:
    systems = ("monet", "anytime_joint")
    data = of(data, systems)
    if data["memory"].dropna().empty:
        return None
    notes = [
        ClaimLine(
            f"3D-UNet, batch 22: least memory of {shown(each)}",
            "0.54 at 8.86 % overhead (appendix J)" if each == "monet" else "not there",
            _leanest(data[data["system"] == each]),
            WHY,
        )
        for each in systems
    ]
    title = "Figure 8: 3D-UNet, overhead against memory"
    return Drawing(title, data, _panels(data, systems), tuple(notes))


def _leanest(data: pd.DataFrame) -> str:
    """The plan of least memory, in words."""
    fine = data.dropna(subset="memory")
    if fine.empty:
        return "no row" if data.empty else f"no plan at {len(data)} budgets"
    least = fine.loc[fine["memory"].idxmin()]
    return f"{least['memory']:.2f} at {least['overhead']:.1%} (simulated, modelled)"


# Figure 4


def _draw_bars(data: pd.DataFrame) -> Drawing | None:
    systems = (*_of_the_ablation(), "monet")
    data = of(data, systems)
    asked = data["budget"].astype(float)
    ratio = asked.iloc[(asked - _FIG4_RATIO).abs().argmin()] if asked.notna().any() else None
    data = data[asked == ratio].reset_index(drop=True)  # the paper's, where that was asked for
    if data["overhead"].dropna().empty:
        return None
    models = networks(data)
    figure, without = _bars(data, models, systems)
    note = ClaimLine(
        "variants without a plan",
        "not printed",
        ", ".join(without) or "none",
        "a plan that was not found in the time limit may exist",
    )
    title = (
        f"Figure 4: ablation of anytime_joint (ours) at {ratio:g} of the memory; monet beside it"
    )
    return Drawing(title, data, figure, (ranked(data), published(data), note))


def _bars(
    data: pd.DataFrame, models: Sequence[str], systems: Sequence[str]
) -> tuple[Figure, list[str]]:
    """A group of bars per network, and which variants have none."""
    sns.set_theme("paper", "whitegrid")
    figure = Figure(figsize=(max(5.4, 0.9 + 1.8 * len(models)), 3.4), layout="constrained")
    axes = figure.subplots()
    percent = 100 * data.pivot(index="model", columns="system", values="overhead").astype(float)
    percent = percent.reindex(index=models, columns=systems)
    side = "top" if np.nanmax(percent) <= 0 else "bottom"  # where the bars are
    without = []
    for place, name in enumerate(systems):
        left = np.arange(len(models)) + 0.15 * (place - 2.5)
        label = "ours, all (anytime_joint)" if name == "anytime_joint" else _LABELS[name]
        axes.bar(left, percent[name].fillna(0), width=0.13, color=INKS[name], label=label)
        for at, model in zip(left, models, strict=True):
            if np.isnan(percent.loc[model, name]):
                without.append(f"{called(model)} {label}")
                axes.text(at, 0, " no plan ", rotation=90, ha="center", va=side, fontsize=7.5)
    axes.axhline(0, label="checkpoint-all, default convolutions", **_BASELINE)
    axes.set_xticks(range(len(models)), [called(model) for model in models])
    axes.set_ylabel("modelled overhead (%)")
    axes.grid(axis="x", visible=False)
    figure.legend(loc="outside lower center", ncols=2, fontsize=7.5, frameon=False)
    return figure, without
