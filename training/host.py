"""The memory beside the device, as people give it to train with: how much of it, by which link."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rematbench.base.errors import ConfigError, PlanError
from rematbench.graphs.budget import parse_bytes
from rematbench.graphs.ir import Graph
from rematbench.graphs.link import NONE, Link
from rematbench.graphs.link_choice import SECOND, LinkChoice, chosen_link
from rematbench.graphs.plan import MOVES, Plan, has_copies, move_of
from rematbench.validator.link_meter import measured_link


@dataclass(frozen=True, slots=True)
class HostMemory:
    """The host's memory for a plan.

    Attributes:
        most: bytes there; None: no limit.
        choice: the link; None: as it is measured.
    """

    most: int | None = None
    choice: LinkChoice | None = None

    @property
    def is_paced(self) -> bool:
        """Do copies on a CPU take as long as the link says? A measured one is as fast as it is."""
        return self.choice is not None

    def link(self, graph: Graph, device: str, cache: Path | None) -> Link:
        """The link, in bytes per cost unit of the graph.

        Args:
            cache: where a measured one is kept; None: nowhere.

        Raises:
            ConfigError: it is per second, and costs are no seconds.
            ExecutionError: nothing copies on that device.
        """
        if self.choice is not None:
            return self.choice.of(graph.cost_unit)
        if graph.cost_unit != SECOND:
            raise ConfigError(
                f"the link is measured in bytes per second, and costs are in {graph.cost_unit}; "
                'give costmodel="profiled", or link={"out": .., "in": ..} in bytes per '
                f"{graph.cost_unit}"
            )
        return measured_link(device, cache)


def host_memory(key: str, host: Any, link: Any) -> HostMemory | None:
    """What is given of the host; None: nothing, and no plan copies there.

    Args:
        key: what ``host`` is called, for messages.
        host: bytes such as ``"64GiB"``; None: no limit.
        link: see :func:`~rematbench.graphs.link_choice.chosen_link`; None: it is measured.

    Raises:
        ConfigError, BudgetError: one of them is bad; names it.
    """
    if host is None and link is None:
        return None
    most = None if host is None else parse_bytes(key, host)
    return HostMemory(most, None if link is None else chosen_link(link))


def default_strategy(memory: HostMemory | None) -> str:
    """The strategy where none is named: our own search, with a host or without."""
    return "anytime" if memory is None else "hybrid"


def check_copies(graph: Graph, plan: Plan, link: Link, remedy: str) -> None:
    """Raises PlanError, which names the statement, where a plan copies and there is no link."""
    codes = plan.codes(graph)
    if link != NONE or not has_copies(graph, codes):
        return
    count = len(graph.values)
    found = next(i for i, code in enumerate(codes.tolist()) if code < -count)
    kind, value = move_of(int(codes[found]), count)
    said = f"{MOVES[kind].__name__.lower()} of {graph.values[value].name!r}"
    raise PlanError(f"statement {found} of the plan ({said}) copies to the host; {remedy}")
