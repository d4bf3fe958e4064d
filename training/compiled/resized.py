"""Plans for a graph that is known at other sizes."""

from __future__ import annotations

from contextlib import suppress

from rematbench.base.errors import Infeasible
from rematbench.graphs.planning import Strategy
from rematbench.training.compiled.judging import Judge, Made
from rematbench.training.compiled.patience import GAP
from rematbench.training.compiled.sizes import KnownSizes

NEAREST = 8
"""Other sizes whose plans are tried."""


def of_another_size(judge: Judge, strategy: Strategy, family: KnownSizes) -> Made | None:
    """The cheapest plan of another size that fits here.

    It is improved for ``replan_seconds`` unless its overhead is about that of a smaller size, below
    which a plan for this one can hardly be. A size that was planned before keeps its plan.
    None where no other size's plan fits.
    """
    same = family.same(judge.graph)
    tried = family.nearest(judge.graph)[:NEAREST] if same is None else [same]
    judged = [judge.judged(each.plan(judge.graph)) for each in tried]
    best = min(filter(judge.fits, judged), key=lambda made: made.trace.cost, default=None)
    if best is None or same is not None:
        return best
    least = max((each.overhead for each in family.smaller(judge.graph)), default=0.0)
    if judge.overhead(best) <= least + GAP:
        return best
    options, allowed = judge.options, judge.allowed
    assert allowed is not None
    seconds = min(options.replan_seconds, options.time_limit)
    with suppress(Infeasible):
        more = judge.asked(strategy, allowed, seconds, options.patient, (best.plan,))
        if judge.fits(more) and more.trace.cost < best.trace.cost:
            return more
    return best
