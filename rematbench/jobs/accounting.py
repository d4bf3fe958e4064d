"""What counts as memory: the papers' budgets differ in what they include.

``full`` counts everything. ``activations`` counts no resident value. ``checkmate`` counts inputs
and, from the start, twice the parameters, for themselves and their gradients (Checkmate,
equation 2); buffers count nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rematbench.base.errors import ConfigError

if TYPE_CHECKING:
    from rematbench.graphs.ir import Graph

NAMES = ("full", "activations", "checkmate")


def account(
    name: str,
    graph: Graph,
    kinds: Mapping[str, str] | None = None,
    gradients: Collection[str] = (),
) -> Graph:
    """``graph`` with the bytes of its values as accounting ``name`` counts them.

    Args:
        kinds: of each resident value: input, parameter or buffer; None when nobody knows.
        gradients: values that are parameter gradients.

    Raises:
        ConfigError: an unknown accounting, or ``checkmate`` where the kinds are unknown.
    """
    if name not in NAMES:
        raise ConfigError(f"accounting={name}: unknown; use one of {', '.join(NAMES)}")
    if name == "full":
        return graph
    if name == "activations":
        return _resized(graph, {v.name: 0 for v in graph.values if v.resident})
    if kinds is None and graph.resident_bytes:
        raise ConfigError(
            f"accounting=checkmate: graph {graph.name!r} does not say which of its resident "
            "values are parameters; use accounting=full or activations, or a captured model"
        )
    factor = {"parameter": 2, "buffer": 0}
    sizes = (
        {v.name: v.bytes * factor.get(kinds[v.name], 1) for v in graph.values if v.resident}
        if kinds
        else {}
    )
    return _resized(graph, sizes | dict.fromkeys(gradients, 0))


def _resized(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    values = tuple(replace(v, bytes=sizes.get(v.name, v.bytes)) for v in graph.values)
    return replace(graph, values=values)
