"""``strategy=rockmate``: options per block by integer programs, combined by a chain program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, get_args

from rematbench.base.checks import check_choice, check_count, check_share
from rematbench.base.clock import OutOfTime, planning_seconds
from rematbench.engines.chain.segments import ComputeList, Segments, segments_of
from rematbench.engines.chain.selection import LONG, Scheduled, schedules
from rematbench.engines.chain.table import Table, build
from rematbench.engines.lp.solver import SOLVER
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.plan import Plan
from rematbench.strategies.base import Problem, Solution, Traits, cheapest_within
from rematbench.strategies.rockmate.blocks import Stage, block_of
from rematbench.strategies.rockmate.options import Effort, Engine, RunOption, options_of
from rematbench.strategies.rockmate.table import Choices

# Of the time limit, for the blocks' programs.
_SHARE = 0.8
# Seconds for them in the first round; each later one has twice as many. All rounds of a short time
# limit are among those of a longer one, so that more time gives no dearer plan.
_FIRST = 0.5


_Known = Sequence[tuple[Stage | None, Sequence[RunOption]]]
"""Per stage, its block and the block's options."""
_Tried = tuple[_Known, Scheduled]


@dataclass(frozen=True)
class Rockmate:
    """Blocks between cut points: options for each by integer programs, a chain program of them.

    Attributes:
        staying, peaks: budgets per block: of what stays of it, and of its peak for each of those.
        gap: relative gap at which a block's program is left.
        engine: ``program``: blocks are planned by Checkmate's program, as in the paper;
            ``search``: by the search of ``anytime``, beside it.
        slots: units of memory where the exact chain program would take too long.
        exact_steps: how many steps the exact one's staircases may have together.
        most_blocks: blocks of longer chains are merged.

    Raises:
        ConfigError: a number is out of its range.
    """

    traits: ClassVar[Traits] = Traits("yes", "yes", "yes", budgeted=True)
    staying: int = 5
    peaks: int = 3
    gap: float = 0.01
    engine: Engine = "program"
    slots: int = 500
    exact_steps: int = 1_000_000
    most_blocks: int = 120

    def __post_init__(self) -> None:
        least = {"staying": 1, "peaks": 1, "slots": 10, "exact_steps": 0, "most_blocks": 2}
        for name, lowest in least.items():
            check_count(name, getattr(self, name), lowest)
        check_share("gap", self.gap)
        check_choice("engine", self.engine, get_args(Engine))

    def warm_up(self) -> None:
        """Compile the kernels, however long that takes."""
        self.plan(Problem(unit_chain(4), 7, 3600.0))

    def plan(self, problem: Problem) -> Solution:
        """The cheapest of the chain's schedules at and above the budget whose simulated peak fits.

        Raises:
            NotApplicable: no loss, fewer than two cut points, or an op overwrites what it reads.
            Infeasible: no schedule tried fits; carries the smallest peak seen.
        """
        started = planning_seconds()
        parts = segments_of(problem.graph, self.most_blocks)
        left = max(0.0, started + problem.time_limit - planning_seconds())
        tried = self._candidates(problem, parts, started)
        (known, best), plan, _, curve = cheapest_within(replace(problem, time_limit=left), tried)
        facts = _facts(parts, known, best.unit)
        facts |= {"planned_bytes": best.bytes + parts.fixed_bytes}
        return Solution(
            plan,
            objective=best.table.time_within(best.memory),
            solver=SOLVER,
            details=facts | {"curve": [p | {"knob": p["knob"][1].bytes} for p in curve]},
        )

    def _candidates(
        self, problem: Problem, parts: Segments, started: float
    ) -> Iterator[tuple[_Tried, Plan]]:
        """Plans of every round: what the blocks have found in twice the time, combined.

        Raises:
            OutOfTime: no further round fits into the time.
        """
        latest, seconds, ended = started + _SHARE * problem.time_limit, _FIRST, False
        while not ended:
            until = min(latest, planning_seconds() + seconds)
            known, ended = self._options(problem, parts, until)
            for each in self._schedules(problem, parts, known):
                yield (known, each), _plan(parts, known, each)
            seconds *= 2
            if not ended and planning_seconds() + seconds > latest:
                raise OutOfTime  # the next round would not end; the best so far is the answer

    def _schedules(self, problem: Problem, parts: Segments, known: _Known) -> list[Scheduled]:
        """The chain's schedules at and above the budget."""
        choices = Choices.of(parts.chain, [found for _, found in known])
        free_bytes = choices.ample if problem.budget is None else problem.budget - parts.fixed_bytes
        steps = self.exact_steps if len(choices.chain) <= LONG // 2 else 0

        def made(memory: int, unit: int, **how: Any) -> Table | None:
            of = choices.in_units(unit)
            return build(of.chain, memory, options=of.options, **how)

        return schedules(made, choices.ample, free_bytes, len(known), steps, self.slots)

    def _options(self, problem: Problem, parts: Segments, deadline: float) -> tuple[_Known, bool]:
        """Blocks and their options per stage; of equal blocks, one is solved.

        And did every program come to its end?
        """
        blocks = [block_of(parts, s) if back else None for s, back in enumerate(parts.back)]
        alike: dict[object, list[int]] = {}
        for stage, block in enumerate(blocks):
            if block is not None:
                alike.setdefault(block.shape, []).append(stage)
        effort = Effort(self.staying, self.peaks, self.gap, problem.seed, self.engine)
        left = sum(len(block.ops) for block in blocks if block is not None)
        found: list[Sequence[RunOption]] = [() for _ in blocks]
        all_ended = True
        for number, stages in enumerate(alike.values()):
            block = blocks[stages[0]]
            assert block is not None
            now = planning_seconds()
            share = max(0.0, deadline - now) * len(stages) * len(block.ops) / left
            left -= len(stages) * len(block.ops)
            problem.report(f"block {number + 1} of {len(alike)}")
            options, ended = options_of(block, effort, now + share)
            all_ended &= ended
            for stage in stages:
                same = blocks[stage]
                assert same is not None
                found[stage] = [each.beside(same.beside_bytes) for each in options]
        return list(zip(blocks, found, strict=True)), all_ended


def _plan(parts: Segments, known: _Known, chosen: Scheduled) -> Plan:
    writer = ComputeList(parts)
    for kind, stage, number in chosen.table.schedule(chosen.memory):
        block, options = known[stage]
        if number < 0:
            writer.run(kind, stage)
            continue
        assert block is not None
        if kind == "keep":
            writer.forward(stage, [block.ops[op] for op in options[number].forward])
        else:
            writer.emit([block.ops[op] for op in options[number].back])
    return Plan.of_computes(parts.graph, writer.computes)


def _facts(parts: Segments, known: _Known, unit: int) -> dict[str, Any]:
    shapes = {block.shape for block, _ in known if block is not None}
    return {
        "stages": len(parts.forward) - 1,
        "held_bytes": parts.fixed_bytes - parts.graph.resident_bytes,
        "unit_bytes": unit,
        "blocks_solved": len(shapes),
        "block_options": sum(len(options) for _, options in known),
    }
