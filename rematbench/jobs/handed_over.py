"""What a planner has handed over so far: its answer, if it has to be stopped.

It is kept in memory for a planner that a signal stops, and now and then in the run directory for
one whose process has to be killed, since a kernel or a library does not come back in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from threading import Timer
from time import perf_counter

from rematbench.base.clock import planning_seconds
from rematbench.base.json_files import read_json, without_infinities, write_json
from rematbench.graphs.files import read_plan, write_plan
from rematbench.graphs.ir import Graph
from rematbench.graphs.link import NONE, Link
from rematbench.graphs.plan import Plan
from rematbench.graphs.planning import Solution
from rematbench.graphs.simulate import simulate

PLAN, FACTS = "handed_over.plan.json", "handed_over.json"
EVERY = 1.0
"""Seconds between two writes, which are part of the planner's time."""
Incumbents = Sequence[tuple[float, float | None, float | None]]
"""(seconds, cost, bound) of plans as a planner found them."""
_FACTS = ("bound", "bound_of", "objective", "variant", "solver")


class HandedOver:
    """The last solution that a planner has handed over.

    Args:
        folder: the job's run directory.
        link: to the host.

    Attributes:
        latest: the solution, or None.
    """

    def __init__(self, folder: Path, link: Link = NONE) -> None:
        self._link = link
        self._folder, self._written, self._began = folder, -EVERY, planning_seconds()
        self._plans: list[tuple[float, Plan]] = []
        self._later: Timer | None = None  # writes what came too soon after the last
        self.latest: Solution | None = None

    def take(self, solution: Solution) -> None:
        """The planner hands over a solution that is better than those before."""
        self.latest = solution
        if solution.plan is not None and "incumbents" not in solution.details:
            self._plans.append((planning_seconds() - self._began, solution.plan))
        early = self._written + EVERY - perf_counter()
        if solution.plan is None or (self._later is not None and self._later.is_alive()):
            return
        if early <= 0:
            self._write()
        else:  # nothing better may follow
            self._later = Timer(early, self._write)
            self._later.daemon = True
            self._later.start()

    def _write(self) -> None:
        solution = self.latest
        if solution is None or solution.plan is None:
            return
        facts = {name: getattr(solution, name) for name in _FACTS}
        document, _ = without_infinities(facts | {"details": dict(solution.details)})
        write_json(self._folder / FACTS, document)
        write_plan(self._folder / PLAN, solution.plan)
        self._written = perf_counter()

    def incumbents(self, graph: Graph, budget: int | None) -> Incumbents:
        """(seconds, cost, 0 for no bound) of each plan within the budget, in bytes, of a planner
        that keeps no such list."""
        found = [(when, simulate(graph, plan, self._link)) for when, plan in self._plans]
        most = inf if budget is None else budget
        return [(when, trace.cost, 0.0) for when, trace in found if trace.peak_bytes <= most]

    def remove(self) -> None:
        """The planner has ended: nothing of this is needed any more."""
        if self._later is not None:
            self._later.cancel()
            self._later.join()
        for name in (FACTS, PLAN):
            with suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)


def is_there(folder: Path) -> bool:
    """Has the planner of a job left a plan?"""
    return (folder / PLAN).exists()


def taken(folder: Path) -> Solution:
    """The last solution that was written; its files are removed.

    Raises:
        PlanError, ConfigError: a file cannot be read.
    """
    found = replace(Solution(read_plan(folder / PLAN)), **read_json(folder / FACTS))
    HandedOver(folder).remove()
    return found
