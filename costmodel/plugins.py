"""Cost models of other distributions: entry points of the group ``rematbench.costmodels``.

An entry point ``name = "package.module:function"`` is the choice ``costmodel=name``. Nothing here
imports it before its costs are asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from rematbench.base import imports
from rematbench.base.errors import ConfigError, RematbenchError, is_out_of_memory
from rematbench.base.origin import accuse

if TYPE_CHECKING:
    from rematbench.graphs.ir import Graph, Op
    from rematbench.tracing.captured import Captured

CostModel = Callable[["Graph", "Captured | None"], "Graph"]
"""The graph with other costs, workspaces and ``cost_unit``, and nothing else changed.

The second argument is what the graph was captured from; None for files and synthetic graphs.
"""
GROUP = "rematbench.costmodels"
NAMES = ("given", "unit", "flops", "roofline", "profiled")
"""Our own cost models, which come before others' of the name."""


@functools.cache
def registered() -> Mapping[str, imports.Registered]:
    """Cost models of other distributions, by name."""
    found = sorted(imports.registered_in(GROUP).items())
    return MappingProxyType({name: each for name, each in found if name not in NAMES})


def costed(name: str, graph: Graph, captured: Captured | None) -> Graph:
    """``graph`` with the costs of another distribution's model.

    Raises:
        ConfigError: the model cannot be loaded, raised, or changed more than costs.
    """
    from rematbench.graphs.ir import Graph

    where = f"costmodel={name}"
    model = _loaded(name)
    try:
        found = model(graph, captured)
    except Exception as error:
        if isinstance(error, RematbenchError) or is_out_of_memory(error):
            raise
        raise ConfigError(f"{where} raised {accuse(error)}") from error
    if not isinstance(found, Graph):
        raise ConfigError(f"{where} returned a {type(found).__name__}; return a Graph")
    if _without_costs(found) != _without_costs(graph):
        raise ConfigError(
            f"{where} changed more of {graph.name!r} than costs, workspaces and cost_unit; "
            "use rematbench.costmodel.costs.with_costs"
        )
    return found


def _loaded(name: str) -> CostModel:
    theirs = registered()[name]
    try:
        model: CostModel = imports.find(theirs.path, f"costmodel={name}")
    except ConfigError as error:
        raise ConfigError(
            f"costmodel {name!r} of {theirs.source} cannot be loaded ({error}); "
            "repair or uninstall that distribution"
        ) from error
    if not callable(model):
        raise ConfigError(
            f"costmodel {name!r} of {theirs.source}: {theirs.path} is no function; "
            "register one of (graph, captured)"
        )
    return model


def _without_costs(graph: Graph) -> Graph:
    return replace(graph, ops=tuple(_bare(op) for op in graph.ops), cost_unit="")


def _bare(op: Op) -> Op:
    implementations = tuple(
        replace(implementation, cost=0.0, workspace_bytes=0)
        for implementation in op.implementations
    )
    return replace(op, implementations=implementations)
