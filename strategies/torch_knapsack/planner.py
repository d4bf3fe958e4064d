"""The other way round: any strategy as the knapsack solver inside PyTorch's partitioner.

The hook (``CustomKnapsackSolver``) says which of the forward ops that PyTorch would rather save may
be computed again. What else is computed again, and when, stays PyTorch's: everything cheap, once,
right before the backward op that reads it. So the partitioner's plan differs from the strategy's;
its true peak is simulated, and the strategy asked for leaner plans until it fits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from rematbench.base.errors import ConfigError, Infeasible, NotApplicable
from rematbench.graphs.ir import Graph, Phase
from rematbench.graphs.plan import Plan
from rematbench.strategies import registry
from rematbench.strategies.base import (
    CompiledRun,
    Problem,
    Solution,
    Strategy,
    Traits,
    cheapest_within,
)

if TYPE_CHECKING:
    from rematbench.tracing.captured import Captured

_SHARES = (None, 1.0, 0.9, 0.8, 0.7, 0.6, 0.5)  # of the budget, for the strategy inside


@dataclass(frozen=True)
class TorchKnapsack:
    """PyTorch's partitioner with a strategy of ours as its solver.

    Attributes:
        inner: the strategy; or its name, or where its class is (``ap_greedy``,
            ``rematbench.strategies.chen.ApGreedy``), with its default options.
    """

    traits: ClassVar[Traits] = Traits("yes", "yes", "partly", budgeted=True)
    inner: Strategy | str = "linearized_greedy"

    def plan(self, problem: Problem) -> Solution:
        """The cheapest of the partitioner's plans that fits; ``details["curve"]`` has all.

        Raises:
            NotApplicable: no PyTorch model, a PyTorch without the hook, or the strategy inside
                does not apply.
            Infeasible: no plan of the partitioner's fits.
            ConfigError: there is no such strategy.
        """
        if problem.captured is None:
            raise NotApplicable("PyTorch's partitioner needs a PyTorch model, not a graph file")
        inner = _made(self.inner)
        tried = self._candidates(problem, problem.captured, inner)
        (share, again), plan, _, curve = cheapest_within(problem, tried)
        for point in curve:
            point["knob"] = point["knob"][0]
        facts = {"share": share, "curve": curve}
        native = CompiledRun(recomputed=tuple(again))
        return Solution(plan, variant=type(inner).__name__, details=facts, native=native)

    def _candidates(
        self, problem: Problem, captured: Captured, inner: Strategy
    ) -> Iterator[tuple[Any, Plan]]:
        from rematbench.tracing.partition import partitioner

        graph, budget = problem.graph, problem.budget
        shares = _SHARES if budget is not None else (None,)
        seen = set()
        for share in shares:
            asked = replace(
                problem,
                budget=None if share is None or budget is None else int(share * budget),
                time_limit=problem.time_limit / len(shares),
                hand_over=lambda solution: None,  # its plans are no plans of the partitioner's
            )
            problem.report("no budget" if share is None else f"{share:.0%} of the budget")
            try:
                found = inner.plan(asked).plan
            except Infeasible:
                return
            if found is None:
                raise NotApplicable(f"{type(inner).__name__} makes no plan")
            again = recomputed(graph, found)
            if again not in seen:
                seen.add(again)
                parts = partitioner(captured.workload, captured.device)
                codes = parts.codes_by(graph, again)
                yield (share, again), Plan.from_codes(graph, codes)


def recomputed(graph: Graph, plan: Plan) -> tuple[str, ...]:
    """Names of the forward ops that a plan computes more than once, in program order."""
    codes = plan.codes(graph)
    counts = Counter(graph.tables.op_of[codes[codes >= 0]].tolist())
    forward = (i for i, op in enumerate(graph.ops) if op.phase is not Phase.BACKWARD)
    return tuple(graph.ops[i].name for i in forward if counts[i] > 1)


def _made(inner: Strategy | str) -> Strategy:
    if not isinstance(inner, str):
        return inner
    made = registry.resolve(inner, f"strategy.inner={inner}")
    if not isinstance(made, Strategy):
        raise ConfigError(f"strategy.inner={inner}: it is not a strategy")
    return made
