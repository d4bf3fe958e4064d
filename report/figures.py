"""The papers' figures and tables: which there are, and what each leaves on disk."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from rematbench.base.errors import ConfigError
from rematbench.report.collect import Record
from rematbench.report.select import Selection, select

# Module of papers/ -> the figures that its ``draw`` draws.
_MODULES = {
    "simrd": tuple(f"simrd_fig{i}" for i in (2, 3, 4, 5, 6, 11, 12, 13, 14)),
    "simrd_distance": ("simrd_distance",),
    "simrd_traces": tuple(f"simrd_fig{i}" for i in range(7, 11)),
    "checkmate": tuple(f"checkmate_{n}" for n in ("fig5", "fig5a", "fig5b", "fig5c", "table2")),
    "checkmate_rounding": ("checkmate_fig7",),
    "checkmate_gaps": ("checkmate_appendix_a",),
    "checkmate_memory": tuple(f"checkmate_{n}" for n in ("fig1", "fig3", "fig6", "table1")),
    "joins": tuple(f"joins_{n}" for n in ("table1", "table2", "fig6", "fig8", "fig9", "fig10")),
    "monet": tuple(f"monet_fig{n}" for n in (3, 4, 6, 8)),
    "monet_tables": tuple(f"monet_table{n}" for n in (1, 2, 3, 5, 6, 7)),
    "monet_cases": ("monet_fig5", "monet_fig7"),
    "feng_huang": ("feng_huang_table1", "feng_huang_table2"),
}
NAMES = tuple(name for names in _MODULES.values() for name in names)


@dataclass(frozen=True)
class ClaimLine:
    """A line of the table "paper / ours / why they differ".

    Attributes:
        claim: what is compared, in a few words.
        paper: as the paper prints it, on the paper's hardware.
        ours: from the rows of this report.
        why: they differ, or how far they agree.
    """

    claim: str
    paper: str
    ours: str
    why: str


@dataclass(frozen=True)
class Drawing:
    """A figure, before it is written.

    Attributes:
        title: the paper's figure and what it shows.
        data: exactly what is plotted.
        figure: the picture.
        comparisons: ours beside the paper's.
    """

    title: str
    data: pd.DataFrame
    figure: Figure
    comparisons: tuple[ClaimLine, ...]


Draw = Callable[[str, Sequence[Record]], Drawing | None]
"""From a figure's name and its rows to the drawing; None where they hold nothing to draw."""


def command(name: str) -> str:
    """What makes the rows of a figure."""
    program = "rematbench-max-batch" if name == "checkmate_fig6" else "rematbench"
    return f"{program} -m experiment={name}"


def draw(name: str, records: Sequence[Record], out: Path) -> list[Path]:
    """Write ``NAME.png``, ``.pdf``, ``.csv`` (what is plotted) and ``.md`` (paper and ours).

    Raises:
        ConfigError: the rows hold nothing for this figure; names the command that makes them.
    """
    module = next(module for module, names in _MODULES.items() if name in names)
    function: Draw = importlib.import_module(f"rematbench.report.papers.{module}").draw
    selection = select(name, records)
    drawing = function(name, selection.records)
    if drawing is None:
        raise ConfigError(f"figure {name}: no row for it; make them by: {command(name)}")
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"{name}.{ending}" for ending in ("png", "pdf", "csv", "md")]
    for path in paths[:2]:
        # Without a date, the same rows give the same file.
        facts = {"CreationDate": None} if path.suffix == ".pdf" else {}
        drawing.figure.savefig(path, dpi=160, bbox_inches="tight", metadata=facts)
    drawing.data.to_csv(paths[2], index=False, float_format="%.6g")
    paths[3].write_text(comparison_table(name, drawing, selection), encoding="utf-8")
    return paths


def comparison_table(name: str, drawing: Drawing, selection: Selection) -> str:
    """The table beside a figure, in Markdown, and which rows were left out."""
    lines = [
        f"# {name}",
        "",
        f"{drawing.title}. Rows made by `{command(name)}`.",
        "",
        "| | paper (its hardware) | ours | why they differ |",
        "|---|---|---|---|",
    ]
    for each in drawing.comparisons:
        cells = (each.claim, each.paper, each.ours, each.why)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    if selection.left_out:
        lines += ["", f"Left out: {'; '.join(selection.left_out)}. Report on them separately."]
    return "\n".join(lines) + "\n"
