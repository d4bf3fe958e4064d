"""Checkmate's appendix A, integrality gaps of both forms, and section 4.6, their solve times."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from rematbench.report.collect import Record
from rematbench.report.figures import ClaimLine, Drawing
from rematbench.report.style import colour
from rematbench.rows.row import Row

_TITLE = "Appendix A: optimal cost over that of the linear relaxation, unit chains in 4 units"
_PROVEN = 1e-6  # relative gap, within what the solver tolerates
_LENGTH = 8  # layers of the chain of appendix A and section 4.6
_GAPS = {"partitioned": 1.18, "unpartitioned": 21.56}
_SOLVE_TIMES = {"partitioned": "0.23 s", "unpartitioned": "9.4 h"}
_FORMS = {"9": "partitioned", "unpartitioned": "unpartitioned"}
_LOOKS = {"partitioned": ("checkmate_ilp", "o"), "unpartitioned": ("checkpoint_all", "s")}


def gaps(rows: Sequence[Row]) -> pd.DataFrame:
    """Per length and form of the program, from rows that were asked for one of the two.

    Returns:
        ``gap``, of the relaxation (a ratio); ``seconds`` that the integer program took, and
        ``proven``, the share of the best cost that its bound had reached by then: 1 where it was
        solved. Missing is what no row says.
    """
    found: dict[tuple[int, str], dict[str, object]] = {}
    for row in rows:
        length, form = row["extra"].get("length"), _FORMS.get(str(row["variant"]))
        if length is None or form is None or row["status"] != "ok":
            continue
        line = found.setdefault((length, form), {"length": length, "form": form})
        if row["extra"].get("integrality_gap") is not None:
            line["gap"] = row["extra"]["integrality_gap"]
        elif row["bound"] is not None and row["cost"]:
            line |= {"seconds": row["plan_seconds"], "proven": row["bound"] / row["cost"]}
    columns = ["length", "form", "gap", "seconds", "proven"]
    frame = pd.DataFrame(list(found.values()), columns=columns)
    return frame.sort_values(["form", "length"], ignore_index=True)


def draw(name: str, records: Sequence[Record]) -> Drawing | None:
    """Gaps against the chain's length, with the paper's two."""
    data = gaps([record.row for record in records])
    if data["gap"].isna().all():
        return None
    sns.set_theme("paper", "whitegrid")
    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    axes = figure.subplots()
    for form, (like, sign) in _LOOKS.items():
        mine = data[(data["form"] == form) & data["gap"].notna()]
        axes.plot(mine["length"], mine["gap"], color=colour(like), marker=sign, label=form)
    paper = list(_GAPS.values())
    axes.scatter([_LENGTH] * len(paper), paper, color="0.2", marker="x", s=60,
                 zorder=4, label="paper")  # fmt: skip
    axes.set(xlabel="layers", ylabel="optimum / relaxation", yscale="log")
    axes.legend(fontsize=7.5)
    return Drawing(_TITLE, data, figure, tuple(_notes(data[data["length"] == _LENGTH])))


def _notes(data: pd.DataFrame) -> list[ClaimLine]:
    """Of the paper's chain."""
    lines = []
    for each in data.itertuples():
        form = str(each.form)
        if not pd.isna(each.gap):
            lines.append(
                ClaimLine(
                    f"8 layers, {form}: integrality gap",
                    f"{_GAPS[form]:g}",
                    f"{each.gap:.4g}",
                    "the same programs; the optimum is that of the partitioned form",
                )
            )
        if not pd.isna(each.seconds):
            solved = each.proven >= 1 - _PROVEN
            lines.append(
                ClaimLine(
                    f"8 layers, {form}: time until the optimum is proven",
                    _SOLVE_TIMES[form],
                    f"{each.seconds:.2g} s"
                    if solved
                    else f"more than {each.seconds:.0f} s: stopped, {each.proven:.0%} proven",
                    "HiGHS in place of Gurobi, another machine",
                )
            )
    return lines
