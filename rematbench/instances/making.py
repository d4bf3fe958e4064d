"""From a source to its graph file and its problems: in whole numbers, the same each time."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rematbench.base.errors import ConfigError
from rematbench.base.json_files import write_bytes
from rematbench.graphs.files import graph_document
from rematbench.graphs.ir import Graph, Implementation
from rematbench.instances import builders
from rematbench.instances.families import Candidate
from rematbench.instances.features import Features

COLUMNS = (
    *("instance", "graph", "budget_bytes", "family", "ops", "values"),
    *("floor_bytes", "once_floor_bytes", "peak_bytes", "in_100"),
)
"""Of ``instances/problems.csv``."""
BETWEEN = (1 / 6, 1 / 2)
"""Where budgets lie between the lean peak and checkpoint-all's, besides the lean peak itself."""
WITHOUT_LOSS = (1 / 4, 1 / 2, 3 / 4, 9 / 10)
"""Where they lie between floor and peak in a graph without a loss."""
APART = 0.02
"""Two budgets of a graph, and the largest and the peak, are so far apart: shares of the larger."""
_NANOSECONDS = {"second": 10**9, "nanosecond": 1}
_BUILDERS: dict[str, Callable[..., Graph]] = {
    "uneven_chain": builders.uneven_chain,
    "only_forward": builders.only_forward,
}


def make(source: Candidate) -> Graph:
    """The graph of a source, in whole numbers, under the source's name.

    Raises:
        RematbenchError: the model cannot be made or captured.
    """
    graph = _built(source) if source.words[0].startswith("build=") else _loaded(source)
    return whole(replace(graph, name=source.name))


def _built(source: Candidate) -> Graph:
    builder = _BUILDERS[source.words[0].removeprefix("build=")]
    return builder(*map(int, source.words[1:]))


def _loaded(source: Candidate) -> Graph:
    """What a job with these words plans on."""
    from hydra import compose, initialize_config_module
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    from rematbench.cli.plugins import register_plugins
    from rematbench.cli.resolvers import register_resolvers
    from rematbench.jobs.settings import settings_from
    from rematbench.jobs.sources import load

    register_resolvers()
    register_plugins()
    GlobalHydra.instance().clear()
    with initialize_config_module("rematbench.conf", version_base="1.3"):
        config = OmegaConf.to_container(compose("job", [*source.words]), resolve=True)
    assert isinstance(config, dict)
    plain = {str(key): value for key, value in config.items()}
    return load(settings_from({**plain, "experiment": None}, "checkpoint_all")).graph


def whole(graph: Graph) -> Graph:
    """The same graph with whole costs: seconds become nanoseconds.

    What costs anything costs at least 1, so that no computation becomes free.

    Raises:
        ConfigError: a cost in another unit is no whole number.
    """
    factor = _NANOSECONDS.get(graph.cost_unit, 1)

    def counted(implementation: Implementation) -> Implementation:
        cost = implementation.cost * factor
        rounded = max(round(cost), 1) if cost else 0
        if factor == 1 and rounded != cost:
            raise ConfigError(
                f"graph {graph.name!r}: a cost of {cost} {graph.cost_unit} is no whole number; "
                "give a source whose costs are"
            )
        return replace(implementation, cost=rounded)

    ops = tuple(
        replace(op, implementations=tuple(counted(i) for i in op.implementations))
        for op in graph.ops
    )
    unit = "ns" if graph.cost_unit in _NANOSECONDS else graph.cost_unit
    return replace(graph, ops=ops, cost_unit=unit)


def write(path: Path, graph: Graph) -> None:
    """A graph file, compressed as far as gzip can."""
    text = json.dumps(graph_document(graph), separators=(",", ":"), allow_nan=False) + "\n"
    write_bytes(path, gzip.compress(text.encode(), 9, mtime=0))


def budgets(found: Features, has_loss: bool, fractions: Sequence[float] = ()) -> list[int]:
    """The budgets of a graph in bytes, rising.

    With P the peak of checkpoint-all, L the lean peak (see :class:`Features`) and F the once floor
    where it is below L, else the floor: (F + L) / 2, where the heuristics have no plan any more;
    L, where they have their last; and two between L and P, where plans differ most, unless
    ``fractions`` of the peak are asked for in their place. Without a loss, four between floor and
    peak. Those go that are below the floor, or not :data:`APART` from another.

    >>> from types import SimpleNamespace
    >>> of = SimpleNamespace(floor_bytes=10, once_floor_bytes=20, lean_bytes=40, peak_bytes=100)
    >>> budgets(of, True)
    [30, 40, 50, 70]
    """
    peak = found.peak_bytes
    chosen = [int(peak * fraction) for fraction in fractions]
    wished = _wished(found, () if fractions else BETWEEN) if has_loss else _on_a_grid(found)
    for budget in wished:
        gaps = (abs(budget - other) / max(budget, other) for other in (*chosen, peak))
        if budget >= found.floor_bytes and all(gap >= APART for gap in gaps):
            chosen.append(budget)
    return sorted(chosen)


def _wished(found: Features, between: Sequence[float]) -> list[int]:
    peak, lean, low = found.peak_bytes, found.lean_bytes, found.once_floor_bytes
    if low >= lean:
        low = found.floor_bytes
    return [(low + lean) // 2, lean, *(int(lean + (peak - lean) * at) for at in between)]


def _on_a_grid(found: Features) -> list[int]:
    peak, floor = found.peak_bytes, found.floor_bytes
    return [int(floor + (peak - floor) * at) for at in WITHOUT_LOSS]


def problems(source: Candidate, found: Features, has_loss: bool) -> list[dict[str, Any]]:
    """A graph's rows of ``problems.csv``, from the smallest budget on."""
    return [
        {
            "instance": f"{source.name}@{number}",
            "graph": source.graph,
            "budget_bytes": budget,
            "family": source.family,
            "ops": found.ops,
            "values": found.values,
            "floor_bytes": found.floor_bytes,
            "once_floor_bytes": found.once_floor_bytes,
            "peak_bytes": found.peak_bytes,
            "in_100": 0,
        }
        for number, budget in enumerate(budgets(found, has_loss, source.fractions), 1)
    ]
