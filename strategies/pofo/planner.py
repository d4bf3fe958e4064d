"""``strategy=pofo``: POFO's schedules of a graph's chain of stages, as plans for two memories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain as chain_of
from typing import Any, ClassVar

import numpy as np

from rematbench.base.checks import check_count
from rematbench.base.clock import planning_seconds
from rematbench.base.errors import Infeasible
from rematbench.engines.bridges.across import across_loss, copyable
from rematbench.engines.bridges.gaps import Sequence
from rematbench.engines.bridges.weave import woven
from rematbench.engines.chain.segments import ComputeList, Segments, segments_of
from rematbench.engines.chain.table import Table, build
from rematbench.engines.plans.stages import BoolArray
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.link import Link
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import (
    Problem,
    Solution,
    Traits,
    cheapest_within,
    without_plan,
)
from rematbench.strategies.pofo.recurrence import Claim, StateProgram

SHARES = (1.0, 1.1, 1.2, 1.3, 0.97, 0.94, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5)
"""Of the budget: limits that schedules are made for. A claim that no memory holds may hold for a
smaller limit; and the simulator frees earlier than the chain."""

END = 0.9
"""Of the time, when it ends."""
SLOW = 1e-6
"""Of a link's bandwidth: with so little, recomputing is always faster."""


@dataclass(frozen=True)
class Pofo:
    """Stages of a chain are kept, recomputed, or have their input wait on the host.

    The recurrence counts bytes that leave one by one, and an average of times, so that its claim
    (``objective``) may be below what any plan takes, and its schedule above the budget: plans of
    several limits are simulated, and the cheapest that fits is the answer.

    Attributes:
        most_stages: stages of longer chains are merged.
        most_states: of a stage that are followed; where there are more, ``extra.states_cut``.
        exact_steps: how many steps the table of recomputation may have; beyond them, sizes in it
            are rounded up to a five hundredth of the budget.

    Raises:
        ConfigError: fewer than two stages, or a number below one.
    """

    traits: ClassVar[Traits] = Traits("partly", "yes", "yes", budgeted=True, offloads=True)
    most_stages: int = 60
    most_states: int = 400
    exact_steps: int = 2_000_000

    def __post_init__(self) -> None:
        for name, least in (("most_stages", 2), ("most_states", 1), ("exact_steps", 1)):
            check_count(name, getattr(self, name), least)

    def warm_up(self) -> None:
        """Compile the program."""
        self.plan(Problem(unit_chain(4), 5, link=Link(1.0, 1.0)))

    def plan(self, problem: Problem) -> Solution:
        """The cheapest plan of its schedules whose simulated peak fits.

        Raises:
            NotApplicable: no link, no loss, an op in place, or fewer than two stages.
            Infeasible: no schedule tried fits; carries the smallest peak seen.
            Stopped: none was made in time.
        """
        started = planning_seconds()
        graph = copyable(problem)
        parts = segments_of(graph, self.most_stages)
        chain = parts.chain
        free = chain.ample if problem.budget is None else problem.budget - parts.fixed_bytes
        recurrence = self._recurrence(problem, parts, min(chain.ample, int(free * max(SHARES))))
        recurrence.deadline = started + END * problem.time_limit
        claims = _claims(problem, recurrence, free)
        first = next(claims)
        plans = _plans(problem, parts, recurrence, chain_of((first,), claims))
        (limit, claim), plan, _, curve = cheapest_within(problem, plans)
        facts: dict[str, Any] = {
            "stages": len(chain) - 1,
            "held_bytes": parts.fixed_bytes - graph.resident_bytes,
            "offloaded_inputs": sum(step.goes for step in claim.steps),
            "planned_bytes": limit + parts.fixed_bytes,
            "planned_cost": claim.time,
            "states_cut": recurrence.cut,
            "curve": [point | {"knob": point["knob"][0]} for point in curve],
        }
        return Solution(plan, objective=first[1] and first[1].time, details=facts)

    def _recurrence(self, problem: Problem, parts: Segments, most: int) -> StateProgram:
        chain, unit = parts.chain, 1
        table = build(chain, most, most=self.exact_steps)
        while table is None:
            unit = max(1, most // 500) if unit == 1 else 2 * unit
            table = build(chain.in_units(unit), most // unit)
        return StateProgram(table, chain, unit, problem.link, self.most_states)


def _claims(
    problem: Problem, recurrence: StateProgram, free: int
) -> Iterator[tuple[int, Claim | None]]:
    """Limits and schedules, that of the budget first.

    Where the host may have no room, then those for a link that nobody waits for: the paper's host
    has no limit.
    """
    programs = [recurrence]
    if problem.host is not None:
        slow = Link(SLOW * problem.link.out, SLOW * problem.link.into)
        programs.append(replace(recurrence, link=slow))
    for program in programs:
        for share in SHARES if problem.budget is not None else (1.0,):
            if share != 1.0 and planning_seconds() > program.deadline:
                return
            yield int(share * free), program.best(int(share * free))


def _plans(
    problem: Problem,
    parts: Segments,
    recurrence: StateProgram,
    claims: Iterable[tuple[int, Claim | None]],
) -> Iterator[tuple[tuple[int, Claim], Plan]]:
    """The schedules that there are, as plans.

    Raises:
        Infeasible: there is none.
        Stopped: there was none in time.
    """
    some = False
    for limit, claim in claims:
        plan = claim and _plan(problem, parts, recurrence.table, claim)
        if claim is not None and plan:
            some = True
            yield (limit, claim), plan
    if not some and planning_seconds() > recurrence.deadline:
        raise without_plan(problem, None, None, ", or use hybrid")
    if not some:
        raise Infeasible(
            f"POFO's recurrence has no schedule of {len(parts.forward) - 1} stages within "
            f"{problem.budget} bytes; give more, or use hybrid"
        )


def _plan(problem: Problem, parts: Segments, table: Table, claim: Claim) -> Plan | None:
    """A schedule as a plan; None where the host has no room for it."""
    graph = problem.graph
    writer = ComputeList(parts)
    for step in claim.steps:
        for stage in range(step.first, step.last + 1):
            writer.run("keep" if step.kept else "plain", stage)
    writer.run("back", len(parts.forward) - 1)
    for step in reversed(claim.steps):
        if step.kept:
            writer.run("back", step.first)
            continue
        for kind, stage, _ in table.segment(step.first, step.last, step.room):
            writer.run(kind, stage)
    sequence = Sequence.of(graph, np.array(writer.computes))
    bridged = across_loss(sequence) & _gone(parts, claim)[sequence.value]
    if not bridged.any():
        return Plan.of_computes(graph, writer.computes)
    peak = simulate(graph, program_order(graph)).peak_bytes
    budget = peak if problem.budget is None else problem.budget
    return woven(sequence, bridged, budget, problem.link, problem.host)


def _gone(parts: Segments, claim: Claim) -> BoolArray:
    """Per value, is it of a stage's input that goes to the host?"""
    gone = np.zeros(len(parts.graph.values), dtype=np.bool_)
    for step in claim.steps:
        if step.goes:
            out, saved = parts.outputs[step.first - 1], parts.saved[step.first - 1]
            gone[list(out | saved if step.whole else out)] = True
    return gone
