"""``strategy=chain_dp``: time-optimal persistent schedules of a graph's chain of stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from rematbench.base.errors import ConfigError, Infeasible
from rematbench.engines.chain.segments import Segments, segments_of
from rematbench.engines.chain.selection import BEYOND, BEYOND_LONG, LONG, selection
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
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ConfigError(
                    f"strategy.{name}={value!r}: give a whole number, {least} or more"
                )

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
        chain = parts.chain
        leanest = build(chain, chain.ample, retain=self.retain, least=True)
        assert leanest is not None
        least = int(leanest.steps()[0][0])
        room = chain.ample if problem.budget is None else problem.budget - parts.fixed_bytes
        beyond = BEYOND if len(chain) <= LONG else BEYOND_LONG
        top = min(chain.ample, max(int(beyond * room), least + least // 4))
        table, unit = self._table(parts, max(room, least), top)
        chosen = {int(m) * unit: (table, int(m)) for m in selection(table.steps()[0], room // unit)}
        chosen.setdefault(least, (leanest, least))
        tried = ((m, parts.plan(rows.schedule(units))) for m, (rows, units) in chosen.items())
        found, plan, _, curve = cheapest_within(problem, tried)
        facts = _facts(parts, table, unit, room) | {"planned_bytes": found + parts.fixed_bytes}
        best, memory = chosen[found]
        return Solution(plan, objective=best.time_within(memory), details=facts | {"curve": curve})

    def _table(self, parts: Segments, room: int, top: int) -> tuple[Table, int]:
        """The exact table, or that in whole units, and the unit."""
        steps = self.exact_steps if len(parts.chain) <= LONG else self.exact_steps // 8
        if steps:
            table = build(parts.chain, top, retain=self.retain, most=steps)
            if table is not None:
                return table, 1
        unit = max(1, room // self.slots)
        table = build(parts.chain.in_units(unit), top // unit, retain=self.retain)
        if table is None:
            raise Infeasible(f"{self.slots} slots are too many for this chain; give fewer")
        return table, unit


def _facts(parts: Segments, table: Table, unit: int, room: int) -> dict[str, Any]:
    """What the row says of the chain, and of what rounding may have lost."""
    facts: dict[str, Any] = {
        "stages": len(parts.forward) - 1,
        "held_bytes": parts.fixed_bytes - parts.graph.resident_bytes,
        "unit_bytes": unit,
    }
    if unit > 1:
        facts["slots"] = room // unit
        ours = table.time_within(room // unit)
        coarse = unit if len(parts.chain) <= LONG else 4 * unit
        rounded, slots = parts.chain.in_units(coarse, up=False), -(-room // coarse)
        lower = build(rounded, slots, retain=table.rules.retain)
        best = None if lower is None else lower.time_within(slots)
        if ours is not None and best:
            # Sizes rounded down bound the exact optimum from below.
            facts["rounding_loss_at_most"] = ours / best - 1
    return facts
