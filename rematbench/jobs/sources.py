"""From a job's settings to its graph: captured, read or made, then costed and accounted."""

from __future__ import annotations

import json
import logging
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rematbench import costmodel
from rematbench.base.cache_dirs import FOR_THE_USER
from rematbench.base.errors import ConfigError, RematbenchError
from rematbench.base.imports import uncollected
from rematbench.base.origin import one_line
from rematbench.base.sizes import image_size
from rematbench.conf.published import LIBRARIES
from rematbench.graphs.builders import synthetic
from rematbench.graphs.builders.keras import keras_graph
from rematbench.graphs.builders.layered import random_layered
from rematbench.graphs.builders.layers import kind_of
from rematbench.graphs.files import read_graph
from rematbench.graphs.ir import Graph
from rematbench.graphs.planning import ChoosesImplementations, Strategy
from rematbench.jobs.accounting import account
from rematbench.jobs.optimizer import optimizer_bytes, with_optimizer
from rematbench.jobs.settings import LAYERED, STREAM_KINDS, Settings
from rematbench.jobs.task import Task, make_strategy
from rematbench.streams.convert import graph_of_stream
from rematbench.streams.events import EventStream
from rematbench.streams.log import read_log
from rematbench.streams.synthetic import toy_chain

if TYPE_CHECKING:
    from rematbench.tracing.captured import Captured
    from rematbench.tracing.workload import Workload

Memo = dict[str, Any]
_memo: Memo = {}
_log_user = logging.getLogger(FOR_THE_USER)


def load(settings: Settings, say: Any = lambda phase: None) -> Task:
    """The job with its strategy and its graph.

    The latest model and its costs are kept, since a sweep plans many times for each.

    Args:
        say: called with the name of each phase that takes long.

    Raises:
        RematbenchError: there is no such strategy or device, or the model cannot be had.
    """
    strategy = make_strategy(settings)
    if settings.graph_file is not None:
        return Task(settings, strategy, read_graph(settings.graph_file))
    if not settings.captured:
        graph = _plain(settings)
        return Task(settings, strategy, graph, stream=_stream_of(settings))
    if settings.device not in ("none", "cpu"):
        from rematbench.costmodel.device import require, use_numerics

        require(settings.device)
        use_numerics(**settings.numerics)
    captured = _captured(settings, strategy, say)
    return Task(settings, strategy, captured.graph, captured)


def _captured(settings: Settings, strategy: Strategy, say: Any) -> Captured:
    """The model's code, with the graph to plan for.

    A strategy may want other implementations than the defaults; files have them, or have none.
    """
    model: list[Any] = [
        *(settings.model, settings.device, settings.numerics, settings.front),
        settings.seed,  # parameters are of it, and where a model draws its own sizes these, too
    ]
    captured: Captured = _remember("captured", model, lambda: _capture(settings, say))
    if isinstance(strategy, ChoosesImplementations):
        model = [*model, sorted(strategy.kinds), strategy.wants_density]
        plain = captured
        captured = _remember("attached", model, lambda: _attach(settings, plain, strategy, say))
    chosen = [*model, settings.costmodel, settings.preset]
    costed = _remember("costed", chosen, lambda: _cost(settings, captured, say))
    device = settings.trains_on or settings.device
    if device != "none":
        from rematbench.costmodel.device import random_state_bytes

        costed = replace(costed, random_state_bytes=random_state_bytes(device))
    graph = account(settings.accounting, costed, captured.kinds, captured.gradient_values)
    held = optimizer_bytes(captured, settings.optimizer, settings.master_weights)
    return captured.with_graph(with_optimizer(graph, held))


def _attach(
    settings: Settings, captured: Captured, chooser: ChoosesImplementations, say: Any
) -> Captured:
    """The same model with implementations to choose from; its defaults stay as they are."""
    from rematbench.tracing.alternatives import with_alternatives

    density = None
    if chooser.wants_density and settings.device != "none":
        from rematbench.validator import densities

        say("measure sparsity")
        density = densities(captured, settings.device, settings.seed)
    return with_alternatives(captured, chooser.kinds, density)


def remembered() -> Memo:
    """The latest model, its graphs and costs, to go on with them later by :func:`recall`."""
    return dict(_memo)


def recall(known: Memo) -> None:
    """Go on with a model that was the latest before, in the place of the latest one."""
    _memo.clear()
    _memo.update(known)


def _remember(slot: str, key: Any, make: Any) -> Any:
    text = json.dumps(key, sort_keys=True)
    if slot not in _memo or _memo[slot][0] != text:
        _memo.pop(slot, None)  # frees the old model before the new one is made
        _memo[slot] = (text, make())
    return _memo[slot][1]


def _capture(settings: Settings, say: Any) -> Captured:
    say("capture")
    with uncollected():
        from rematbench.tracing.costless import costless_parameters
        from rematbench.tracing.trace import capture

    device = "cpu" if settings.device == "none" else settings.device
    why = ""
    if settings.device == "none":  # nothing runs: parameters need no data, and take no memory
        try:
            with costless_parameters():
                workload = make_workload(settings.model, settings.seed)
            return capture(workload, device, front=settings.front)
        except Exception as error:
            # Only a user's own code may fail so alone: it looks at what it takes for parameters.
            if isinstance(error, RematbenchError) and settings.model["kind"] != "python":
                raise
            why = one_line(error)
    workload = make_workload(settings.model, settings.seed)
    captured = capture(workload, device, front=settings.front)
    if why:
        text = "model=%s: its parameters take memory, since without their data %s"
        _log_user.warning(text, settings.label, why)
    return captured


def make_workload(model: dict[str, Any], seed: int) -> Workload:
    """A PyTorch model as ``conf/model`` describes it, with the parameters of ``seed``.

    Python's and NumPy's generators have the seed, too: a model may draw from them.

    Raises:
        ConfigError: the model is unknown or lacks an option.
    """
    import torch

    from rematbench.zoo import make_library_model, make_model, make_python_model

    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    if model["kind"] in LIBRARIES:
        return make_library_model(model)
    options = dict(model.get("options") or {})
    options |= {k: model[k] for k in ("batch_size", "resolution") if model.get(k) is not None}
    if model["kind"] == "python":
        made = make_python_model(model["target"], **options)
    else:
        made = make_model(model["name"], **options)
    return made.cast(getattr(torch, model["dtype"])) if model.get("dtype") else made


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
    model, kinds = settings.model, None
    if model["kind"] == "graph_file":
        graph = read_graph(model["path"])
    elif model["kind"] == "unit_chain":
        graph = synthetic.unit_chain(model["length"])
    elif model["kind"] == "join":
        graph = synthetic.join(model["lengths"])
    elif model["kind"] == "random_layered":
        options = {key: model[key] for key in LAYERED if key in model}
        graph = random_layered(**options)
    elif model["kind"] == "keras":
        size = image_size(model.get("resolution"), 224)
        graph = keras_graph(model["network"], model["batch_size"], *size)
        kinds = {value.name: kind_of(value.name) for value in graph.values if value.resident}
    elif model["kind"] in STREAM_KINDS:
        graph = _remember("stream_graph", _key(model), lambda: graph_of_stream(_stream(settings)))
    else:
        raise ConfigError(f"model.kind={model['kind']}: unknown; choose a model by model=NAME")
    if model["kind"] not in STREAM_KINDS and model.get("backward", True):
        graph = synthetic.with_backward(graph)
    costed = costmodel.apply(settings.costmodel, graph, None, preset=settings.preset)
    return account(settings.accounting, costed, kinds)


def _stream_of(settings: Settings) -> EventStream | None:
    """The events of a log or a toy chain, which online strategies play; None for other models.

    Raises:
        ConfigError: the log's own costs or sizes are asked to be others.
    """
    if settings.model["kind"] not in STREAM_KINDS:
        return None
    for key, own in (("costmodel", "given"), ("accounting", "full")):
        if getattr(settings, key) != own:
            raise ConfigError(f"{key}={getattr(settings, key)}: a log has its own; use {key}={own}")
    return _stream(settings)


def _stream(settings: Settings) -> EventStream:
    model = settings.model
    if model["kind"] == "toy_chain":
        return toy_chain(model["length"])
    stream: EventStream = _remember("stream", _key(model), lambda: read_log(model["path"]))
    return stream


def _key(model: dict[str, Any]) -> list[Any]:
    """What tells one stream from another: a file's time of change, too."""
    path = Path(model.get("path", ""))
    return [model, path.stat().st_mtime_ns if path.exists() else 0]
