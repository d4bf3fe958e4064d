"""Figure 5 and Table 2 of the Checkmate paper: what a plan costs at a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rematbench.report.collect import Record
from rematbench.report.figures import ClaimLine, Drawing
from rematbench.report.papers.checkmate_ratios import draw_ratios
from rematbench.report.style import colour, marker, order, shown
from rematbench.report.tables import latest
from rematbench.rows.row import Row, known

_GB = 1e9
_ILP = "checkmate_ilp"
_OURS = "anytime"
LINE_UP = (
    *("checkpoint_all", "chen_sqrt", "chen_greedy", "revolve", "ap_sqrt", "ap_greedy"),
    *("linearized_sqrt", "linearized_greedy", _ILP, "checkmate_rounding"),
)
"""The paper's, in its Figure 5."""
_STRETCHED = 4.0  # of what a plan costs: a panel's axis ends before
_SAME = 1 + 1e-6  # costs are sums of floats


@dataclass(frozen=True)
class _Tradeoff:
    """One of Figure 5's panels.

    Attributes:
        panel: its letter.
        shown: what the paper calls its network.
        model: what we call it.
        printed: does the paper print numbers for it? Then: why ours are others.
    """

    panel: str
    shown: str
    model: str
    printed: str = ""


_PANELS = (
    _Tradeoff("a", "VGG-16", "vgg16"),
    _Tradeoff("b", "MobileNet", "mobilenet_v1"),
    _Tradeoff("c", "U-Net", "unet", "PyTorch keeps other values than Keras; a roofline"),
    _Tradeoff("a", "VGG-16 by Keras' layers", "keras_vgg16"),
    _Tradeoff("b", "MobileNet by Keras' layers", "keras_mobilenet"),
    _Tradeoff("c", "U-Net by Keras' layers", "keras_unet", "a roofline, not profiled layers"),
)
_FIGURES = {f"checkmate_fig5{each.panel}": each for each in _PANELS[:3]}


def draw(name: str, records: Sequence[Record]) -> Drawing | None:
    """One of the figures of this module."""
    rows = [record.row for record in records]
    if name == "checkmate_fig5":
        return _draw_all_tradeoffs(rows)
    return draw_ratios(rows) if name == "checkmate_table2" else _draw_tradeoff(name, rows)


# Figure 5


def tradeoff_table(rows: Sequence[Row]) -> pd.DataFrame:
    """One line per strategy and budget, failures included."""
    found = [
        {
            "strategy": row["strategy"],
            "budget_GB": known(row["budget_bytes"]) / _GB,
            "status": row["status"],
            "slowdown": known(row["overhead"]) + 1 if row["status"] == "ok" else None,
            "peak_GB": known(row["peak_bytes"]) / _GB if row["status"] == "ok" else None,
            "gap": row["gap"],
            "bound_of": row["bound_of"],
            "checkpoint_all_GB": known(row["checkpoint_all_peak_bytes"]) / _GB,
        }
        for row in rows
    ]
    return latest(found, ["strategy", "budget_GB"])


def _draw_tradeoff(name: str, rows: Sequence[Row]) -> Drawing | None:
    wanted = _FIGURES[name]
    rows = [row for row in rows if row["budget_bytes"] and row["checkpoint_all_peak_bytes"]]
    if not rows:
        return None
    model, batch = rows[-1]["model"], rows[-1]["batch_size"]
    rows = [row for row in rows if row["model"] == model]
    data = tradeoff_table(rows)
    network = wanted.shown if model == wanted.model else model
    sns.set_theme("paper", "whitegrid")
    figure = Figure(figsize=(6.6, 3.6), layout="constrained")
    axes = figure.subplots()
    _panel(axes, data)
    title = f"Figure 5{wanted.panel}: overhead against budget, {network}, batch {batch}"
    axes.set_title(title.split(": ")[1], fontsize=9, loc="left")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=7.5, frameon=False)
    known = next((each for each in _PANELS if each.model == model), wanted)
    return Drawing(title, data, figure, _tradeoff_notes(data, known.printed))


def _draw_all_tradeoffs(rows: Sequence[Row]) -> Drawing | None:
    """Figures 5a, 5b and 5c side by side, as the paper has them; below them by Keras' layers."""
    rows = [row for row in rows if row["budget_bytes"] and row["checkpoint_all_peak_bytes"]]
    tables, lines = {}, []
    for each in _PANELS:
        mine = [row for row in rows if row["model"] == each.model]
        if mine:
            tables[each] = data = tradeoff_table(mine)
            lines += [
                replace(note, claim=f"{each.shown}: {note.claim}")
                for note in _tradeoff_notes(data, each.printed)
            ]
    if not tables:
        return None
    sns.set_theme("paper", "whitegrid")
    columns = min(len(tables), 3)
    lines_of_panels = -(-len(tables) // columns)
    figure = Figure(figsize=(3.6 * columns, 1.2 + 3 * lines_of_panels), layout="constrained")
    panels = figure.subplots(lines_of_panels, columns, squeeze=False).flat
    labelled: dict[str, Artist] = {}
    for axes in panels[len(tables) :]:
        axes.set_axis_off()
    for axes, (each, data) in zip(panels, tables.items(), strict=False):
        _panel(axes, data)
        axes.set_title(f"({each.panel}) {each.shown}", fontsize=9, loc="left")
        handles, labels = axes.get_legend_handles_labels()
        for label, handle in zip(labels, handles, strict=True):
            labelled.setdefault(label.removesuffix(" (no plan)"), handle)
    figure.legend(
        labelled.values(),
        labelled.keys(),
        loc="outside lower center",
        ncols=4,
        fontsize=7.5,
        frameon=False,
    )
    whole = [data.assign(model=each.model) for each, data in tables.items()]
    title = "Figure 5: overhead against budget, VGG-16, MobileNet and U-Net"
    return Drawing(title, pd.concat(whole, ignore_index=True), figure, tuple(lines))


def _panel(axes: Axes, data: pd.DataFrame) -> None:
    """Every strategy's curve, and the peak of keeping everything."""
    fine = data[data["status"] == "ok"]
    names = order(set(data["strategy"]))
    points = {name: fine[fine["strategy"] == name] for name in names}
    costs = {name: mine.set_index("budget_GB")["slowdown"] for name, mine in points.items()}
    for place, name in enumerate(names):
        later = [costs[other] for other in names[place + 1 :] if len(costs[other])]
        above = sum(costs[name].equals(other) for other in later)
        _curve(axes, name, points[name], above)
    full = data["checkpoint_all_GB"].iloc[0]
    axes.axvline(
        full, color="0.3", linewidth=0.8, linestyle=":", zorder=0, label="everything kept (peak)"
    )
    axes.set(xlabel="budget (GB)", ylabel="cost / checkpoint-all's")
    _clip(axes, fine)


def _clip(axes: Axes, fine: pd.DataFrame) -> None:
    """Cut an axis that one strategy would stretch, and say what lies beyond."""
    beyond = fine[fine["slowdown"] > _STRETCHED]
    if beyond.empty:
        return
    within = fine["slowdown"].drop(beyond.index)
    axes.set_ylim(within.min() - 0.05, within.max() * 1.15)
    text = [
        f"{shown(e.strategy)} {e.slowdown:.1f} at {e.budget_GB:.2f} GB" for e in beyond.itertuples()
    ]
    axes.text(
        *(0.98, 0.97, "beyond: " + "; ".join(text)),
        transform=axes.transAxes,
        ha="right",
        va="top",
        fontsize=7,
    )


def _curve(axes: Axes, strategy: str, mine: pd.DataFrame, above: int) -> None:
    """A strategy's curve; ``above`` others of equal points are drawn later, inside its markers."""
    ink, sign = colour(strategy), marker(strategy)
    best = strategy.startswith("checkmate")
    label = shown(strategy) if len(mine) else f"{shown(strategy)} (no plan)"
    axes.plot(
        mine["budget_GB"],
        mine["slowdown"],
        color=ink,
        marker=sign,
        markersize=(6 if best else 4.5) + 3 * above,
        fillstyle="none" if above else "full",
        linewidth=1.8 if best else 1.0,
        linestyle="-" if best else "--",
        label=label,
        zorder=3 if best else 2,
    )


def above_all(data: pd.DataFrame, of: str = _ILP, *, line_up: bool = True) -> list[str]:
    """Where some strategy's plan is cheaper than another's, as ``strategy at budget``.

    Args:
        of: the other; no plan counts as dearest.
        line_up: of the paper's strategies; otherwise of others.
    """
    fine = data[data["status"] == "ok"]
    asked = data[data["strategy"] == of].set_index("budget_GB")["slowdown"]
    costs = asked.fillna(float("inf"))  # it found no plan there
    return [
        f"{shown(str(row.strategy))} at {row.budget_GB:.2f} GB"
        for row in fine.itertuples()
        if (row.strategy in LINE_UP) == line_up
        and row.strategy != of
        and row.slowdown * _SAME < costs.get(row.budget_GB, 0.0)
    ]


def lowest(data: pd.DataFrame, of: str) -> str:
    """Does a strategy's curve lie on or below those of the paper's line-up, where it has a plan?"""
    asked = data[data["strategy"] == of]
    met = asked[asked["status"] == "ok"]["budget_GB"]
    if asked.empty:
        return f"no row of {shown(of)}"
    without = f"no plan at {len(asked) - len(met)} of {len(asked)} budgets"
    if met.empty:
        return without
    cheaper = above_all(data[data["budget_GB"].isin(met)], of)
    text = f"except for {'; '.join(cheaper)}" if cheaper else "yes, wherever it has a plan"
    return text if len(met) == len(asked) else f"{text}; {without}"


def feasible(data: pd.DataFrame) -> str:
    """Per strategy: the share of budgets met, and the smallest of them."""
    text = []
    for strategy in order(set(data["strategy"])):
        mine = data[data["strategy"] == strategy]
        fine = mine[mine["status"] == "ok"]
        least = f", down to {fine['budget_GB'].min():.2f} GB" if len(fine) else ""
        text.append(f"{shown(strategy)} {len(fine)} of {len(mine)}{least}")
    return "; ".join(text)


def _tradeoff_notes(data: pd.DataFrame, printed: str) -> tuple[ClaimLine, ...]:
    full = data["checkpoint_all_GB"].iloc[0]
    lines = [
        ClaimLine(
            "the ILP (checkmate_ilp) lies on or below every curve",
            "'clearly faster execution plans' (section 6.3)",
            lowest(data, _ILP),
            "a V100 roofline in place of profiled times; HiGHS with a short limit in place of "
            "Gurobi and an hour",
        ),
        ClaimLine(
            f"{shown(_OURS)} lies on or below every curve",
            "not there",
            lowest(data, _OURS),
            "a search of ours, not the paper's method",
        ),
        ClaimLine("budgets met", "not printed", feasible(data), "budgets of this sweep"),
    ]
    if beyond := sorted({*data["strategy"]} - {*LINE_UP}):
        cheaper = [
            f"than {shown(each)}: {'; '.join(above_all(data, each, line_up=False)) or 'nowhere'}"
            for each in (_ILP, _OURS)
            if each in set(data["strategy"])
        ]
        lines.append(
            ClaimLine(
                f"strategies that the paper did not have: {', '.join(map(shown, beyond))}",
                "not there",
                f"cheaper {', '.join(cheaper)}" if cheaper else "no row of the ILP",
                "MONeT's problem chooses implementations, too, and the ILP's time is short",
            )
        )
    if printed:
        lines[:0] = [
            ClaimLine(
                "memory without rematerialization",
                "23 GB (section 6.3)",
                f"{full:.1f} GB (simulated)",
                printed,
            ),
            *(
                _versus(data, *versus, at, text, printed)
                for at, text in ((16, "16 GB"), (0.7 * full, "0.7 of the memory (16 of 23 GB)"))
                for versus in _PAPER_FIG5C.items()
            ),
        ]
    return tuple(lines)


# V100, profiled (caption of Figure 5).
_PAPER_FIG5C = {"linearized_greedy": "1.20x", "linearized_sqrt": "1.38x"}


def _versus(
    data: pd.DataFrame, strategy: str, paper: str, at: float, text: str, why: str
) -> ClaimLine:
    near = data[(data["budget_GB"] - at).abs() < 1e-6]
    costs = near[near["status"] == "ok"].set_index("strategy")["slowdown"]
    claim = f"{strategy} / ILP at {text}"
    if strategy not in costs.index:
        return ClaimLine(claim, paper, f"no plan of {strategy} there", why)
    ours = [
        f"{costs[strategy] / costs[each]:.2f}x over {shown(each)}, at {costs[each]:.3f} (modelled)"
        if each in costs.index
        else f"no plan of {shown(each)} there"
        for each in (_ILP, _OURS)
    ]
    return ClaimLine(claim, paper, "; ".join(ours), why)
