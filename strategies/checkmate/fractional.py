"""Linear relaxations of (9) and F: the fractional S that two-phase rounding starts from.

Memory rows are added where a solution violates them, so that graphs of hundreds of ops take
seconds. The optimum is never below that of (9) as printed, whose products ``FREE`` are linearized
one by one (Checkmate, section 4.7) and which an open solver relaxes for up to 200 ops at best.
"""

from __future__ import annotations

from math import inf
from typing import Any, Literal, Protocol, get_args

import numpy as np

from rematbench.base.clock import planning_seconds
from rematbench.base.errors import Infeasible, NotApplicable, Stopped
from rematbench.engines.lp.solver import Idle
from rematbench.engines.plans.stages import FloatArray, dependencies, needed
from rematbench.engines.stages.relaxation import Relaxation, single_stages
from rematbench.engines.stages.space import Space, check
from rematbench.graphs.ir import Graph, IntArray
from rematbench.strategies.base import BoundOf

RelaxationName = Literal["full", "reduced", "paths", "printed"]
NAMES = get_args(RelaxationName)
_MOST_OPS = {"full": 1000, "reduced": 2500, "paths": 1000, "printed": 200}
"""Ops of the largest graphs whose relaxations are solved in minutes."""
_PATHS_SHARE = 0.5
"""Of the time that is left, for a solution with path rows."""


class Relaxed(Protocol):
    """The relaxation for one graph and one budget after another.

    Attributes:
        bound_of: the space that its optimum bounds.
    """

    bound_of: BoundOf

    @property
    def size(self) -> dict[str, Any]:
        """Of the program, for a row's ``extra``."""

    def relax(self, share: float, deadline: float) -> float:
        """The least cost within a share of the budget, in the graph's unit.

        Args:
            share: of the budget, at most 1.
            deadline: by :func:`~rematbench.base.clock.planning_seconds`.

        Raises:
            Infeasible: the relaxation has no solution.
            Stopped: it was not solved in time.
        """

    def matrices(self) -> tuple[FloatArray, FloatArray]:
        """R and S of the last solve over all needed ops, shape (n, n), fractional."""


def relaxation(
    name: RelaxationName, graph: Graph, budget: int, most: int | None, threads: int, seed: int
) -> Relaxed:
    """The relaxation that a name stands for; see :class:`~.rounding.CheckmateRounding`.

    Args:
        budget: in bytes.
        most: refuse graphs with more ops; None: more than are solved in minutes.
        threads, seed: of HiGHS.

    Raises:
        NotApplicable: the graph is too large, or has ops that overwrite what they read.
        Infeasible: the budget is below the graph's floor.
    """
    most, count = _MOST_OPS[name] if most is None else most, len(needed(graph))
    if count > most:
        larger = [
            f"strategy.relaxation={n}" for n in ("full", "reduced") if count <= _MOST_OPS[n] != most
        ]
        raise NotApplicable(
            f"the relaxation {name!r} takes at most {most} ops, this graph has {count}; "
            f"use {' or '.join([*larger, 'anytime'])}, or raise strategy.max_ops"
        )
    if name == "printed":
        from rematbench.strategies.checkmate.published.paper_model import PaperRelaxation

        return PaperRelaxation(graph, budget, most, threads, seed)
    reduced = name != "full" and graph.loss_index is not None
    return RowRelaxation(graph, budget, reduced, paths=name == "paths", seed=seed)


class RowRelaxation:
    """The linear relaxation for one graph and one budget after another.

    Args:
        graph: a training step, or any graph for (9).
        budget: in bytes.
        reduced: relax F, in place of (9).
        paths: add path rows, too, which only whole numbers satisfy by themselves.
        seed, threads: of HiGHS.
        idle: called while HiGHS works, in a thread that can be left behind at the deadline.

    Attributes:
        space: of the schedules that are relaxed.
        program: inside HiGHS.

    Raises:
        NotApplicable: the graph has ops that overwrite what they read.
        Infeasible: the budget is below the graph's floor.
    """

    def __init__(
        self,
        graph: Graph,
        budget: int,
        reduced: bool = False,
        paths: bool = False,
        seed: int = 0,
        threads: int = 1,
        idle: Idle = lambda: False,
    ) -> None:
        check(graph, budget)
        self.graph, self.space = graph, Space.reduced(graph) if reduced else Space.full(graph)
        self.bound_of: BoundOf = "F" if reduced else "9"
        self._budget, self._paths, self._idle = budget, paths, idle
        stages = single_stages(self.space)
        self.program = Relaxation(self.space, budget, stages, seed, threads, negligible=0.0)
        self._x: FloatArray | None = None

    @property
    def size(self) -> dict[str, Any]:
        """Rows on demand included, and build time, for a row's ``extra``."""
        return {**self.program.size, "build_seconds": self.program.build_seconds}

    def relax(self, share: float, deadline: float) -> float:
        """As :meth:`Relaxed.relax`."""
        self.program.limit(share)
        self._solve(share, deadline)
        if self._paths:
            now = planning_seconds()
            self._solve_with_paths(now + _PATHS_SHARE * (deadline - now))
        return self.program.bound

    def _solve_with_paths(self, deadline: float) -> None:
        """Path rows stay only if there is a solution with them in time."""
        rounds = self.program.linear(deadline, self._idle, paths=True)
        found = [solved.x for solved in rounds]
        if found and found[-1] is not None and planning_seconds() < deadline:
            self._x = found[-1]
        else:
            self.program.drop_rows()

    def _solve(self, share: float, deadline: float) -> None:
        outcome = None
        for outcome in self.program.linear(deadline, self._idle):
            self._x = outcome.x
        if outcome is not None and outcome.bound == inf:
            reason = f"({self.bound_of}) has no solution within {share * self._budget:.0f} bytes"
            raise Infeasible(f"Checkmate's problem {reason}", proven=self.bound_of == "9")
        if not self.program.settled:
            size = self.program.size
            raise Stopped(
                f"HiGHS found no solution of the relaxation of ({self.bound_of}), "
                f"{size['rows']:,} rows and {size['columns']:,} columns, in time; "
                "give more time_limit, or use anytime"
            )

    def matrices(self) -> tuple[FloatArray, FloatArray]:
        """As :meth:`Relaxed.matrices`."""
        assert self._x is not None
        layout, values, space = self.program.layout, self.program.values, self.space
        x = np.append(self._x, 0.0)
        everything = needed(self.graph)
        stages, ops = (np.searchsorted(everything, some) for some in (space.stages, space.ops))
        n = len(everything)
        computed, kept = np.eye(n), np.tri(n, k=-1)
        computed[np.ix_(stages, ops)] = np.maximum(
            x[layout.recompute], computed[np.ix_(stages, ops)]
        )
        of_op = np.zeros((len(stages), len(ops)))
        np.maximum.at(of_op.T, values.writer, x[layout.keep[:-1]].T)
        chosen = np.zeros(len(ops), dtype=bool)
        chosen[values.writer] = True
        kept[np.ix_(stages, ops[chosen])] = of_op[:, chosen]
        if len(stages) < n:
            first = kept[stages[0], ops[chosen]]
            kept[: stages[0], ops[chosen]] = self._forward(ops[chosen], int(stages[0]), first)
        return computed, np.tril(kept, k=-1)

    def _forward(self, ops: IntArray, stages: int, first: FloatArray) -> FloatArray:
        """S of the stages of F's first forward pass: until the last read, or beyond it."""
        depends = dependencies(self.graph)[ops, :stages]
        last = np.where(depends.any(axis=1), stages - 1 - depends[:, ::-1].argmax(axis=1), -1)
        return np.where(np.arange(stages)[:, None] <= last[None, :], 1.0, first[None, :])
