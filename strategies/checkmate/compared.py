"""checkmate_d, checkmate_o: Checkmate as MONeT compared itself with it (section 5, appendix E).

Its schedules know nothing of workspaces. They run with the default convolution (``d``), or with
the fastest one, chosen afterwards (``o``). What the workspaces add may break the budget: then the
row says ``infeasible`` with the true peak, and the plan is executed all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from rematbench.graphs.ir import Graph
from rematbench.graphs.kinds import Kind, kinds_of
from rematbench.graphs.plan import Plan
from rematbench.strategies.base import (
    Problem,
    Solution,
    Strategy,
    Traits,
    check_choice,
    check_share,
)
from rematbench.strategies.registry import make

CONVOLUTIONS = ("default", "fastest")


@dataclass(frozen=True)
class CheckmateCompared:
    """Checkmate's schedule, blind to workspace.

    Attributes:
        convolutions: ``default``, or ``fastest`` whatever its workspace.
        engine: who solves the blind problem: ``search`` (``anytime``), or ``program``
            (``checkmate_ilp``).
        gap: relative gap at which the solver stops.
        threads: 1, or 2 to search while the solver works; None: 2 where the job has as many.

    Raises:
        ConfigError: an option is unknown.
    """

    traits: ClassVar[Traits] = Traits("yes", "yes", "partly", budgeted=True)
    convolutions: Literal["default", "fastest"] = "default"
    engine: Literal["search", "program"] = "search"
    gap: float = 1e-4
    threads: int | None = None

    def __post_init__(self) -> None:
        check_choice("convolutions", self.convolutions, CONVOLUTIONS)
        check_choice("engine", self.engine, ("search", "program"))
        check_choice("threads", self.threads, (None, 1, 2))
        check_share("gap", self.gap)

    @property
    def kinds(self) -> frozenset[Kind]:
        """What it chooses from (:class:`~rematbench.strategies.base.ChoosesImplementations`)."""
        return frozenset({Kind.CONVOLUTION} if self.convolutions == "fastest" else ())

    @property
    def wants_density(self) -> bool:
        """Nothing is encoded."""
        return False

    def warm_up(self) -> None:
        """Compile the kernels."""
        make("anytime").warm_up()

    def plan(self, problem: Problem) -> Solution:
        """The plan, whose simulated peak may be over the budget.

        No bound is given: that of the blind problem holds for schedules without alternatives and
        workspaces only.

        Raises:
            NotApplicable, Infeasible: as Checkmate's blind problem is.
        """
        graph = problem.graph
        name = "anytime" if self.engine == "search" else "checkmate_ilp"
        inner: Strategy = make(name, gap=self.gap, threads=self.threads)
        blind = replace(
            problem,
            graph=_blind(graph),
            hand_over=lambda found: problem.hand_over(self._seeing(graph, found)),
        )
        return self._seeing(graph, inner.plan(blind))

    def _seeing(self, graph: Graph, found: Solution) -> Solution:
        """A solution of the blind graph as one of the graph that has workspaces."""
        assert found.plan is not None
        plan = Plan(found.plan.statements, graph.name)
        blind = {"bounds"}  # of what the search told, what is true of the blind graph alone
        if self.convolutions == "fastest":
            plan = _with_fastest(graph, plan)
            blind.add("incumbents")
        facts = {key: fact for key, fact in found.details.items() if key not in blind}
        details = facts | {"blind_bound": found.bound}
        return replace(
            found, plan=plan, bound=None, bound_of=None, variant=self.convolutions, details=details
        )


def _blind(graph: Graph) -> Graph:
    """The same without workspaces, defaults only."""
    ops = tuple(
        replace(op, implementations=(replace(op.implementations[0], workspace_bytes=0),))
        for op in graph.ops
    )
    return replace(graph, ops=ops)


def _with_fastest(graph: Graph, plan: Plan) -> Plan:
    """The same computes, convolutions in their cheapest implementation."""
    tables, codes = graph.tables, plan.codes(graph)
    fastest = tables.op_first[:-1].copy()
    for number, op in enumerate(graph.ops):
        first = int(tables.op_first[number])
        allowed = [
            first + i
            for i, implementation in enumerate(op.implementations)
            if i == 0 or kinds_of(implementation.name) == {Kind.CONVOLUTION}
        ]
        fastest[number] = min(allowed, key=lambda implementation: tables.cost[implementation])
    computes = tables.op_of[codes[codes >= 0]]
    return Plan.of_computes(graph, fastest[computes])
