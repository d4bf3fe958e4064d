"""What a plan of a compiled graph takes of the budget, as its two halves can run it."""

from __future__ import annotations

from dataclasses import dataclass

from rematbench.base.errors import NotApplicable
from rematbench.costmodel.device import random_state_bytes
from rematbench.graphs.ir import Op
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.planning import Problem, Strategy
from rematbench.graphs.simulate import Trace, check_draws, simulate
from rematbench.tracing.halves import BORDER, Halves
from rematbench.training.compiled.options import Options
from rematbench.training.compiled.patience import patiently
from rematbench.training.compiled.sharing import Share, share_of


@dataclass(frozen=True)
class Made:
    """A plan that two halves can run.

    Attributes:
        trace: as simulated.
        share: what one call takes of the budget.
        together: what all calls take that share the budget; bytes.
    """

    plan: Plan
    trace: Trace
    share: Share
    together: int


class Judge:
    """Says what a plan takes of the budget, and whether it fits; all in bytes.

    Args:
        held: that other calls hold while this graph runs.
        tighter: of the budget to leave alone, for a leaner plan.

    Attributes:
        base: ordinary training.
        budget: of all that runs; None: no limit.
        others: what other calls hold, and what the graph does not see.
        extras: what halves may hand over besides values.
        allowed: what is left for a plan, residents included; None: no limit.
    """

    def __init__(self, halves: Halves, options: Options, held: int, tighter: int) -> None:
        self.halves, self.options = halves, options
        self.graph, self.held, self.tighter = halves.captured.graph, held, tighter
        self.base = self.judged(program_order(self.graph))
        # A fraction is one of the whole that shares the budget.
        self.budget = options.budget.of(self.base.together + held)
        self.others, self.extras = options.reserve + held, _extras(halves)
        self.taken = self.others + self.extras
        self.allowed = None if self.budget is None else self.budget - self.taken - tighter

    def judged(self, plan: Plan) -> Made:
        """Any plan of the graph, as halves can run it."""
        plan = settled(self.halves, plan)
        trace = simulate(self.graph, plan)
        check_draws(self.graph, plan)
        share = share_of(self.halves, plan, trace)
        return Made(plan, trace, share, share.together(self.options.graphs))

    def asked(
        self,
        strategy: Strategy,
        budget: int,
        seconds: float,
        patient: bool = False,
        starts: tuple[Plan, ...] = (),
    ) -> Made:
        """A strategy's plan within ``budget`` bytes of one call.

        Args:
            patient: stop when more time cannot pay.
            starts: plans to begin from.

        Raises:
            Infeasible, NotApplicable: as the strategy does; it makes no plan.
        """
        limits = (budget, seconds, self.options.seed)
        problem = Problem(self.graph, *limits, self.halves.captured, warm_starts=starts)
        found = (patiently(strategy, problem) if patient else strategy.plan(problem)).plan
        if found is None:
            raise NotApplicable(f"{type(strategy).__name__} judges itself and makes no plan to run")
        return self.judged(found)

    def overhead(self, made: Made) -> float:
        """A plan's cost over that of ordinary training, minus 1."""
        base = self.base.trace.cost
        return made.trace.cost / base - 1 if base else 0.0

    def fits(self, made: Made, spare: int = 0) -> bool:
        """Is a plan within what is allowed, and ``spare`` bytes more?"""
        return self.allowed is None or made.together <= self.allowed + spare


def settled(halves: Halves, plan: Plan) -> Plan:
    """A plan as two halves can run it: one border, and results made once.

    What the caller holds cannot be let go and made again; a plan that does so keeps it instead.

    Raises:
        InvalidPlan: a statement names what the graph does not have.
    """
    graph, tables = halves.captured.graph, halves.captured.graph.tables
    codes = plan.codes(graph)
    once = {graph.op_index[BORDER]}
    # Inductor's seeds are drawn once for all its random numbers, which are made of them again.
    once.update(i for i, op in enumerate(graph.ops) if op.random and _is_seed(op))
    writers = [graph.value_index[value] for value in halves.held]
    once.update(int(tables.writer[value]) for value in writers)
    seen: set[int] = set()
    computes = []
    for code in codes[codes >= 0].tolist():
        op = int(tables.op_of[code])
        if op in once and op in seen:
            continue
        seen.add(op)
        computes.append(code)
    return Plan.of_computes(graph, computes)


def _is_seed(op: Op) -> bool:
    return op.operator.startswith("inductor_seed")


def _extras(halves: Halves) -> int:
    """Bytes that halves may hand over besides values: random states, copies of inputs."""
    captured = halves.captured
    copies = sum(
        value.bytes
        for value in captured.graph.values
        if value.name in {captured.value_of[name] for name in halves.changed}
    )
    return copies + random_state_bytes(captured.device) * len(captured.random_ops)
