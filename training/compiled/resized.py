"""Plans for a graph that is known at other sizes."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import islice

from rematbench.base.errors import Infeasible
from rematbench.graphs.plan import Plan
from rematbench.training.compiled.judging import TRIES, Judge, Made, leaner
from rematbench.training.compiled.patience import GAP
from rematbench.training.compiled.sizes import KnownSizes

NEAREST = 8
"""Other sizes whose plans are tried."""


def of_another_size(judge: Judge, family: KnownSizes) -> Made | None:
    """The cheapest plan of another size that fits here; None where none does.

    A size that was planned before keeps its plan.
    """
    same = family.same(judge.graph)
    tried = family.nearest(judge.graph)[:NEAREST] if same is None else [same]
    judged = [judge.judged(each.plan(judge.graph)) for each in tried]
    return min(filter(judge.fits, judged), key=lambda made: made.trace.cost, default=None)


def may_improve(judge: Judge, made: Made, family: KnownSizes) -> bool:
    """May a better plan be found? Not where this size was planned before, nor where the overhead is
    about that of a smaller size, below which a plan for this one can hardly be.
    """
    if family.same(judge.graph) is not None:
        return False
    least = max((each.overhead for each in family.smaller(judge.graph)), default=0.0)
    return judge.overhead(made) > least + GAP


def improved(judge: Judge, made: Made) -> Made | None:
    """A cheaper plan than one that fits, searched from it for ``replan_seconds``; None: none."""
    options, allowed = judge.options, judge.allowed
    assert allowed is not None
    assert not isinstance(options.plan, Plan)
    seconds = min(options.replan_seconds, options.time_limit)
    starts = (made.plan,)
    ask = partial(
        judge.asked, options.plan, seconds=seconds, patient=options.patient, starts=starts
    )
    with suppress(Infeasible):
        for more in islice(leaner(ask, allowed), TRIES):
            if judge.fits(more) and more.trace.cost < made.trace.cost:
                return more
    return None
