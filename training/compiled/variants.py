"""What a graph is compiled to for each plan that its calls run by."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from rematbench.training.compiled.options import INDUCTOR, Options
from rematbench.training.compiled.planning import Planned
from rematbench.validator.halves import TwoPrograms, generate_halves


class RunsPlans(Protocol):
    """What is to be known of a compiled graph.

    Attributes:
        options: that it was compiled with.
        planned, run: its own plan, and the function that runs by it.
    """

    options: Options
    planned: Planned | None
    run: Any

    def compiled_by(self, plan: Planned | None, inputs: Sequence[Any]) -> Any: ...


class Variants:
    """What a graph is compiled to for each plan that its calls run by."""

    def __init__(self, region: RunsPlans) -> None:
        self._region = weakref.ref(region)
        self._programs: dict[str, TwoPrograms] = {}
        self._runs: dict[str, Any] = {}

    def programs_of(self, found: Planned) -> TwoPrograms:
        """A plan's two halves as our statements."""
        key = found.plan.hash(found.graph)
        if key not in self._programs:
            self._programs[key] = self._generated(found)
        return self._programs[key]

    def _generated(self, found: Planned) -> TwoPrograms:
        for other in self._programs.values():
            if other.copies is not None:
                other.copies.forget()  # another plan takes its place, as a rule
        region = self._region()
        memory = None if region is None else region.options.offload
        if memory is None:
            return generate_halves(found.halves, found.plan)
        copies = (found.link, memory.is_paced, memory.most)
        return generate_halves(found.halves, found.plan, *copies)

    def run_by(self, found: Planned, args: Sequence[Any]) -> Any:
        """A function of the graph's inputs, by a plan."""
        region = self._region()
        assert region is not None
        if region.options.lower != INDUCTOR or found is region.planned:
            return region.run
        key = found.plan.hash(found.graph)
        if key not in self._runs:
            with torch._dynamo.config.patch(disable=True):
                self._runs[key] = region.compiled_by(found, args)
        return self._runs[key]
