"""Pictures of the library's pages, as SVG: a plan, and what budgets cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from rematbench.graphs.ir import Graph
from rematbench.graphs.simulate import Trace
from rematbench.report.chart import ChartCurve, chart, line, mark, percent_axis
from rematbench.report.style import dashes, hex_colour, marker

WIDE, HIGH, LOW, GAP = 720, 200, 100, 12
"""Of a plan's picture: its width, the heights of computes and of bytes, what lies between."""
BEST = "#2f4bd8"
"""Colour of records."""


def plan_picture(graph: Graph, trace: Trace, budget: int) -> str:
    """A plan from left to right: its computes, program order upwards, and the bytes below.

    Those that compute an op again are of class ``again``. What falls on one pixel is drawn once, so
    that a picture of any plan stays small.

    Args:
        budget: bytes; a line.
    """
    codes = trace.codes
    at = np.flatnonzero(codes >= 0)
    op = graph.tables.op_of[codes[at]]
    first = np.zeros(len(at), dtype=bool)
    first[np.unique(op, return_index=True)[1]] = True
    column = at * WIDE // max(1, len(codes))
    row = HIGH - 1 - op * HIGH // max(1, len(graph.ops))
    wide = max(1, WIDE // max(1, len(codes)))
    tall = max(1, HIGH // max(1, len(graph.ops)))
    marks = [_runs(column[chosen], row[chosen], tall) for chosen in (first, ~first)]
    bottom = HIGH + GAP + LOW
    top = max(trace.peak_bytes, budget, 1)
    shown = np.arange(len(codes)) * WIDE // max(1, len(codes))
    highest = np.zeros(WIDE)
    np.maximum.at(highest, shown, trace.bytes_during)
    levels = np.rint(bottom - highest / top * LOW).astype(int)
    used = np.unique(shown)
    line = "".join(f"L{x} {levels[x]}" for x in used.tolist())
    limit = round(bottom - budget / top * LOW)
    return (
        f'<svg class="plan" viewBox="0 0 {WIDE} {bottom + 2}" role="img" aria-label="the plan">'
        f'<rect class="box" width="{WIDE}" height="{HIGH}"/>'
        f'<path class="first" stroke-width="{wide}" d="{marks[0]}"/>'
        f'<path class="again" stroke-width="{wide}" d="{marks[1]}"/>'
        f'<path class="bytes" d="M0 {bottom}{line}L{WIDE} {bottom}z"/>'
        f'<path class="budget" d="M0 {limit}h{WIDE}"/></svg>'
    )


def _runs(column: NDArray[np.int64], row: NDArray[np.int64], tall: int) -> str:
    """Vertical strokes, one for each run of pixels."""
    if not len(column):
        return ""
    pixels = np.unique(np.stack([column, row], axis=1), axis=0)
    breaks = np.flatnonzero((np.diff(pixels[:, 0]) != 0) | (np.diff(pixels[:, 1]) != 1))
    begins, ends = np.concatenate([[0], breaks + 1]), np.concatenate([breaks, [len(pixels) - 1]])
    strokes = zip(pixels[begins].tolist(), pixels[ends].tolist(), strict=True)
    return "".join(f"M{x} {y}v{last - y + tall}" for (x, y), (_, last) in strokes)


DEAREST = 3.0
"""A picture ends at so many times the overhead of the dearest record: what is above would leave no
room for what is compared."""


def budget_curve(
    points: Sequence[tuple[float, float | None, float | None]],
    floor: float,
    others: Mapping[str, Sequence[tuple[float, float]]] = MappingProxyType({}),
) -> tuple[str, int]:
    """Overheads by budget: the best plans, what is proven of them, and what strategies have.

    Args:
        points: budget (a share of the peak), the best plan's overhead and the bound's (ratios).
        floor: a share of the peak, below which there is no plan.
        others: by strategy, budgets (shares of the peak) and overheads of its plans.

    Returns:
        The picture, and how many plans of strategies are left out since they are too dear for it.
    """
    theirs = [point for each in others.values() for point in each]
    top = _top(points, theirs)
    low = min(floor, *_budgets(points), *_budgets(theirs))
    curves = [_thin(name, curve, top) for name, curve in others.items()]
    left_out = len(theirs) - sum(len(curve.points) for curve in curves)
    bounds = [(x, bound) for x, _, bound in points if bound is not None]
    best = [(x, value) for x, value, _ in points if value is not None]
    curves = [
        *filter(lambda curve: curve.points, curves),
        ChartCurve("the floor", [(floor, 0.0), (floor, top)], "#a11", "", "--", 1.2),
        ChartCurve("proven bound", bounds, "#888", "s", ":", 2),
        ChartCurve("best plan known", best, BEST, "o", "-", 3),
    ]
    x = percent_axis("budget, of ordinary training's peak", low - 0.02 * (1.0 - low), 1.0)
    y = percent_axis("overhead", 0.0, top)
    return chart(curves, x, y, "overhead by budget", alone=False), left_out


def _budgets(points: Iterable[tuple[float, *tuple[float | None, ...]]]) -> list[float]:
    return [x for x, *_ in points]


def _top(
    points: Sequence[tuple[float, float | None, float | None]],
    theirs: Sequence[tuple[float, float]],
) -> float:
    """The highest overhead of the picture."""
    dearest = max((value or 0.0 for _, *ys in points for value in ys), default=0.0)
    top = max(0.01, 1.05 * max([dearest, *(y for _, y in theirs)]))
    return min(top, DEAREST * dearest) if dearest > 0 else top


def _thin(name: str, curve: Sequence[tuple[float, float]], top: float) -> ChartCurve:
    shown = sorted(point for point in curve if point[1] <= top)
    return ChartCurve(name, shown, hex_colour(name), marker(name), dashes(name), 1.0)


def swatch(name: str) -> str:
    """A strategy's line and mark, beside its name."""
    own = ChartCurve(name, [(2.0, 7.0), (32.0, 7.0)], hex_colour(name), "", dashes(name))
    sign = f'<path fill="{own.colour}" d="{mark(marker(name), 17, 7)}"/>'
    return f'<svg class="swatch" viewBox="0 0 34 14" aria-hidden="true">{line(own)}{sign}</svg>'
