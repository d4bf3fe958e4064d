"""One plan for all calls of a sequence, within one budget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rematbench.graphs.plan import Plan
from rematbench.graphs.simulate import check_draws, simulate
from rematbench.training.compiled.joined import joined
from rematbench.training.compiled.judging import Judge, Made
from rematbench.training.compiled.options import Options
from rematbench.training.compiled.record import Event, Record


class StepJudge(Judge):
    """Says what a plan of a sequence of calls takes of the budget.

    Strategies plan a graph that keeps them from what the halves cannot run; what becomes of their
    plans is judged on the graph as it is.
    """

    def __init__(self, record: Record, options: Options, outside: int) -> None:
        self._known = [call.region.lean.plan for call in record.calls]
        self._true = joined(name_of(record), record, strict=False)
        strict = joined(name_of(record), record, strict=True)
        self.halves = strict.halves
        self._begin(strict.graph, options, outside, 0)

    def judged(self, plan: Plan) -> Made:
        """Any plan of the graph, as the halves of its calls can run it."""
        return self._made(self._true.parts(plan))

    def _made(self, parts: list[Plan]) -> Made:
        whole = self._true.whole(parts)
        check_draws(self._true.graph, whole)
        return Made(whole, simulate(self._true.graph, whole), tuple(parts))

    def others(self) -> Iterable[Made]:
        """What the first step ran by."""
        yield self._made(self._known)


@dataclass(frozen=True)
class Together:
    """A sequence of calls, planned as one.

    Attributes:
        events: the halves in order.
        peak_bytes: simulated, residents included.
        ordinary_peak_bytes: of the same sequence without recomputation.
        budget_bytes: that the plan was made for; None: no limit.
        overhead: cost over that of ordinary training, minus 1.
        parts: the plans of the calls.
        source: where the plan is from, as of one graph.
    """

    events: tuple[Event, ...]
    peak_bytes: int
    ordinary_peak_bytes: int
    budget_bytes: int | None
    overhead: float
    parts: tuple[Plan, ...]
    source: str


def name_of(record: Record) -> str:
    """The graphs of a sequence, each once, and how many calls there are."""
    names = dict.fromkeys(call.region.name for call in record.calls)
    return f"{'+'.join(names)} ({len(record.calls)} calls)"
