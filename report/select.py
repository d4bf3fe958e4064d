"""Which rows a figure is drawn from: those that its experiment made.

A row says in ``extra`` which experiment asked for it (and which group of its sweeps), and a figure
takes the rows of the experiment of its name, whatever they hold: another batch, budget or model
changes what is drawn, not whether. Where there are none, rows of an experiment that runs the same
jobs do (:data:`FED_BY`). A row that no experiment asked for is in no paper's figure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rematbench.report.collect import Record
from rematbench.rows.row import Row

FED_BY = {
    **{f"checkmate_fig5{panel}": ("checkmate_fig5",) for panel in "abc"},
    "simrd_fig6": ("simrd_fig4",),
    "monet_table1": ("monet_fig3",),
    "monet_table2": ("monet_table5", "monet_table6"),
    "monet_table5": ("monet_table6",),
    "monet_table6": ("monet_table5",),
    "joins_table1": ("joins_table2",),
}
"""Experiments whose jobs are a figure's, too."""
_LENT: dict[str, Callable[[Row], bool]] = {
    "checkmate_fig5a": lambda row: row["model"] == "vgg16",
    "checkmate_fig5b": lambda row: row["model"] == "mobilenet_v1",
    "checkmate_fig5c": lambda row: row["model"] == "unet",
    "simrd_fig6": lambda row: row["extra"].get("heuristic") in ("full", "eqclass", "local"),
    "monet_table2": lambda row: row["model"] in ("resnet50", "googlenet", "vgg16"),
}
"""Which rows of such an experiment are the figure's, where it shows less."""
_OF_ALL_BATCHES = ("checkmate_fig6",)  # which is about them
Rows = Sequence[Record]


@dataclass(frozen=True)
class Selection:
    """What a figure is drawn from.

    Attributes:
        records: its rows, in the order given.
        left_out: which rows of its experiment are not among them, in words.
    """

    records: list[Record]
    left_out: tuple[str, ...] = ()


def select(figure: str, records: Rows) -> Selection:
    """The rows that a figure is drawn from.

    A network that its experiment ran at several batches is drawn at that of its last row: one curve
    shows one batch.
    """
    own = [r for r in made_by(figure, records) if not r.row["extra"].get("bad_config")]
    if own:
        return Selection(own) if figure in _OF_ALL_BATCHES else _of_last_batches(own)
    is_its = _LENT.get(figure)
    for experiment in FED_BY.get(figure, ()):
        lent = [r for r in made_by(experiment, records) if is_its is None or is_its(r.row)]
        if lent:
            return Selection(lent)
    return Selection([])


def made_by(experiment: str, records: Rows) -> list[Record]:
    """The rows that an experiment asked for."""
    return [r for r in records if any(mark.experiment == experiment for mark in r.marks)]


def _of_last_batches(records: Rows) -> Selection:
    rows = [record.row for record in records]
    last = {row["model"]: row["batch_size"] for row in rows if row["batch_size"] is not None}
    is_other = [row["batch_size"] not in (None, last.get(row["model"])) for row in rows]
    kept = [record for record, other in zip(records, is_other, strict=True) if not other]
    others = Counter(
        f"{row['model']} at batch {row['batch_size']}"
        for row, other in zip(rows, is_other, strict=True)
        if other
    )
    return Selection(kept, tuple(f"{name} ({count} rows)" for name, count in others.items()))
