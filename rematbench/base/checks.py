"""Checks of options, and what may be given instead."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Any

from rematbench.base.errors import ConfigError


def did_you_mean(given: str, known: Iterable[str], *, prefix: str = "", cutoff: float = 0.6) -> str:
    """What to say of a word that is not known; empty where none that is known is near.

    >>> did_you_mean("revolv", ["dtr", "revolve"])
    'did you mean revolve? '
    """
    near = get_close_matches(given, known, n=1, cutoff=cutoff)
    return f"did you mean {prefix}{near[0]}? " if near else ""


def check_choice(option: str, value: Any, choices: Collection[Any]) -> None:
    """Refuse an option that is none of ``choices``; None is ``null`` in a configuration.

    Raises:
        ConfigError: it is none of them.
    """
    if value not in choices:
        *others, last = ("null" if each is None else str(each) for each in choices)
        one_of = f"{', '.join(others)} or {last}" if others else last
        raise ConfigError(f"strategy.{option} is {value!r}; choose {one_of}")


def check_count(option: str, value: Any, least: int = 1) -> None:
    """Refuse what is no whole number, or one below ``least``.

    Raises:
        ConfigError: it is none.
    """
    if type(value) is not int or value < least:
        raise ConfigError(f"strategy.{option}={value!r}: give a whole number, {least} or more")


def check_share(option: str, value: float | None) -> None:
    """Refuse a number that is no share below 1; None is not given.

    Raises:
        ConfigError: it is not from 0 to below 1.
    """
    if value is not None and not 0 <= value < 1:
        raise ConfigError(f"strategy.{option} is {value}; give a number from 0 to below 1")
