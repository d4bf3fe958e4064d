"""Pictures of the library's pages, as SVG: a plan, and what budgets cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from rematbench.graphs.ir import Graph
from rematbench.graphs.simulate import Trace

WIDE, HIGH, LOW, GAP = 720, 200, 100, 12
"""Of a plan's picture: its width, the heights of computes and of bytes, what lies between."""
_MARGIN = 60


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


def budget_curve(points: Sequence[tuple[float, float | None, float | None]], floor: float) -> str:
    """Overheads of the best plans by budget, with what is proven of them.

    Args:
        points: budget (a share of the peak), the best plan's overhead and the bound's (ratios).
        floor: a share of the peak, below which there is no plan.
    """
    wide, high = 720 - 2 * _MARGIN, 200
    known = [y for _, *ys in points for y in ys if y is not None]
    top = max([0.01, *known]) * 1.05
    low = min([floor, *(x for x, *_ in points)]) * 0.98

    def place(x: float, y: float) -> tuple[str, str]:
        share = (x - low) / max(1e-9, 1 - low)
        return f"{_MARGIN + share * wide:.1f}", f"{high + 10 - max(0.0, y) / top * high:.1f}"

    plans = [(x, value) for x, value, _ in points if value is not None]
    bounds = [(x, bound) for x, _, bound in points if bound is not None]
    dots = "".join(
        '<circle class="{}" r="4" cx="{}" cy="{}"/>'.format(name, *place(x, y))
        for name, these in (("bound", bounds), ("value", plans))
        for x, y in these
    )
    edge = place(floor, 0)[0]
    said = 'role="img" aria-label="overhead by budget"'
    return (
        f'<svg class="curve" viewBox="0 0 720 {high + 50}" {said}>'
        f'<path class="axes" d="M{_MARGIN} 10v{high}h{wide}"/>'
        f'<path class="floor" d="M{edge} 10v{high}"/>'
        f'<path class="bound" d="{_line(place(*each) for each in bounds)}"/>'
        f'<path class="value" d="{_line(place(*each) for each in plans)}"/>{dots}'
        f'<text x="{_MARGIN - 6}" y="20" text-anchor="end">{top / 1.05:.1%}</text>'
        f'<text x="{_MARGIN - 6}" y="{high + 10}" text-anchor="end">0 %</text>'
        f'<text x="{_MARGIN}" y="{high + 30}">{low:.0%} of the peak</text>'
        f'<text x="{_MARGIN + wide}" y="{high + 30}" text-anchor="end">100 %</text></svg>'
    )


def _line(points: Iterable[tuple[str, str]]) -> str:
    listed = [" ".join(point) for point in points]
    return f"M{'L'.join(listed)}" if listed else ""
