"""``strategy=sac_ilp``: which modules PyTorch's ``sac_milp`` checkpoints, and how far."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rematbench.base.clock import planning_seconds
from rematbench.base.errors import Infeasible, NotApplicable, Stopped
from rematbench.engines.plans.regions import plan_with_regions
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem, Solution, Traits, cheapest_within, check_choice
from rematbench.strategies.sac_ilp.modules import ModuleTree, modules_of
from rematbench.strategies.sac_ilp.program import Decision, SacProgram, require

# Budgets that the program is given, over the real one: its model is not the simulator's.
_FACTORS = (1.0, 0.95, 0.9, 0.8, 0.7, 0.55, 0.4, 1.1, 1.25)


@dataclass(frozen=True)
class SacIlp:
    """PyTorch's mixed-integer program for selective checkpointing, one decision per module.

    Attributes:
        release: PyTorch's eager mode holds a module's inputs until its backward pass has ended
            (``late``); a compiler frees them after their last use (``early``).
    """

    traits: ClassVar[Traits] = Traits("yes", "yes", "yes", budgeted=True)
    release: Literal["late", "early"] = "late"

    def __post_init__(self) -> None:
        check_choice("release", self.release, ("late", "early"))

    def warm_up(self) -> None:
        """Import PyTorch's program, and what that imports when it fits lines to trade-offs."""
        with suppress(NotApplicable):
            require()
            for name in ("torch.distributed._tools.sac_ilp", "pwlf"):
                importlib.import_module(name)

    def plan(self, problem: Problem) -> Solution:
        """The cheapest of its choices, for budgets around the real one, whose simulated peak fits.

        Raises:
            NotApplicable: no loss, no scopes, or pulp or pwlf is missing.
            Infeasible: no choice fits; carries the smallest peak seen.
            Stopped: it made none in time.
        """
        graph, tree = problem.graph, modules_of(problem.graph)
        require()
        order = program_order(graph)
        peak = simulate(graph, order).peak_bytes
        if problem.budget is None or peak <= problem.budget:
            return Solution(order, details={"discarded": {}})
        search = _PolicySearch(problem, tree, problem.budget, self.release)
        try:
            found, plan, _, curve = cheapest_within(problem, search.candidates())
        except Infeasible as error:
            raise _without_plan(search, error, problem.budget, peak) from None
        decision = search.found[found]
        facts = {
            "discarded": decision.discarded,
            "modelled_peak_bytes": decision.peak_bytes,
            "program_budget_bytes": found,
            "curve": curve,
        }
        return Solution(plan, solver=_version(), details=facts)


class _PolicySearch:
    """The program's choices for several budgets."""

    def __init__(self, problem: Problem, tree: ModuleTree, budget: int, release: str) -> None:
        self.graph, self.tree, self.budget, self.release = problem.graph, tree, budget, release
        self.program = SacProgram(problem.graph, tree, problem.graph.random_ops, problem.seed)
        self.deadline = planning_seconds() + problem.time_limit
        self.found: dict[int, Decision] = {}

    def candidates(self) -> Iterator[tuple[int, Plan]]:
        """(budget that the program was given, plan)."""
        seen: set[tuple[tuple[str, float], ...]] = set()
        for factor in _FACTORS:
            budget = int(factor * self.budget)
            if planning_seconds() > self.deadline:
                return
            decision = self.program.solve(budget, self.deadline)
            if decision is None or tuple(decision.discarded.items()) in seen:
                continue
            seen.add(tuple(decision.discarded.items()))
            self.found[budget] = decision
            yield budget, self._plan(decision)

    def _plan(self, decision: Decision) -> Plan:
        region = np.full(len(self.graph.ops), -1, dtype=np.int64)
        saved = np.zeros(len(self.graph.ops), dtype=bool)
        known = {module.name: module for module in self.tree.modules}
        for number, (name, share) in enumerate(decision.discarded.items()):
            ops = list(known[name].ops)
            region[ops] = number
            saved[ops] = True
            saved[self.program.recomputed(known[name], share)] = False
        return plan_with_regions(self.graph, region, saved, self.release == "late")


def _without_plan(search: _PolicySearch, error: Infeasible, budget: int, peak: int) -> Infeasible:
    if search.found:
        return error
    if planning_seconds() > search.deadline:
        return Stopped("sac_milp chose nothing in time; give more time_limit")
    return Infeasible(
        f"sac_milp chose nothing for {budget} bytes, nor for {_FACTORS[-1]:g} times as many: it "
        "drops no activations outside of modules with modules inside; give more memory, or use "
        "a strategy by ops",
        smallest_peak_found=peak,
    )


def _version() -> str:
    from importlib.metadata import version

    return f"CBC (pulp {version('pulp')}), torch {version('torch')}"
