"""Every strategy that has a configuration, executed once on a real model: eager training's bits."""

from __future__ import annotations

import functools

import pytest

from rematbench import validator
from rematbench.graphs.errors import NotApplicable
from rematbench.graphs.simulate import simulate
from rematbench.job import make_strategy
from rematbench.settings import settings_from
from rematbench.strategies import registry
from rematbench.strategies.base import Problem
from rematbench.tracing.captured import Captured
from rematbench.tracing.trace import capture
from rematbench.zoo import make_model

# A chain, a network with residual connections, a join, one with attention; the first that the
# strategy applies to.
MODELS = ("mobilenet_v1", "resnet32", "siamese", "transformer_lm")
OPTIONS = {
    "mobilenet_v1": {"resolution": 32},
    "resnet32": {"resolution": 32, "blocks": 1},
    "siamese": {"resolution": 64},
    "transformer_lm": {"layers": 2, "width": 32, "heads": 2, "sequence_length": 16},
}


@functools.cache
def captured(name: str) -> Captured:
    return capture(make_model(name, batch_size=2, **OPTIONS[name]))


@pytest.mark.parametrize("name", registry.names())
def test_bits_of_eager_training(name: str) -> None:
    chosen = registry.entry(name)
    config = {
        "model": {"kind": "zoo", "name": "resnet32"},
        "strategy": {"_target_": chosen.path, **chosen.defaults},
        "costmodel": {"name": None, "preset": "v100"},
        "device": {"name": "none", "repeats": 1},
        **{"budget": None, "time_limit": 20, "seed": 0, "accounting": "full"},
        **{"threads": 1, "cache": None, "capture": {"front": "auto"}},
    }
    strategy = make_strategy(settings_from(config, name))
    for model in MODELS:
        graph = captured(model).graph
        try:
            plan = strategy.plan(Problem(graph, time_limit=20, captured=captured(model))).plan
        except NotApplicable:
            continue
        simulate(graph, plan)
        found = validator.measure(captured(model), plan, device="cpu", repeats=1)
        assert found.reason is None
        assert found.gradient_bitwise
        return
    raise AssertionError(f"{name} applies to none of {MODELS}")
