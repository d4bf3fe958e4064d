"""Figures of the strategies' pages in ``docs/papers``, from committed rows.

``python -m rematbench.instances.paper_figures`` draws them into ``docs/papers/figures`` and writes
the last section of each page; from a checkout's root. A test makes them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log10
from pathlib import Path

import numpy as np
import pandas as pd

from rematbench.graphs.files import write_bytes
from rematbench.instances.hundred import field_of
from rematbench.instances.records import read_library
from rematbench.report.chart import ChartAxis, ChartCurve, chart, percent_axis
from rematbench.report.collect import collect
from rematbench.report.leaderboard.board import OTHER_OPS, Board, board, problem
from rematbench.report.leaderboard.names import label
from rematbench.report.offload import ALONE, HALF, lines
from rematbench.report.papers.simrd_distance import distances
from rematbench.report.style import dashes, hex_colour, marker
from rematbench.rows.row import Row, known
from rematbench.strategies.registry import cards

FULL = "runs/reference/leaderboard/full-*.csv.gz"
HUNDRED = "runs/reference/library/rematlib-100-20s.csv.gz"
OFFLOAD = "runs/reference/leaderboard/offload.csv.gz"
DISTANCE = "runs/reference/simrd-distance.csv"
CHAIN = "runs/reference/poet-chain.csv"
PLACE = Path("docs/papers")
HEADING = "## Figures\n"
DEAREST = 2.0
"""Overheads above it are left out of a figure."""
FACTOR = 0.5
"""To where costs over the cheapest plan's are drawn."""
_END = """Drawn by `python -m rematbench.instances.paper_figures` from the rows that are named; a
test holds the figures against them.
"""
_BUDGET = "budget, of ordinary training's peak"


@dataclass(frozen=True, slots=True)
class PageFigure:
    """A picture of a page.

    Attributes:
        name: of its file, without an ending.
        alt: what it shows, in a few words.
        text: how to read it, and what its numbers are.
        svg: the picture.
    """

    name: str
    alt: str
    text: str
    svg: str


@dataclass(frozen=True)
class CommittedRows:
    """What figures are drawn from.

    Attributes:
        field: the leaderboard's rows, side by side.
        bounds: by problem of the field, the highest bound of every plan in program order, as an
            overhead.
        hundred: REMATLIB-100's rows (:func:`.hundred.field_of`).
        offload: of two memories (:func:`rematbench.report.offload.lines`).
        distance: of DTR on logs (:func:`.simrd_distance.distances`).
        chain: of POET on a chain.
    """

    field: Board
    bounds: Mapping[str, float]
    hundred: pd.DataFrame
    offload: pd.DataFrame
    distance: pd.DataFrame
    chain: Sequence[Row]


def committed(place: Path = Path()) -> CommittedRows:
    """Read them, from a checkout's root.

    Raises:
        RematbenchError: a file is missing, or is none of rows.
    """
    rows = _read(place, FULL)
    return CommittedRows(
        board(rows, lacking=True),
        _bounds(rows),
        field_of(_read(place, HUNDRED), read_library(place / "instances")),
        lines(_read(place, OFFLOAD)),
        distances(_read(place, DISTANCE)),
        _read(place, CHAIN),
    )


def _read(place: Path, names: str) -> Sequence[Row]:
    return collect(sorted(place.glob(names))).rows


def _bounds(rows: Iterable[Row]) -> dict[str, float]:
    found: dict[str, float] = {}
    for row in rows:
        own = row["bound"] if row["bound_of"] == "any" else None
        proven = max(own or 0.0, row["extra"].get("bounds", {}).get("any") or 0.0)
        if proven and row["checkpoint_all_cost"] and row["strategy"] not in OTHER_OPS:
            name, overhead = problem(row), proven / row["checkpoint_all_cost"] - 1
            found[name] = max(found.get(name, 0.0), overhead)
    return found


def of_page(page: str, rows: CommittedRows) -> list[PageFigure]:
    """The figures of a page of ``docs/papers``."""
    names = [card.name for card in cards().values() if card.page == f"{page}.md"]
    found = [
        by_budget(page, names, rows.field, rows.bounds),
        by_share(page, names, rows.hundred),
        by_link(page, names, rows.offload),
    ]
    if page == "simrd":
        found.append(by_distance(rows.distance))
    if page == "poet":
        found.append(on_a_chain(rows.chain))
    return [each for each in found if each is not None]


def _of(name: str, points: Iterable[tuple[float, float]], width: float = 1.5) -> ChartCurve:
    shown = [(x, y) for x, y in sorted(points) if y <= DEAREST]
    return ChartCurve(label(name), shown, hex_colour(name), marker(name), dashes(name), width)


def _best(points: Iterable[tuple[float, float]], text: str) -> ChartCurve:
    """Pale and wide: whoever has these plans lies upon it."""
    return ChartCurve(text, sorted(points), "#c4c4c4", "", "-", 5.0)


def _proven(points: Iterable[tuple[float, float]]) -> ChartCurve:
    return ChartCurve("proven: none is below", sorted(points), "#222222", "", ":", 1.5)


def _overheads(curves: Sequence[ChartCurve], title: str) -> ChartAxis:
    ys = [y for curve in curves for _, y in curve.points]
    return percent_axis(title, min([0.0, *ys]), max([0.02, *ys]) * 1.05)


def _budgets(curves: Sequence[ChartCurve]) -> ChartAxis:
    low = min(x for curve in curves for x, _ in curve.points)
    return percent_axis(_BUDGET, max(0.0, low - 0.05), 1.0)


def _list(names: Iterable[str]) -> str:
    *most, last = [label(name, "`") for name in names]
    return f"{', '.join(most)} and {last}" if most else last


def by_budget(
    page: str, names: Sequence[str], field: Board, bounds: Mapping[str, float]
) -> PageFigure | None:
    """Overhead by budget on the network of the leaderboard on which they have most plans."""
    solved = field.entries[np.isfinite(field.entries["cost"])]
    mine = solved[solved["strategy"].isin(names)]
    if mine.empty:
        return None
    counts = mine.groupby("network", sort=False).size()
    order = field.entries["network"].unique()
    here = solved[solved["network"] == str(counts.reindex(order).idxmax())]
    found = [_drawn(name, here, "fraction") for name in names]
    curves = [curve for curve in found if curve.points]
    left = int(here["strategy"].isin(names).sum()) - sum(len(curve.points) for curve in curves)
    title, alt = here["model"].iloc[0], ", ".join(curve.label for curve in curves)
    best = here[~here["other"]].groupby("fraction")["overhead"].min()
    curves = [
        _best(best.items(), "cheapest plan known"),
        *curves,
        *_of_every_plan(here, bounds),
    ]
    x, y = _budgets(curves), _overheads(curves, "overhead (modelled)")
    alt = f"Overhead by budget on {title}: {alt}"
    text = _told_of_budgets(title, names, left)
    return PageFigure(f"{page}-budget", alt, text, chart(curves, x, y, alt, alone=True))


def _drawn(name: str, lines: pd.DataFrame, x: str) -> ChartCurve:
    own = lines[lines["strategy"] == name]
    return _of(name, zip(own[x], own["overhead"], strict=True))


def _of_every_plan(here: pd.DataFrame, bounds: Mapping[str, float]) -> list[ChartCurve]:
    mine = here[here["problem"].isin(bounds.keys())]
    points = {*zip(mine["fraction"], mine["problem"].map(bounds), strict=True)}
    return [_proven(points)] if points else []


def _told_of_budgets(network: str, names: Sequence[str], left: int) -> str:
    others = sorted({*names} & OTHER_OPS)
    text = (
        "Modelled costs, plans judged by the simulator; nothing was measured. Overhead over "
        f"checkpoint-all by budget on `{network}`, the network of the leaderboard on which "
        f"{_have(names)} most plans, beside the cheapest plan that is known there and the bound "
        "that no plan in program order is below."
    )
    if others:
        text += f" {_list(others)} may run other ops, and be below both."
    if left:
        text += f" Overheads above 200 % are left out ({left})."
    return f"{text} Rows: `{FULL}`."


def _have(names: Sequence[str]) -> str:
    return f"{_list(names)} {'have' if len(names) > 1 else 'has'}"


def by_share(page: str, names: Sequence[str], field: pd.DataFrame) -> PageFigure | None:
    """On how many of REMATLIB-100 a plan costs at most so much more than the cheapest one."""
    problems = field["problem"].nunique()
    curves = []
    for name in names:
        costs = field[(field["strategy"] == name) & np.isfinite(field["cost"])]
        if len(costs):
            steps = [*_steps(sorted(costs["ratio"] - 1), problems)]
            curves.append(ChartCurve(label(name), steps, hex_colour(name), "", dashes(name), 2.0))
    if not curves:
        return None
    limits = " or ".join(f"{each:g}" for each in sorted({*field["limit"].dropna()}))
    x = percent_axis("cost over the cheapest plan's of the same problem", 0.0, FACTOR)
    y = percent_axis(f"share of {problems} problems", 0.0, 1.0)
    alt = f"Share of REMATLIB-100 solved, by cost: {', '.join(curve.label for curve in curves)}"
    text = (
        f"Modelled costs, plans judged by the simulator; nothing was measured. On how many of the "
        f"{problems} problems of [REMATLIB-100](../rematlib-100.md) a plan made in {limits} s "
        "costs at most so much more than the cheapest one that any strategy made in that time. "
        f"Higher is better; a problem without a plan is never counted. Rows: `{HUNDRED}`."
    )
    return PageFigure(f"{page}-share", alt, text, chart(curves, x, y, alt, alone=True))


def _steps(ratios: Sequence[float], of: int) -> Iterator[tuple[float, float]]:
    """Corners of the curve that counts them."""
    near = [each for each in ratios if each <= FACTOR]
    yield 0.0, sum(each <= 0 for each in near) / of
    for number, each in enumerate(near):
        if each > 0:
            yield each, number / of
            yield each, (number + 1) / of
    yield FACTOR, len(near) / of


def by_link(page: str, names: Sequence[str], frame: pd.DataFrame) -> PageFigure | None:
    """Overhead by the link's rate, on the network on which they have most plans."""
    here = frame[(frame["budget"] == HALF) & np.isfinite(frame["overhead"])]
    linked = here[here["rate"] > ALONE]
    mine = linked[linked["strategy"].isin(names)]
    if mine.empty:
        return None
    costs, network = mine.groupby(["costs", "network"], sort=False).size().idxmax()
    here = here[(here["costs"] == costs) & (here["network"] == network)]
    linked = here[here["rate"] > ALONE]
    placed = linked.assign(log=np.log10(linked["rate"]))
    found = [_drawn(name, placed, "log") for name in names]
    curves = [curve for curve in found if curve.points]
    shown = [curve.label for curve in curves]
    best = linked.groupby("rate")["overhead"].min()
    alone = here[here["rate"] == ALONE]["overhead"].min()
    rates = sorted(best.index)
    curves = [
        _best([(log10(rate), best[rate]) for rate in rates], "cheapest with that link"),
        *curves,
        ChartCurve("recomputation alone", [(log10(r), alone) for r in rates], "#a11111", "", "--"),
    ]
    x = ChartAxis(
        "rate of the link, GB/s in each direction",
        log10(rates[0]) - 0.1,
        log10(rates[-1]) + 0.1,
        [(log10(rate), f"{rate:g}") for rate in rates],
    )
    alt = f"Overhead by the link's rate on {network}: {', '.join(shown)}"
    text = (
        f"Modelled, and simulated: nothing was copied. Overhead of the makespan over "
        f"checkpoint-all's, by the rate of the link, on `{network}` at {100 * HALF:.0f} % of "
        f"ordinary training's peak: of the networks of [the track](../offload.md) the one on which "
        f"{_have(names)} most plans, beside the cheapest "
        f"plan with that link and recomputation alone. Rows: `{OFFLOAD}`."
    )
    y = _overheads(curves, "overhead (modelled)")
    return PageFigure(f"{page}-link", alt, text, chart(curves, x, y, alt, alone=True))


def by_distance(frame: pd.DataFrame) -> PageFigure:
    """DTR beside the best static plan and the bound, on the log with the most of both."""
    both = frame[frame["dtr"].notna() & frame["best"].notna()]
    log = both.groupby("log")["bound"].count().idxmax()
    mine = both[both["log"] == log]
    curves = [_best(zip(mine["ratio"], mine["best"], strict=True), "cheapest static plan")]
    curves.append(_of("dtr", zip(mine["ratio"], mine["dtr"], strict=True)))
    proven = mine[mine["bound"].notna()]
    curves.append(_proven(zip(proven["ratio"], proven["bound"], strict=True)))
    alt = f"Overhead of DTR by budget on the log {log}"
    text = (
        f"Simulated, on the recorded log `{log}`, whose ops were timed on a CPU: DTR, which does "
        "not know what comes, beside the cheapest plan of the same log's graph, which a planner "
        "made ahead, and the highest bound of such plans, at some budgets only of those that "
        f"recompute forward ops alone (`bound_of`). Rows: `{DISTANCE}`."
    )
    x, y = _budgets(curves), _overheads(curves, "overhead (simulated)")
    return PageFigure("simrd-log", alt, text, chart(curves, x, y, alt, alone=True))


def on_a_chain(rows: Sequence[Row]) -> PageFigure:
    """POET's plans on a chain, beside recomputation alone."""
    curves = [_of(name, _on_chain(name, rows)) for name in ("poet", "anytime")]
    budgets = sorted({x for curve in curves for x, _ in curve.points})
    ticks = [(each, f"{each:g}") for each in budgets]
    x = ChartAxis("budget, bytes", budgets[0] - 0.2, budgets[-1] + 0.2, ticks)
    alt = "Overhead by budget on a chain of 8 layers: poet, anytime (ours)"
    text = (
        "Modelled, and simulated: nothing was copied. A chain of 8 layers of one byte and one unit "
        "of cost, with a link that carries half a byte per unit in each direction: the makespan "
        "over checkpoint-all's of `poet`'s plans, whose program minimizes energy, beside "
        f"recomputation alone. Rows: `{CHAIN}`, by `rematbench -m model=unit_chain model.length=8 "
        "strategy=poet,anytime budget=4,5,6,7,8,9 link=given link.out=0.5 link.in=0.5 "
        "time_limit=5`."
    )
    y = _overheads(curves, "overhead (modelled)")
    return PageFigure("poet-chain", alt, text, chart(curves, x, y, alt, alone=True))


def _on_chain(name: str, rows: Iterable[Row]) -> Iterator[tuple[float, float]]:
    for row in rows:
        if row["strategy"] == name and row["status"] == "ok":
            yield float(known(row["budget_bytes"])), known(row["overhead"])


def with_figures(page: str, figures: Sequence[PageFigure]) -> str:
    """A page's text with its last section made again."""
    head = page.partition(f"\n{HEADING}")[0].rstrip("\n")
    parts = [head, HEADING.rstrip("\n")]
    for each in figures:
        parts += [f"![{each.alt}](figures/{each.name}.svg)", each.text]
    return "\n\n".join([*parts, _END])


def main() -> None:
    """The command."""
    rows = committed()
    for path in sorted(PLACE.glob("*.md")):
        figures = of_page(path.stem, rows)
        for each in figures:
            write_bytes(PLACE / "figures" / f"{each.name}.svg", f"{each.svg}\n".encode())
        page = with_figures(path.read_text(encoding="utf-8"), figures)
        write_bytes(path, page.encode())
        print(path, *(each.name for each in figures))


if __name__ == "__main__":
    main()
