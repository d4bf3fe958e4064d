"""Figures 6, 8, 9 and 10 and Tables 1 and 2 of the join-network paper (Beaumont et al.)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, product

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rematbench.graphs.files import read_plan
from rematbench.graphs.plan import Compute
from rematbench.report.collect import Record
from rematbench.report.figures import ClaimLine, Drawing
from rematbench.report.papers.joins_tables import draw_memory, draw_weights
from rematbench.report.style import colour
from rematbench.report.tables import latest
from rematbench.rows.row import Row, details

_TOLD = {
    "RNN": "RNN: one branch of 6L",
    "CM": "CM, cross-modal: L and 5L",
    "SNN": "SNN, siamese: three of 2L",
}
_INKS = {"RNN": "revolve", "CM": "join_dp", "SNN": "chain_dp"}
_SIGNS = {"RNN": "s", "CM": "o", "SNN": "^"}


def draw(name: str, records: Sequence[Record]) -> Drawing | None:
    """One of the figures of this module, or a table."""
    rows = [record.row for record in records]
    if name == "joins_fig6":
        return _draw_toy(records)
    return {
        "joins_fig8": _draw_memory_tradeoff,
        "joins_fig9": _draw_lengths,
        "joins_fig10": _draw_chain,
        "joins_table1": draw_weights,
        "joins_table2": draw_memory,
    }[name](rows)


def span_table(rows: Sequence[Row]) -> pd.DataFrame:
    """Makespans of Theorem 3: model, L, slots, and the ratio to 12L + 1."""
    found = []
    for row in rows:
        lengths = row["extra"].get("lengths")
        if row["strategy"] != "join_dp" or not lengths or row["status"] != "ok":
            continue
        name, each = _model(row, lengths)
        found.append(
            {
                "model": name,
                "L": each,
                "slots": details(row)["slots"],
                "share": details(row)["slots"] / (sum(lengths) + len(lengths)),
                "makespan": details(row)["makespan"],
                "ratio": details(row)["makespan"] / (2 * sum(lengths) + 1),
            }
        )
    return latest(found, ["model", "L", "slots"])


def _model(row: Row, lengths: Sequence[int]) -> tuple[str, int]:
    """The paper's model, and its L: as the row's group says, or by the lengths."""
    name, each = shape(lengths) or ("other", sum(lengths) // 6)
    return row["extra"].get("group", name), each


def _spans(data: pd.DataFrame, by: str, title: str, across: str) -> tuple[Figure, list[Axes]]:
    """Makespans against something, a curve per model (the paper's first), in a panel for each."""
    values = sorted(set(data[by]))
    figure, panels = _panels(len(values), title, values)
    for axes, value in zip(panels, values, strict=True):
        for model in [*_TOLD, *sorted(set(data["model"]) - {*_TOLD})]:
            mine = data[(data["model"] == model) & (data[by] == value)]
            axes.plot(mine[across], mine["ratio"], color=colour(_INKS.get(model, model)),
                      marker=_SIGNS.get(model, "d"), markersize=3.5,
                      label=_TOLD.get(model, model))  # fmt: skip
        axes.set_xlabel(across)
    panels[0].set_ylabel("makespan / (12L + 1)")
    _legend(figure, panels[0])
    return figure, panels


def shape(lengths: Sequence[int]) -> tuple[str, int] | None:
    """Which of the paper's models a join is, and its L: RNN (6L), CM (L, 5L), SNN (2L, 2L, 2L)."""
    total = sum(lengths)
    if total % 6:
        return None
    each = total // 6
    models = {"RNN": [6 * each], "CM": [each, 5 * each], "SNN": [2 * each] * 3}
    return next(((name, each) for name in _TOLD if models[name] == sorted(lengths)), None)


# Figure 8


def _draw_memory_tradeoff(rows: Sequence[Row]) -> Drawing | None:
    data = span_table(rows)
    if data.empty:
        return None
    figure, panels = _spans(data, "L", "L = {}", "share")
    for axes in panels:
        axes.set_xlabel("slots / slots of the smallest makespan")
        axes.set_xlim(0, 1.03)
        axes.set_ylim(0.9, 3.2)  # a single chain with its fewest slots lies far above
    title = "Figure 8: makespan against memory"
    return Drawing(title, data, figure, tuple(_tradeoff_notes(data)))


def _tradeoff_notes(data: pd.DataFrame) -> list[ClaimLine]:
    half, near = [], []
    for (model, each), mine in data.groupby(["model", "L"]):
        enough = mine[mine["share"] >= 0.5]
        if enough.empty:
            continue
        first = enough.iloc[0]
        half.append(f"{model} L={each}: {first['ratio'] - 1:+.0%}")
        least = {"RNN": 3, "CM": 5, "SNN": 7}.get(str(model), 0)  # Lemma 4
        two = mine[mine["slots"] == least + 2]
        if len(two):
            near.append(f"{model} L={each}: {two['ratio'].iloc[0]:.3f}")
    return [
        ClaimLine(
            "half the memory",
            "about 25 % longer (section 6)",
            "; ".join(half),
            "the first slot count at or above half",
        ),
        ClaimLine(
            "makespan at c_min + 2",
            "'less than doubled'",
            "; ".join(near),
            "a number above 2 contradicts the paper: it is the optimum of its own Theorem 3",
        ),
    ]


# Figure 9


def _draw_lengths(rows: Sequence[Row]) -> Drawing | None:
    data = span_table(rows)
    if data.empty:
        return None
    figure, _ = _spans(data, "slots", "c = {} slots", "L")
    at_11 = data[data["slots"] == 11]
    ours = "–"
    if len(at_11):
        worst = at_11.loc[at_11["ratio"].idxmax()]
        ours = f"{worst['ratio']:.3f} at most ({worst['model']}, L = {worst['L']})"
    note = ClaimLine(
        "c = 11: ratio to the smallest makespan",
        "'consistently remains below 2'",
        ours,
        "lengths of this sweep only",
    )
    return Drawing("Figure 9: makespan against length", data, figure, (note,))


# Figure 10


def chain_table(rows: Sequence[Row]) -> pd.DataFrame:
    """EQUIV-CHAIN over the optimum on balanced joins of three branches, per reading."""
    spans: dict[tuple[str, int, int], float] = {}
    for row in rows:
        lengths = row["extra"].get("lengths") or []
        if row["status"] == "ok" and len(lengths) == 3 and len(set(lengths)) == 1:
            strategy = row["strategy"]
            if strategy in ("join_dp", "equiv_chain"):
                kind = row["variant"] or strategy
                kind = "optimum" if strategy == "join_dp" else kind
                spans[kind, lengths[0], details(row)["slots"]] = details(row)["makespan"]
    found = [
        {
            "reading": kind,
            "slots": slots,
            "length": each + 1,
            "makespan": span,
            "optimum": spans["optimum", each, slots],
            "ratio": span / spans["optimum", each, slots],
        }
        for (kind, each, slots), span in spans.items()
        if kind != "optimum" and ("optimum", each, slots) in spans
    ]
    return latest(found, ["reading", "slots", "length"])


def _draw_chain(rows: Sequence[Row]) -> Drawing | None:
    data = chain_table(rows)
    if data.empty:
        return None
    slots = sorted(set(data["slots"]))
    figure, panels = _panels(len(slots), "c = {} slots", slots)
    looks = {"join": ("equiv_chain", "-"), "chain": ("join_dp", "--"), "turn": ("revolve", ":")}
    for axes, count in zip(panels, slots, strict=True):
        for reading, (like, style) in looks.items():
            mine = data[(data["slots"] == count) & (data["reading"] == reading)]
            axes.plot(mine["length"], mine["ratio"], color=colour(like), linestyle=style,
                      marker="o", markersize=3, label=f"reading: {reading}")  # fmt: skip
        axes.axhline(1, color="0.4", linewidth=0.8)
        axes.set_xlabel("length (2L + 1)")
    panels[0].set_ylabel("EQUIV-CHAIN / optimum")
    _legend(figure, panels[0])
    last = data[(data["slots"] == slots[0]) & (data["length"] == data["length"].max())]
    text = "; ".join(f"{each.reading}: {each.ratio:.2f}" for each in last.itertuples())
    note = ClaimLine(
        f"EQUIV-CHAIN / optimum, c = {slots[0]}, length {data['length'].max()}",
        "grows steadily with length / slots (no number printed)",
        text,
        "the paper leaves open how the Turn counts: every reading is drawn",
    )
    return Drawing("Figure 10: the join as an equivalent chain", data, figure, (note,))


# Figure 6


def _draw_toy(records: Sequence[Record]) -> Drawing | None:
    for record in records:
        row, folder = record.row, record.folder
        if row["status"] != "ok" or folder is None or not (folder / "plan.json").exists():
            continue
        lengths, slots = row["extra"]["lengths"], details(row)["slots"]
        shown = f"l = ({', '.join(map(str, lengths))}), c = {slots}"
        data = toy_table(read_plan(folder / "plan.json").statements)
        note = ClaimLine(
            f"makespan for {shown}",
            "75 (its printed first decision, (9, 3); l = (4, 10, 12), c = 9)",
            f"{details(row)['makespan']:g} (Theorem 3)",
            "not reproduced: the printed schedule is not optimal under the paper's own theorem",
        )
        return Drawing(
            "Figure 6: an optimal schedule", data, _toy_picture(data, lengths, shown), (note,)
        )
    return None


def toy_table(statements: Sequence[object]) -> pd.DataFrame:
    """When each op of the join runs: names as in the plan."""
    names = [s.op for s in statements if isinstance(s, Compute)]
    return pd.DataFrame({"time": range(len(names)), "op": names})


def _toy_picture(data: pd.DataFrame, lengths: Sequence[int], shown: str) -> Figure:
    figure, (axes,) = _panels(1, "{}", [shown], width=4.5)
    inks = cycle(("checkpoint_all", "linearized_sqrt", "chen_greedy"))
    branches = [(str(i), length, next(inks)) for i, length in enumerate(lengths)]
    parts = data["op"].str.extract(r"(?P<kind>[fb])(?P<branch>\d+)_(?P<step>\d+)")
    for (branch, length, ink), kind in product(branches, "fb"):
        mine = parts[(parts["branch"] == branch) & (parts["kind"] == kind)]
        axes.scatter(
            mine["step"].astype(float),
            data.loc[mine.index, "time"],
            color=colour(ink),
            marker="o" if kind == "f" else "s",
            facecolors=colour(ink) if kind == "f" else "none",
            s=14,
            label=f"branch of {length}, {'forward' if kind == 'f' else 'backward'}",
        )
    turn = data[data["op"] == "turn"]["time"]
    axes.axhline(float(turn.iloc[0]), color="0.3", linestyle=":", linewidth=1, label="Turn")
    axes.set(xlabel="position on the branch", ylabel="time (operations)")
    axes.invert_yaxis()
    _legend(figure, axes)
    return figure


def _panels(
    count: int, title: str, values: Sequence[object], width: float = 3.0
) -> tuple[Figure, list[Axes]]:
    sns.set_theme("paper", "whitegrid")
    figure = Figure(figsize=(max(4.0, width * count), 3.0), layout="constrained")
    panels: list[Axes] = list(figure.subplots(1, count, squeeze=False, sharey=True)[0])
    for axes, value in zip(panels, values, strict=True):
        axes.set_title(title.format(value))
    return figure, panels


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
