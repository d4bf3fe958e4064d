"""Why a problem is hard: reasons by a rule, from the tables of the library alone.

Nothing here looks at what a search found. Whether a reason is one shows in :func:`effects`: how
many of the problems that have it are closed, and how many of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from rematbench.instances.features import Features, features
from rematbench.instances.records import Library, LibraryProblem, graph_name, is_closed
from rematbench.instances.table import features_of, read_table
from rematbench.strategies.anytime.planner import LARGE

NEAR = 0.1
"""Share of the way from floor to peak below which a budget is near the floor."""
TIGHT = 0.3
"""And below which it is tight."""
MANY = 2 * LARGE
"""Ops of a large problem: twice as many as our searches take into one linear program."""
LONG = 0.85
"""Share of the forward ops from a value's compute to its last forward read that is long."""


@dataclass(frozen=True)
class Reason:
    """What makes a problem hard.

    Attributes:
        name: a few words.
        why: the rule, and why it matters.
        holds: is a problem, whose graph has these features, so?
    """

    name: str
    why: str
    holds: Callable[[LibraryProblem, Features], bool]


REASONS = (
    Reason(
        "below the once floor",
        "every plan computes a backward op twice: most planners have none, and few bounds say more "
        "than that each op runs once",
        lambda problem, _: problem.budget_bytes < problem.once_floor_bytes,
    ),
    Reason(
        "near the floor",
        f"less than {NEAR:.0%} of the way from floor to peak: little besides one op fits, and "
        "plans recompute much",
        lambda problem, _: _room(problem) < NEAR,
    ),
    Reason(
        "tight",
        f"{NEAR:.0%} to {TIGHT:.0%} of the way from floor to peak: much is recomputed from what is "
        "recomputed, and bounds count little of that",
        lambda problem, _: NEAR <= _room(problem) < TIGHT,
    ),
    Reason(
        "out of a heuristic's reach",
        "no segments of Chen's greedy heuristic fit: searches start without a plan",
        lambda problem, found: problem.budget_bytes < found.lean_bytes,
    ),
    Reason(
        "no backward pass",
        "any op may run again anywhere, so that stages are as many as ops",
        lambda _, found: found.forward == 1,
    ),
    Reason(
        "large",
        f"more than {MANY:,} ops: no linear program over all stages is solved in time, and bounds "
        "are of coarser ones",
        lambda problem, _: problem.ops > MANY,
    ),
    Reason(
        "long skips",
        f"a value is read again after {LONG:.0%} of the forward pass or more: no cut through the "
        "graph is narrow",
        lambda _, found: found.longest_skip >= LONG,
    ),
)


def _room(problem: LibraryProblem) -> float:
    """The budget's place on the way from floor to peak, which is 1."""
    above = problem.peak_bytes - problem.floor_bytes
    return (problem.budget_bytes - problem.floor_bytes) / above if above else 1.0


def reasons(problem: LibraryProblem, found: Features) -> tuple[str, ...]:
    """Names of the reasons that hold, in the order of :data:`REASONS`.

    Args:
        found: the features of its graph.
    """
    return tuple(reason.name for reason in REASONS if reason.holds(problem, found))


@dataclass(frozen=True)
class Effect:
    """How often problems with a reason, and without it, are closed.

    Attributes:
        having, closed, open: of those that have it: how many, closed, in the open tier.
        without, closed_without: of the others.
    """

    reason: Reason
    having: int
    closed: int
    open: int
    without: int
    closed_without: int


def effects(library: Library, told: Mapping[str, Sequence[str]]) -> Iterable[Effect]:
    """Of each reason.

    Args:
        told: reasons, by instance.
    """
    closed = {name for name in told if is_closed(library.record(name))}
    opened = {name for name in told if library.record(name).status == "open"}
    for reason in REASONS:
        having = {name for name, names in told.items() if reason.name in names}
        yield Effect(
            reason,
            len(having),
            len(having & closed),
            len(having & opened),
            len(told) - len(having),
            len(closed - having),
        )


def all_reasons(library: Library) -> dict[str, tuple[str, ...]]:
    """The reasons of every problem, by instance.

    Features are read from ``features.csv``; those of a graph that has no row there are counted.
    """
    table = library.folder / "features.csv"
    rows = {row["name"]: row for row in read_table(table)} if table.is_file() else {}

    @cache
    def known(path: str) -> Features:
        row = rows.get(graph_name(path))
        return features(library.graph(path)) if row is None else features_of(row)

    return {name: reasons(each, known(each.graph)) for name, each in library.instances.items()}
