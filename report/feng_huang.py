"""Tables 1 and 2 of Feng and Huang: who applies to which graph, and memory cut off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from rematbench.report.collect import Record
from rematbench.report.figures import Comparison, Drawing
from rematbench.report.printed import FENG_HUANG
from rematbench.report.tables import table_picture
from rematbench.rows.row import Row, details, sure

_MB = 2**20


_LINE_UP = {
    "checkpoint_all": "regular",
    "random_checkpoints": "random",
    "chen_greedy": "chen",
    "feng_huang": "ours",
}


def draw(name: str, records: Sequence[Record]) -> Drawing | None:
    """Table 1 or 2."""
    rows = [record.row for record in records]
    return _draw_kinds(rows) if name == "feng_huang_table1" else _draw_memory(rows)


def smallest_peak(row: Row) -> int:
    """Of a strategy that sweeps its knob, the leanest of its plans; of another, its plan's.

    Without a budget the row itself is the cheapest plan, which for Chen's is to keep everything.
    """
    peaks: list[int] = [point["peak_bytes"] for point in row["extra"].get("curve", ())]
    return min([sure(row["peak_bytes"]), *peaks])


def memory_table(rows: Sequence[Row]) -> pd.DataFrame:
    """Simulated peaks without stationary cost, per network of Table 2, the paper's beside them."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        found.setdefault(str(row["model"]), {})[str(row["strategy"])] = row
    lines = []
    for model in [*(m for m in FENG_HUANG if m in found), *sorted({*found} - {*FENG_HUANG})]:
        mine, printed = found[model], FENG_HUANG.get(model)
        fine = {name: row for name, row in mine.items() if row["status"] == "ok"}
        if not {"checkpoint_all", "feng_huang"} <= set(fine):
            continue
        batch = mine["checkpoint_all"]["batch_size"]
        line: dict[str, object] = {"model": model, "batch": batch}
        for strategy, column in _LINE_UP.items():
            its = fine.get(strategy)
            line[f"{column}_MB"] = smallest_peak(its) / _MB if its else None
            line[f"{column}_paper_MB"] = getattr(printed, column, None)
        peaks = [sure(fine[each]["peak_bytes"]) for each in ("feng_huang", "checkpoint_all")]
        line |= {
            "cut": 1 - peaks[0] / peaks[1],
            "cut_paper": printed and printed.cut / 100,
            "objective_MB": sure(fine["feng_huang"]["objective"]) / _MB,
            "overhead": fine["feng_huang"]["overhead"],
            "overhead_paper": printed and printed.overhead / 100,
            **_by_the_paper(fine["feng_huang"]),
        }
        lines.append(line)
    return pd.DataFrame(lines)


def _by_the_paper(row: Row) -> dict[str, float | None]:
    """Its accounting: checkpoints and largest segment over all values; one more forward pass."""
    extra, whole = details(row), row["checkpoint_all_cost"]
    everything, forward = extra.get("no_checkpoint_bytes"), extra.get("forward_cost")
    return {
        "cut_by_objective": 1 - sure(row["objective"]) / everything if everything else None,
        "one_more_forward": forward / whole if forward and whole else None,
    }


def _draw_memory(rows: Sequence[Row]) -> Drawing | None:
    data = memory_table(rows)
    if data.empty:
        return None
    lines = []
    for each in data.to_dict("records"):
        line = {"network": f"{each['model']}, batch {each['batch']}"}
        for column in _LINE_UP.values():
            for kind, key in (("ours", f"{column}_MB"), ("paper", f"{column}_paper_MB")):
                shown = {"ours": "Feng-Huang"}.get(column, column)
                value = each[key]
                line[f"{shown}\n{kind}"] = "–" if pd.isna(value) else f"{value:.0f}"
        for column, shown in (("cut", "cut off"), ("overhead", "extra time")):
            line[f"{shown}\nours"] = f"{each[column]:.0%}"
            line[f"{shown}\npaper"] = _percent(each[f"{column}_paper"])
        line["one forward\npass more"] = _percent(each["one_more_forward"])
        lines.append(line)
    title = (
        "Table 2: memory without stationary cost (MB; ours simulated, our extra time modelled, "
        "the paper's measured)"
    )
    return Drawing(title, data, table_picture(pd.DataFrame(lines), title), tuple(_notes(data)))


def _percent(share: float | None) -> str:
    return "–" if pd.isna(share) else f"{share:.0%}"


def _at_batch(line: dict[str, Any]) -> str:
    """The paper's batch, where ours is another."""
    printed = FENG_HUANG.get(line["model"])
    other = printed is not None and printed.batch != line["batch"]
    return f" (batch {printed.batch})" if printed and other else ""


def _notes(data: pd.DataFrame) -> list[Comparison]:
    return [
        Comparison(
            f"{each['model']}: memory cut off, extra time",
            f"{_percent(each['cut_paper'])}, {_percent(each['overhead_paper'])}" + _at_batch(each),
            f"{each['cut']:.0%} (simulated), {each['overhead']:.0%} (modelled); by the paper's "
            f"accounting {_percent(each['cut_by_objective'])} (objective "
            f"{each['objective_MB']:.0f} MB), {_percent(each['one_more_forward'])} (one forward "
            "pass more)",
            "the simulated peak counts gradients, which the objective does not; only what the "
            "backward pass reads is recomputed, and what follows the last checkpoint is not; "
            "roofline costs",
        )
        for each in data.to_dict("records")
    ]


# Table 1

_APPROACHES = {
    "revolve": ("Griewank & Walther", "optimal", "not applicable", "not applicable"),
    "chen_greedy": ("Chen", "optimal", "applicable", "not applicable"),
    "feng_huang": ("Feng & Huang", "optimal", "optimal", "optimal"),
}
_GRAPHS = {
    "unit_chain": "chain of\nequal costs",
    "vgg16": "chain\n(VGG-16)",
    "inception_v3": "general\n(Inception)",
}


def kinds_table(rows: Sequence[Row]) -> pd.DataFrame:
    """Status of each approach on each kind of graph, and its peak over Feng-Huang's."""
    found = {
        (row["strategy"], row["model"]): row
        for row in rows
        if row["model"] in _GRAPHS and row["strategy"] in _APPROACHES
    }
    if not all((strategy, "unit_chain") in found for strategy in _APPROACHES):
        return pd.DataFrame()
    lines = []
    for strategy, (_, *printed) in _APPROACHES.items():
        for model, paper in zip(_GRAPHS, printed, strict=True):
            row = found.get((strategy, model))
            lines.append(
                {
                    "strategy": strategy,
                    "graph": model,
                    "status": row["status"] if row else None,
                    "peak_bytes": row["peak_bytes"] if row and row["status"] == "ok" else None,
                    "paper": paper,
                }
            )
    return pd.DataFrame(lines)


def _draw_kinds(rows: Sequence[Row]) -> Drawing | None:
    data = kinds_table(rows)
    if data.empty:
        return None
    lines, notes = [], []
    for strategy, mine in data.groupby("strategy", sort=False):
        line = {"strategy": strategy}
        for each in mine.itertuples():
            ours = {"ok": "plans", "not_applicable": "does not apply"}.get(each.status, "–")
            line[f"{_GRAPHS[each.graph]}\nours"] = ours
            line[f"{_GRAPHS[each.graph]}\npaper"] = each.paper
        lines.append(line)
        ours = ", ".join(f"{each.graph}: {each.status}" for each in mine.itertuples())
        paper = ", ".join(mine["paper"])
        why = "a plan says that it applies; optimality in the paper's objective is a test of ours"
        notes.append(Comparison(str(strategy), paper, ours, why))
    title = "Table 1: which approach applies to which graph"
    return Drawing(title, data, table_picture(pd.DataFrame(lines), title), tuple(notes))
