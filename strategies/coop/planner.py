"""Coop (Zhang et al., "Coop: Memory is not a Commodity", NeurIPS 2023): DTR with addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from rematbench.base.clock import planning_seconds
from rematbench.engines.eviction.answers import STATUSES, facts_of, judged, plan_of
from rematbench.engines.eviction.compiled import CompiledStream, compile_stream
from rematbench.engines.eviction.reference import drive
from rematbench.engines.eviction.rules import Rules, Run, heuristic_named
from rematbench.strategies.base import Problem, Solution, Traits, check_choice
from rematbench.strategies.coop.addresses import AddressMachine, Policy, machine_for
from rematbench.streams.convert import stream_of_graph
from rematbench.streams.events import EventStream


@dataclass(frozen=True)
class Coop:
    """DTR on memory with addresses: evicts the contiguous run of storages that costs least.

    Attributes:
        cost: of a storage, to make it again: ``eqclass``, its own and that of evicted components
            next to it, or ``local``, its own.
        ends: put what is dear per byte at one end of the memory, what is cheap at the other.
        thrash_limit: times the cost of all ops at which it gives up, or None.
        compare: play DTR on the same addresses, too, and tell how it fared.

    Raises:
        ConfigError: an unknown option.
    """

    traits: ClassVar[Traits] = Traits("yes", "yes", "yes", online=True, budgeted=True)
    cost: Literal["eqclass", "local"] = "eqclass"
    ends: bool = True
    thrash_limit: float | None = 3.0
    compare: bool = True

    def __post_init__(self) -> None:
        check_choice("cost", self.cost, ("eqclass", "local"))
        self._rules()

    def _rules(self) -> Rules:
        return Rules(heuristic_named(self.cost, {}), "eager", self.thrash_limit)

    def plan(self, problem: Problem) -> Solution:
        """On ``problem.stream`` where there is one, else on ``problem.graph``.

        Raises:
            Infeasible: on a graph, no run of storages can be evicted.
            Thrashed: on a graph, rematerialization costs more than ``thrash_limit`` allows.
            Stopped: on a graph, ``problem.time_limit`` is over.
            GraphError: the stream or graph cannot be played.
        """
        deadline = planning_seconds() + problem.time_limit
        made = None if problem.stream is not None else stream_of_graph(problem.graph)
        stream: EventStream = problem.stream if made is None else made.stream
        compiled = compile_stream(stream)
        run, machine = self._play(compiled, problem.budget, "window", deadline)
        reason = _reason(machine, run, problem)
        variant = f"{self.cost}-ends" if self.ends else self.cost
        details = {**facts_of(run), **_fragmentation(machine)}
        if self.compare and problem.budget is not None and run.status != "stopped":
            other, by_dtr = self._play(compiled, problem.budget, "single", deadline)
            details["dtr_at_addresses"] = {
                "status": STATUSES[other.status],
                "additional_compute": other.remat_compute,
                "evictions": other.evictions,
                **_fragmentation(by_dtr),
            }
        if made is None:
            return judged(compiled, run, reason, variant, details)
        plan = plan_of(problem.graph, made, compiled, run, reason)
        return Solution(plan, variant=variant, details=details)

    def _play(
        self, compiled: CompiledStream, budget: int | None, policy: Policy, deadline: float
    ) -> tuple[Run, AddressMachine]:
        ends = self.ends and policy == "window"
        machine = machine_for(compiled, budget, self._rules(), policy, ends, deadline)
        return drive(machine), machine


def _fragmentation(machine: AddressMachine) -> dict[str, Any]:
    shares = machine.idle_shares
    return {
        "fragmentation": sum(shares) / len(shares) if shares else 0.0,
        "scattered_evictions": machine.scattered,
    }


def _reason(machine: AddressMachine, run: Run, problem: Problem) -> str | None:
    """Why a run ended early, in one line."""
    if run.status == "oom":
        return (
            f"{machine.wanted} bytes in one piece were wanted, and no run of storages that can "
            f"be evicted is as large; the budget is {problem.budget}, give a larger one"
        )
    if run.status == "thrash":
        return "rematerialization costs more than strategy.thrash_limit allows; give more budget"
    return "the time limit is over; give a larger time_limit" if run.status == "stopped" else None
