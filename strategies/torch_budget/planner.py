"""What ships with PyTorch: the min-cut partitioner's activation budget, with its solvers.

The partitioner's ``activation_memory_budget`` is a ratio of the activations that it saves, not a
peak, so that a given ratio may miss any budget by any amount. Here its decisions become a plan
for the simulator; the ratio, and its solvers, are swept for the cheapest plan that fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rematbench.base.errors import ConfigError, ExecutionError, NotApplicable
from rematbench.graphs.plan import Plan
from rematbench.strategies.base import (
    CompiledRun,
    Problem,
    Solution,
    Traits,
    cheapest_within,
)

if TYPE_CHECKING:
    from rematbench.tracing.captured import Captured

SOLVERS = ("dp", "greedy", "ilp", "dp_knapsack_sliding_hirschberg")


@dataclass(frozen=True)
class TorchBudget:
    """PyTorch's min-cut partitioner, as ``torch.compile`` uses it.

    Attributes:
        solver: of its knapsack, or None for each of :data:`SOLVERS`.
        ratio: of saved activations, 0 to 1; None sweeps it, halving the steps until ``step``.
        step: the smallest distance of two ratios tried.
    """

    traits: ClassVar[Traits] = Traits("yes", "yes", "partly", budgeted=True)
    solver: str | None = None
    ratio: float | None = None
    step: float = 1 / 16

    def __post_init__(self) -> None:
        if self.solver not in (None, *SOLVERS):
            raise ConfigError(f"strategy.solver={self.solver}: use one of {', '.join(SOLVERS)}")
        if self.ratio is not None and not 0 <= self.ratio <= 1:
            raise ConfigError(f"strategy.ratio={self.ratio}: give a number from 0 to 1")

    def plan(self, problem: Problem) -> Solution:
        """The cheapest plan of the sweep that fits; ``details["curve"]`` is the whole of it.

        Without a budget the ratio is 1, PyTorch's default.

        Raises:
            NotApplicable: the graph was not captured from a PyTorch model.
            Infeasible: no ratio and solver fits.
            ExecutionError: the partitioner failed at every one.
        """
        if problem.captured is None:
            raise NotApplicable("PyTorch's partitioner needs a PyTorch model, not a graph file")
        failures: list[dict[str, Any]] = []
        tried = self._candidates(problem, problem.captured, failures)
        first = next(tried, None)
        if first is None:
            raise ExecutionError(f"the partitioner failed: {failures[0]['error']}")
        (ratio, solver), plan, _, curve = cheapest_within(problem, chain([first], tried))
        facts = {"ratio": ratio, "curve": curve, "failures": failures}
        return Solution(plan, variant=solver, details=facts, native=CompiledRun(ratio, solver))

    def _candidates(
        self, problem: Problem, captured: Captured, failures: list[dict[str, Any]]
    ) -> Iterator[tuple[tuple[float, str], Plan]]:
        from rematbench.tracing.partition import partitioner

        partition = partitioner(captured.workload, captured.device)
        solvers = SOLVERS if self.solver is None else (self.solver,)
        if self.ratio is not None:
            ratios = [self.ratio]
        else:
            ratios = [1.0] if problem.budget is None else halvings(self.step)
        seen = set()
        for solver in solvers:
            for ratio in ratios:
                if solver != solvers[0] and ratio in (0, 1):
                    continue  # no solver is asked there
                problem.report(f"ratio {ratio:g}, {solver}")
                try:
                    codes = partition.codes(problem.graph, ratio, solver)
                except Exception as error:  # whatever the partitioner does is a fact about it
                    words = f"{type(error).__name__}: {error}".splitlines()[0]
                    failures.append({"knob": [ratio, solver], "error": words})
                    continue
                if codes.tobytes() not in seen:
                    seen.add(codes.tobytes())
                    yield (ratio, solver), Plan.from_codes(problem.graph, codes)


def halvings(step: float) -> list[float]:
    """1, 0, 1/2, 1/4, 3/4, ...: a sweep that is even wherever it is stopped.

    >>> halvings(0.25)
    [1.0, 0.0, 0.5, 0.25, 0.75]
    """
    found, width = [1.0, 0.0], 1.0
    while width / 2 >= step:
        found += np.arange(width / 2, 1, width).tolist()
        width /= 2
    return found
