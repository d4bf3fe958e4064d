"""From a compiled graph to a plan within the budget, kept on disk for the next run."""

from __future__ import annotations

import hashlib
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch

from rematbench import costmodel as costs
from rematbench.base.cache_dirs import FOR_THE_USER
from rematbench.base.errors import (
    ConfigError,
    Infeasible,
    NotApplicable,
    PlanError,
    UnwritableError,
)
from rematbench.base.kernels import digest
from rematbench.costmodel.device import random_state_bytes
from rematbench.graphs.files import read_plan, write_plan
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Plan, program_order, with_frees
from rematbench.graphs.planning import Problem, Strategy, SupportsWarmUp
from rematbench.graphs.simulate import Trace, check_draws, simulate
from rematbench.strategies import registry
from rematbench.tracing.halves import BORDER, Halves
from rematbench.training.compiled.options import Options
from rematbench.training.compiled.sharing import Share, share_of

_told = logging.getLogger(FOR_THE_USER)
_TRIES = 4
_LEAN = ("linearized_greedy", "ap_greedy")
"""What says which budget would do, where a strategy says none."""


@dataclass(frozen=True)
class Planned:
    """A plan of a compiled graph.

    Attributes:
        graph: with costs.
        plan: what runs.
        trace, base: the plan and ordinary training, as simulated.
        share: what it takes of the budget.
        allowed: bytes that the budget leaves for it, residents included; None: no limit.
        limit: the most that this graph's own peak may be.
        most: what all calls may take that are pending at once.
        source: ``ordinary``, ``planned``, ``cache`` or ``given``.
        seconds: profiling, and planning.
    """

    graph: Graph
    plan: Plan
    trace: Trace
    base: Trace
    share: Share
    allowed: int | None
    limit: int | None
    most: int | None
    source: str
    seconds: tuple[float, float] = (0.0, 0.0)

    @property
    def overhead(self) -> float:
        """Simulated cost over that of ordinary training, minus 1."""
        return self.trace.cost / self.base.cost - 1 if self.base.cost else 0.0


Made = tuple[Plan, Trace, Share]
Asks = Callable[[int], Made]


def costed(halves: Halves, options: Options, say: Callable[[str], None]) -> tuple[Graph, float]:
    """The graph with its ops' costs, and the seconds that this took."""
    captured, began = halves.captured, time.perf_counter()
    if options.costmodel == "profiled":
        say(f"measures {len(captured.graph.ops)} ops")
    with torch.no_grad():
        graph = costs.apply(
            options.costmodel,
            captured.graph,
            captured,
            device=captured.device,
            cache=options.cache,
        )
    return graph, time.perf_counter() - began


def planned(
    halves: Halves,
    options: Options,
    say: Callable[[str], None] = lambda words: None,
    held: int = 0,
    tighter: int = 0,
) -> Planned:
    """The cheapest plan of the strategy within the budget.

    Args:
        held: bytes that others hold while this graph runs.
        tighter: bytes of the budget to leave alone, for a leaner plan.

    Raises:
        Infeasible: the budget is too small; names the number that would do.
        NotApplicable: the strategy does not apply, or makes no plan.
    """
    graph, profiling = costed(halves, options, say)
    began = time.perf_counter()
    base = program_order(graph)
    base_trace, base_share = _judged(halves, graph, base, options)
    # A fraction is one of the whole that shares the budget.
    budget = options.budget.of(base_share.together(options.graphs) + held)
    extras, others = _extras(halves), options.reserve + held
    took = others + extras
    allowed = None if budget is None else budget - took - tighter

    def done(plan: Plan, trace: Trace, share: Share, source: str) -> Planned:
        label = plan.labelled(options.name, allowed)
        seconds = (profiling, time.perf_counter() - began)
        limit = None
        if budget is not None:  # what other calls take is theirs
            limit = budget - others - (share.together(options.graphs) - share.peak)
        most = None if budget is None else budget - options.reserve
        return Planned(
            graph, label, trace, base_trace, share, allowed, limit, most, source, seconds
        )

    if isinstance(options.plan, Plan):
        plan = settled(halves, graph, options.plan)
        trace, share = _judged(halves, graph, plan, options)
        _check_fits(share, options, allowed, took)
        return done(plan, trace, share, "given")
    # Nothing is computed again, so that nothing is kept for it.
    if allowed is None or base_share.together(options.graphs) <= allowed + extras * (tighter == 0):
        return done(base, base_trace, base_share, "ordinary")
    if graph.floor_bytes() > allowed:
        _refuse(halves, graph, options, took, held=held)
    place = _place(graph, options, allowed)
    kept = _recalled(place, halves, graph, options, allowed)
    if kept is not None:
        return done(*kept, "cache")
    say(f"plans by {options.name} for at most {options.time_limit:g} s")
    plan, trace, share = _searched(halves, graph, options, allowed, took, held)
    _remember(place, plan)
    return done(plan, trace, share, "planned")


def settled(halves: Halves, graph: Graph, plan: Plan) -> Plan:
    """A plan as two halves can run it: one border, and results made once.

    What the caller holds cannot be let go and made again; a plan that does so keeps it instead.

    Raises:
        InvalidPlan: a statement names what the graph does not have.
    """
    tables = graph.tables
    codes = plan.codes(graph)
    once = {graph.op_index[BORDER]}
    # Inductor's seeds are drawn once for all its random numbers, which are made of them again.
    once.update(i for i, op in enumerate(graph.ops) if op.random and _is_seed(op.name))
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
    return Plan.from_codes(graph, with_frees(graph, np.array(computes, dtype=np.int64)))


def _is_seed(name: str) -> bool:
    return name.startswith("inductor_seed")


def recomputed(graph: Graph, plan: Plan) -> Counter[str]:
    """How often each op is computed again."""
    codes = plan.codes(graph)
    counts = Counter(graph.tables.op_of[codes[codes >= 0]].tolist())
    return Counter({graph.ops[op].name: count - 1 for op, count in counts.items() if count > 1})


def _judged(halves: Halves, graph: Graph, plan: Plan, options: Options) -> tuple[Trace, Share]:
    trace = simulate(graph, plan)
    check_draws(graph, plan)
    return trace, share_of(halves, graph, plan, trace)


def _extras(halves: Halves) -> int:
    """Bytes that halves may hand over besides values: random states, copies of inputs."""
    captured = halves.captured
    copies = sum(
        value.bytes
        for value in captured.graph.values
        if value.name in {captured.value_of[name] for name in halves.changed}
    )
    return copies + random_state_bytes(captured.device) * len(captured.random_ops)


def _searched(
    halves: Halves, graph: Graph, options: Options, allowed: int, took: int, held: int
) -> tuple[Plan, Trace, Share]:
    strategy = options.plan
    assert not isinstance(strategy, Plan)
    if isinstance(strategy, SupportsWarmUp):
        strategy.warm_up()
    single = options.graphs == 1

    def ask(budget: int) -> tuple[Plan, Trace, Share]:
        seconds = options.time_limit if single else options.time_limit / tries
        problem = Problem(graph, budget, seconds, options.seed, halves.captured)
        found = _asked(halves, graph, strategy, problem)
        return found, *_judged(halves, graph, found, options)

    shared = _shared(ask, graph, options, allowed)
    tries, tried = (_TRIES, _alone(ask, allowed)) if single else (2 * _TRIES, shared)
    fitting: list[tuple[Plan, Trace, Share]] = []
    leanest = None
    try:  # what came before an exception stays in the list
        made = islice(tried, tries)
        fitting.extend(each for each in made if each[2].together(options.graphs) <= allowed)
    except Infeasible as error:
        leanest = error.smallest_peak_found
    if fitting:
        return min(fitting, key=lambda made: made[1].cost)
    found = dict(_leanest(halves, graph, options)).get(options.name)  # it may have lacked the time
    if found is None or found[2].together(options.graphs) > allowed:
        _refuse(halves, graph, options, took, leanest, held)
    return found


def _alone(ask: Asks, allowed: int) -> Iterator[tuple[Plan, Trace, Share]]:
    """Plans for less and less, until one fits as it can run."""
    asked, excess = allowed, 1
    while excess > 0:
        found = ask(asked)
        excess = found[2].peak - allowed
        asked -= max(excess, 1)
        yield found


def _shared(
    ask: Asks, graph: Graph, options: Options, allowed: int
) -> Iterator[tuple[Plan, Trace, Share]]:
    """Plans for budgets of one call, halving the distance to the largest with which all fit."""
    low, high = graph.floor_bytes(), allowed
    while high - low > allowed // 1000:
        asked = (low + high) // 2
        try:
            found = ask(asked)
        except Infeasible:
            low = asked
            continue
        yield found
        if found[2].together(options.graphs) <= allowed:
            low = asked
        else:
            high = asked


def _asked(halves: Halves, graph: Graph, strategy: Strategy, problem: Problem) -> Plan:
    made = strategy.plan(problem).plan
    if made is None:
        raise NotApplicable(f"{type(strategy).__name__} judges itself and makes no plan to run")
    return settled(halves, graph, made)


def _check_fits(share: Share, options: Options, allowed: int | None, took: int) -> None:
    needed = share.together(options.graphs)
    if allowed is not None and needed > allowed:
        raise Infeasible(
            f"the given plan peaks at {needed + took} bytes, the budget is {allowed + took}; give "
            "a larger one, or a strategy",
            smallest_peak_found=needed,
        )


def _refuse(
    halves: Halves,
    graph: Graph,
    options: Options,
    took: int,
    own: int | None = None,
    held: int = 0,
) -> NoReturn:
    """Raises Infeasible, with the budget that would do.

    Args:
        own: the peak of the strategy's leanest plan, where it said so.
        held: bytes of ``took`` that other compiled calls hold.
    """
    found = _leanest(halves, graph, options)
    sizes = {name: made[2].together(options.graphs) for name, made in found}
    name, needed = min(sizes.items(), key=lambda item: item[1])
    floor, what = graph.floor()
    shared = f", shared by {options.graphs} graphs" if options.graphs > 1 else ""
    others = (
        f"; other compiled graphs hold {held} of them: options={{'graphs': n}} leaves room for n"
        if held
        else ""
    )
    mine = "" if own is None else f" its leanest needs {own + took};"
    raise Infeasible(
        f"{options.name} has no plan within budget={said(options)}{shared}:{mine} "
        f"budget={needed + took} would do for {name} (bytes; {took} of them are kept for others), "
        f"and below {floor + took} there is none, because of {what}{others}",
        smallest_peak_found=needed + took,
    )


def said(options: Options) -> str:
    """The budget as it was given."""
    budget = options.budget
    return f"{budget.fraction}" if budget.bytes is None else f"{budget.bytes}"


def _leanest(halves: Halves, graph: Graph, options: Options) -> Iterator[tuple[str, Made]]:
    """The leanest plans of quick strategies, and ordinary training's."""
    ordinary = program_order(graph)
    yield "ordinary training", (ordinary, *_judged(halves, graph, ordinary, options))
    for name in _LEAN:
        strategy = registry.make(name)
        try:
            strategy.plan(Problem(graph, 1, 1.0))
        except Infeasible as error:
            peak = error.smallest_peak_found
        except NotApplicable:
            continue
        if peak is not None:
            found = _asked(halves, graph, strategy, Problem(graph, peak, 1.0))
            yield name, (found, *_judged(halves, graph, found, options))


def _place(graph: Graph, options: Options, allowed: int) -> Path | None:
    """Where the plan of a graph is kept: by graph and costs, strategy, budget and versions."""
    if options.cache is None:
        return None
    module = type(options.plan).__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    told = {
        "graph": graph.hash,
        "allowed": allowed,
        "torch": torch.__version__,
        "code": None if file is None else digest(module, file),
        "rules": digest(__name__, __file__),
        **options.key(),
    }
    name = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:24]
    return options.cache / "plans" / f"{name}.json"


def _recalled(
    place: Path | None, halves: Halves, graph: Graph, options: Options, allowed: int
) -> tuple[Plan, Trace, Share] | None:
    if place is None or not place.exists():
        return None
    try:
        plan = settled(halves, graph, read_plan(place))
        trace, share = _judged(halves, graph, plan, options)
        if share.together(options.graphs) > allowed:
            raise PlanError(f"{place}: its plan is above the budget")
    except (PlanError, ConfigError) as error:
        _told.warning("%s: dropped from the cache, planned again", error)
        place.unlink(missing_ok=True)
        return None
    return plan, trace, share


def _remember(place: Path | None, plan: Plan) -> None:
    if place is None:
        return
    try:
        write_plan(place, plan)
    except UnwritableError as error:
        _told.warning("the plan is not kept: %s", error)
