"""A small chart as SVG text: curves with marks over two axes, for pages of plain HTML or Markdown.

Its text is the same on every machine, and a few kilobytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from math import cos, floor, log10, pi, sin

WIDE, HIGH = 480, 240
"""Of the chart without its legend: units of the SVG, pixels where it is as wide as it is meant."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 22, 10, 44
_LINE = 16  # height of one of the legend's
_RADIUS = 3.6
_CORNERS = {
    **{"s": (4, 45.0), "D": (4, 0.0), "^": (3, 90.0), "v": (3, 270.0)},
    **{"<": (3, 180.0), ">": (3, 0.0), "p": (5, 90.0), "h": (6, 90.0)},
}
_STARS = {"P": (4, 90.0), "X": (4, 45.0), "*": (5, 90.0)}
_DASHES = {"--": "7 3", "-.": "7 3 2 3", ":": "2 3"}
_STYLE = (
    "text{font:12px sans-serif;fill:currentColor}.axis{stroke:currentColor;stroke-opacity:.5;"
    "fill:none}.grid{stroke:currentColor;stroke-opacity:.15;fill:none}"
)


@dataclass(frozen=True, slots=True)
class ChartCurve:
    """One of a chart.

    Attributes:
        label: in the legend.
        points: x and y, in the order in which they are joined.
        colour: ``#rrggbb``, or ``currentColor``.
        marker: as matplotlib names it; empty: none.
        dashes: the same; ``-`` is a whole line.
        width: of the line; 0: marks alone.
    """

    label: str
    points: Sequence[tuple[float, float]]
    colour: str = "currentColor"
    marker: str = ""
    dashes: str = "-"
    width: float = 1.5


@dataclass(frozen=True, slots=True)
class ChartAxis:
    """An axis from ``low`` to ``high``, what it shows (with its unit), and its ticks by name."""

    title: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]

    def place(self, at: float, begin: float, end: float) -> float:
        """Where a number lies between two ends of the picture."""
        share = (at - self.low) / ((self.high - self.low) or 1.0)
        return begin + min(1.0, max(0.0, share)) * (end - begin)


def percent_axis(title: str, low: float, high: float) -> ChartAxis:
    """An axis of shares, with some five ticks at whole steps.

    >>> [text for _, text in percent_axis("overhead", 0.0, 0.23).ticks]
    ['0 %', '5 %', '10 %', '15 %', '20 %']
    """
    raw = max(high - low, 1e-9) / 5
    power = 10.0 ** floor(log10(raw))
    step = power * next(each for each in (1, 2, 5, 10) if raw <= each * power * (1 + 1e-9))
    digits = max(0, -floor(log10(step * 100) + 1e-9))
    first = -floor(-low / step + 1e-9)
    numbers = [step * each for each in range(first, floor(high / step + 1e-9) + 1)]
    return ChartAxis(title, low, high, [(x, f"{100 * x:.{digits}f} %") for x in numbers])


def chart(curves: Sequence[ChartCurve], x: ChartAxis, y: ChartAxis, about: str, alone: bool) -> str:
    """The chart.

    Args:
        about: what it shows, for who does not see it.
        alone: as a file of its own, on white and with a legend; else a part of a page, in the
            page's colour of text.
    """
    tall = HIGH + (_LINE * ((len(curves) + 1) // 2) + 6 if alone else 0)
    parts = [*_axes(x, y), *(_curve(each, x, y) for each in curves)]
    look = f'viewBox="0 0 {WIDE} {tall}" role="img" aria-label="{escape(about)}"'
    if alone:
        parts = [f'<rect width="{WIDE}" height="{tall}" fill="#fff"/>', *parts, *_legend(curves)]
        look = (
            f'xmlns="http://www.w3.org/2000/svg" width="{WIDE}" height="{tall}" {look} color="#222"'
        )
    return f'<svg class="chart" {look}><style>{_STYLE}</style>{"".join(parts)}</svg>'


def _axes(x: ChartAxis, y: ChartAxis) -> Iterable[str]:
    bottom, right = HIGH - _BOTTOM, WIDE - _RIGHT
    for at, text in x.ticks:
        where = x.place(at, _LEFT, right)
        yield f'<path class="grid" d="M{where:.1f} {_TOP}V{bottom}"/>'
        yield f'<text x="{where:.1f}" y="{bottom + 15}" text-anchor="middle">{text}</text>'
    for at, text in y.ticks:
        where = y.place(at, bottom, _TOP)
        yield f'<path class="grid" d="M{_LEFT} {where:.1f}H{right}"/>'
        yield f'<text x="{_LEFT - 5}" y="{where + 4:.1f}" text-anchor="end">{text}</text>'
    yield f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>'
    middle = (_LEFT + right) // 2
    yield f'<text x="{middle}" y="{HIGH - 12}" text-anchor="middle">{escape(x.title)}</text>'
    turned = (_TOP + bottom) // 2
    yield (
        f'<text transform="translate(11 {turned}) rotate(-90)" text-anchor="middle">'
        f"{escape(y.title)}</text>"
    )


def _curve(curve: ChartCurve, x: ChartAxis, y: ChartAxis) -> str:
    bottom, right = HIGH - _BOTTOM, WIDE - _RIGHT
    places = [(x.place(a, _LEFT, right), y.place(b, bottom, _TOP)) for a, b in curve.points]
    text = f"<g><title>{escape(curve.label)}</title>"
    if curve.width and len(places) > 1:
        text += line(replace(curve, points=places))
    marks = "".join(mark(curve.marker, a, b) for a, b in places) if curve.marker else ""
    return text + (f'<path fill="{curve.colour}" d="{marks}"/></g>' if marks else "</g>")


def line(curve: ChartCurve) -> str:
    """A curve's line, its points in units of the SVG."""
    path = "L".join(f"{a:.1f} {b:.1f}" for a, b in curve.points)
    return f'<path fill="none" {_stroke(curve)} d="M{path}"/>'


def _stroke(curve: ChartCurve) -> str:
    dashed = _DASHES.get(curve.dashes)
    ending = f' stroke-dasharray="{dashed}"' if dashed else ""
    return f'stroke="{curve.colour}" stroke-width="{curve.width:g}"{ending}'


def mark(kind: str, x: float, y: float) -> str:
    """A path around a point: a polygon or a star, by matplotlib's names; otherwise a circle."""
    if kind in _CORNERS:
        count, turn = _CORNERS[kind]
        radii = [_RADIUS * 1.15] * count
    elif kind in _STARS:
        count, turn = _STARS[kind]
        radii = [_RADIUS * 1.3, _RADIUS * 0.5] * count
    else:
        r = _RADIUS
        return f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z"
    angles = [pi * (turn + 360 * i / len(radii)) / 180 for i in range(len(radii))]
    around = zip(radii, angles, strict=True)
    return f"M{'L'.join(f'{x + r * cos(a):.1f} {y - r * sin(a):.1f}' for r, a in around)}z"


def _legend(curves: Sequence[ChartCurve]) -> Iterable[str]:
    for number, curve in enumerate(curves):
        left, at = 8 + number % 2 * (WIDE // 2), HIGH + _LINE * (number // 2) + 6
        if curve.width:
            yield f'<path {_stroke(curve)} d="M{left} {at}h24"/>'
        if curve.marker:
            yield f'<path fill="{curve.colour}" d="{mark(curve.marker, left + 12, at)}"/>'
        yield f'<text x="{left + 30}" y="{at + 4}">{escape(curve.label)}</text>'
