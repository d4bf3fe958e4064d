"""What configuration files may compute: event logs, and the sweeps of leaderboards."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from rematbench.base.errors import ConfigError

_ENDINGS = ("*.log", "*.log.gz")
_PLAIN = re.compile(r"[\w./+~@%-]+")


def event_logs(place: str) -> list[str]:
    """The event logs of a folder, by name, as values of an override (quoted where needed).

    Args:
        place: a folder, or a single log.

    Raises:
        ConfigError: there are none.
    """
    if Path(place).is_file():
        return [_quoted(place)]
    found = sorted(path for ending in _ENDINGS for path in Path(place).glob(ending))
    if not found:
        raise ConfigError(
            f"logs={place}: no *.log or *.log.gz there; give a folder that has some, such as "
            "`rematbench-record model=unet out=FOLDER/unet.log.gz` makes"
        )
    return [_quoted(str(path)) for path in found]


def field(
    problems: Sequence[Mapping[str, Any]], strategy: str, quick: bool, part: str
) -> list[dict[str, Any]]:
    """The sweeps of a leaderboard: each problem by every strategy.

    Args:
        problems: overrides of a job, ``budget`` a list; beside them ``floor`` (of the graph, as a
            fraction of checkpoint-all's peak) and, of some, ``quick`` (a shorter list of budgets).
        strategy: names or a pattern.
        quick: only the problems that have ``quick``, at those budgets.
        part: ``k/n`` takes every n-th problem from the k-th on.

    Raises:
        ConfigError: ``part`` is not of that form.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", str(part))
    number, count = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= count:
        raise ConfigError(f"part={part}: give k/n, such as 2/5 for the second of five parts")
    chosen = [each for each in problems if not quick or "quick" in each]
    return [
        {key: value for key, value in each.items() if key not in ("floor", "quick")}
        | {"strategy": strategy, "budget": list(each["quick" if quick else "budget"])}
        for each in chosen[number - 1 :: count]
    ]


def linked(
    problems: Sequence[Mapping[str, Any]],
    strategies: str,
    links: Sequence[str],
    pofo: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """The sweeps of the track for two memories: recomputation alone, and each link's strategies.

    Args:
        problems: overrides of a job, ``budget`` a list.
        links: bandwidths both ways, such as ``25GB/s``.
        pofo: problems that only ``pofo`` and ``hybrid`` plan for, with the first link.
    """
    asked = [(each, strategies, links) for each in problems]
    asked += [(each, "pofo,hybrid", links[:1]) for each in pofo]
    found: list[dict[str, Any]] = []
    for each, names, rates in asked:
        job = dict(each) | {"budget": list(each["budget"])}
        found.append(job | {"strategy": "anytime"})
        for rate in rates:
            link = {"link": "given", "link.out": rate, "link.in": rate}
            found.append(job | {"strategy": names.split(",")} | link)
    return found


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def register_resolvers() -> None:
    """Make the resolvers known to OmegaConf."""
    OmegaConf.register_new_resolver("event_logs", event_logs, replace=True)
    OmegaConf.register_new_resolver(
        "field", lambda *given: OmegaConf.create(field(*given)), replace=True
    )
    OmegaConf.register_new_resolver(
        "linked", lambda *given: OmegaConf.create(linked(*given)), replace=True
    )
