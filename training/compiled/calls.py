"""The calls of compiled graphs that share one budget: the plan of each, and what it may take.

The first sequence of calls is recorded, each call by a plan that keeps little; then all of its
calls are planned as one (:mod:`rematbench.training.compiled.together`). A call that the plan does
not know runs by the plan that keeps little, if the budget holds.
"""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from rematbench.base.cache_dirs import FOR_THE_USER
from rematbench.base.errors import ExecutionError, Infeasible
from rematbench.training.compiled import within
from rematbench.training.compiled.beyond import NEWS, beyond_of
from rematbench.training.compiled.counted import again, alone, can_count, device_of
from rematbench.training.compiled.gathered import Gathered, Watched, weak_of
from rematbench.training.compiled.options import INDUCTOR, Options
from rematbench.training.compiled.outside import StepMeter
from rematbench.training.compiled.planning import Planned
from rematbench.training.compiled.ranks import planned_together, shares_plans
from rematbench.training.compiled.record import (
    CallRecord,
    CompiledGraph,
    Event,
    Kind,
    sizes_of,
)
from rematbench.training.compiled.sharing import Share
from rematbench.training.compiled.together import Together, outside_of

_warn = logging.getLogger(FOR_THE_USER)


@dataclass(eq=False)
class PendingCall:
    """One call of a compiled graph.

    Attributes:
        planned: the plan that it runs by.
        parameters: the storages of the parameters that it reads.
        number: in the plan of the sequence; None: that does not know it.
        record, recorded: where it is recorded, and its number there; None: nowhere.
        alive: dies with what it handed over, and is none of the caller's where that can be.
        handed: the storages of what it handed over, where its backward half is found by them.
    """

    planned: Planned
    parameters: Watched
    number: int | None = None
    record: CallRecord | None = None
    recorded: int = -1
    alive: StorageWeakRef | None = None
    handed: frozenset[int] = frozenset()

    @property
    def share(self) -> Share:
        """What it takes of the budget."""
        return self.planned.share

    @property
    def gradients(self) -> int:
        """Bytes that its backward half leaves: of gathered parameters, others reduce them."""
        return self.share.gradients if all(self.parameters.now().values()) else 0


@dataclass
class Known:
    """What is known of the sequences that begin with one graph.

    Attributes:
        kind: of the one that is planned.
        record: of it, until it is planned.
        waits: what it holds outside of its graphs is still to be measured.
        turns: of several ranks, that have waited for a graph's own measurement.
        together, plans: the plan, and each call's part; None: its one call is planned by itself.
        trial: the record of what is planned, until a step by the plan is counted.
        beyond: what Inductor was known to take above plans when it was planned.
        peak_bytes: of a step by the plan, all that was counted included; None: none was counted.
        last: the kind of the latest one that was recorded.
        changed: the latest one was another: the next is recorded.
    """

    kind: Kind | None = None
    record: CallRecord | None = None
    waits: bool = True
    turns: int = 0
    trial: CallRecord | None = None
    beyond: int = 0
    peak_bytes: int | None = None
    together: Together | None = None
    plans: tuple[Planned, ...] = ()
    numbers: tuple[int, ...] = ()
    last: Kind | None = None
    changed: bool = False
    said: bool = False

    def begin(self, kind: Kind, record: CallRecord | None) -> None:
        """Another kind is the one to plan: what was planned is forgotten."""
        self.kind, self.record, self.changed, self.waits = kind, record, False, True
        self.turns = self.beyond = 0
        self.peak_bytes = self.trial = None
        self.together, self.plans, self.numbers = None, (), ()


@dataclass(eq=False)
class Loop:
    """The calls under one budget."""

    _pending: list[PendingCall] = field(default_factory=list)
    _known: weakref.WeakKeyDictionary[CompiledGraph, Known] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    _record: CallRecord | None = None
    _first: weakref.ref[CompiledGraph] | None = None
    _now: Known = field(default_factory=Known)
    _at: int = 0
    _went_back: bool = False

    def pending(self) -> list[PendingCall]:
        """Those that still keep something, the latest last."""
        self._pending = [c for c in self._pending if c.alive is not None and not c.alive.expired()]
        return self._pending

    def leave(self) -> None:
        """What is counted ends here, and a sequence with it that is over."""
        self.stop()
        if not self.pending():
            self._close()

    def stop(self) -> None:
        """Count no more."""
        if self._record is not None and self._record.meter is not None:
            self._record.meter.stop()

    def close(self) -> None:
        """Nothing is recorded any more."""
        if self._record is not None:
            self._record.gathered.close()

    def planned_from(self, region: CompiledGraph) -> Together | None:
        """The plan of a sequence that begins with a graph."""
        return self._known[region].together if region in self._known else None

    def begin(self, region: CompiledGraph, args: Sequence[Any]) -> PendingCall:
        """Let a call begin, by the plan that it gets.

        Raises:
            ExecutionError: the budget would not be kept until the last backward half has run.
            Infeasible: the sequence that it begins has no plan within the budget.
        """
        first = None if self._first is None else self._first()
        if not self.pending() or (self._went_back and region is first):
            # What is pending still is a loss that is kept and never goes backward.
            self._close()
            self._open(region)
        self._went_back = False
        number = self._next(region)
        if number is not None:
            call = PendingCall(self._now.plans[number], _parameters(args), number)
        else:
            call = PendingCall(self._unplanned(region), _parameters(args))
            self._admit(region, call)
        if self._record is not None:
            call.record = self._record
            call.recorded = call.record.begins(region, call.planned, args)
        return call

    def _open(self, region: CompiledGraph) -> None:
        self._first, self._at = weakref.ref(region), 0
        known = self._now = self._known.setdefault(region, Known())
        self._record = None
        StepMeter.begins()
        if known.record is not None:
            if self._runs_again(region, known, known.record):
                return
            record, known.record = known.record, None
            self._plan(region, known, record)
            known.trial = record
        elif known.trial is not None:
            self._tries(region, known, known.trial)
        within.note(known.peak_bytes)
        around = region.around
        if around is not None and around.wants(region.planned.graph) and can_count(region):
            self._record = alone(region)
        elif self._record is None and (known.kind is None or known.changed):
            self._record = CallRecord(Gathered())

    def _runs_again(self, region: CompiledGraph, known: Known, record: CallRecord) -> bool:
        """Is the sequence run once more before it is planned, and all that it takes counted?"""
        shared = shares_plans(region.options)
        if _waits_for_its_own(region, record):
            # Another profiler may forbid that on one of the ranks.
            known.turns += 1
            if not shared or known.turns == 1:
                return True
        if known.waits and StepMeter.must_wait(device_of(region)):
            return True
        counts = can_count(region)
        if known.waits and (counts or shared):
            self._record = again(record, device_of(region) if counts else None)
        known.waits = False
        return self._record is not None

    def _tries(self, region: CompiledGraph, known: Known, record: CallRecord) -> None:
        """A step has run by its plan: where Inductor takes more than it was left, plan again."""
        most = None if known.together is None else known.together.most_beyond
        taken = _beyond(known, region)
        more = taken > known.beyond and not shares_plans(region.options)
        if more and most is not None and taken > most + NEWS:
            _warn.warning(
                "rematbench: %s: Inductor takes %s bytes more than the step's plan, which leaves "
                "it %s: they are left to it from now on",
                *(region.name, f"{taken:,}", f"{most:,}"),
            )
            self._plan(region, known, record)
        elif can_count(region):
            self._record, known.trial = again(record, device_of(region)), None

    def _plan(self, region: CompiledGraph, known: Known, record: CallRecord) -> None:
        """Plan a sequence, if that is due; the plan of a single call may stay as it is."""
        try:
            found = planned_together(record, region.options, region.say)
        except Infeasible as error:
            if known.together is not None:
                _warn.warning("rematbench: %s: no leaner plan, the last one stays", region.name)
            elif len(record.calls) > 1 or region.options.budget.bytes is not None:
                raise
            else:
                _say_that_it_is_not_kept(region, error)
            return
        if found is None:
            return
        known.together, known.plans = found
        regions = [call.region for call in record.calls]
        known.numbers = tuple(each.number for each in regions)
        for each in {*regions}:
            each.takes(self.parts_of(each))
        known.beyond = _beyond(known, region)
        region.say(str(known.together))

    def parts_of(self, region: CompiledGraph) -> list[Planned]:
        """The plans of a graph's calls in sequences that are planned."""
        found = (zip(each.numbers, each.plans, strict=True) for each in self._known.values())
        return [plan for pairs in found for number, plan in pairs if number == region.number]

    def _close(self) -> None:
        """Learn from the sequence that is over."""
        self.stop()
        record, self._record = self._record, None
        if record is None:
            return
        record.close()
        if not record.is_whole():
            return
        region = record.calls[0].region
        known, kind = self._now, record.kind
        known.changed = kind != known.kind
        self._counted(region, record)
        if known.record is not None and not known.changed:
            known.record = record
        if known.kind is None or (known.changed and kind == known.last):
            known.begin(kind, record if region.plans_steps_of(len(record.calls)) else None)
        known.last = kind

    def _counted(self, region: CompiledGraph, record: CallRecord) -> None:
        """Learn what a step took that was counted."""
        around, meter, outside, known = region.around, record.meter, None, self._now
        if meter is not None and (around is not None or not known.changed):
            outside = outside_of(record)
            known.peak_bytes = meter.peak_bytes
            if known.together is not None:
                known.together = replace(known.together, measured_peak_bytes=meter.peak_bytes)
        if around is not None:
            found = outside if len(record.calls) == 1 else None
            around.learn(region.planned.graph, meter, found)
        within.note(known.peak_bytes)

    def _next(self, region: CompiledGraph) -> int | None:
        """The number in the plan of a call that begins; skipped ones hold nothing."""
        known = self._now
        if known.together is None:
            return None
        for place in range(self._at, len(known.together.events)):
            call, backward = known.together.events[place]
            if not backward and known.numbers[call] == region.number:
                self._at = place + 1
                return call
        known.changed = True
        if not known.said:
            known.said = True
            _warn.warning(
                "rematbench: %s: the step has other calls than the one that was planned; what "
                "is not in the plan keeps little, until the step has been the same twice",
                region.name,
            )
        return None

    def _unplanned(self, region: CompiledGraph) -> Planned:
        planned: Planned = region.planned
        assert planned is not None
        known = self._now
        counted = known.record is None or region.options.lower == INDUCTOR  # or waits for it
        alone = known.kind is not None and known.together is None and counted
        roomy = planned.most is None or 2 * planned.share.peak <= planned.most
        if not region.shares or (not self.pending() and (alone or roomy)):
            return planned
        lean: Planned = region.lean
        return lean

    def _admit(self, region: CompiledGraph, call: PendingCall) -> None:
        most = self._now.plans[0].most if self._now.plans else call.planned.most
        if most is None or not self.pending():
            return
        needed = self._needed(call)
        if needed > most:
            gc.collect()  # an exception that was caught may hold a call's tensors in a circle
            needed = self._needed(call)
        calls = len(self.pending()) + 1
        if calls > 1 and needed > most:
            raise ExecutionError(
                f"{region.name}: {calls} compiled calls wait for their backward pass at once, and "
                f"hold {needed} bytes at their leanest, above budget={region.options.budget}; give "
                "a larger one. A loss that never goes backward waits until you let go of it"
            )

    def _needed(self, call: PendingCall) -> int:
        """The most bytes that pending calls and this one take, until the last of them is over."""
        pending, parameters, share = self.pending(), call.parameters.now(), call.share
        for each in pending:
            parameters |= each.parameters.now()  # what was freed comes back for its backward half
        needed = sum(parameters.values()) + share.inputs + max(share.forward, share.backward)
        needed += sum(each.share.kept for each in pending)
        before, gradients = 0, call.gradients + sum(each.gradients for each in pending)
        next_: dict[int, int] = {}
        for each in pending:  # its own backward half, when later ones have left their gradients
            gradients -= each.gradients
            owned = sum((parameters | each.parameters.sizes | next_).values())
            mine = owned + before + each.share.inputs + each.share.backward + gradients
            needed = max(needed, mine)
            before += each.share.kept
            next_ = each.parameters.sizes  # which may be fetched already
        return needed

    def given(self, call: PendingCall, names: Sequence[str], tensors: Sequence[Any]) -> None:
        """A half of a call is given tensors."""
        if call.record is not None and call.record is self._record:
            call.record.given(call.recorded, names, tensors)

    def made(self, call: PendingCall, ends: Sequence[Any], tensors: Sequence[Any]) -> None:
        """A half of a call has made what it returns."""
        if call.record is not None and call.record is self._record:
            call.record.made(call.recorded, ends, tensors)

    def waits(self, call: PendingCall, alive: StorageWeakRef | None) -> None:
        """The forward half of a call has run.

        Args:
            alive: dies with what it handed over.
        """
        call.alive = alive
        self._pending.append(call)

    def goes_back(self, call: PendingCall) -> None:
        """The backward half of a call begins."""
        self._pending = [each for each in self._pending if each is not call]
        self._went_back = True
        if call.record is not None and call.record is self._record:
            call.record.goes_back(call.recorded)
        if call.number is not None and self._now.together is not None:
            events, event = self._now.together.events, Event(call.number, True)
            if event in events[self._at :]:
                self._at = events.index(event, self._at) + 1

    def call_of(self, handed: Sequence[Any]) -> PendingCall | None:
        """The call that handed these tensors over."""
        keys = {weak.cdata for t in handed if isinstance(t, Tensor) and (weak := weak_of(t))}
        exact = (call for call in reversed(self._pending) if call.handed == keys)
        return next(exact, None)


def sign_of_life(
    args: Sequence[Any], results: Sequence[Any], kept: Sequence[Any]
) -> StorageWeakRef | None:
    """A storage that goes when a call is over, of those that its forward half handed over.

    Where that is nothing but what it was given, a result must do.

    Args:
        args, results: what the caller holds; predictions that it collects outlive the call.
    """
    given, returned = sizes_of(args), sizes_of(results)
    mine = [t for t in (*kept, *results) if isinstance(t, Tensor) and _is_new(t, given)]
    own = [t for t in kept if any(t is each for each in mine)] or mine
    own.sort(key=lambda t: (w := weak_of(t)) is not None and w.cdata in returned)
    return weak_of(own[0]) if own else None


def _is_new(tensor: Tensor, given: Container[int]) -> bool:
    weak = weak_of(tensor)
    return weak is not None and weak.cdata not in given


def loop_of(options: Options) -> Loop:
    """Of everything that is compiled under the same budget and reserve."""
    return _loops.setdefault((options.budget, options.reserve), Loop())


_loops: dict[Any, Loop] = {}


def forget() -> None:
    """Nothing is pending, and no sequence known."""
    for loop in _loops.values():
        loop.stop()
        loop.close()
    _loops.clear()


def _say_that_it_is_not_kept(region: CompiledGraph, error: Infeasible) -> None:
    """Of one graph, and a fraction of a step of which it is too small a part."""
    why = "what lies outside of its graph" if region.is_whole else "the rest of its model"
    text = "rematbench: %s: %s is not compiled, and the budget is not kept: %s"
    _warn.warning(text, region.name, why, error)


def _beyond(known: Known, region: CompiledGraph) -> int:
    """The most that Inductor takes above the plan of a call."""
    return max((beyond_of(each.halves, region.options) for each in known.plans), default=0)


def _parameters(args: Sequence[Any]) -> Watched:
    return Watched(each for each in args if isinstance(each, nn.Parameter))


def _waits_for_its_own(region: CompiledGraph, record: CallRecord) -> bool:
    """Does the graph's own measurement come first, since a leaner plan may follow?"""
    alone = len(record.calls) == 1 and region.is_whole
    return alone and region.options.lower == INDUCTOR and not region.has_measured
