"""Figures 5 and 7 of the MONeT paper: memory along a network, algorithms of a convolution."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from rematbench.graphs.files import read_graph, read_plan
from rematbench.graphs.kinds import Kind, kinds_of
from rematbench.graphs.simulate import simulate
from rematbench.report.collect import Record
from rematbench.report.figures import ClaimLine, Drawing
from rematbench.report.papers.monet import INKS, called, system
from rematbench.report.style import shown

_GB = 1e9


def draw(name: str, records: Sequence[Record]) -> Drawing | None:
    """One of the figures of this module."""
    return _draw_case(records) if name == "monet_fig5" else _draw_algorithms(records)


# Figure 5


def case_table(folders: dict[str, Path]) -> pd.DataFrame:
    """Per op of checkpoint-all: bytes live while each plan first computes it; recomputation.

    Args:
        folders: of checkpoint_all and both variants of anytime_joint; of monet where it has a plan.
    """
    frame = pd.DataFrame()
    for name, folder in folders.items():
        graph, plan = read_graph(folder / "graph.json.gz"), read_plan(folder / "plan.json")
        trace, tables = simulate(graph, plan), graph.tables
        seen: dict[str, int] = {}
        bytes_of, again = [], []
        spent = 0.0
        for code, live in zip(trace.codes.tolist(), trace.bytes_during.tolist(), strict=True):
            if code < 0:
                continue
            op = graph.ops[int(tables.op_of[code])].name
            if op in seen:
                spent += float(tables.cost[code])
                continue
            seen[op] = len(seen)
            bytes_of.append(live / _GB)
            again.append(spent)
            spent = 0.0
        mine = pd.DataFrame({"memory_GB": bytes_of, "recomputation": again}, index=list(seen))
        mine = mine.add_prefix(f"{name} ")
        frame = mine if frame.empty else frame.join(mine)
    return frame.reset_index(names="op")


_CASE = {
    "checkpoint_all": "PyTorch (checkpoint_all)",
    "monet": "monet (the published program)",
    "anytime_joint noop": "anytime_joint (ours), recomputation only",
    "anytime_joint": "anytime_joint (ours)",
}


def _draw_case(records: Sequence[Record]) -> Drawing | None:
    folders: dict[str, Path] = {}
    failed = "no row"
    for record in records:
        row, folder = record.row, record.folder
        name = system(row)
        if name == "monet" and row["status"] != "ok":
            failed = f"no plan: {row['reason']}"
        if (
            row["status"] == "ok"
            and name in _CASE
            and folder is not None
            and (folder / "plan.json").exists()
        ):
            folders[str(name)] = folder
            network, batch = called(str(row["model"])), row["batch_size"]
    if not {*_CASE} - {"monet"} <= set(folders):
        return None
    there = [name for name in _CASE if name in folders]
    data = case_table({name: folders[name] for name in there})
    peaks = {name: data[f"{name} memory_GB"].max() for name in there}
    notes = tuple(
        ClaimLine(
            f"{network}, batch {batch}: peak of PyTorch and of the plan of {shown(name)}",
            "14.7 GB and 8 GB (ResNet-50, batch 184)" if name == "monet" else "not there",
            f"{peaks['checkpoint_all']:.1f} GB and {peaks[name]:.1f} GB (simulated)"
            if name in peaks
            else failed,
            "recomputation is drawn before the op that it is for, so only first computes count",
        )
        for name in ("monet", "anytime_joint")
    )
    title = f"Figure 5: memory, saving and recomputation along {network}'s ops"
    return Drawing(title, data, _case_picture(data, there), notes)


def _case_picture(data: pd.DataFrame, there: Sequence[str]) -> Figure:
    sns.set_theme("paper", "whitegrid")
    figure = Figure(figsize=(6.6, 5.0), layout="constrained")
    top, middle, bottom = figure.subplots(3, 1, sharex=True)
    place = np.arange(len(data))
    for name in there:
        memory, ink = data[f"{name} memory_GB"], INKS[name]
        top.plot(place, memory, color=ink, label=_CASE[name], linewidth=1.1)
    base = data["checkpoint_all memory_GB"]
    for name in there[1:]:
        middle.plot(place, base - data[f"{name} memory_GB"], color=INKS[name], linewidth=1.1)
        bottom.step(place, data[f"{name} recomputation"] * 1e3, color=INKS[name], linewidth=1.1)
    top.set_ylabel("memory (GB)")
    middle.set_ylabel("saved (GB)")
    bottom.set(ylabel="recomputed (ms,\nmodelled)", xlabel="op, in program order")
    figure.legend(loc="outside upper center", ncols=2, fontsize=8, frameon=False)
    return figure


# Figure 7

_SHOWN = {
    "channels_last": "channels last",
    "chunk2": "batch in 2 parts",
    "chunk8": "batch in 8 parts",
    "im2col": "im2col, whole batch",
    "im2col_image": "im2col, image by image",
    "fft": "FFT",
    "winograd": "Winograd F(2 x 2)",
    "winograd_image": "Winograd, image by image",
}


def algorithm_table(folder: Path) -> pd.DataFrame:
    """Cost and workspace of each algorithm of a lone convolution, forward."""
    graph = read_graph(folder / "graph.json.gz")
    op = next(op for op in graph.ops if op.name == "convolution")
    return pd.DataFrame(
        [
            {
                "algorithm": implementation.name.removeprefix("conv:"),
                "workspace_MB": implementation.workspace_bytes / 1e6,
                "cost": implementation.cost,
                "cost_unit": graph.cost_unit,
            }
            for implementation in op.implementations
            if kinds_of(implementation.name) <= {Kind.DEFAULT, Kind.CONVOLUTION}
        ]
    )


def _draw_algorithms(records: Sequence[Record]) -> Drawing | None:
    folder = next(
        (
            record.folder
            for record in reversed(records)
            if record.folder is not None and (record.folder / "graph.json.gz").exists()
        ),
        None,
    )
    if folder is None:
        return None
    data = algorithm_table(folder)
    sns.set_theme("paper", "whitegrid")
    figure = Figure(figsize=(5.4, 3.2), layout="constrained")
    axes = figure.subplots()
    shown = data.assign(algorithm=data["algorithm"].replace(_SHOWN))
    sns.scatterplot(
        shown, x="workspace_MB", y="cost", hue="algorithm", style="algorithm", s=60,
        palette="colorblind", ax=axes,
    )  # fmt: skip
    axes.set(xlabel="workspace (MB)", ylabel=f"measured cost ({data['cost_unit'].iloc[0]})")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7, title=None, loc="center left", bbox_to_anchor=(1, 0.5))
    order = data.sort_values("workspace_MB")["cost"].to_list()
    falls = sum(later < earlier for earlier, later in itertools.pairwise(order))
    note = ClaimLine(
        "more workspace is not always faster",
        "'not always inversely proportional' (appendix I)",
        f"{falls} of {len(order) - 1} steps to more workspace are faster",
        f"{len(data)} algorithms within PyTorch's public operations, on this device, in place of "
        "cuDNN's 7 on a P100; those that need more than the whole step are not offered",
    )
    title = "Figure 7: memory and cost of a convolution's algorithms"
    return Drawing(title, data, figure, (note,))
