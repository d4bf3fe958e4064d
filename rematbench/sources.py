"""From a job's settings to its graph: captured, read or made, then costed and accounted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import costmodel
from graphs import synthetic
from graphs.errors import ConfigError
from graphs.files import read_graph
from graphs.ir import Graph
from rematbench.accounting import account
from rematbench.settings import Settings

if TYPE_CHECKING:
    from graphs.capture import Captured

_memo: dict[str, Any] = {}


def load(settings: Settings, say: Any = lambda phase: None) -> tuple[Graph, Captured | None]:
    """The graph to plan for, and what it was captured from.

    The latest model and its costs are kept, since a sweep plans many times for each.

    Args:
        say: called with the name of each phase that takes long.
    """
    if not settings.captured:
        return _plain(settings), None
    captured = _remember(
        "captured", [settings.model, settings.device], lambda: _capture(settings, say)
    )
    chosen = [settings.model, settings.device, settings.costmodel, settings.preset]
    costed = _remember("costed", chosen, lambda: _cost(settings, captured, say))
    return account(settings.accounting, costed, captured.kinds, captured.gradient_values), captured


def _remember(slot: str, key: Any, make: Any) -> Any:
    text = json.dumps(key, sort_keys=True)
    if slot not in _memo or _memo[slot][0] != text:
        _memo.pop(slot, None)  # frees the old model before the new one is made
        _memo[slot] = (text, make())
    return _memo[slot][1]


def _capture(settings: Settings, say: Any) -> Captured:
    say("capture")
    import torch

    from graphs.capture import capture
    from graphs.zoo import make_model, make_python_model

    model = settings.model
    options = dict(model.get("options") or {})
    options |= {k: model[k] for k in ("batch_size", "resolution") if model.get(k) is not None}
    torch.manual_seed(settings.seed)
    if model["kind"] == "python":
        workload = make_python_model(model["target"], **options)
    else:
        workload = make_model(model["name"], **options)
    return capture(workload, "cuda" if settings.device == "cuda" else "cpu")


def _cost(settings: Settings, captured: Captured, say: Any) -> Graph:
    if settings.costmodel == "profiled":
        say("profile")
    device = "cpu" if settings.device == "none" else settings.device
    cache = None if settings.cache is None else Path(settings.cache)
    return costmodel.apply(
        settings.costmodel,
        captured.graph,
        captured,
        device=device,
        preset=settings.preset,
        cache=cache,
    )


def _plain(settings: Settings) -> Graph:
    model = settings.model
    if model["kind"] == "graph_file":
        graph = read_graph(model["path"])
    elif model["kind"] == "unit_chain":
        graph = synthetic.unit_chain(model["length"])
    elif model["kind"] == "join":
        graph = synthetic.join(model["lengths"])
    else:
        raise ConfigError(f"model.kind={model['kind']}: unknown; choose a model by model=NAME")
    if model.get("backward", True):
        graph = synthetic.with_backward(graph)
    return account(settings.accounting, costmodel.apply(settings.costmodel, graph, None))
