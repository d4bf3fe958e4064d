"""Table 2 of the Checkmate paper: cost over the ILP's, and over our search's."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import pandas as pd

from rematbench.report.figures import ClaimLine, Drawing
from rematbench.report.style import shown
from rematbench.report.tables import geometric_mean, table_picture
from rematbench.rows.row import Row

_GB = 1e9
_ILP = "checkmate_ilp"
_OURS = "anytime"

# Geometric means printed in Table 2 (FLOPs, Gurobi).
_PAPER_TABLE2 = {
    "mobilenet_v1": {
        "ap_sqrt": 1.14,
        "ap_greedy": 1.07,
        "revolve": 7.07,
        "checkmate_rounding": 1.06,
    },
    "vgg16": {"ap_sqrt": 1.28, "ap_greedy": 1.06, "revolve": 1.44, "checkmate_rounding": 1.01},
    "vgg19": {"ap_sqrt": 1.54, "ap_greedy": 1.39, "revolve": 1.75, "checkmate_rounding": 1.00},
    "unet": {"ap_sqrt": 1.27, "ap_greedy": 1.23, "checkmate_rounding": 1.03},
    "resnet50": {"ap_sqrt": 1.20, "ap_greedy": 1.25, "checkmate_rounding": 1.05},
}
_TABLE2 = ("ap_sqrt", "ap_greedy", "revolve", "checkmate_rounding", "linearized_sqrt",
           "linearized_greedy")  # fmt: skip
_BEYOND = ("dtr", "anytime_joint", "feng_huang", "torch_budget", "chain_dp", "kusumoto", "rockmate",
           "moccasin", "xla_remat")  # fmt: skip
"""Not in the paper: shown where there are rows."""


_LAYERED = {"keras_mobilenet": "mobilenet_v1"}


def paper_name(model: str) -> str:
    """What we call a network of Checkmate's by PyTorch, where ``model`` is it by Keras' layers.

    >>> paper_name("keras_mobilenet"), paper_name("keras_unet"), paper_name("unet")
    ('mobilenet_v1', 'unet', 'unet')
    """
    return _LAYERED.get(model, model.removeprefix("keras_"))


def ratio_table(rows: Sequence[Row]) -> pd.DataFrame:
    """Per model and strategy: the geometric mean of its cost over the ILP's, and over our search's.

    Each over the budgets that both meet: ``ratio`` at ``feasible`` of the ``budgets`` at which the
    ILP has a plan, of those that it was ``asked`` for; and the same four ``_anytime``.
    """
    costs: dict[tuple[str, str], dict[int, float | None]] = {}
    for row in rows:
        if row["budget_bytes"]:
            cost = row["cost"] if row["status"] == "ok" else None
            costs.setdefault((str(row["model"]), str(row["strategy"])), {})[row["budget_bytes"]] = (
                cost
            )
    lines = []
    known = {model: place for place, model in enumerate(_PAPER_TABLE2)}
    models = {model: paper_name(model) for model, _ in costs}
    for model in sorted(models, key=lambda model: known.get(models[model], len(known))):
        paper = _PAPER_TABLE2.get(models[model], {})
        best = [costs.get((model, each), {}) for each in (_ILP, _OURS)]
        beyond = [name for name in _BEYOND if (model, name) in costs]
        for strategy in [*_TABLE2, *beyond] if any(any(c.values()) for c in best) else ():
            mine = costs.get((model, strategy), {})
            lines.append(
                {
                    "model": model,
                    "strategy": strategy,
                    **_mean_over(best[0], mine, ""),
                    **_mean_over(best[1], mine, "_anytime"),
                    "smallest_budget_GB": min((b for b, c in mine.items() if c), default=0) / _GB
                    or None,
                    "ratio_paper": paper.get(strategy),
                }
            )
    return pd.DataFrame(lines)


def _mean_over(
    best: dict[int, float | None], mine: dict[int, float | None], ending: str
) -> dict[str, float | None]:
    """A strategy's costs over the best's, at the budgets that both meet."""
    least = {budget: cost for budget, cost in best.items() if cost}
    ratios = [cost / least[b] for b, cost in sorted(mine.items()) if cost and b in least]
    found = {
        **{"ratio": geometric_mean(ratios), "feasible": len(ratios)},
        **{"budgets": len(least), "asked": len(best)},
    }
    return {name + ending: value for name, value in found.items()}


def draw_ratios(rows: Sequence[Row]) -> Drawing | None:
    """The table, ours and the paper's."""
    data = ratio_table(rows)
    if data.empty:
        return None
    title = (
        "Table 2: cost over that of the ILP (checkmate_ilp), and of anytime (ours), in FLOPs: "
        "geometric mean over budgets that both meet"
    )
    lines = []
    for model, mine in data.groupby("model", sort=False):
        for ending, over in (("", "checkmate_ilp"), ("_anytime", shown(_OURS))):
            line = {"model": f"{model}, over {over}"}
            for each in mine.to_dict("records"):
                line |= _ratio_cells(each, ending)
            lines.append(line)
    picture = table_picture(pd.DataFrame(lines), f"{title}; (budgets met / budgets of the other)")
    return Drawing(title, data, picture, tuple(_ratio_notes(data)))


def _ratio_cells(each: dict[Hashable, Any], ending: str) -> dict[str, str]:
    """A strategy's columns of the picture."""
    met, asked = each["feasible" + ending], each["budgets" + ending]
    ours = f"{each['ratio' + ending]:.2f} ({met}/{asked})" if met else f"– ({met}/{asked})"
    name = shown(each["strategy"]).removeprefix("checkmate_").replace("_", "\n")
    cells = {f"{name}\nhere": ours if asked else _without(each, ending)}
    if each["strategy"] in _TABLE2[:4]:
        paper = "–" if pd.isna(each["ratio_paper"]) else f"{each['ratio_paper']:.2f}"
        cells[f"{name}\npaper"] = "" if ending else paper
    return cells


def _ratio_notes(data: pd.DataFrame) -> list[ClaimLine]:
    lines = []
    for each in data.to_dict("records"):
        if pd.isna(each["ratio_paper"]):
            continue
        why = "other budgets than the paper's, which are not printed"
        if each["strategy"] == "checkmate_rounding":
            why = "near the best at loose budgets only; epsilon and threshold are searched"
        ours = [_label(each, "", "the ILP"), _label(each, "_anytime", shown(_OURS))]
        claim = f"{each['model']}, {each['strategy']}"
        lines.append(ClaimLine(claim, f"{each['ratio_paper']:.2f}x", "; ".join(ours), why))
    return lines


def _without(each: dict[Hashable, Any], ending: str) -> str:
    """Why there is nothing to divide by."""
    return "no plan in time" if each["asked" + ending] else "no row"


def _label(each: dict[Hashable, Any], ending: str, over: str) -> str:
    met, asked = each["feasible" + ending], each["budgets" + ending]
    if not asked:
        return f"{_without(each, ending)} of {over}"
    if not met:
        return f"no plan at the {asked} budgets of {over}"
    return f"{each['ratio' + ending]:.3f}x over {over} at {met} of {asked} budgets"
