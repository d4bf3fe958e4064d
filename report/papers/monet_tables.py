"""Tables 1 to 3 and 5 to 7 of the MONeT paper: memory, the solver's time, the programs' sizes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from rematbench.report.collect import Record
from rematbench.report.figures import ClaimLine, Drawing
from rematbench.report.papers.monet import WHY, called, networks, of, system, tradeoffs
from rematbench.report.style import shown
from rematbench.report.tables import latest, table_picture
from rematbench.rows.row import Row, details, known


def draw(name: str, records: Sequence[Record]) -> Drawing | None:
    """One of the figures of this module."""
    rows = [record.row for record in records]
    if name == "monet_table7":
        return _draw_sizes(rows)
    if name in _TABLES:
        return _draw_seconds(name, rows)
    data = tradeoffs(rows)
    if data.empty:
        return None
    return _draw_memory(data) if name == "monet_table1" else _draw_gist(data)


# Tables 1 and 3


@dataclass(frozen=True)
class _Printed:
    """Table 1, in GB."""

    pytorch: float
    checkmate: float
    monet: float

    @property
    def ratio(self) -> str:
        """Checkmate's memory over MONeT's."""
        return f"{self.checkmate} / {self.monet} GB = {self.checkmate / self.monet:.2f}x"


_TABLE_1 = {
    "resnet50": _Printed(15.1, 8.2, 5.7),
    "googlenet": _Printed(14.9, 10.5, 6.9),
    "unet": _Printed(14.3, 9.1, 5.2),
    "vgg16": _Printed(14.1, 9.9, 5.5),
    "mobilenet_v2": _Printed(14.5, 5.8, 4.8),
}
_OVERHEAD = 0.1
_SYSTEMS = ("checkmate_d", "checkmate_o", "anytime", "anytime_joint", "monet")


def memory_table(data: pd.DataFrame) -> pd.DataFrame:
    """Least simulated memory of the plans whose modelled overhead is at most 10 %."""
    found = []
    for model in networks(data, _TABLE_1):
        mine = data[(data["model"] == model) & (data["overhead"] <= _OVERHEAD)]
        least = mine.groupby("system")["peak_GB"].min()
        line = {"model": model, "pytorch": data[data["model"] == model]["checkpoint_all_GB"].max()}
        for name in _SYSTEMS:
            line[name] = least.get(name)
        found.append(line)
    return pd.DataFrame(found)


def _draw_memory(data: pd.DataFrame) -> Drawing | None:
    table = memory_table(of(data, _SYSTEMS))
    if table.empty or table[["anytime_joint", "monet"]].isna().all(axis=None):
        return None
    notes = [_memory_note(each) for each in table.to_dict("records")]
    named = table.assign(model=table["model"].map(called)).round(2)
    named = named.rename(columns={"pytorch": "checkpoint_all"}).rename(columns=shown)
    named["paper: PyTorch /\nCheckmate-O / MONeT"] = [
        f"{p.pytorch} / {p.checkmate} / {p.monet}" if p else "–"
        for p in map(_TABLE_1.get, table["model"])
    ]
    title = "Table 1: memory (GB) at no more than 10 % overhead (modelled), tried budgets"
    return Drawing(title, table, table_picture(named, title), tuple(notes))


def _memory_note(each: dict[Hashable, Any]) -> ClaimLine:
    printed = _TABLE_1.get(each["model"])
    ratios = [
        f"{above} / {shown(below)}: "
        + ("no plan" if pd.isna(over) or pd.isna(under) else f"{over / under:.2f}x")
        for above, below in (
            ("checkmate_o", "monet"),
            ("checkmate_o", "anytime_joint"),
            ("workspace-aware anytime", "anytime_joint"),
        )
        for over, under in ((each[above.split()[-1]], each[below]),)
    ]
    return ClaimLine(
        f"{called(each['model'])}: memory at 10 % overhead, Checkmate-O / MONeT",
        printed.ratio if printed else "not in the table",
        "; ".join(ratios),
        f"least of the budgets tried; {WHY}",
    )


# Memory ratio and overhead (%), Gist and MONeT, on a P100.
_TABLE_3 = {
    "vgg16": (0.76, 44.34, 0.39, 9.11),
    "resnet50": (0.58, 105.69, 0.33, 11.94),
    "googlenet": (0.52, 35.94, 0.33, 15.77),
    "mobilenet_v2": (0.69, 153.98, 0.34, 8.80),
    "unet": (0.73, 38.26, 0.35, 11.51),
}


_LEANEST = ("gist", "monet", "anytime_joint")


def gist_table(data: pd.DataFrame) -> pd.DataFrame:
    """Per network: Gist's one plan, and the leanest of MONeT's program and of our search."""
    found = []
    for model in networks(data, _TABLE_3):
        mine = data[(data["model"] == model)].dropna(subset="memory")
        line: dict[str, object] = {"model": model}
        for name in _LEANEST:
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
    lines = []
    for each in table.to_dict("records"):
        line = {"model": called(each["model"])}
        for place, name in enumerate(_LEANEST):
            line[f"{shown(name)}\nhere"] = _leanest(each, name)
            if name != "anytime_joint":  # not in the paper
                printed = _TABLE_3.get(each["model"], ())[2 * place : 2 * place + 2]
                line[f"{name}\npaper"] = "{:.2f} at {:+.0f}%".format(*printed) if printed else "–"
        lines.append(line)
    title = "Table 3: memory ratio and overhead (simulated and modelled here) of the leanest plans"
    notes = tuple(_gist_note(each) for each in table.to_dict("records"))
    return Drawing(title, table, table_picture(pd.DataFrame(lines), title), notes)


def _leanest(each: dict[Hashable, Any], name: str) -> str:
    memory, overhead = each[f"{name}_memory"], each[f"{name}_overhead"]
    return "no plan" if pd.isna(memory) else f"{memory:.2f} at {overhead:+.1%}"


def _gist_note(each: dict[Hashable, Any]) -> ClaimLine:
    text = [f"{shown(name)}: {_leanest(each, name)}" for name in _LEANEST]
    return ClaimLine(
        called(each["model"]),
        "Gist {} at {} %, MONeT {} at {} %".format(*_TABLE_3[each["model"]])
        if each["model"] in _TABLE_3
        else "not in the table",
        f"{text[0]} (lossy); {'; '.join(text[1:])}",
        f"least of the budgets tried; without a device no sparsity is measured, so Gist "
        f"stores nothing sparsely; {WHY}",
    )


# Tables 2, 5 and 6

_SOLVED = (
    *("checkmate_ilp", "monet noop", "monet"),
    *("anytime", "anytime_joint noop", "anytime_joint"),
)
"""The paper's three programs, and our three searches for the same problems."""
_TABLES = {
    "monet_table2": ("Table 2", 5),
    "monet_table5": ("Table 5", 5),
    "monet_table6": ("Table 6", 2),
}


def _solver(row: Row) -> str | None:
    """What a row is called in these tables: MONeT-NoOp and Checkmate's program have names, too."""
    if row["strategy"] == "checkmate_ilp":
        return "checkmate_ilp"
    noop = row["strategy"] == "monet" and row["extra"].get("operators") is False
    return "monet noop" if noop else system(row)


def _seconds(row: Row, percent: int) -> float | None:
    """Until the gap was proven: noted on the way, or at the latest when it ended with it."""
    noted = row["extra"].get(f"seconds_to_gap_{percent}")
    if isinstance(noted, int | float):
        return float(noted)
    if row["gap"] is None:
        return None
    return known(row["plan_seconds"]) if row["gap"] <= percent / 100 else None


def seconds_table(rows: Sequence[Row], percent: int) -> pd.DataFrame:
    """Per network, system and budget: seconds until the gap was proven, and the last gap."""
    found = [
        {
            "model": row["model"],
            "system": _solver(row),
            "budget": row["budget_fraction"],
            "status": row["status"],
            "seconds": _seconds(row, percent),
            "gap": row["gap"],
            "bound_of": row["bound_of"],
        }
        for row in rows
        if _solver(row) in _SOLVED and row["budget_fraction"] is not None
    ]
    return latest(found, ["model", "system", "budget"])


def _draw_seconds(name: str, rows: Sequence[Row]) -> Drawing | None:
    label, percent = _TABLES[name]
    data = seconds_table(rows, percent)
    if data.empty:
        return None
    cells = data.assign(cell=[_cell(line) for line in data.itertuples()])
    wide = cells.pivot_table(
        index=["model", "system"], columns="budget", values="cell", aggfunc="last"
    ).reset_index()
    wide["model"], wide["system"] = wide["model"].map(called), wide["system"].map(shown)
    wide.columns = [c if isinstance(c, str) else f"budget\n{c:g}" for c in wide.columns]
    title = f"{label}: seconds to a proven gap of {percent} % (in brackets: the gap at the limit)"
    reached = data.groupby("system")["seconds"].count()
    asked = data.groupby("system").size()
    notes = tuple(
        ClaimLine(
            f"{shown(each)}: budgets at which {percent} % was reached",
            _PRINTED[percent].get(each, "not there"),
            f"{reached[each]} of {asked[each]} within the time limit",
            "HiGHS on one or two cores, in place of Gurobi for up to 24 hours; "
            "bounds are of the spaces that the rows name",
        )
        for each in _SOLVED
        if each in asked
    )
    return Drawing(title, data, table_picture(wide, title), notes)


def _cell(line: object) -> str:
    seconds, gap = line.seconds, line.gap  # type: ignore[attr-defined]
    if not pd.isna(seconds):
        return f"{seconds:.1f} s" if seconds >= 0.05 else "< 0.1 s"
    return "no plan" if pd.isna(gap) else f"({gap:.0%})"


# Hours at budgets of 5 to 10 GB.
_PRINTED = {
    5: {
        "checkmate_ilp": "0.001 to 12.7 h, not at the tightest budgets",
        "monet noop": "0.000 to 1.18 h",
        "monet": "0.003 to 7.24 h",
    },
    2: {
        "checkmate_ilp": "0.001 to 16.4 h, not at the tightest budgets",
        "monet noop": "0.000 to 2.06 h, not for ResNet-50 at 5 GB",
        "monet": "0.003 to 12.6 h, not for ResNet-50 at 5 and 6 GB",
    },
}

# Table 7

_FORMS = ("Checkmate", "MONeT-NoOp", "MONeT")
# Forward ops; rows and columns of Checkmate's program, of MONeT-NoOp's, of MONeT's.
_Size = tuple[int, int]
_SIZES: dict[str, tuple[int, _Size, _Size, _Size]] = {
    "googlenet": (215, (719327, 519252), (221630, 104673), (781747, 362640)),
    "resnet50": (175, (473592, 344659), (344652, 167238), (487842, 229431)),
    "mobilenet_v2": (153, (337316, 247033), (153828, 74579), (241478, 115047)),
    "unet": (67, (65715, 48744), (32273, 15982), (73624, 36548)),
    "vgg16": (40, (25334, 18968), (12772, 6306), (21918, 11234)),
}


def size_table(rows: Sequence[Row]) -> pd.DataFrame:
    """Rows and columns that presolve leaves of each published program, beside Table 7's."""
    found = []
    for row in rows:
        extra, model = details(row), row["model"]
        if row["status"] in ("failed", "not_applicable"):
            continue
        if row["strategy"] == "monet" and "presolved_rows" in extra:
            form = _FORMS[1 + int(extra["operators"])]
            size = extra["presolved_rows"], extra["presolved_columns"]
            count = extra["forward_ops"]
        elif _is_printed(row) and "rows" in extra:
            form, size, count = _FORMS[0], (extra["rows"], extra["columns"]), None
        else:
            continue
        ops, *sizes = _SIZES.get(str(model), (None, None, None, None))
        printed = sizes[_FORMS.index(form)] or (None, None)
        found.append(
            {
                "model": model,
                "form": form,
                "locals": extra.get("locals"),
                "forward_ops": count,
                "rows": size[0],
                "columns": size[1],
                "rows_paper": printed[0],
                "columns_paper": printed[1],
                "forward_ops_paper": ops,
            }
        )
    return latest(found, ["model", "form", "locals"])


def _is_printed(row: Row) -> bool:
    """Is it of Checkmate's problem (9) as printed? Its plans call it so."""
    return row["strategy"] == "checkmate_ilp" and row["variant"] in ("9", "paper")


def _beside(each: Any) -> tuple[str, str]:
    """A program's size as printed, and as ours is."""
    ours = f"{each.rows} x {each.columns}"
    if pd.isna(each.rows_paper):
        return "not in the table", ours
    more = (each.rows / each.rows_paper - 1, each.columns / each.columns_paper - 1)
    return (
        f"{each.rows_paper:.0f} x {each.columns_paper:.0f}",
        f"{ours} ({more[0]:+.0%}, {more[1]:+.0%})",
    )


def _draw_sizes(rows: Sequence[Row]) -> Drawing | None:
    data = size_table(rows)
    if data.empty:
        return None
    notes = tuple(
        ClaimLine(
            f"{called(each.model)}, {each.form}" + (f" ({each.locals})" if each.locals else ""),
            *_beside(each),
            "Checkmate's program of our whole training graph"
            if each.form == "Checkmate"
            else "HiGHS's presolve in place of Gurobi's; our set of implementations",
        )
        for each in data.itertuples()
    )
    named = data.assign(model=data["model"].map(called)).rename(
        columns={
            "rows_paper": "rows\npaper",
            "columns_paper": "columns\npaper",
            "forward_ops": "forward\nops",
            "forward_ops_paper": "forward ops\npaper",
        }
    )
    title = "Table 7: size of the programs after presolve"
    return Drawing(title, data, table_picture(named, title), notes)
