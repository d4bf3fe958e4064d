"""The random baseline of Feng & Huang's Table 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import networkx as nx
import numpy as np

from rematbench.base.errors import NotApplicable
from rematbench.engines.plans.stages import plan_keeping
from rematbench.graphs.plan import Plan
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem, Solution, Traits, fitted
from rematbench.strategies.feng_huang.network import Network, forward_network


@dataclass(frozen=True)
class RandomCheckpoints:
    """1 to 5 random checkpoints; the plan of least simulated peak among ten valid draws.

    A draw is valid when every part between its checkpoints can be recomputed on its own, that is,
    when each part touches one vertex before it and one after it.

    Attributes:
        most: checkpoints per draw.
        valid: valid draws to choose from.
        invalid: invalid draws in a row after which it stops drawing.
    """

    traits: ClassVar[Traits] = Traits("partly", "no", "no")
    most: int = 5
    valid: int = 10
    invalid: int = 100

    def plan(self, problem: Problem) -> Solution:
        """The best of the draws.

        Raises:
            NotApplicable: no valid draw, or nothing to draw from.
            Infeasible: the best draw's simulated peak is above the budget.
        """
        graph = problem.graph
        network = forward_network(graph)
        inner = np.arange(1, len(network.costs) - 1)
        if not len(inner):
            raise NotApplicable(f"graph {graph.name!r} has no vertex between source and target")
        random = np.random.default_rng(problem.seed)
        net = nx.Graph(network.edges)
        plans: list[tuple[int, Plan, list[int]]] = []
        rejected = in_a_row = 0
        while len(plans) < self.valid and in_a_row < self.invalid:
            count = random.integers(1, min(self.most, len(inner)) + 1)
            chosen = sorted(random.choice(inner, count, replace=False).tolist())
            if is_valid(network, net, chosen):
                plan = _plan(problem, network, chosen)
                plans.append((simulate(graph, plan).peak_bytes, plan, chosen))
                in_a_row = 0
            else:
                rejected += 1
                in_a_row += 1
        if not plans:
            raise NotApplicable(
                f"{rejected} random draws of checkpoints were invalid and none valid; "
                "the network is too intertwined"
            )
        _, plan, chosen = min(plans, key=lambda found: found[0])
        facts = {
            "checkpoint_vertices": chosen,
            "valid_draws": len(plans),
            "invalid_draws": rejected,
        }
        return fitted(problem, plan, details=facts)


def is_valid(network: Network, net: nx.Graph, checkpoints: list[int]) -> bool:
    """Does each part between the checkpoints touch only one vertex before and one after it?"""
    kept = {0, *checkpoints, len(network.costs) - 1}
    for part in nx.connected_components(net.subgraph(set(net) - kept)):
        border = {v for u in part for v in net[u]} - part
        if len(border) != 2 or not min(border) < min(part) or not max(border) > max(part):
            return False
    return True


def _plan(problem: Problem, network: Network, checkpoints: list[int]) -> Plan:
    graph = problem.graph
    kept = np.zeros(len(graph.values), dtype=bool)
    kept[[*network.kept, *(v for c in checkpoints for v in network.values[c])]] = True
    last = max(graph.tables.writer[kept].tolist(), default=-1)
    return plan_keeping(graph, kept, tail_after=last)
