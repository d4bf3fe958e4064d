"""Figures 1, 3 and 6 and Table 1 of the Checkmate paper: memory, batches and traits."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from rematbench.graphs.files import read_graph
from rematbench.report.collect import Record
from rematbench.report.figures import ClaimLine, Drawing
from rematbench.report.papers.checkmate_ratios import paper_name
from rematbench.report.style import colour, order, shown
from rematbench.report.tables import latest, table_picture
from rematbench.rows.row import Row, known
from rematbench.strategies import registry

_GB = 1e9
_ILP = "checkmate_ilp"
_OURS = "anytime"


def draw(name: str, records: Sequence[Record]) -> Drawing | None:
    """One of the figures of this module."""
    if name == "checkmate_fig1":
        return _draw_timeline(records)
    rows = [record.row for record in records]
    if name == "checkmate_fig3":
        return _draw_architectures(rows)
    return _draw_batches(rows) if name == "checkmate_fig6" else _draw_traits(rows)


# Figure 1


def timeline(folder: Path) -> pd.DataFrame:
    """Live bytes against the cost spent so far, one line per computed op."""
    graph = read_graph(folder / "graph.json.gz")
    costs = {op.name: op.implementations[0].cost for op in graph.ops}
    spent, found = 0.0, []
    with (folder / "trace.csv").open(newline="") as file:
        for line in csv.DictReader(file):
            if line["action"] == "compute":
                spent += costs[line["name"]]
                found.append((spent, int(line["bytes_during"]) / _GB))
    return pd.DataFrame(found, columns=["cost", "memory_GB"])


def _draw_timeline(records: Sequence[Record]) -> Drawing | None:
    parts, rows = [], {}
    for strategy in ("checkpoint_all", _ILP, _OURS):
        for record in records:
            row, folder = record.row, record.folder
            its = row["strategy"] == strategy and row["status"] == "ok"
            if its and folder and (folder / "trace.csv").exists():
                rows[strategy] = row
                line = timeline(folder)
                line.insert(0, "strategy", strategy)
                parts.append(line)
                break
    if len(parts) < 2 or "checkpoint_all" not in rows:
        return None
    data = pd.concat(parts, ignore_index=True)
    data["time"] = data["cost"] / rows["checkpoint_all"]["cost"]
    failed = {str(r.row["strategy"]): str(r.row["reason"]) for r in records if r.row["reason"]}
    notes = _timeline_notes(rows, failed)
    return Drawing("Figure 1: memory over time", data, _timeline_picture(data), notes)


_TIMELINES = {
    "checkpoint_all": "retain all activations",
    _ILP: "rematerialize (checkmate_ilp)",
    _OURS: "rematerialize (anytime, ours)",
}


def _timeline_picture(data: pd.DataFrame) -> Figure:
    sns.set_theme("paper", "whitegrid")
    figure = Figure(figsize=(5.8, 3.1), layout="constrained")
    axes = figure.subplots()
    for strategy, mine in data.groupby("strategy", sort=False):
        ink, label = colour(strategy), _TIMELINES[strategy]
        axes.fill_between(mine["time"], mine["memory_GB"], step="pre", color=ink, alpha=0.25)
        axes.step(mine["time"], mine["memory_GB"], where="pre", color=ink, label=label)
    axes.set(xlabel="time (1 = one step without recomputation)", ylabel="memory (GB)")
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    figure.legend(loc="outside upper center", ncols=2, fontsize=8, frameon=False)
    return figure


def _timeline_notes(rows: dict[str, Row], failed: dict[str, str]) -> tuple[ClaimLine, ...]:
    full = known(rows["checkpoint_all"]["peak_bytes"]) / _GB
    return tuple(
        ClaimLine(
            "memory of a 32-layer network, everything kept and rematerialized"
            f" by {shown(strategy)}",
            "30 GB, less 21 GB (section 1)" if strategy == _ILP else "not there",
            f"{full:.1f} GB, less {full - known(rows[strategy]['peak_bytes']) / _GB:.1f} GB "
            f"(simulated), at {rows[strategy]['overhead']:.1%} more compute"
            if strategy in rows
            else f"no plan: {failed.get(strategy, 'no row')}",
            "the paper does not name its network: ResNet-32, at a batch that needs about 30 GB",
        )
        for strategy in (_ILP, _OURS)
    )


# Figure 3


_ARCHITECTURES = {
    "alexnet": "AlexNet\n2012",
    "vgg19": "VGG19\n2014",
    "inception_v3": "Inception v3\n2015",
    "resnet152": "ResNet-152\n2015",
    "densenet201": "DenseNet-201\n2016",
    "resnext101": "ResNeXt-101\n2016",
    "fcn8": "FCN8s\n2017",
    "transformer_lm": "Transformer\n2017",
    "roberta": "RoBERTa\n2018",
    "biggan_generator": "BigGAN\n2018",
}
"""The paper's, by year."""


def architecture_table(rows: Sequence[Row]) -> pd.DataFrame:
    """What is resident and what is not, at checkpoint-all's peak, per model."""
    found = [
        {
            "model": row["model"],
            "batch": row["batch_size"],
            "resolution": row["resolution"],
            "fixed_GB": row["extra"]["resident_bytes"] / _GB,
            "activations_GB": (known(row["peak_bytes"]) - row["extra"]["resident_bytes"]) / _GB,
        }
        for row in rows
        if row["strategy"] == "checkpoint_all" and row["status"] == "ok"
    ]
    if not found:
        return pd.DataFrame()
    frame = pd.DataFrame(found).sort_values("batch", kind="stable")
    frame = frame.drop_duplicates("model", keep="last")
    order = list(_ARCHITECTURES)
    frame["place"] = [order.index(m) if m in order else len(order) for m in frame["model"]]
    return frame.sort_values("place", ignore_index=True).drop(columns="place")


def _draw_architectures(rows: Sequence[Row]) -> Drawing | None:
    data = architecture_table(rows)
    if len(data) < 2:
        return None
    sns.set_theme("paper", "whitegrid")
    figure = Figure(figsize=(7.4, 3.2), layout="constrained")
    axes = figure.subplots()
    labels = [f"{_ARCHITECTURES.get(e.model, e.model)}\nbatch {e.batch}" for e in data.itertuples()]
    kinds = (
        ("fixed_GB", "inputs, parameters and their gradients", "chen_sqrt"),
        ("activations_GB", "activations", "checkpoint_all"),
    )
    below = data["fixed_GB"] * 0
    for column, label, like in kinds:
        axes.bar(labels, data[column], bottom=below, color=colour(like), label=label, width=0.65)
        below = below + data[column]
    axes.set_ylabel("memory (GB)")
    axes.grid(axis="x", visible=False)
    axes.tick_params(axis="x", labelsize=6.5)
    axes.legend(fontsize=8)
    share = data["activations_GB"] / (data["activations_GB"] + data["fixed_GB"])
    note = ClaimLine(
        "activations far outweigh parameters",
        "figure 3 (no numbers printed)",
        f"activations are {share.min():.0%} ({data['model'][share.idxmin()]}) to "
        f"{share.max():.0%} ({data['model'][share.idxmax()]}) of the peak (simulated)",
        "the paper does not print its batches; ours stand under the bars",
    )
    return Drawing("Figure 3: memory of activations and of the rest", data, figure, (note,))


# Figure 6


_PAPER_BATCH = {("unet", _ILP): 61, ("mobilenet_v1", _ILP): 1105}
_PAPER_RATIO = {
    "mobilenet_v1": "5.1x over checkpoint_all; 1.73x over the best baseline",
    "unet": "1.73x over the best baseline",
}


def batch_table(rows: Sequence[Row]) -> pd.DataFrame:
    """The largest batch of each strategy, the paper's beside it."""
    found = []
    for row in rows:
        batch = row["extra"].get("max_batch")
        if batch is None or batch["vary"] != "batch_size":
            continue
        found.append(
            {
                "model": row["model"],
                "strategy": row["strategy"],
                "max_batch": batch["value"] or 0,
                "equation_11": batch.get("equation_11"),
                "max_batch_paper": _PAPER_BATCH.get(
                    (paper_name(str(row["model"])), str(row["strategy"]))
                ),
                "memory_GB": row["extra"]["memory_bytes"] / _GB,
            }
        )
    return latest(found, ["model", "strategy"])


def _draw_batches(rows: Sequence[Row]) -> Drawing | None:
    data = batch_table(rows)
    if data.empty:
        return None
    sns.set_theme("paper", "whitegrid")
    models = sorted(set(data["model"]))
    strategies = order(set(data["strategy"]))
    figure = Figure(figsize=(1.4 + 2.1 * len(models), 3.2), layout="constrained")
    panels = figure.subplots(1, len(models), squeeze=False)[0]
    for axes, model in zip(panels, models, strict=True):
        mine = data[data["model"] == model].set_index("strategy")["max_batch"]
        bars = [mine.get(strategy, 0) for strategy in strategies]
        drawn = axes.bar(strategies, bars, color=[colour(each) for each in strategies], width=0.7)
        labels = [str(mine[each]) if each in mine.index else "no row" for each in strategies]
        axes.bar_label(drawn, labels=labels, fontsize=8, padding=2)
        axes.set_xticks([])
        axes.margins(y=0.12)
        axes.grid(axis="x", visible=False)
        axes.set_title(model)
    panels[0].set_ylabel("largest batch within the memory")
    handles = [mpl.patches.Patch(color=colour(each), label=shown(each)) for each in strategies]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    title = "Figure 6: largest batch at no more than one extra forward pass"
    return Drawing(title, data, figure, tuple(_batch_notes(data)))


def _batch_notes(data: pd.DataFrame) -> list[ClaimLine]:
    return [
        _batch_note(str(model), mine, strategy)
        for model, mine in data.groupby("model")
        for strategy in (_ILP, _OURS)
        if strategy in set(mine["strategy"])
    ]


def _batch_note(model: str, mine: pd.DataFrame, strategy: str) -> ClaimLine:
    """Of the paper's program, or of our search, which the paper does not have."""
    found = mine.set_index("strategy")["max_batch"]
    network = paper_name(model)
    paper = _PAPER_BATCH.get((network, _ILP))
    others = found.drop([_ILP, _OURS, "checkpoint_all"], errors="ignore")
    ratios = [f"{found[strategy]} images" if found[strategy] else "no batch with a plan in time"]
    if found[strategy] and found.get("checkpoint_all"):
        ratios.append(f"{found[strategy] / found['checkpoint_all']:.2f}x over checkpoint_all")
    if found[strategy] and len(others) and others.max():
        ratios.append(f"{found[strategy] / others.max():.2f}x over {others.idxmax()}")
    printed = f"{paper}; " if paper else ""
    kept = "PyTorch's values" if network == model else "Keras' layers"
    return ClaimLine(
        f"{model}: largest batch of {shown(strategy)}",
        printed + _PAPER_RATIO.get(network, "not printed") if strategy == _ILP else "not there",
        "; ".join(ratios) + " (simulated)",
        f"{mine['memory_GB'].iloc[0]:.4g} GB, {kept}, a short time limit for each batch (a lower "
        "bound, as the paper's); the paper's other baselines are not printed",
    )


# Table 1


# Table 1 as printed: general graphs, cost aware, memory aware.
_PAPER_TABLE1 = {
    "checkpoint_all": ("yes", "no", "no"),
    "revolve": ("no", "no", "no"),
    "chen_sqrt": ("no", "no", "no"),
    "chen_greedy": ("no", "no", "partly"),
    "ap_sqrt": ("partly", "no", "no"),
    "ap_greedy": ("partly", "no", "partly"),
    "linearized_sqrt": ("yes", "no", "no"),
    "linearized_greedy": ("yes", "no", "partly"),
    "checkmate_ilp": ("yes", "yes", "yes"),
    "checkmate_rounding": ("yes", "yes", "yes"),
}
_TRAITS = ("general_graphs", "cost_aware", "memory_aware")


def traits_table(rows: Sequence[Row]) -> pd.DataFrame:
    """The strategies' own traits, and the status of their jobs on a few graphs."""
    status = {(row["strategy"], row["model"]): row["status"] for row in rows}
    graphs = dict.fromkeys(["unit_chain", "mobilenet_v2", "unet", *(row["model"] for row in rows)])
    lines = []
    for strategy in _PAPER_TABLE1:
        traits = registry.class_of(strategy).traits
        line = {"strategy": strategy} | {each: getattr(traits, each) for each in _TRAITS}
        for model in graphs:
            line[model] = status.get((strategy, model))
        lines.append(line)
    return pd.DataFrame(lines)


def _draw_traits(rows: Sequence[Row]) -> Drawing:
    data = traits_table(rows)
    title = "Table 1: what each strategy takes into account (from its traits), and its jobs"
    shown = data.rename(columns=lambda name: name.replace("_", " "))
    shown = shown.fillna("–").replace("not_applicable", "does not apply")
    notes = []
    for line in data.itertuples():
        paper, ours = _PAPER_TABLE1[line.strategy], tuple(getattr(line, each) for each in _TRAITS)
        why = "agrees" if paper == ours else "see docs/decisions.md"
        notes.append(ClaimLine(line.strategy, ", ".join(paper), ", ".join(ours), why))
    return Drawing(title, data, table_picture(shown, title), tuple(notes))
