"""The look of every figure: one colour and one marker per strategy, everywhere."""

from __future__ import annotations

import hashlib

# Known strategies first, so that adding one never recolours another.
_ORDER = (
    "checkpoint_all",
    "chen_sqrt",
    "ap_sqrt",
    "linearized_sqrt",
    "chen_greedy",
    "ap_greedy",
    "linearized_greedy",
    "revolve",
    "ap_revolve",
    "chain_dp",
    "feng_huang",
    "join_dp",
    "equiv_chain",
    "random_checkpoints",
    "anytime",
    "checkmate_ilp",
    "checkmate_rounding",
    "checkmate_d",
    "checkmate_o",
    "dtr",
    "monet",
    "gist",
    "torch_budget",
    "torch_checkpoint",
    "kusumoto",
    "xla_remat",
    "moccasin",
    "rockmate",
    "sac_ilp",
    "every_layer",
    "every_n_layers",
    "selective_ops",
    "selective_attention",
    "save_dots",
    "hierarchical",
    "coop",
    "anytime_joint",
    "moccasin+anytime",
    "rockmate+anytime",
)
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
# Those that meet in the leaderboard's pictures, or in most figures: by inks that no other has.
_OWN = {
    **{"anytime": "#121212", "anytime_joint": "#2f4bd8", "hierarchical": "#f032e6"},
    **{"checkmate_ilp": "#b15928", "checkmate_rounding": "#801014", "moccasin": "#7cae00"},
    **{"rockmate": "#e6194b", "kusumoto": "#469990", "chain_dp": "#000075"},
    **{"xla_remat": "#6b4f1d", "coop": "#dcae96", "torch_knapsack": "#3cb44b"},
    **{"sac_ilp": "#f58231", "feng_huang": "#6a3d9a"},
    **{"moccasin+anytime": "#4f6f00", "rockmate+anytime": "#8c1d40"},
}

OURS = ("anytime", "anytime_joint", "hierarchical")
"""Searches of this project, which no paper published."""


def shown(strategy: str) -> str:
    """The strategy's name beside a paper's own: ours say so.

    >>> shown("anytime"), shown("anytime_joint noop"), shown("monet")
    ('anytime (ours)', 'anytime_joint noop (ours)', 'monet')
    """
    return f"{strategy} (ours)" if strategy.partition(" ")[0] in OURS else strategy


def _place(strategy: str) -> int:
    if strategy in _ORDER:
        return _ORDER.index(strategy)
    return len(_ORDER) + int(hashlib.sha256(strategy.encode()).hexdigest(), 16) % 97


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
    return _OWN.get(strategy, _COLOURS[_place(strategy) % len(_COLOURS)])


def dashes(strategy: str) -> str:
    """The strategy's line style, another for each that shares a colour."""
    return "-" if strategy in _OWN else _DASHES[_place(strategy) // len(_COLOURS) % len(_DASHES)]


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
