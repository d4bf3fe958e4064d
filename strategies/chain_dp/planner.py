"""``strategy=chain_dp``: time-optimal persistent schedules of a graph's chain of stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from rematbench.base.checks import check_count
from rematbench.engines.chain.segments import Segments, segments_of
from rematbench.engines.chain.selection import LONG, schedules
from rematbench.engines.chain.table import Table, build
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.strategies.base import Problem, Solution, Traits, cheapest_within


@dataclass(frozen=True)
class ChainDp:
    """Optimal among persistent schedules on chains of unequal stages.

    Attributes:
        slots: units of memory where the exact program would take too long: sizes are rounded up
            to whole units of budget / slots.
        exact_steps: how many steps the exact program's staircases may have together (an eighth
            beyond 100 stages); 0 rounds always.
        most_stages: stages of longer chains are merged.
        retain: let what a stage saved outlive its input, as Chen's checkpoints do; False: the
            paper's persistent schedules only.

    Raises:
        ConfigError: slots below 10, or negative steps, or fewer than two stages.
    """

    traits: ClassVar[Traits] = Traits("partly", "yes", "yes", budgeted=True)
    slots: int = 500
    exact_steps: int = 2_000_000
    most_stages: int = 200
    retain: bool = True

    def __post_init__(self) -> None:
        for name, least in (("slots", 10), ("exact_steps", 0), ("most_stages", 2)):
            check_count(name, getattr(self, name), least)

    def warm_up(self) -> None:
        """Compile the program."""
        self.plan(Problem(unit_chain(4)))

    def plan(self, problem: Problem) -> Solution:
        """The cheapest of the schedules at and above the budget whose simulated peak fits.

        Raises:
            NotApplicable: no loss, or fewer than two stages before it.
            Infeasible: no schedule tried fits; carries the smallest peak seen.
        """
        parts = segments_of(problem.graph, self.most_stages)
        chain, steps = parts.chain, self.exact_steps
        free_bytes = chain.ample if problem.budget is None else problem.budget - parts.fixed_bytes
        steps = steps if len(chain) <= LONG else steps // 8

        def made(memory: int, unit: int, **how: Any) -> Table | None:
            return build(chain.in_units(unit), memory, retain=self.retain, **how)

        chosen = schedules(made, chain.ample, free_bytes, len(chain), steps, self.slots)
        tried = ((each, parts.plan(each.table.schedule(each.memory))) for each in chosen)
        best, plan, _, curve = cheapest_within(problem, tried)
        facts = _facts(parts, chosen[0].table, chosen[0].unit, free_bytes)
        facts["planned_bytes"] = best.bytes + parts.fixed_bytes
        facts["curve"] = [point | {"knob": point["knob"].bytes} for point in curve]
        return Solution(plan, objective=best.table.time_within(best.memory), details=facts)


def _facts(parts: Segments, table: Table, unit: int, free_bytes: int) -> dict[str, Any]:
    """What the row says of the chain, and of what rounding may have lost."""
    facts: dict[str, Any] = {
        "stages": len(parts.forward) - 1,
        "held_bytes": parts.fixed_bytes - parts.graph.resident_bytes,
        "unit_bytes": unit,
    }
    if unit > 1:
        facts["slots"] = free_bytes // unit
        ours = table.time_within(free_bytes // unit)
        coarse = unit if len(parts.chain) <= LONG else 4 * unit
        rounded, slots = parts.chain.in_units(coarse, up=False), -(-free_bytes // coarse)
        lower = build(rounded, slots, retain=table.rules.retain)
        best = None if lower is None else lower.time_within(slots)
        if ours is not None and best:
            # Sizes rounded down bound the exact optimum from below.
            facts["rounding_loss_at_most"] = ours / best - 1
    return facts
