"""Cost models: each maps a graph (and what was captured) to the same graph with other costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rematbench.graphs.errors import ConfigError

if TYPE_CHECKING:
    from rematbench.graphs.ir import Graph
    from rematbench.tracing.captured import Captured

NAMES = ("given", "unit", "flops", "roofline", "profiled")


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
        name: one of :data:`NAMES`.
        captured: what the graph was captured from; flops, roofline and profiled need it.
        device: where ``profiled`` measures.
        preset: the machine that ``roofline`` models.
        cache: directory of op profiles, or None to keep none.

    Raises:
        ConfigError: an unknown cost model, or one that needs a captured model.
    """
    if name == "given":
        return graph
    if name == "unit":
        from rematbench.costmodel.unit import unit

        return unit(graph)
    if name not in NAMES:
        raise ConfigError(f"costmodel={name}: unknown; use one of {', '.join(NAMES)}")
    if captured is None:
        raise ConfigError(
            f"costmodel={name} needs a captured model, and {graph.name!r} comes from a file or "
            "is synthetic; use costmodel=given or costmodel=unit"
        )
    if name == "profiled":
        from rematbench.costmodel.profiled import profiled

        return profiled(captured, device, cache)
    if name == "roofline":
        from rematbench.costmodel.roofline import roofline

        return roofline(captured, preset)
    from rematbench.costmodel.flops import flops

    return flops(captured)
