"""Playing an event stream under a memory budget, as simrd does."""

from __future__ import annotations

import math

import numpy as np

from rematbench.base.clock import planning_seconds
from rematbench.base.errors import GraphError
from rematbench.engines.eviction import state as at
from rematbench.engines.eviction.compiled import CompiledStream, compile_stream
from rematbench.engines.eviction.machine import advance
from rematbench.engines.eviction.rules import Rules, Run, Status
from rematbench.streams.events import Constant, EventStream
from rematbench.streams.eviction import HEURISTICS

_COSTS = {
    "none": at.COST_NONE,
    "local": at.COST_LOCAL,
    "eqclass": at.COST_CLASSES,
    "estar": at.COST_FULL,
}
_DEALLOCS = {
    "none": at.DEALLOC_NONE,
    "eager": at.DEALLOC_EAGER,
    "banish": at.DEALLOC_BANISH,
}
_STATUSES: dict[int, Status] = {at.DONE: "ok", at.OOM: "oom", at.THRASHED: "thrash"}
_TICKS = 50_000


def play(
    compiled: CompiledStream, budget: int | None, rules: Rules, time_limit: float = math.inf
) -> Run:
    """Play ``compiled`` within ``budget`` bytes (None: no limit).

    Args:
        time_limit: seconds, without those that compiling takes once; then it is stopped.

    Raises:
        GraphError: banishing, a tensor is used after its last reference went.
    """
    state = _prepare(compiled, budget, rules)
    status = advance(state, 0)
    end = planning_seconds() + time_limit
    while status == at.RUNNING and planning_seconds() < end:
        status = advance(state, _TICKS)
        if status == at.RUNNING:
            state = _enlarged(state)
    if status == at.USED_DEAD:
        event = compiled.source.ops[int(state.steps[state.now.step, 1])].event
        raise GraphError(
            f"{compiled.source.stream.place(event)}: uses a tensor after its last release; "
            "release it later"
        )
    return _outcome(compiled, state, status)


def warm_up() -> None:
    """Compile the kernels, or load them: half a minute after each change of them, or nothing."""
    play(compile_stream(EventStream((Constant("x", 1),))), None, Rules())


def _prepare(compiled: CompiledStream, budget: int | None, rules: Rules) -> at.RuntimeState:
    heuristic = rules.heuristic
    regions = heuristic.cost == "estar" and rules.dealloc != "banish"
    state = at.new_state(compiled, regions, rules.seed)
    now = state.now
    now.budget = at.UNLIMITED if budget is None else min(budget, at.UNLIMITED)
    factor = math.inf if rules.thrash_limit is None else rules.thrash_limit - 1
    # Nothing to compute costs nothing, whatever the limit.
    limit = compiled.source.cost * factor if compiled.source.cost else 0.0
    now.remat_limit = math.floor(min(limit, 2.0**62))
    now.rule = at.BY_LRU if heuristic.oldest else at.BY_SCORE
    if heuristic.random:
        now.rule = at.BY_CHANCE
    now.cost, now.by_staleness, now.by_size = (
        _COSTS[heuristic.cost],
        heuristic.staleness,
        heuristic.size,
    )
    now.dealloc = _DEALLOCS[rules.dealloc]
    return state


def _enlarged(state: at.RuntimeState) -> at.RuntimeState:
    """Twice the room where a run has filled half of what it has."""
    if state.now.records > len(state.records) // 2:
        state = state._replace(records=np.concatenate([state.records] * 2))
    if state.now.nodes > len(state.nodes) // 2:
        state = state._replace(nodes=np.concatenate([state.nodes] * 2))
    return state


def _outcome(compiled: CompiledStream, state: at.RuntimeState, status: int) -> Run:
    now = state.now
    stuck = None
    if status != at.DONE:
        step = min(int(now.step), len(compiled.steps) - 1)
        kind, what = compiled.source.steps[step]
        op = what if kind == 0 else compiled.source.tensors[what].op
        if now.depth:
            op = compiled.source.tensors[int(state.frames[now.depth - 1]["tensor"])].op
        row = compiled.ops[op]
        stuck = (compiled.source.ops[op].event, int(now.memory + row["total"] + row["workspace"]))
    return Run(
        _STATUSES.get(status, "stopped"),
        int(now.clock),
        int(now.remat_cost),
        int(now.peak),
        int(now.evictions),
        int(now.remats),
        int(now.accesses),
        stuck,
        state.records[: int(now.records)].view(np.int64).reshape(-1, 3).copy(),
    )


def baseline_peak(compiled: CompiledStream) -> int:
    """Bytes that the unlimited *banishing* run needs, constants included: the ratios' base.

    Raises:
        GraphError: as :func:`play`.
    """
    return play(compiled, None, Rules(HEURISTICS["local"], "banish")).peak_bytes
