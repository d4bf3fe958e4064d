"""``strategy=kusumoto``: canonical strategies as plans, judged by the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rematbench.base.checks import check_choice, check_count
from rematbench.base.clock import planning_seconds
from rematbench.base.errors import NotApplicable
from rematbench.engines.plans.stages import plan_keeping
from rematbench.graphs.builders.synthetic import random_graph
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Plan
from rematbench.graphs.simulate import simulate
from rematbench.graphs.structure import forward_graph, forward_ops, read_bytes
from rematbench.strategies.base import Problem, Solution, Traits, cheapest_within
from rematbench.strategies.kusumoto.family import (
    Dag,
    Family,
    FamilyName,
    ancestor_sets,
    bits,
    family_of,
    lower_sets,
)
from rematbench.strategies.kusumoto.program import (
    Canonical,
    Objective,
    kept,
    smallest_budget,
    solve,
)

# Planning budgets: a geometric row, and halvings of the gap where plans stop to fit.
_ROW = 7
_HALVINGS = 5
# Trade-offs kept with exact costs: about a second's work.
_STEPS = 40_000


@dataclass(frozen=True)
class Kusumoto:
    """Sequences of lower sets: each block is recomputed from what the earlier ones keep.

    Attributes:
        family: ``exact``, all lower sets; ``approximate``, each node with its ancestors; ``auto``,
            the former where there are at most ``most_sets`` of them.
        objective: ``time``, the least overhead; ``memory``, the most, whose coarse blocks leave
            most to freeing early.
        most_sets: lower sets of the exact family at most.

    Raises:
        ConfigError: an unknown family or objective, or less than 2 sets.
    """

    traits: ClassVar[Traits] = Traits("yes", "yes", "yes", budgeted=True)
    family: Literal["auto", "exact", "approximate"] = "auto"
    objective: Literal["time", "memory"] = "time"
    most_sets: int = 500

    def __post_init__(self) -> None:
        check_choice("family", self.family, ("auto", "exact", "approximate"))
        check_choice("objective", self.objective, ("time", "memory"))
        check_count("most_sets", self.most_sets, 2)

    def warm_up(self) -> None:
        """Compile the program."""
        self.plan(Problem(random_graph(4, 0)))

    def plan(self, problem: Problem) -> Solution:
        """The cheapest plan, over planning budgets, whose simulated peak fits.

        Raises:
            NotApplicable: no loss, or too many lower sets for the exact family.
            Infeasible: no plan tried fits; carries the smallest peak seen.
        """
        graph = problem.graph
        if graph.loss_index is None:
            raise NotApplicable(
                "the graph has no loss op, so that there is no backward pass to plan"
            )
        net = _network(graph)
        name, family = self._family(net)
        search = _LowerSetSearch(problem, net, family, self.objective)
        found, plan, _, curve = cheapest_within(problem, search.candidates())
        chosen = search.found[found]
        facts = {
            "family": name,
            "lower_sets": len(family),
            "blocks": len(chosen.sets),
            "planned_bytes": found + graph.resident_bytes,
            "formula_peak_bytes": chosen.peak + graph.resident_bytes,
            "costs_rounded": not chosen.exact,
            "curve": curve,
        }
        return Solution(plan, objective=chosen.overhead, variant=name, details=facts)

    def _family(self, net: Dag) -> tuple[FamilyName, Family]:
        if self.family != "approximate":
            sets = lower_sets(net, self.most_sets)
            if sets is not None:
                return "exact", family_of(net, sets)
            if self.family == "exact":
                raise NotApplicable(
                    f"more than strategy.most_sets={self.most_sets} lower sets; raise it, or use "
                    "strategy.family=approximate"
                )
        return "approximate", family_of(net, ancestor_sets(net))


def _network(graph: Graph) -> Dag:
    """Forward ops that the loss depends on, with the bytes of what is read of their outputs."""
    ops = forward_ops(graph).tolist()
    if not ops:
        raise NotApplicable("the loss depends on no forward op, so that nothing can be dropped")
    place = {op: i for i, op in enumerate(ops)}
    size = read_bytes(graph)[ops].tolist()
    before, after = [0] * len(ops), [0] * len(ops)
    for u, v in forward_graph(graph).edges:
        if v in place:
            before[place[v]] |= 1 << place[u]
            after[place[u]] |= 1 << place[v]
    return Dag(tuple(size), tuple(graph.ops[op].cost for op in ops), tuple(before), tuple(after))


class _LowerSetSearch:
    """Plans for a row of planning budgets, and for some more where they begin to fit.

    The simulator counts what the formula does not (residents' gradients, workspaces), and frees
    earlier: the planning budget is neither a lower nor an upper bound of the peak.
    """

    def __init__(self, problem: Problem, net: Dag, family: Family, objective: Objective) -> None:
        self.problem, self.net, self.family, self.objective = problem, net, family, objective
        self.ops = forward_ops(problem.graph).tolist()
        self.found: dict[int, Canonical] = {}
        self.fits: dict[int, bool] = {}
        self.rounds = False
        self.rounded: dict[float, Family] = {}

    def candidates(self) -> Iterator[tuple[int, Plan]]:
        """(planning budget, plan), from the smallest budget on to where plans no longer fit."""
        ended = planning_seconds() + self.problem.time_limit
        least = smallest_budget(self.family)
        most = max(least, 2 * int(self.family.bytes[-1]))
        row = np.geomspace(max(least, 1), max(most, 1), _ROW).round().astype(np.int64)
        row = row.clip(least, most)  # beyond 2^53 bytes they are rounded
        for budget in sorted({least, most, *row[1:-1].tolist()}):
            yield self._tried(budget)
            fits = list(self.fits.values())
            if planning_seconds() > ended or (any(fits) and not any(fits[-2:])):
                break
        for _ in range(_HALVINGS):
            low = max((b for b, fits in self.fits.items() if fits), default=None)
            above = [b for b in self.fits if low is not None and b > low]
            if low is None or not above or min(above) - low < 2 or planning_seconds() > ended:
                return
            yield self._tried((low + min(above)) // 2)

    def _tried(self, budget: int) -> tuple[int, Plan]:
        steps = 0 if self.rounds else _STEPS
        found = solve(self.net, self.family, budget, self.objective, steps, self.rounded)
        assert found is not None, "no budget is below the smallest"
        self.rounds |= not found.exact
        self.found[budget] = found
        plan = self._plan(found)
        limit = self.problem.budget
        peak = simulate(self.problem.graph, plan).peak_bytes
        self.fits[budget] = limit is None or peak <= limit
        return budget, plan

    def _plan(self, found: Canonical) -> Plan:
        """Boundaries and the last block stay; all else is computed again when it is read."""
        graph = self.problem.graph
        last = self.net.everything & ~(found.sets[-2] if len(found.sets) > 1 else 0)
        mask = np.zeros(len(graph.values), dtype=bool)
        for v in bits(kept(self.net, found.sets) | last):
            mask[graph.tables.writes[self.ops[v]]] = True
        return plan_keeping(graph, mask)
