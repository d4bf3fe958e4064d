"""The Feng-Huang strategy: optimal checkpoints, one extra forward, segment by segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rematbench.base.errors import NotApplicable
from rematbench.engines.plans.stages import plan_keeping
from rematbench.strategies.base import Problem, Solution, Traits, cheapest_within, check_choice
from rematbench.strategies.feng_huang.network import forward_network
from rematbench.strategies.feng_huang.solver import solve


@dataclass(frozen=True)
class FengHuang:
    """Optimal Gradient Checkpoint Search for Arbitrary Computation Graphs (CVPR 2021).

    Attributes:
        solver: ``acg`` for any network, or ``lcg``, which only takes chains.

    Raises:
        ConfigError: an unknown solver.
    """

    traits: ClassVar[Traits] = Traits("yes", "no", "yes")
    solver: Literal["acg", "lcg"] = "acg"

    def __post_init__(self) -> None:
        check_choice("solver", self.solver, ("acg", "lcg"))

    def plan(self, problem: Problem) -> Solution:
        """The plan with the paper's optimal checkpoints.

        ``objective`` is the paper's own, in bytes: the checkpoints plus the largest segment. It
        models memory without gradients, workspaces and residents.

        Raises:
            NotApplicable: there is no forward part, or ``lcg`` meets a network with branches.
            Infeasible: the plan's simulated peak is above the budget.
        """
        graph = problem.graph
        network = forward_network(graph)
        if self.solver == "lcg" and not network.is_linear:
            raise NotApplicable(
                f"the forward network of {graph.name!r} is no chain; use strategy.solver=acg"
            )
        found = solve(network.costs, network.edges)
        kept = np.zeros(len(graph.values), dtype=bool)
        kept[[*network.kept, *(v for c in found.vertices for v in network.values[c])]] = True
        last = max(graph.tables.writer[kept].tolist(), default=-1)
        # The paper recomputes every segment; what follows the last checkpoint may as well stay.
        choices = [("kept", last), ("recomputed", None)]
        tried = ((name, plan_keeping(graph, kept, after)) for name, after in choices)
        tail, plan, _, _ = cheapest_within(problem, tried)
        return Solution(
            plan,
            objective=float(found.objective + network.kept_bytes),
            variant=self.solver,
            details={
                "checkpoint_bytes": found.bytes + network.kept_bytes,
                "largest_segment_bytes": found.largest,
                "no_checkpoint_bytes": sum(network.costs[1:-1]),
                "tail": tail,
                "checkpoint_vertices": len(found.vertices),
                "vertices": len(network.costs),
                "edges": len(network.edges),
            },
        )
