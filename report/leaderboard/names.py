"""Whose search made a strategy's plans: said wherever its name stands."""

from __future__ import annotations

from rematbench.report.style import ours
from rematbench.strategies.registry import cards

OLD = ("moccasin+anytime", "rockmate+anytime")
WITH_OURS = (*OLD, *(card.name for card in cards().values() if card.our_search))
"""Published methods whose plans our search makes: Moccasin and Rockmate as they were once, and
those whose cards say so."""


def label(name: str, code: str = "") -> str:
    """A strategy's name, and whether it is ours.

    Args:
        code: what encloses the name.

    >>> label("anytime"), label("checkmate_d", "`"), label("dtr", "`")
    ('anytime (ours)', '`checkmate_d` (our search)', '`dtr`')
    """
    whose = " (ours)" if name in ours() else " (our search)" if name in WITH_OURS else ""
    return f"{code}{name}{code}{whose}"


def labels(names: str, code: str = "") -> str:
    """The same of several, joined by commas."""
    return ", ".join(label(name, code) for name in names.split(", ")) if names else ""
