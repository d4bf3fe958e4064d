"""From a compiled graph to a plan within the budget, kept on disk for the next run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from math import inf
from typing import NoReturn

import torch

from rematbench import costmodel as costs
from rematbench.base.cache_dirs import FOR_THE_USER
from rematbench.base.errors import ConfigError, Infeasible, NotApplicable
from rematbench.base.kernels import digest
from rematbench.graphs.ir import Graph
from rematbench.graphs.link import NONE, Link
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.planning import Problem, Strategy, SupportsWarmUp
from rematbench.graphs.simulate import Trace, simulate
from rematbench.strategies import registry
from rematbench.tracing.devices import is_known
from rematbench.tracing.halves import Halves
from rematbench.training.compiled.around import Around
from rematbench.training.compiled.joined import GAP
from rematbench.training.compiled.judging import (
    TRIES,
    Asks,
    Judge,
    Made,
    all_again,
    leaner,
    settled,
)
from rematbench.training.compiled.kept import for_less, place_of, recalled, remember, remember_part
from rematbench.training.compiled.options import EAGER, Options
from rematbench.training.compiled.resized import improved, may_improve, of_another_size
from rematbench.training.compiled.sharing import Share, share_of
from rematbench.training.compiled.sizes import KnownSizes, family_of
from rematbench.training.compiled.together import StepJudge, Together

_log_user = logging.getLogger(FOR_THE_USER)
FIRST_STEP = "first step"
"""The source of a plan that keeps little."""
_AT_ONCE = 0.2
"""Seconds for a further size that no known plan fits, before it is improved in the background."""
_LEAN = ("linearized_greedy", "ap_greedy")
"""What says which budget would do, where a strategy says none."""


@dataclass(frozen=True)
class Planned:
    """A plan of a compiled graph.

    Attributes:
        halves: with the graph's costs.
        plan: what runs.
        trace, base: the plan and ordinary training, as simulated.
        share: what it takes of the budget.
        allowed: bytes that the budget leaves for it, residents included; None: no limit.
        limit: the most that this graph's own peak may be.
        most: what all calls may take that are pending at once; None where that is not known.
        source: ``ordinary``, ``planned``, ``cache``, ``given``, or ``another size``: from its plan.
        seconds: profiling, and planning.
        link: to the host.
        improve: searches a cheaper plan, where one may be found; None: there is none.
    """

    halves: Halves
    plan: Plan
    trace: Trace
    base: Trace
    share: Share
    allowed: int | None
    limit: int | None
    most: int | None
    source: str
    seconds: tuple[float, float] = (0.0, 0.0)
    link: Link = NONE
    improve: Callable[[], Planned | None] | None = field(default=None, compare=False)

    @property
    def graph(self) -> Graph:
        """The compiled graph, with costs."""
        return self.halves.captured.graph

    @property
    def overhead(self) -> float:
        """Simulated cost over that of ordinary training, minus 1."""
        return self.trace.cost / self.base.cost - 1 if self.base.cost else 0.0


PlannedStep = tuple[Together, tuple[Planned, ...]]
"""A sequence of calls, planned, and what each call runs by."""


def costed(
    halves: Halves, options: Options, say: Callable[[str], None], family: KnownSizes
) -> tuple[Halves, bool]:
    """The halves of the graph with its ops' costs, and whether these were measured.

    Raises:
        ConfigError: they are to be measured on a device that is none to measure on.
    """
    captured = halves.captured
    if options.costmodel == "profiled" and not is_known(captured.device):
        text = f"{captured.graph.name}: no op can be measured on device {captured.device}"
        raise ConfigError(f"{text}; give costmodel='flops'")
    known = family.costed(captured.graph) if options.costmodel == "profiled" else None
    if known is not None:
        return replace(halves, captured=captured.with_graph(known)), False
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
    return replace(halves, captured=captured.with_graph(graph)), True


def planned(
    halves: Halves,
    options: Options,
    say: Callable[[str], None] = lambda words: None,
    around: Around | None = None,
) -> Planned:
    """The cheapest plan of the strategy within the budget, for a graph that is alone.

    Args:
        around: what lies outside of it, if it has many sizes.

    Raises:
        Infeasible: the budget is too small; names the number that would do.
        NotApplicable: the strategy does not apply, or makes no plan.
    """
    began = time.perf_counter()
    family = family_of(halves.captured.graph, options)
    halves, measured = costed(halves, options, say, family)
    profiled = time.perf_counter()
    judge, known, later = Judge(halves, options, around), bool(family.sizes), options.lower == EAGER
    made, source = _with_room(judge, say, family, later)
    more = later and known and source in ("another size", "planned")
    more = more and may_improve(judge, made, family)
    if source != "given":
        family.add(judge.graph, made.plan, judge.overhead(made), measured)
    seconds = (profiled - began, time.perf_counter() - profiled)
    found = _of_call(judge, made, made.plan, halves, source, seconds)

    def improve() -> Planned | None:
        began = time.perf_counter()
        better = improved(judge, made)
        if better is None:
            return None
        family.add(judge.graph, better.plan, judge.overhead(better), measured)
        times = (0.0, time.perf_counter() - began)
        return _of_call(judge, better, better.plan, halves, "improved", times)

    return replace(found, improve=improve) if more else found


def planned_lean(
    halves: Halves,
    options: Options,
    say: Callable[[str], None] = lambda words: None,
    known: bool = False,
) -> Planned:
    """A plan that keeps little between the halves, for a step of which not all is known.

    Args:
        known: are the costs of its ops?

    Raises:
        Infeasible: not even this graph alone fits the budget; names the number that would do.
    """
    if not known:
        halves, _ = costed(halves, options, say, family_of(halves.captured.graph, options))
    judge = Judge(halves, options)
    found = [judge.judged(all_again(halves)), *(made for _, made in _leanest(judge))]
    fitting = [made for made in found if options.budget.bytes is None or judge.fits(made)]
    if not fitting:
        assert judge.allowed is not None
        assert not isinstance(options.plan, Plan)
        fitting = [_searched(judge, options.plan, judge.allowed, options.time_limit)]

    def taken(made: Made) -> int:
        share = share_of(halves, made.plan, made.trace)
        return share.kept + share.peak

    best = min(fitting, key=taken)
    return _of_call(judge, best, best.plan, halves, FIRST_STEP)


def received(halves: Halves, options: Options, plan: Plan, source: str) -> Planned:
    """What a plan comes to that was made elsewhere, for the same graph with these costs."""
    judge = Judge(halves, options)
    made = judge.judged(plan)
    return _of_call(judge, made, made.plan, halves, source)


def planned_together(judge: StepJudge, say: Callable[[str], None]) -> PlannedStep | None:
    """The cheapest plan of a sequence of calls within the budget, and each call's part of it; None:
    it is one call, whose own plan leaves enough for what lies outside of its graph.

    Raises:
        Infeasible: the budget is too small; names the number that would do.
    """
    began = time.perf_counter()
    if judge.is_whole and (judge.outside is None or judge.fits(judge.by_itself())):
        return None
    if judge.options.offload is not None and len(judge.halves) > 1:
        _log_user.warning(
            "rematbench: %s: the calls of a step are planned without the host, by recomputation "
            "alone; compile the model as one graph to offload",
            judge.graph.name,
        )
    family = family_of(judge.graph, judge.options)
    made, source = _with_room(judge, say, family)
    family.add(judge.graph, made.plan, judge.overhead(made), True)
    if judge.is_whole:
        remember_part(Judge(judge.halves[0], judge.options), made.parts[0], _rules())
    return planned_step(judge, made, source, time.perf_counter() - began)


def planned_step(judge: StepJudge, made: Made, source: str, seconds: float = 0.0) -> PlannedStep:
    """A sequence of calls by a plan."""
    peaks = (made.peak, judge.base.peak, judge.budget)
    cost, base = (each.trace.cost - judge.gap_cost for each in (made, judge.base))
    most = None if judge.allowed is None else judge.beyond + judge.allowed - made.peak
    together = Together(judge.events, *peaks, cost, base, made.parts, source, judge.outside, most)
    pairs = zip(judge.halves, made.parts, strict=True)
    times = (0.0, seconds)
    parts = tuple(_of_call(judge, made, plan, halves, source, times) for halves, plan in pairs)
    return together, parts


def _of_call(
    judge: Judge,
    made: Made,
    plan: Plan,
    halves: Halves,
    source: str,
    seconds: tuple[float, float] = (0.0, 0.0),
) -> Planned:
    """The part of a plan that is one call's."""
    options, graph = judge.options, halves.captured.graph
    if plan.strategy not in _LEAN:  # which helped out
        plan = plan.labelled(made.plan.strategy or options.name, judge.allowed)
    trace = simulate(graph, plan, judge.link)
    base = simulate(graph, settled(halves, program_order(graph)))
    share, limit, most = share_of(halves, plan, trace), None, None
    if judge.budget is not None and source != FIRST_STEP:  # what other calls take is theirs
        limit = judge.budget - judge.reserve - (made.peak - share.peak)
    if judge.budget is not None and options.budget.bytes:  # a fraction is of a step that is known
        most = judge.budget - judge.reserve
    text = (trace, base, share, judge.allowed, limit, most, source)
    return Planned(halves, plan, *text, seconds, judge.link)


def _with_room(
    judge: Judge, say: Callable[[str], None], family: KnownSizes, later: bool = False
) -> tuple[Made, str]:
    """The plan, and where it is from; without room for what is only expected, if it must be."""
    try:
        return _chosen(judge, say, family, later)
    except Infeasible as error:
        if not judge.forgoes():
            raise
        text = "rematbench: %s: no plan leaves room for what lies beyond it: %s"
        _log_user.warning(text, judge.graph.name, error)
    return _chosen(judge, say, family, later)


def _chosen(
    judge: Judge, say: Callable[[str], None], family: KnownSizes, later: bool = False
) -> tuple[Made, str]:
    """The plan, and where it is from.

    Args:
        later: that of a further size is improved when the loop goes on, not at once.
    """
    options, allowed = judge.options, judge.allowed
    if isinstance(options.plan, Plan):
        return _given(judge, options.plan), "given"
    if allowed is None or judge.ordinary_fits:
        return judge.base, "ordinary"
    if judge.graph.floor_bytes() > allowed or judge.ends_above:
        _refuse(judge)
    place = place_of(judge.graph, options, allowed, _rules())
    kept = recalled(place, judge)
    if kept is not None:
        return kept, "cache"
    further = _of_further_size(judge, options.plan, family, later) if family.sizes else None
    if further is not None:
        return further
    say(f"plans by {options.name} for at most {options.time_limit:g} s")
    found = _searched(judge, options.plan, allowed, options.time_limit)
    # A plan for less is a plan for more.
    found = min((found, *for_less(place, judge)), key=lambda made: made.trace.cost)
    remember(place, found.plan)
    return found, "planned"


def _rules() -> str:
    """A hash of the code that plans."""
    return digest(__name__, __file__)


def _of_further_size(
    judge: Judge, strategy: Strategy, family: KnownSizes, later: bool
) -> tuple[Made, str] | None:
    """A plan that does not stop the loop for long, and where it is from; None: none was found."""
    options, allowed = judge.options, judge.allowed
    assert allowed is not None
    near = of_another_size(judge, family)
    if near is not None:
        at_once = not later and may_improve(judge, near, family)
        return (improved(judge, near) if at_once else None) or near, "another size"
    seconds = min(options.time_limit, options.replan_seconds, _AT_ONCE if later else inf)
    with suppress(Infeasible):
        return _searched(judge, strategy, allowed, seconds), "planned"
    return None


def _given(judge: Judge, plan: Plan) -> Made:
    made = judge.judged(plan)
    host = made.trace.host_peak_bytes
    if judge.host is not None and host > judge.host:
        raise Infeasible(
            f"the given plan puts {host} bytes on the host, offload={judge.host}; give more, or a "
            "strategy"
        )
    if judge.allowed is not None and not judge.fits(made):
        raise Infeasible(
            f"the given plan peaks at {made.peak + judge.taken} bytes, the budget is "
            f"{judge.allowed + judge.taken}; give a larger one, or a strategy",
            smallest_peak_found=made.peak,
        )
    return made


def _searched(judge: Judge, strategy: Strategy, allowed: int, limit: float) -> Made:
    """The cheapest plan that fits of those that the strategy makes."""
    if isinstance(strategy, SupportsWarmUp):
        strategy.warm_up()
    ask = partial(judge.asked, strategy, seconds=limit, patient=judge.options.patient)
    leanest, found = None, list[Made]()
    try:
        found.extend(filter(judge.fits, islice(leaner(ask, allowed), TRIES)))
    except Infeasible as error:
        leanest = error.smallest_peak_found
    except NotApplicable:
        if len(judge.halves) == 1:
            raise
    if not found and leanest is None:  # as they can run, its plans are above the budget
        quick = partial(judge.asked, strategy, seconds=min(limit, 1.0))
        with suppress(NotApplicable):
            found.extend(filter(judge.fits, islice(_halving(judge, quick, allowed), TRIES)))
    if not found:  # or it had no time for one
        found.extend(filter(judge.fits, _whatever(judge, allowed)))
    if not found:
        _refuse(judge, leanest)
    return min(found, key=lambda made: made.trace.cost)


def _whatever(judge: Judge, allowed: int) -> Iterator[Made]:
    """Plans of quick strategies that bear their names: those that fit at their leanest."""
    for name, leanest in _leanest(judge):
        if name not in _LEAN or not judge.fits(leanest):
            continue
        ask = partial(judge.asked, registry.make(name), seconds=1.0)
        with suppress(Infeasible):
            for made in islice(_halving(judge, ask, allowed), 2 * TRIES):
                yield replace(made, plan=made.plan.labelled(name, allowed))
        yield replace(leanest, plan=leanest.plan.labelled(name, allowed))
    yield from judge.others()


def _halving(judge: Judge, ask: Asks, allowed: int) -> Iterator[Made]:
    """Plans for budgets halfway between one that is too large and one that is too small."""
    low, high = judge.graph.floor_bytes(), allowed
    while high - low > allowed // 1000:
        asked = (low + high) // 2
        try:
            found = ask(asked)
        except Infeasible:
            low = asked
            continue
        yield found
        if judge.fits(found):
            low = asked
        else:
            high = asked


def _refuse(judge: Judge, own: int | None = None) -> NoReturn:
    """Raises Infeasible, with the budget that would do.

    Args:
        own: the peak of the strategy's leanest plan, where it said so.
    """
    options, taken = judge.options, judge.taken
    name, leanest = min(_leanest(judge), key=lambda item: item[1].peak)
    floor, what = judge.graph.floor()
    least = floor + taken
    if what.startswith(f"op '{GAP}"):
        what = "what lies outside of the compiled graphs"
    if judge.ends_above:
        least = judge.ending + judge.reserve
        what = "the optimizer's step" if judge.ending else f"reserve={judge.reserve}"
    needed = max(leanest.peak + taken, least)
    shared = f" for {judge.graph.name}" if len(judge.halves) > 1 else ""
    mine = "" if own is None else f" its leanest needs {own + taken};"
    raise Infeasible(
        f"{options.name} has no plan within budget={options.budget}{shared}:{mine} "
        f"budget={needed} would do for {name} (bytes; {taken} of them are kept for others), "
        f"and below {least} there is none, because of {what}",
        smallest_peak_found=needed,
    )


def _leanest(judge: Judge) -> Iterator[tuple[str, Made]]:
    """The leanest plans of quick strategies, and ordinary training's."""
    yield "ordinary training", judge.base
    for made in judge.others():
        yield "the plans of the first step", made
    for name in _LEAN:
        strategy = registry.make(name)
        try:
            strategy.plan(Problem(judge.graph, 1, 1.0))
        except Infeasible as error:
            peak = error.smallest_peak_found
        except NotApplicable:
            continue
        if peak is not None:
            with suppress(Infeasible):
                yield name, judge.asked(strategy, peak, 1.0)
