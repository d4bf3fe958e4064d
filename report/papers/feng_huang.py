"""Tables 1 and 2 of Feng and Huang: who applies to which graph, and memory cut off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from rematbench.report.collect import Record
from rematbench.report.figures import ClaimLine, Drawing
from rematbench.report.tables import table_picture
from rematbench.rows.row import Row, cells, details, known

_MB = 2**20


@dataclass(frozen=True)
class _CutOff:
    """A line of Table 2: megabytes and the extra time, on the paper's GPUs (PyTorch 1.5)."""

    batch: int
    regular: int
    random: int | None
    chen: int | None
    ours: int
    cut: int
    overhead: int


_PRINTED = {
    "alexnet": _CutOff(1024, 4955, 4408, 4408, 3287, 34, 34),
    "vgg11": _CutOff(64, 3577, 2781, 2781, 2781, 22, 34),
    "vgg13": _CutOff(64, 5136, 3565, 3565, 3565, 31, 33),
    "vgg16": _CutOff(64, 5136, 4352, 3957, 3565, 31, 32),
    "vgg19": _CutOff(64, 5189, 4548, 3957, 3565, 31, 33),
    "resnet18": _CutOff(256, 5635, 4069, None, 3677, 35, 30),
    "resnet34": _CutOff(128, 4079, 2231, None, 1838, 55, 35),
    "resnet50": _CutOff(64, 5323, 2714, None, 1973, 63, 31),
    "resnet101": _CutOff(32, 3934, 2541, None, 1024, 74, 35),
    "resnet152": _CutOff(16, 2767, 1464, None, 526, 81, 37),
    "densenet121": _CutOff(32, 4027, 1629, None, 898, 78, 34),
    "densenet161": _CutOff(16, 3751, 1432, None, 666, 82, 36),
    "densenet169": _CutOff(32, 4862, 1774, None, 897, 82, 32),
    "densenet201": _CutOff(16, 3146, 1242, None, 474, 85, 53),
    "inception_v3": _CutOff(32, 3074, 1336, None, 881, 71, 29),
    "nasnet": _CutOff(64, 5832, None, None, 1129, 81, 31),
    "amoebanet": _CutOff(64, 4944, None, None, 1058, 79, 36),
    "darts": _CutOff(64, 5627, None, None, 1115, 80, 55),
}
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
    return min([known(row["peak_bytes"]), *peaks])


def memory_table(rows: Sequence[Row]) -> pd.DataFrame:
    """Simulated peaks without stationary cost, per network of Table 2, the paper's beside them."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        found.setdefault(str(row["model"]), {})[str(row["strategy"])] = row
    lines = []
    for model in [*(m for m in _PRINTED if m in found), *sorted({*found} - {*_PRINTED})]:
        mine, printed = found[model], _PRINTED.get(model)
        fine = {name: row for name, row in mine.items() if row["status"] == "ok"}
        if not {"checkpoint_all", "feng_huang"} <= set(fine):
            continue
        batch = mine["checkpoint_all"]["batch_size"]
        line: dict[str, object] = {"model": model, "batch": batch}
        for strategy, column in _LINE_UP.items():
            its = fine.get(strategy)
            line[f"{column}_MB"] = smallest_peak(its) / _MB if its else None
            line[f"{column}_paper_MB"] = getattr(printed, column, None)
        peaks = [known(fine[each]["peak_bytes"]) for each in ("feng_huang", "checkpoint_all")]
        line |= {
            "cut": 1 - peaks[0] / peaks[1],
            "cut_paper": printed and printed.cut / 100,
            "objective_MB": known(fine["feng_huang"]["objective"]) / _MB,
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
        "cut_by_objective": 1 - known(row["objective"]) / everything if everything else None,
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
    printed = _PRINTED.get(line["model"])
    other = printed is not None and printed.batch != line["batch"]
    return f" (batch {printed.batch})" if printed and other else ""


def _notes(data: pd.DataFrame) -> list[ClaimLine]:
    return [
        ClaimLine(
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
        (row["strategy"], row["model"]): cells(row)
        for row in rows
        if row["model"] in _GRAPHS and row["strategy"] in _APPROACHES
    }
    if not all((strategy, "unit_chain") in found for strategy in _APPROACHES):
        return pd.DataFrame()
    lines = []
    for strategy, (_, *printed) in _APPROACHES.items():
        for model, paper in zip(_GRAPHS, printed, strict=True):
            row = found.get((strategy, model), {})
            lines.append(
                {
                    "strategy": strategy,
                    "graph": model,
                    "status": row.get("status"),
                    "peak_bytes": row["peak_bytes"] if row.get("status") == "ok" else None,
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
        notes.append(ClaimLine(str(strategy), paper, ours, why))
    title = "Table 1: which approach applies to which graph"
    return Drawing(title, data, table_picture(pd.DataFrame(lines), title), tuple(notes))
