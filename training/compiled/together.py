"""One plan for all calls of a sequence, within one budget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from rematbench.graphs.plan import Plan
from rematbench.graphs.simulate import check_draws, simulate
from rematbench.tracing.halves import Halves
from rematbench.training.compiled.beyond import learn
from rematbench.training.compiled.joined import joined
from rematbench.training.compiled.judging import Judge, Made
from rematbench.training.compiled.options import INDUCTOR, Options
from rematbench.training.compiled.outside import Outside
from rematbench.training.compiled.record import CallRecord, Event
from rematbench.training.compiled.sharing import held_tangents, share_of

VARIANTS = 4
"""Plans that one graph is compiled for at most, where each takes a compilation of its own."""


class StepJudge(Judge):
    """Says what a plan of a sequence of calls takes of the budget.

    Strategies plan a graph that keeps them from what the halves cannot run; what becomes of their
    plans is judged on the graph as it is.

    Args:
        outside: what the step holds besides its graphs.

    Attributes:
        events: the halves in order.
        gap_cost: of what stands for the caller; nothing that anybody computes.
    """

    def __init__(self, record: CallRecord, options: Options, outside: Outside | None) -> None:
        self.events, self._calls = tuple(record.events), record.calls
        self._regions = [call.region for call in record.calls]
        self._known = [call.region.lean.plan for call in record.calls]
        name = name_of(record)
        self._true = joined(name, record, strict=False, outside=outside)
        strict = joined(name, record, strict=True, outside=outside)
        self.halves = strict.halves
        pairs = zip(strict.graph.ops, strict.homes, strict=True)
        self.gap_cost = sum(op.cost for op, (call, _) in pairs if call < 0)
        stays, beyond = (0, 0) if outside is None else (outside.stays, outside.most_beyond)
        self._begin(strict.graph, options, stays, beyond=beyond * (options.lower == INDUCTOR))

    @property
    def is_whole(self) -> bool:
        """Is it one call, of a graph that is all that its model trains by?"""
        return len(self._calls) == 1 and self._calls[0].region.is_whole

    @property
    def outside(self) -> Outside | None:
        """What the step holds besides its graphs; None: that was not measured."""
        return self._true.outside

    def by_itself(self) -> Made:
        """The plans that its graphs were given each by itself."""
        return self.of_parts([call.region.planned.plan for call in self._calls])

    def overhead(self, made: Made) -> float:
        base = self.base.trace.cost - self.gap_cost
        return (made.trace.cost - self.base.trace.cost) / base if base else 0.0

    def judged(self, plan: Plan) -> Made:
        """Any plan of the graph, as the halves of its calls can run it."""
        parts = self._true.parts(plan)
        if self.options.lower == INDUCTOR:
            for region in set(self._regions):
                own = [i for i, each in enumerate(self._regions) if each is region]
                fewer = _fewer(self.halves[own[0]], [parts[i] for i in own])
                parts = [fewer.pop(0) if i in own else part for i, part in enumerate(parts)]
        return self.of_parts(parts)

    def of_parts(self, parts: list[Plan]) -> Made:
        """These plans of the calls, as one."""
        whole = self._true.whole(parts)
        check_draws(self._true.graph, whole)
        late = max(map(held_tangents, self.halves))
        return Made(whole, simulate(self._true.graph, whole, self.link), tuple(parts), late)

    def others(self) -> Iterable[Made]:
        """What the first step ran by."""
        yield self.of_parts(self._known)


def outside_of(record: CallRecord) -> Outside | None:
    """What a step held besides its graphs; None where it was not measured.

    What Inductor took beyond the plans is learnt.
    """
    measured = None
    if record.meter is not None:
        known = joined(name_of(record), record, strict=False)
        gaps = [op for op, (call, _) in enumerate(known.homes) if call < 0]
        plan = known.whole([call.planned.plan for call in record.calls])
        measured = record.meter.outside(known.graph, plan, gaps, record.beside())
    if measured is not None:
        for event, size in zip(record.events, measured.beyond, strict=True):
            learn(known.halves[event.call], record.calls[event.call].region.options, size)
    return measured if measured is not None else _gathered(record)


def _gathered(record: CallRecord) -> Outside | None:
    """What is known of gathered parameters without a count: the largest that comes at once is held
    twice, since FSDP2 keeps or fetches another one beside it.
    """
    gathered = record.gathered
    if not gathered.keys:
        return None
    held = gathered.held
    more = max(np.diff(held, prepend=0).max(), 0)
    whole = tuple(int(size + more + gathered.shards) for size in held)
    return Outside(whole, (0,) * (len(held) + 1), held)


def _fewer(halves: Halves, parts: list[Plan]) -> list[Plan]:
    """At most :data:`VARIANTS` different plans: each call gets one that keeps no more than its own.

    Args:
        halves: of the one graph that all these plans are for.
    """
    graph, plans = halves.captured.graph, {}
    for plan in parts:
        plans[share_of(halves, plan, simulate(graph, plan)).kept] = plan
    sizes = sorted(plans)
    steps = min(VARIANTS, len(sizes))
    chosen = [sizes[i * len(sizes) // steps] for i in range(steps)]
    own = [share_of(halves, plan, simulate(graph, plan)).kept for plan in parts]
    return [plans[max(size for size in chosen if size <= mine)] for mine in own]


@dataclass(frozen=True)
class Together:
    """A sequence of calls, planned as one.

    Attributes:
        events: the halves in order.
        peak_bytes: simulated, residents included.
        ordinary_peak_bytes: of the same sequence without recomputation.
        budget_bytes: that the plan was made for; None: no limit.
        cost, ordinary_cost: of all calls, as planned and in ordinary training.
        parts: the plans of the calls.
        source: where the plan is from, as of one graph.
        outside: what the step holds besides its graphs; None: that was not measured.
        most_beyond: what Inductor may allocate above the plan; None: no limit.
        measured_peak_bytes: of a step by this plan, all that was counted included; None: none was.
    """

    events: tuple[Event, ...]
    peak_bytes: int
    ordinary_peak_bytes: int
    budget_bytes: int | None
    cost: float
    ordinary_cost: float
    parts: tuple[Plan, ...]
    source: str
    outside: Outside | None = None
    most_beyond: int | None = None
    measured_peak_bytes: int | None = None

    @property
    def overhead(self) -> float:
        """Cost over that of ordinary training, minus 1."""
        return self.cost / self.ordinary_cost - 1 if self.ordinary_cost else 0.0

    def __str__(self) -> str:
        calls = sum(not event.backward for event in self.events)
        what = "the step planned with what lies outside of its graph"
        if calls > 1:
            what = f"{calls} calls planned as one"
        budget = "none" if self.budget_bytes is None else f"{self.budget_bytes:,}"
        held = "" if self.outside is None else f", outside at most {max(self.outside.held):,}"
        measured = self.measured_peak_bytes
        ran = "" if measured is None else f" simulated, {measured:,} measured"
        return (
            f"{what} ({self.source}): peak {self.peak_bytes:,} bytes{ran}, budget "
            f"{budget}, ordinary training {self.ordinary_peak_bytes:,}{held}; overhead "
            f"{self.overhead:+.1%} simulated"
        )


def name_of(record: CallRecord) -> str:
    """The graphs of a sequence, each once, and how many calls there are."""
    names = dict.fromkeys(call.region.name for call in record.calls)
    return f"{'+'.join(names)} ({len(record.calls)} calls)"
