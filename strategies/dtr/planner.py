"""DTR as a strategy: on a log it is its own judge, on a graph its decisions become a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from rematbench.engines.eviction.answers import LONGEST_TRACE, facts_of, judged, plan_of
from rematbench.engines.eviction.compiled import (
    CompiledStream,
    Semantics,
    compile_stream,
    semantics_named,
)
from rematbench.engines.eviction.rules import Dealloc, Rules, Run, heuristic_named
from rematbench.engines.eviction.runtime import play, warm_up
from rematbench.strategies.base import Problem, Solution, Traits
from rematbench.streams.convert import stream_of_graph
from rematbench.streams.events import EventStream
from rematbench.streams.eviction import Cost


@dataclass(frozen=True)
class Dtr:
    """Dynamic tensor rematerialization, as the original simulator (simrd) runs it.

    Attributes:
        heuristic: ``full eqclass local lru largest random``, or ``ablation``.
        staleness: of the ablation's score: divide by staleness? None is true.
        size: of the ablation's score: divide by bytes? None is true.
        cost: of the ablation's score; None is ``estar``.
        dealloc: what happens to dead storages: ``none``, ``eager`` or ``banish``.
        semantics: ``simrd`` (the original program), or ``paper`` with the switches below, each of
            which None leaves on: :class:`~rematbench.engines.eviction.compiled.Semantics`.
        order_by_id: rematerialize arguments in the order of their creation.
        root_cost: a storage costs what its first op costs, without its views.
        root_dependencies: a storage depends on what its first op reads, not on its views' reads.
        thrash_limit: times the cost of all ops at which it gives up (the paper's 3; 5 in its
            figure 5), or None.
        seed: of the random heuristic; None is the job's.

    Raises:
        ConfigError: an unknown option, or one that does not go with another.
    """

    traits: ClassVar[Traits] = Traits("yes", "yes", "yes", online=True, budgeted=True)
    heuristic: Literal["full", "eqclass", "local", "lru", "largest", "random", "ablation"] = "full"
    staleness: bool | None = None
    size: bool | None = None
    cost: Cost | None = None
    dealloc: Dealloc = "eager"
    semantics: Literal["simrd", "paper"] = "simrd"
    order_by_id: bool | None = None
    root_cost: bool | None = None
    root_dependencies: bool | None = None
    thrash_limit: float | None = 3.0
    seed: int | None = None

    def __post_init__(self) -> None:
        self._rules(0)
        self._semantics()

    def warm_up(self) -> None:
        """Compile what plans, which is no planning time."""
        warm_up()

    def plan(self, problem: Problem) -> Solution:
        """On ``problem.stream`` where there is one, else on ``problem.graph``.

        Raises:
            Infeasible: on a graph, nothing is left to evict.
            Thrashed: on a graph, rematerialization costs more than ``thrash_limit`` allows.
            Stopped: on a graph, ``problem.time_limit`` is over.
            GraphError: the stream or graph cannot be played.
        """
        made = None if problem.stream is not None else stream_of_graph(problem.graph)
        stream: EventStream = problem.stream if made is None else made.stream
        compiled = compile_stream(stream, self._semantics())
        run = play(compiled, problem.budget, self._rules(problem.seed), problem.time_limit)
        reason = _reason(self, compiled, run, problem.budget)
        details = {**self._labels(), **facts_of(run)}
        if made is None:
            details["trace_omitted"] = len(run.records) > LONGEST_TRACE
            return judged(compiled, run, reason, self._variant(), details)
        plan = plan_of(problem.graph, made, compiled, run, reason)
        return Solution(plan, variant=self._variant(), details=details)

    def _rules(self, seed: int) -> Rules:
        parts = {"staleness": self.staleness, "size": self.size, "cost": self.cost}
        heuristic = heuristic_named(self.heuristic, parts)
        given = seed if self.seed is None else self.seed
        return Rules(heuristic, self.dealloc, self.thrash_limit, given)

    def _semantics(self) -> Semantics:
        return semantics_named(
            self.semantics,
            order_by_id=self.order_by_id,
            root_cost=self.root_cost,
            root_dependencies=self.root_dependencies,
        )

    def _labels(self) -> dict[str, Any]:
        """The options that tell one curve of a figure from another."""
        rules = self._rules(0)
        parts = {key: getattr(rules.heuristic, key) for key in ("staleness", "size", "cost")}
        labels = {"heuristic": self.heuristic, "dealloc": self.dealloc, "semantics": self.semantics}
        return labels | parts | {"thrash_limit": self.thrash_limit}

    def _variant(self) -> str:
        parts: list[str] = [self.heuristic]
        if self.heuristic == "ablation":
            heuristic = self._rules(0).heuristic
            parts += [name for name in ("staleness", "size") if getattr(heuristic, name)]
            parts.append(heuristic.cost)
        return "-".join([*parts, self.dealloc, *(["paper"] if self.semantics == "paper" else [])])


def _reason(strategy: Dtr, compiled: CompiledStream, run: Run, budget: int | None) -> str | None:
    """Why a run ended early, in one line."""
    if run.stuck is None:
        return None
    event, wanted = run.stuck
    place = compiled.source.stream.place(event, folder=False)
    if run.status == "thrash":
        return (
            f"{place}: rematerialization costs more than {strategy.thrash_limit} - 1 times all "
            "ops; give a larger budget, or strategy.thrash_limit"
        )
    if run.status == "stopped":
        return f"{place}: the time limit is over; give a larger time_limit"
    constants = [op for op in compiled.source.ops if op.name is None]
    if any(op.event == event for op in constants):
        needs = sum(compiled.source.tensors[op.outputs[0]].bytes for op in constants)
        return f"the constants alone are {needs} bytes, the budget is {budget}"
    return f"{place}: needs {wanted} bytes with nothing left to evict, the budget is {budget}"
