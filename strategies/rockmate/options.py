"""Ways to run a block, from Checkmate's program at several budgets (section 4.2 of the paper)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rematbench.base.clock import available_threads, planning_seconds
from rematbench.base.errors import Infeasible
from rematbench.engines.stages.relaxation import Relaxation, single_stages
from rematbench.engines.stages.search import StageSearch, is_solvable
from rematbench.engines.stages.space import Space, check
from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.plan import Plan, program_order, with_frees
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem
from rematbench.strategies.registry import quick_planners
from rematbench.strategies.rockmate.blocks import Stage

# Nothing that takes longer is worth it in a block.
_SECONDS = 10.0


Engine = Literal["program", "search"]


@dataclass(frozen=True)
class RunOption:
    """One way to run a block; bytes as the chain program counts them.

    Attributes:
        forward, back: ops of the block's graph, before and after what follows the block.
        kept: bytes that stay in between, the block's output included.
        forward_peak, back_peak: the block's backward values included in the latter.
        time: of both.
    """

    forward: tuple[int, ...]
    back: tuple[int, ...]
    kept: int
    forward_peak: int
    back_peak: int
    time: float

    def beside(self, size: int) -> RunOption:
        """The same with ``size`` bytes of other backward values."""
        return replace(self, back_peak=self.back_peak + size)

    @property
    def figures(self) -> tuple[float, ...]:
        """None is better than another one that has all of them no larger."""
        return self.kept, self.forward_peak, self.back_peak, self.time


@dataclass(frozen=True)
class Effort:
    """How many budgets a block is planned for, and how well.

    Attributes:
        staying, peaks: budgets of what stays; of the peak, for each of them.
        gap: relative gap at which a program is left.
        seed: for the solver.
        engine: who plans: ``program``, F by HiGHS alone, or ``search``, ``anytime``'s by stages.
    """

    staying: int
    peaks: int
    gap: float
    seed: int
    engine: Engine = "program"


def options_of(block: Stage, effort: Effort, deadline: float) -> tuple[list[RunOption], bool]:
    """Ways to run a block, the best of each budget; the first keeps everything.

    And did every program come to its end?

    Args:
        deadline: by :func:`~rematbench.base.clock.planning_seconds`.

    Raises:
        NotApplicable: an op overwrites what it reads by default.
    """
    check(block.graph, None)
    everything = program_order(block.graph)
    found, ended = [measured(block, everything)], True
    budgets = list(_budgets(block, found[0], effort))
    for number, (staying, budget) in enumerate(budgets):
        now = planning_seconds()
        until = now + min(_SECONDS, max(0.0, deadline - now) / (len(budgets) - number))
        plan = _planned(block, staying, budget, effort, until)
        ended &= planning_seconds() < until
        if plan is not None:
            found.append(measured(block, plan))
    return undominated(found), ended


def undominated(options: Sequence[RunOption]) -> list[RunOption]:
    """Those than which none is better in every figure."""
    best: list[RunOption] = []
    for option in options:
        if not any(_covers(other, option) for other in best):
            best = [other for other in best if not _covers(option, other)] + [option]
    return best


def _covers(one: RunOption, other: RunOption) -> bool:
    return all(a <= b for a, b in zip(one.figures, other.figures, strict=True))


def _budgets(block: Stage, everything: RunOption, effort: Effort) -> Iterator[tuple[int, int]]:
    """(what may stay, peak), from everything to the output alone and the least peak."""
    floor = block.graph.floor_bytes()
    highest = max(everything.forward_peak, everything.back_peak, floor)
    index = block.graph.value_index
    rest = block.graph.loss_index
    assert rest is not None
    sizes = (block.graph.values[index[name]].bytes for name in block.graph.ops[rest].reads)
    least = sum(sizes)
    stays = np.linspace(everything.kept, least, effort.staying).astype(int).tolist()
    if block.is_last:
        stays = [everything.kept]
    for staying in stays:
        lowest = max(floor, min(highest, staying + block.returned_bytes))
        for budget in np.linspace(highest, lowest, effort.peaks).astype(int).tolist():
            if (staying, budget) != (everything.kept, highest):
                yield staying, budget


def _planned(
    block: Stage, staying: int, budget: int, effort: Effort, deadline: float
) -> Plan | None:
    graph = block.limited(staying, budget)
    now = planning_seconds()
    problem = Problem(graph, budget, max(0.0, deadline - now), effort.seed)
    try:
        check(graph, budget)
    except Infeasible:
        return None
    if effort.engine == "program":
        found = _solved(Space.reduced(graph), budget, effort, deadline)
    else:
        problem = replace(problem, starts=quick_planners())
        search = StageSearch(problem, budget, now, effort.gap, min(2, available_threads()))
        search.improve(Space.reduced(graph), deadline)
        found = None if search.best is None else search.best.plan
    return found if found is not None and _possible(block, found) else None


def _solved(space: Space, budget: int, effort: Effort, deadline: float) -> Plan | None:
    """The schedule of the program; None where there is none, or none was found in time."""
    if not is_solvable(space):
        return None
    program = Relaxation(space, budget, single_stages(space), effort.seed)
    found = None
    for outcome in program.integral(deadline, lambda: False, effort.gap):
        found = outcome.x
    schedule = program.decode(found) if program.settled and found is not None else None
    return None if schedule is None or schedule.peak > budget else schedule.plan


def _possible(block: Stage, plan: Plan) -> bool:
    """Does what follows the block run only once?  Costs next to nothing in the block's graph."""
    if block.is_last:
        return True
    codes = plan.codes(block.graph)
    ops = block.graph.tables.op_of[codes[codes >= 0]]
    return int(np.count_nonzero(ops == block.graph.loss_index)) == 1


def measured(block: Stage, plan: Plan) -> RunOption:
    """What a plan of a block comes to."""
    graph = block.graph
    codes = plan.codes(graph)  # of the limited graph, perhaps, whose ops have the same numbers
    codes = with_frees(graph, _useful(graph, codes[codes >= 0]))
    trace = simulate(graph, Plan.from_codes(graph, codes))
    during = trace.bytes_during
    runs = codes >= 0
    ops = np.where(runs, graph.tables.op_of[np.maximum(codes, 0)], -1)
    if block.is_last:
        everything = tuple(ops[runs].tolist())
        peak = int(during[runs].max(initial=0))
        return RunOption((), everything, 0, 0, peak, trace.cost)
    turn = int(np.flatnonzero(ops == graph.loss_index)[0])
    before, after = runs.copy(), runs.copy()
    before[turn:] = False
    after[: turn + 1] = False
    return RunOption(
        tuple(ops[before].tolist()),
        tuple(ops[after].tolist()),
        int(during[turn]) - block.returned_bytes,
        int(during[before].max(initial=0)),
        int(during[after].max(initial=0)),
        trace.cost,
    )


def _useful(graph: Graph, computes: IntArray) -> IntArray:
    """Without computes of which nothing is read before it is computed again."""
    tables = graph.tables
    wanted = set(tables.outputs.tolist())
    useful = []
    for code in computes[::-1].tolist():
        written = set(tables.writes[int(tables.op_of[code])].tolist())
        if wanted & written:
            useful.append(code)
            wanted = (wanted - written) | set(tables.reads[code].tolist())
    return np.array(useful[::-1], dtype=np.int64)
