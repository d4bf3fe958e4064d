"""Figures 3, 4, 6 and 8 and Tables 1 and 3 of the MONeT paper: cost against memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rematbench.row import Row
from report.collect import Record
from report.figures import Comparison, Drawing
from report.tables import table_picture

# Batches of the paper (Table 3, appendix J), by which its rows are told from others.
BATCHES = {"vgg16": 176, "resnet50": 184, "googlenet": 320, "mobilenet_v2": 256, "unet": 11}
SHOWN = {
    **{"vgg16": "VGG-16", "resnet50": "ResNet-50", "googlenet": "GoogleNet"},
    **{"mobilenet_v2": "MobileNet-V2", "unet": "U-Net", "unet3d": "3D-UNet"},
}
_BATCH_3D = 22
_ABLATION = ("noop", "conv", "output", "intermediate", "full")
_SYSTEMS = ("gist", "checkmate_d", "checkmate_o", "checkmate_ilp", "monet noop", "monet")
_INKS = dict(zip(_SYSTEMS, sns.color_palette("colorblind", len(_SYSTEMS)), strict=True))
_MARKS = dict(zip(_SYSTEMS, "sv^DPo", strict=True))
_WHY = "a V100 roofline in place of a measured P100; HiGHS and a search with a short limit"


def draw(name: str, records: Sequence[Record]) -> Drawing | None:
    """One of the figures of this module."""
    data = tradeoffs([record.row for record in records])
    if data.empty:
        return None
    functions = {
        "monet_table1": _draw_memory,
        "monet_table3": _draw_gist,
        "monet_fig3": _draw_comparison,
        "monet_fig4": _draw_bars,
        "monet_fig6": _draw_ablation,
        "monet_fig8": _draw_volume,
    }
    return functions[name](data)


def system(row: Row) -> str | None:
    """What a row is called in these figures; None: it is not in them."""
    if row["strategy"] == "monet":
        variant = row["variant"]
        return {"full": "monet", None: None}.get(variant, f"monet {variant}")
    return row["strategy"] if row["strategy"] in (*_SYSTEMS, "checkpoint_all") else None


def tradeoffs(rows: Sequence[Row]) -> pd.DataFrame:
    """One line per job of the paper's networks: budget, memory as simulated, and overhead.

    Workspace-blind Checkmate is taken with its true peak, over the budget or not.
    """
    found = [
        {
            "model": row["model"],
            "system": system(row),
            "budget": row["budget_fraction"],
            "status": row["status"],
            "memory": _over(row["peak_bytes"], row["checkpoint_all_peak_bytes"], row),
            "peak_GB": row["peak_bytes"] / 1e9 if row["cost"] is not None else None,
            "overhead": row["overhead"] if row["cost"] is not None else None,
            "cost": row["cost"],
            "gap": row["gap"],
            "bound_of": row["bound_of"],
            "measured_overhead": row["measured_overhead"],
            "checkpoint_all_GB": row["checkpoint_all_peak_bytes"] / 1e9,
            "costmodel": row["costmodel"],
        }
        for row in rows
        if is_paper_row(row)
    ]
    if not found:
        return pd.DataFrame()
    frame = pd.DataFrame(found).drop_duplicates(["model", "system", "budget"], keep="last")
    return frame.sort_values(["model", "system", "budget"], ignore_index=True)


def is_paper_row(row: Row) -> bool:
    """Is it a job of a network at the paper's batch, under full accounting?"""
    batches = {**BATCHES, "unet3d": _BATCH_3D}
    return (
        row["model"] in batches
        and row["batch_size"] == batches[row["model"]]
        and row["extra"].get("accounting") == "full"
        and row["costmodel"] in ("roofline", "profiled")
        and system(row) is not None
    )


def _over(peak: int | None, base: int | None, row: Row) -> float | None:
    return peak / base if peak and base and row["cost"] is not None else None


def _of(data: pd.DataFrame, systems: Sequence[str], volumes: bool = False) -> pd.DataFrame:
    wanted = data["system"].isin(systems) & ((data["model"] == "unet3d") == volumes)
    return data[wanted].reset_index(drop=True)


def _compared(data: pd.DataFrame, least: int = 2) -> pd.DataFrame:
    """Only networks that so many systems were asked for: other figures run fewer."""
    several = data.groupby("model")["system"].transform("nunique") >= least
    return data[several].reset_index(drop=True)


# Figures 3, 6 and 8


def _panels(data: pd.DataFrame, systems: Sequence[str], inks: dict[str, object]) -> Figure:
    models = [model for model in SHOWN if model in set(data["model"])]
    sns.set_theme("paper", "whitegrid")
    figure = Figure(figsize=(0.9 + 2.9 * len(models), 3.1), layout="constrained")
    panels = figure.subplots(1, len(models), squeeze=False)[0]
    for axes, model in zip(panels, models, strict=True):
        for each in systems:
            mine = data[(data["model"] == model) & (data["system"] == each)]
            _curve(axes, each, mine.dropna(subset="memory").sort_values("memory"), inks[each])
        axes.axhline(0, color="0.3", linewidth=0.8, linestyle=":")
        axes.set_title(SHOWN[model], fontsize=9)
        axes.set(xlabel="memory / checkpoint-all's", ylabel="")
    panels[0].set_ylabel("modelled overhead (%)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=7.5, frameon=False)
    return figure


def _curve(axes: Axes, name: str, mine: pd.DataFrame, ink: object) -> None:
    axes.plot(
        mine["memory"],
        100 * mine["overhead"],
        label=name,
        color=ink,
        marker=_MARKS.get(name, "o"),
        markersize=9 if name == "checkmate_d" else 5,  # often hidden by another
        markerfacecolor="none" if name == "checkmate_d" else None,
        linewidth=1.6 if name == "monet" else 1.0,
    )


def _draw_comparison(data: pd.DataFrame) -> Drawing | None:
    systems = ("checkmate_d", "checkmate_o", "checkmate_ilp", "monet")
    data = _compared(_of(data, systems))
    if data.empty:
        return None
    blind = data[data["system"].isin(["checkmate_d", "checkmate_o"]) & data["memory"].notna()]
    over = blind[blind["memory"] > blind["budget"] * (1 + 1e-9)]
    notes = (
        Comparison(
            "MONeT lies below Checkmate-D and Checkmate-O",
            "yes (section 5)",
            _below(data),
            _WHY,
        ),
        Comparison(
            "workspace-blind schedules over their budget",
            "'Checkmate does not consider workspace cost and overestimates its savings'",
            f"{len(over)} of {len(blind)} (simulated)",
            "ours run at their true peak, where they are drawn",
        ),
    )
    title = "Figure 3: MONeT and Checkmate, overhead against memory"
    return Drawing(title, data, _panels(data, systems, _INKS), notes)


def _below(data: pd.DataFrame) -> str:
    """How often MONeT's plan costs less at no more memory than Checkmate's."""
    monet, hits, asked = data[data["system"] == "monet"].dropna(subset="memory"), 0, 0
    for other in data[data["system"].isin(["checkmate_d", "checkmate_o"])].itertuples():
        if pd.isna(other.memory):
            continue
        rivals = monet[(monet["model"] == other.model) & (monet["memory"] <= other.memory + 1e-9)]
        asked += 1
        hits += bool(len(rivals)) and bool(rivals["overhead"].min() <= other.overhead + 1e-9)
    return f"at {hits} of {asked} of their points MONeT has one of no more memory and cost"


def _draw_ablation(data: pd.DataFrame) -> Drawing | None:
    systems = tuple("monet" if each == "full" else f"monet {each}" for each in _ABLATION)
    data = _compared(_of(data, systems), len(systems))
    if data.empty:
        return None
    inks = dict(zip(systems, sns.color_palette("colorblind", len(systems)), strict=True))
    return Drawing(
        "Figure 6: ablation, overhead against memory",
        data,
        _panels(data, systems, inks),
        (ranked(data),),
    )


def ranked(data: pd.DataFrame) -> Comparison:
    """Is full the cheapest, and noop the dearest, at every budget that all were asked for?

    No plan counts as a cost without limit.
    """
    costs = data.assign(cost=data["cost"].astype(float).fillna(np.inf))
    table = costs.pivot_table(index=["model", "budget"], columns="system", values="cost").dropna()
    near = 1 + 1e-6
    good = (table["monet"] <= table.min(axis=1) * near) & (
        table["monet noop"] * near >= table.max(axis=1)
    )
    return Comparison(
        "full <= each ablation <= none",
        "yes (Figures 4 and 6)",
        f"at {int(good.sum())} of {len(good)} budgets (modelled cost; no plan counts as dearest)",
        _WHY,
    )


def _draw_volume(data: pd.DataFrame) -> Drawing | None:
    data = _of(data, ["monet"], volumes=True)
    if data["memory"].dropna().empty:
        return None
    fine = data.dropna(subset="memory")
    least = fine.loc[fine["memory"].idxmin()]
    note = Comparison(
        "3D-UNet, batch 22: least memory",
        "0.54 at 8.86 % overhead (appendix J)",
        f"{least['memory']:.2f} at {least['overhead']:.1%} (simulated, modelled)",
        _WHY,
    )
    title = "Figure 8: 3D-UNet, overhead against memory"
    return Drawing(title, data, _panels(data, ["monet"], _INKS), (note,))


# Figure 4

_MEMORY_RATIO = 0.53


def _draw_bars(data: pd.DataFrame) -> Drawing | None:
    systems = ["monet" if each == "full" else f"monet {each}" for each in _ABLATION]
    data = _of(data, systems)
    data = data[np.isclose(data["budget"].astype(float), _MEMORY_RATIO)].reset_index(drop=True)
    if data["overhead"].dropna().empty:
        return None
    sns.set_theme("paper", "whitegrid")
    figure = Figure(figsize=(6.2, 3.0), layout="constrained")
    axes = figure.subplots()
    shown = data.assign(
        network=data["model"].map(SHOWN),
        percent=100 * data["overhead"],
        variant=data["system"].str.removeprefix("monet ").replace({"monet": "all", "noop": "none"}),
    )
    order = ["none", *_ABLATION[1:4], "all"]
    sns.barplot(
        shown, x="network", y="percent", hue="variant", hue_order=order, palette="colorblind",
        ax=axes,
    )  # fmt: skip
    axes.set(xlabel="", ylabel="modelled overhead (%)")
    axes.legend(title=None, ncols=5, fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, 1.15))
    missing = shown[shown["overhead"].isna()]
    without = ", ".join(f"{each.network} {each.variant}" for each in missing.itertuples())
    if without:
        axes.set_title(f"no plan: {without}", fontsize=8, loc="left", y=-0.25)
    note = Comparison(
        "variants without a plan",
        "not printed",
        without or "none",
        "a plan that was not found in the time limit may exist",
    )
    title = f"Figure 4: ablation at {_MEMORY_RATIO} of the memory"
    return Drawing(title, data, figure, (ranked(data), note))


# Tables 1 and 3


@dataclass(frozen=True)
class _Printed:
    """Table 1, in GB."""

    pytorch: float
    checkmate: float
    monet: float


_TABLE_1 = {
    "resnet50": _Printed(15.1, 8.2, 5.7),
    "googlenet": _Printed(14.9, 10.5, 6.9),
    "unet": _Printed(14.3, 9.1, 5.2),
    "vgg16": _Printed(14.1, 9.9, 5.5),
    "mobilenet_v2": _Printed(14.5, 5.8, 4.8),
}
_OVERHEAD = 0.1


def memory_table(data: pd.DataFrame) -> pd.DataFrame:
    """Least simulated memory of the plans whose modelled overhead is at most 10 %."""
    found = []
    for model in [each for each in _TABLE_1 if each in set(data["model"])]:
        mine = data[(data["model"] == model) & (data["overhead"] <= _OVERHEAD)]
        least = mine.groupby("system")["peak_GB"].min()
        line = {"model": model, "pytorch": data[data["model"] == model]["checkpoint_all_GB"].max()}
        for name in ("checkmate_d", "checkmate_o", "checkmate_ilp", "monet"):
            line[name] = least.get(name)
        found.append(line)
    return pd.DataFrame(found)


def _draw_memory(data: pd.DataFrame) -> Drawing | None:
    systems = ("checkmate_d", "checkmate_o", "checkmate_ilp", "monet")
    table = memory_table(_compared(_of(data, systems)))
    if table.empty or table["monet"].dropna().empty:
        return None
    notes = []
    for each in table.itertuples():
        printed = _TABLE_1[each.model]
        blind = each.checkmate_o
        ratio = "no plan" if pd.isna(blind) or pd.isna(each.monet) else f"{blind / each.monet:.2f}x"
        aware = each.checkmate_ilp
        both = pd.isna(aware) or pd.isna(each.monet)
        notes.append(
            Comparison(
                f"{SHOWN[each.model]}: memory at 10 % overhead, Checkmate-O / MONeT",
                f"{printed.checkmate} / {printed.monet} GB = "
                f"{printed.checkmate / printed.monet:.2f}x",
                f"{ratio}; workspace-aware checkmate_ilp "
                + ("no plan" if both else f"{aware / each.monet:.2f}x"),
                f"least of the budgets tried; {_WHY}",
            )
        )
    shown = table.assign(model=table["model"].map(SHOWN)).round(2)
    shown["paper\nPyTorch / Checkmate / MONeT"] = [
        f"{p.pytorch} / {p.checkmate} / {p.monet}" for p in map(_TABLE_1.get, table["model"]) if p
    ]
    title = "Table 1: memory (GB) at no more than 10 % overhead (modelled), tried budgets"
    return Drawing(title, table, table_picture(shown, title), tuple(notes))


# Memory ratio and overhead (%), Gist and MONeT, on a P100.
_TABLE_3 = {
    "vgg16": (0.76, 44.34, 0.39, 9.11),
    "resnet50": (0.58, 105.69, 0.33, 11.94),
    "googlenet": (0.52, 35.94, 0.33, 15.77),
    "mobilenet_v2": (0.69, 153.98, 0.34, 8.80),
    "unet": (0.73, 38.26, 0.35, 11.51),
}


def gist_table(data: pd.DataFrame) -> pd.DataFrame:
    """Per network: Gist's one plan, and MONeT's of least memory."""
    found = []
    for model in [each for each in _TABLE_3 if each in set(data["model"])]:
        mine = data[(data["model"] == model)].dropna(subset="memory")
        line: dict[str, object] = {"model": model}
        for name in ("gist", "monet"):
            plans = mine[mine["system"] == name].sort_values("memory")
            line[f"{name}_memory"] = plans["memory"].iloc[0] if len(plans) else None
            line[f"{name}_overhead"] = plans["overhead"].iloc[0] if len(plans) else None
        found.append(line)
    frame = pd.DataFrame(found)
    return frame.dropna(subset="gist_memory", ignore_index=True) if len(frame) else frame


def _draw_gist(data: pd.DataFrame) -> Drawing | None:
    table = gist_table(data)
    if table.empty:
        return None
    notes = []
    for each in table.itertuples():
        gist, slow, least, cost = _TABLE_3[each.model]
        ours = (
            "no plan of MONeT"
            if pd.isna(each.monet_memory)
            else f"MONeT {each.monet_memory:.2f} at {each.monet_overhead:.1%}"
        )
        notes.append(
            Comparison(
                SHOWN[each.model],
                f"Gist {gist} at {slow} %, MONeT {least} at {cost} %",
                f"Gist {each.gist_memory:.2f} at {each.gist_overhead:.1%} (lossy), {ours}",
                f"least of the budgets tried; without a device no sparsity is measured, so Gist "
                f"stores nothing sparsely; {_WHY}",
            )
        )
    shown = table.assign(model=table["model"].map(SHOWN)).round(3)
    title = "Table 3: memory ratio and modelled overhead of Gist and of MONeT's leanest plan"
    return Drawing(title, table, table_picture(shown, title), tuple(notes))
