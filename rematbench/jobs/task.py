"""What a job is to solve: its strategy, its graph with the code that runs it, its budget."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from rematbench.base import imports
from rematbench.base.errors import ConfigError
from rematbench.graphs.floors import once_floor
from rematbench.graphs.ir import Graph
from rematbench.graphs.link import Link
from rematbench.graphs.plan import program_order
from rematbench.graphs.planning import Strategy
from rematbench.graphs.simulate import Trace, simulate
from rematbench.jobs.optimizer import optimizer_bytes
from rematbench.jobs.settings import MEASURED_PEAK, Settings

if TYPE_CHECKING:
    from rematbench.streams.events import EventStream
    from rematbench.tracing.captured import Captured


@dataclass(frozen=True)
class Task:
    """A job once its model is loaded.

    Attributes:
        settings: the job's.
        strategy: the planner.
        graph: one training step, with costs, and with bytes as the job's accounting counts them.
        captured: the graph's code, where it comes from a PyTorch model; its graph is ``graph``.
        stream: the events of a log or a toy chain, which online strategies play.
    """

    settings: Settings
    strategy: Strategy
    graph: Graph
    captured: Captured | None = None
    stream: EventStream | None = None

    @cached_property
    def base(self) -> Trace:
        """Ordinary training, which keeps everything, as simulated."""
        return simulate(self.graph, program_order(self.graph))

    @cached_property
    def budget_base(self) -> tuple[str, int]:
        """What a fraction of the budget is of: the row's name for it, and its bytes."""
        if self.stream is not None:
            return "banishing_peak_bytes", banishing_peak(self.stream)
        if self.settings.measured_peak is not None:
            return MEASURED_PEAK, self.settings.measured_peak
        return "checkpoint_all_peak_bytes", self.base.peak_bytes

    @property
    def budget(self) -> int | None:
        """The allowed peak in bytes; None: no limit."""
        return self.settings.budget.of(self.budget_base[1])

    @cached_property
    def link(self) -> Link:
        """Between device and host.

        Raises:
            ConfigError: it is per second, and costs are no seconds.
        """
        return self.settings.link.of(self.graph.cost_unit)

    @cached_property
    def once_floor(self) -> int:
        """See :func:`rematbench.graphs.floors.once_floor`; bytes."""
        return once_floor(self.graph)[0]

    @property
    def held_bytes(self) -> int:
        """What the job's optimizer holds beside the step."""
        if self.captured is None:
            return 0
        return optimizer_bytes(self.captured, self.settings.optimizer, self.settings.master_weights)


def banishing_peak(stream: EventStream) -> int:
    """What a log's fractions of the budget are of (simrd, section 4.4)."""
    from rematbench.engines.eviction.compiled import compile_stream
    from rematbench.engines.eviction.runtime import baseline_peak

    return baseline_peak(compile_stream(stream))


def make_strategy(settings: Settings) -> Strategy:
    """The strategy object of a job.

    Raises:
        ConfigError: its class does not exist, or has no such option.
    """
    where = f"strategy={settings.strategy}"
    kind = imports.find(settings.target, where)
    try:
        made = kind(**settings.options)
    except TypeError as error:
        accepted = ", ".join(inspect.signature(kind).parameters) or "none"
        raise ConfigError(f"{where}: {error}; its options are: {accepted}") from None
    if not isinstance(made, Strategy):
        raise ConfigError(f"strategy={settings.strategy}: {settings.target} is not a strategy")
    return made
