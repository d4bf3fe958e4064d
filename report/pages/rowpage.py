"""One page per row that has a plan or a trace: schedule, memory timeline, files, every column."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from rematbench.base.errors import GraphError, PlanError, RematbenchError
from rematbench.graphs.files import read_graph, read_plan, write_bytes
from rematbench.graphs.link import Link
from rematbench.graphs.simulate import simulate
from rematbench.report.collect import Record, Skipped
from rematbench.report.pages.compact import source
from rematbench.report.pages.lanes import LANE, Lanes, lanes_of, link_of
from rematbench.report.pages.picture import COLOURS, Painter, ScheduleImages, data_uri
from rematbench.report.pages.timeline import HEIGHT, WIDTH, Timeline, read_timeline
from rematbench.rows.row import COLUMNS, Row, cells

PLAN, TRACE = "plan.json", "trace.csv"  # of a run folder
# Lines across the timeline: where from, what they are called, how they look.
_LINES = (
    ("budget_bytes", "budget", "#d55e00", "6 3"),
    ("checkpoint_all_peak_bytes", "checkpoint-all's peak", "#56514c", "2 3"),
    ("floor_bytes", "floor: no plan is below it", "#029e73", "8 3 2 3"),
    ("once_floor_bytes", "no plan below it computes gradients once", "#cc78bc", "8 3 2 3"),
    ("resident_bytes", "residents", "#949494", ""),
)
_MOST_GRAPHS = 64  # held in memory
_ANY = Link(1.0, 1.0)
# Seaborn's colour-blind safe palette: a part of the peak has one colour on all pages.
_PART_COLOURS = ("#0173b2", "#de8f05", "#cc78bc", "#56b4e9", "#949494", "#029e73", "#d55e00")
_EVENT_COLOURS = {
    "computed": "#0173b2",
    "recomputed": "#d55e00",
    "evicted": "#029e73",
    "banished": "#cc78bc",
}


@dataclass(frozen=True)
class LimitLine:
    """A horizontal line of the timeline."""

    name: str
    colour: str
    dash: str
    value: float
    y: float


@dataclass(frozen=True)
class Files:
    """Names of the files beside a row's page; None for one that there is not."""

    plan: str | None
    graph: str | None


class _Stale(PlanError):
    """A plan that is not its row's."""


def has_files(record: Record) -> bool:
    """Does the row's run folder hold a plan or a trace?"""
    folder = record.folder
    return folder is not None and any((folder / name).exists() for name in (PLAN, TRACE))


class RowPages:
    """Writes the pages of rows that have files to draw.

    Args:
        out: the folder for them.
        templates: with ``row.html``.

    Attributes:
        written: ids of the rows that have a page now.
        problems: what could not be drawn.
    """

    def __init__(self, out: Path, templates: Environment) -> None:
        self.written: list[str] = []
        self.problems: list[Skipped] = []
        self._out = out
        self._template = templates.get_template("row.html")
        self._painters: dict[str, Painter] = {}  # by digest: the rows of a sweep share a few

    def write(self, record: Record) -> None:
        """Write the page of one row, if anything of it can be drawn."""
        folder = record.path.parent
        picture, lanes, files, timeline = None, None, Files(None, None), None
        levels = _levels(record.row)
        faults = []
        try:
            if (folder / PLAN).exists():
                picture, lanes, files = self._draw_plan(record, folder)
        except _Stale as error:
            self.problems.append(Skipped(folder, str(error)))
            return
        except RematbenchError as error:
            faults.append(f"no schedule picture: {error}")
        try:
            if (folder / TRACE).exists():
                timeline = read_timeline(folder / TRACE, [level[-1] for level in levels])
        except RematbenchError as error:
            faults.append(f"no timeline: {error}")
        self.problems += [Skipped(folder, fault) for fault in faults]
        if picture is None and timeline is None:
            return
        page = self._template.render(
            **_described(record),
            picture=_pictures(picture),
            timeline=timeline,
            lines=_drawn(levels, timeline),
            lanes=lanes,
            files=files,
            faults=faults,
            memory=_parts(record.row),
        )
        _write(self._out / f"{record.id}.html", page.encode(errors="backslashreplace"))
        self.written.append(record.id)

    def _draw_plan(
        self, record: Record, folder: Path
    ) -> tuple[ScheduleImages, Lanes | None, Files]:
        """The pictures of ``plan.json``, once the simulator has accepted the plan as the row's.

        Raises:
            RematbenchError: a file is damaged, or the plan is not the row's.
        """
        path = folder / PLAN
        plan = read_plan(path)
        painter, graph_file = self._painter(folder / "graph.json.gz")
        link = link_of(record.row)
        trace = simulate(painter.graph, plan, link or _ANY)  # its peak is the same with any link
        text = record.row["peak_bytes"]
        if trace.peak_bytes != text:
            raise _Stale(
                f"plan.json peaks at {trace.peak_bytes} bytes and its row says {text}: it is of "
                "an earlier run, so that neither it nor trace.csv is drawn; run the job again"
            )
        picture = painter.schedule(plan)
        lanes = lanes_of(painter.graph, trace, link) if link else None
        name = f"{record.id}.plan.json.gz"
        _write(self._out / name, gzip.compress(path.read_bytes(), 6, mtime=0))
        return picture, lanes, Files(name, graph_file)

    def _painter(self, path: Path) -> tuple[Painter, str]:
        """A painter, and the name of its graph's copy: one for all rows that share it."""
        if not path.exists():
            raise GraphError(f"{path}: missing, so that the plan's ops are unknown")
        content = path.read_bytes()
        digest = sha256(content).hexdigest()[:12]
        name = f"graph-{digest}.json.gz"
        if digest not in self._painters:
            if len(self._painters) >= _MOST_GRAPHS:
                self._painters.clear()
            self._painters[digest] = Painter(read_graph(path))
            _write(self._out / name, content)
        return self._painters[digest], name


def _write(path: Path, content: bytes) -> None:
    """Write a file unless it is there already: a file system takes long to replace thousands."""
    if not path.exists() or path.read_bytes() != content:
        write_bytes(path, content)


def _described(record: Record) -> dict[str, Any]:
    row = record.row
    return {
        "id": record.id,
        "title": " · ".join(filter(None, (row["model"], row["strategy"], row["variant"]))),
        "row": row,
        "path": record.path,
        "facts": _facts(row),
        "extra": json.dumps(row["extra"], indent=1),
        "colours": COLOURS,
        "event_colours": _EVENT_COLOURS,
        "width": WIDTH,
        "height": HEIGHT,
        "lane_height": LANE,
    }


def _levels(row: Row) -> list[tuple[str, str, str, float]]:
    numbers = {**cells(row), **row["extra"]}
    found = [(name, colour, dash, numbers.get(key)) for key, name, colour, dash in _LINES]
    return [
        (name, colour, dash, value)
        for name, colour, dash, value in found
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]


def _drawn(levels: list[tuple[str, str, str, float]], timeline: Timeline | None) -> list[LimitLine]:
    if timeline is None or timeline.kind != "bytes":
        return []
    return [LimitLine(*level, timeline.height_of(level[-1])) for level in levels]


@dataclass(frozen=True)
class Part:
    """A part of the simulated peak: its share, from 0 to 1, and its bytes."""

    name: str
    colour: str
    share: float
    count: int


def _parts(row: Row) -> list[Part]:
    """What the peak consists of, the largest part first; empty where the row does not say."""
    found = row["extra"].get("memory")
    if not isinstance(found, dict) or not all(type(n) is int and n >= 0 for n in found.values()):
        return []
    total = sum(found.values())
    ordered = sorted(found.items(), key=lambda item: -item[1])
    inks = {name: _PART_COLOURS[i % len(_PART_COLOURS)] for i, name in enumerate(found)}
    return [Part(name, inks[name], count / total, count) for name, count in ordered if count]


def _pictures(picture: ScheduleImages | None) -> dict[str, Any] | None:
    if picture is None:
        return None
    return {
        "stages": picture.stages,
        "loss": picture.loss,
        "bands": picture.bands,
        "images": [
            ("R: computed in the stage", data_uri(picture.computed)),
            ("S: in memory when the stage begins", data_uri(picture.kept)),
        ],
    }


def _facts(row: Row) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Columns that are not null, by where they come from: name, for people, exactly."""
    values = cells(row)
    present = [c for c in COLUMNS if values[c] is not None and c != "extra"]
    starts = [i for i, c in enumerate(present) if i == 0 or source(c) != source(present[i - 1])]
    return [
        (source(present[a]), [(c, readable(c, values[c]), str(values[c])) for c in present[a:b]])
        for a, b in pairwise([*starts, len(present)])
    ]


def readable(column: str, value: Any) -> str:
    """A cell for people.

    >>> readable("peak_bytes", 1610612736)
    '1.5 GiB'
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if column.endswith("_bytes"):
        return human_bytes(value)
    if column in ("overhead", "measured_overhead", "gap", "peak_error", "budget_fraction"):
        return f"{value * 100:.3g} %"
    if column.endswith("_seconds"):
        return f"{value:.3g} s"
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def human_bytes(count: float) -> str:
    """Bytes in the largest binary unit that they fill."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


def filters() -> dict[str, Any]:
    """What the templates may call."""
    return {"human_bytes": human_bytes, "inline": Markup}
