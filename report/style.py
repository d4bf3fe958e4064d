"""The look of every figure: one colour and one marker per strategy, everywhere."""

from __future__ import annotations

import functools
import hashlib

from rematbench.strategies import registry

_DASHES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
_SYMBOLS = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "D": "diamond",
    "v": "triangle-down",
    "P": "cross",
    "X": "x",
    "<": "triangle-left",
    ">": "triangle-right",
    "p": "pentagon",
    "h": "hexagon",
    "*": "star",
}
# Seaborn's "colorblind" (written out: importing seaborn takes seconds), but for its yellow, which
# is hardly seen on white.
_COLOURS = (
    *("#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc"),
    *("#ca9161", "#fbafe4", "#949494", "#b8ab00", "#56b4e9"),
)
_PLACES = 50
"""Those that cards give come first; whoever has none comes behind, by a hash of the name."""
# Rows of before, whose strategy ran on our search: (place, colour).
_ON_OUR_SEARCH = {"moccasin+anytime": (37, "#4f6f00"), "rockmate+anytime": (38, "#8c1d40")}


@functools.cache
def ours() -> tuple[str, ...]:
    """Searches of this project, which no paper published."""
    return tuple(name for name, card in registry.cards().items() if card.ours)


def shown(strategy: str) -> str:
    """The strategy's name beside a paper's own: ours say so.

    >>> shown("anytime"), shown("anytime_joint noop"), shown("monet")
    ('anytime (ours)', 'anytime_joint noop (ours)', 'monet')
    """
    return f"{strategy} (ours)" if strategy.partition(" ")[0] in ours() else strategy


def _place(strategy: str) -> int:
    card = registry.cards().get(strategy)
    known = card.place if card else _ON_OUR_SEARCH.get(strategy, (None, None))[0]
    if known is not None:
        return known
    return _PLACES + int(hashlib.sha256(strategy.encode()).hexdigest(), 16) % 97


def _own(strategy: str) -> str | None:
    """The ink that no other strategy has: of those that meet in most pictures."""
    card = registry.cards().get(strategy)
    return card.colour if card else _ON_OUR_SEARCH.get(strategy, (None, None))[1]


def colour(strategy: str) -> tuple[float, float, float]:
    """The strategy's colour, from a colour-blind safe palette."""
    digits = hex_colour(strategy)
    red, green, blue = (int(digits[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def marker(strategy: str) -> str:
    """The strategy's marker, which tells apart those that share a colour, and prints in grey."""
    return _MARKERS[_place(strategy) % len(_MARKERS)]


def hex_colour(strategy: str) -> str:
    """The strategy's colour for a web page."""
    return _own(strategy) or _COLOURS[_place(strategy) % len(_COLOURS)]


def dashes(strategy: str) -> str:
    """The strategy's line style, another for each that shares a colour."""
    return "-" if _own(strategy) else _DASHES[_place(strategy) // len(_COLOURS) % len(_DASHES)]


def symbol(strategy: str) -> str:
    """The strategy's marker by the name that plotly has for it."""
    return _SYMBOLS[marker(strategy)]


def order(strategies: set[str]) -> list[str]:
    """Strategies in the order of every legend."""
    return sorted(strategies, key=lambda name: (_place(name), name))


# DTR's heuristics are curves of their own in its figures.
_HEURISTICS = ("full", "eqclass", "local", "lru", "largest", "random")


def _heuristic(name: str) -> int:
    return _HEURISTICS.index(name) if name in _HEURISTICS else len(_HEURISTICS)


def heuristic_colour(heuristic: str) -> str:
    """The colour of one of DTR's heuristics."""
    return _COLOURS[_heuristic(heuristic) % len(_COLOURS)]


def heuristic_marker(heuristic: str) -> str:
    """The marker of one of DTR's heuristics."""
    return _MARKERS[_heuristic(heuristic) % len(_MARKERS)]
