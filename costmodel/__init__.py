"""Cost models: each maps a graph (and what was captured) to the same graph with other costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rematbench.base.checks import did_you_mean
from rematbench.base.errors import ConfigError
from rematbench.costmodel import plugins
from rematbench.costmodel.plugins import NAMES as NAMES

if TYPE_CHECKING:
    from rematbench.graphs.ir import Graph
    from rematbench.tracing.captured import Captured

MODELLED = ("given", "unit", "flops", "roofline")
"""Those that measure nothing."""


def names() -> tuple[str, ...]:
    """Everything that can be chosen: ours, then those of other distributions."""
    return (*NAMES, *plugins.registered())


def apply(
    name: str,
    graph: Graph,
    captured: Captured | None,
    *,
    device: str = "cpu",
    preset: str = "v100",
    cache: Path | None = None,
) -> Graph:
    """Cost ``graph`` by the model called ``name``.

    Args:
        name: one of :func:`names`.
        captured: what the graph was captured from. profiled needs it; flops and roofline take
            graphs without, whose costs are in flop.
        device: where ``profiled`` measures.
        preset: the machine that ``roofline`` models.
        cache: directory of op profiles, or None to keep none.

    Raises:
        ConfigError: an unknown cost model, one that needs a captured model, or another
            distribution's that fails.
    """
    if name == "given":
        return graph
    if name == "unit":
        from rematbench.costmodel.unit import unit

        return unit(graph)
    if name not in NAMES:
        if name in plugins.registered():
            return plugins.costed(name, graph, captured)
        hint = did_you_mean(name, names())
        raise ConfigError(f"costmodel={name}: unknown; {hint}use one of {', '.join(names())}")
    if captured is None:
        return _uncaptured(name, graph, preset)
    if name == "profiled":
        from rematbench.costmodel.profiled import profiled

        return profiled(captured, device, cache)
    if name == "roofline":
        from rematbench.costmodel.roofline import roofline

        return roofline(captured, preset)
    from rematbench.costmodel.flops import flops

    return flops(captured)


def _uncaptured(name: str, graph: Graph, preset: str) -> Graph:
    """By flops, roofline or profiled, where all that is known is the graph."""
    counted = graph.cost_unit == "flop"
    if counted and name == "flops":
        return graph
    if counted and name == "roofline":
        from rematbench.costmodel.counted import roofline_of_flops

        return roofline_of_flops(graph, preset)
    others = ("flops", "roofline", "given", "unit") if counted else ("given", "unit")
    raise ConfigError(
        f"costmodel={name} needs a captured model, and {graph.name!r} comes from a file or "
        f"is synthetic; use costmodel={' or costmodel='.join(others)}"
    )
