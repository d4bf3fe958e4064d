"""Which instances are meant: ``REMATLIB-100``, ``unet*``, ``ALL family=chains ops=100-1000``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any

from rematbench.base.checks import did_you_mean
from rematbench.base.errors import ConfigError
from rematbench.instances.records import (
    COPY,
    STATUSES,
    Library,
    LibraryProblem,
    graph_name,
    read_library,
)

HUNDRED, ALL = "REMATLIB-100", "ALL"
FILTERS = ("family", "status", "ops")
Test = Callable[[LibraryProblem], bool]


def select(library: Library, words: Iterable[str]) -> list[LibraryProblem]:
    """The instances that all words mean, in the library's order.

    Args:
        words: names of instances or graphs, or patterns of them, with commas between;
            ``REMATLIB-100``; ``ALL``; ``family=A,B``, ``status=open,hard`` and ``ops=LOW-HIGH``
            leave those alone that are so.

    Raises:
        ConfigError: a word means nothing, or all of them together do.
    """
    given = [*words]
    tests = [_test(library, word) for word in given]
    found = [each for each in library.instances.values() if all(test(each) for test in tests)]
    if not found:
        asked = " ".join(given)
        raise ConfigError(f"{asked}: no instance is so; `rematbench-instances list ALL` names all")
    return found


def _test(library: Library, word: str) -> Test:
    key, equals, value = word.partition("=")
    if not equals:
        return _named(library, word)
    if key == "ops":
        return _of_size(word, value)
    if key not in FILTERS:
        hint = did_you_mean(key, FILTERS)
        raise ConfigError(f"{word}: unknown; {hint}give one of {', '.join(FILTERS)}")
    families = dict.fromkeys(each.family for each in library.instances.values())
    known = STATUSES if key == "status" else tuple(families)
    asked = value.split(",")
    for name in asked:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ConfigError(f"{word}: no {key} {name!r}; {hint}there are {', '.join(known)}")
    if key == "family":
        return lambda each: each.family in asked
    return lambda each: library.record(each.instance).status in asked


def _of_size(word: str, value: str) -> Test:
    match = re.fullmatch(r"(\d*)-(\d*)", value)
    if match is None or value == "-":
        raise ConfigError(f"{word}: give a range, such as ops=100-1000, ops=-500 or ops=2000-")
    low, high = int(match[1] or 0), int(match[2] or 10**9)
    return lambda each: low <= each.ops <= high


def _named(library: Library, word: str) -> Test:
    if word == ALL:
        return lambda each: True
    if word == HUNDRED:
        return lambda each: bool(each.in_100)
    patterns = word.split(",")
    names = [name for each in library.instances.values() for name in _names(each)]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            hint = did_you_mean(pattern, {*names, HUNDRED, ALL})
            raise ConfigError(
                f"{pattern}: no such instance or graph; {hint}`rematbench-instances list ALL` "
                "names all"
            )
    return lambda each: any(fnmatchcase(n, p) for n in _names(each) for p in patterns)


def _names(instance: LibraryProblem) -> tuple[str, str]:
    return instance.instance, graph_name(instance.graph)


def sweeps(folder: str, selection: str, part: str = "1/1") -> list[dict[str, Any]]:
    """What ``rematbench -m`` is to run: each graph at its selected budgets.

    Args:
        folder: of the library.
        selection: words, with blanks between.
        part: ``k/n`` takes every n-th graph from the k-th on.

    Raises:
        ConfigError: the selection or ``part`` is bad.
    """
    library = read_library(folder)
    budgets: dict[tuple[str, int | None], list[int]] = {}
    for each in select(library, str(selection).split()):
        budgets.setdefault((each.graph, each.link), []).append(each.budget_bytes)
    match = re.fullmatch(r"(\d+)/(\d+)", str(part))
    number, count = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= count:
        raise ConfigError(f"part={part}: give k/n, such as 2/5 for the second of five parts")
    return [
        {
            "model": "graph_file",
            "model.path": str(library.folder / graph),
            "model.backward": False,  # what has no loss is planned as it is
            "budget": asked,
            **_link_keys(link),
        }
        for (graph, link), asked in [*budgets.items()][number - 1 :: count]
    ]


def _link_keys(link: int | None) -> dict[str, Any]:
    """What a job is told of a link."""
    if link is None:
        return {}
    return {"link": "given", "link.out": link, "link.in": link, "link.latency": COPY}
