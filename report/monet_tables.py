"""Tables 2, 5, 6 and 7 of the MONeT paper: the solver's time and the programs' sizes."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from rematbench.row import Row
from report.collect import Record
from report.figures import Comparison, Drawing
from report.monet import SHOWN, is_paper_row, system
from report.tables import table_picture


def draw(name: str, records: Sequence[Record]) -> Drawing | None:
    """One of the figures of this module."""
    rows = [record.row for record in records]
    if name == "monet_table7":
        return _draw_sizes(rows)
    return _draw_seconds(name, rows)


# Tables 2, 5 and 6

_SOLVED = ("checkmate_ilp", "monet noop", "monet")
_TABLES = {
    "monet_table2": ("Table 2", 5, ("resnet50", "googlenet", "vgg16")),
    "monet_table5": ("Table 5", 5, ("resnet50", "googlenet", "mobilenet_v2", "unet", "vgg16")),
    "monet_table6": ("Table 6", 2, ("resnet50", "googlenet", "mobilenet_v2", "unet", "vgg16")),
}


def seconds_table(rows: Sequence[Row], percent: int, models: Sequence[str]) -> pd.DataFrame:
    """Per network, system and budget: seconds until the gap was proven, and the last gap."""
    found = [
        {
            "model": row["model"],
            "system": system(row),
            "budget": row["budget_fraction"],
            "status": row["status"],
            "seconds": row["extra"].get(f"seconds_to_gap_{percent}"),
            "gap": row["gap"],
            "bound_of": row["bound_of"],
        }
        for row in rows
        if is_paper_row(row) and system(row) in _SOLVED and row["model"] in models
        if row["budget_fraction"] is not None
    ]
    if not found:
        return pd.DataFrame()
    frame = pd.DataFrame(found).drop_duplicates(["model", "system", "budget"], keep="last")
    return frame.sort_values(["model", "system", "budget"], ignore_index=True)


def _draw_seconds(name: str, rows: Sequence[Row]) -> Drawing | None:
    label, percent, models = _TABLES[name]
    data = seconds_table(rows, percent, models)
    if data.empty:
        return None
    cells = data.assign(cell=[_cell(line) for line in data.itertuples()])
    wide = cells.pivot_table(
        index=["model", "system"], columns="budget", values="cell", aggfunc="last"
    ).reset_index()
    wide["model"] = wide["model"].map(SHOWN)
    wide.columns = [c if isinstance(c, str) else f"{c:g}" for c in wide.columns]
    title = f"{label}: seconds to a proven gap of {percent} % (or the gap at the time limit)"
    reached = data.groupby("system")["seconds"].count()
    asked = data.groupby("system").size()
    notes = tuple(
        Comparison(
            f"{each}: budgets at which {percent} % was reached",
            _PRINTED[percent][each],
            f"{reached[each]} of {asked[each]} within the time limit",
            "HiGHS beside a search, on one or two cores, in place of Gurobi for up to 24 hours; "
            "bounds are of the spaces that the rows name",
        )
        for each in _SOLVED
        if each in asked
    )
    return Drawing(title, data, table_picture(wide, title), notes)


def _cell(line: object) -> str:
    seconds, gap = line.seconds, line.gap  # type: ignore[attr-defined]
    if not pd.isna(seconds):
        return f"{seconds:.1f} s"
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
_TABLE_7 = {
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
        extra, model = row["extra"], row["model"]
        if model not in _TABLE_7:
            continue
        if row["strategy"] == "monet" and "presolved_rows" in extra:
            form = _FORMS[1 + int(extra["operators"])]
            size = extra["presolved_rows"], extra["presolved_columns"]
            count = extra["forward_ops"]
        elif row["strategy"] == "checkmate_ilp" and row["variant"] == "paper" and "rows" in extra:
            form, size, count = _FORMS[0], (extra["rows"], extra["columns"]), None
        else:
            continue
        printed = _TABLE_7[model][1 + _FORMS.index(form)]
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
                "forward_ops_paper": _TABLE_7[model][0],
            }
        )
    if not found:
        return pd.DataFrame()
    frame = pd.DataFrame(found).drop_duplicates(["model", "form", "locals"], keep="last")
    return frame.sort_values(["model", "form", "locals"], ignore_index=True)


def _draw_sizes(rows: Sequence[Row]) -> Drawing | None:
    data = size_table(rows)
    if data.empty:
        return None
    notes = tuple(
        Comparison(
            f"{SHOWN[each.model]}, {each.form}" + (f" ({each.locals})" if each.locals else ""),
            f"{each.rows_paper} x {each.columns_paper}",
            f"{each.rows} x {each.columns} ({each.rows / each.rows_paper - 1:+.0%}, "
            f"{each.columns / each.columns_paper - 1:+.0%})",
            "Checkmate's program of our whole training graph"
            if each.form == "Checkmate"
            else "HiGHS's presolve in place of Gurobi's; our set of implementations",
        )
        for each in data.itertuples()
    )
    shown = data.assign(model=data["model"].map(SHOWN)).rename(
        columns={
            "rows_paper": "rows\npaper",
            "columns_paper": "columns\npaper",
            "forward_ops": "forward\nops",
            "forward_ops_paper": "forward ops\npaper",
        }
    )
    title = "Table 7: size of the programs after presolve"
    return Drawing(title, data, table_picture(shown, title), notes)
