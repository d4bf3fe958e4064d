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


def one_of(key: str, given: Any, names: tuple[str, ...]) -> str:
    """``given``, one of ``names``; or a ConfigError that names ``key``."""
    if given not in names:
        hint = did_you_mean(str(given), names)
        raise ConfigError(f"{key}={given}: unknown; {hint}use one of {', '.join(names)}")
    return str(given)


def whole(key: str, given: Any, least: int, most: int | None = None) -> int:
    """``given``, a whole number from ``least`` to ``most``; or a ConfigError that names ``key``."""
    if type(given) is not int or given < least:
        raise ConfigError(f"{key}={given}: give a whole number, {least} or more")
    if most is not None and given > most:
        raise ConfigError(f"{key}={given}: give at most {most}")
    return given


def flag(key: str, given: Any) -> bool:
    """``given``, true or false; or a ConfigError that names ``key``."""
    if not isinstance(given, bool):
        raise ConfigError(f"{key}={given}: give true or false")
    return given


def seconds(key: str, given: Any) -> float:
    """``given``, a number of seconds above 0; or a ConfigError that names ``key``."""
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 < given < 1e9:
        raise ConfigError(f"{key}={given}: give a number of seconds above 0")
    return float(given)
