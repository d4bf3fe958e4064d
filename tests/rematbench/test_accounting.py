"""The papers' ways to count memory."""

from __future__ import annotations

import pytest
from torch import nn

from rematbench.base.errors import ConfigError
from rematbench.graphs.builders.synthetic import random_graph, unit_chain
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.jobs.accounting import account
from rematbench.tracing.trace import capture
from rematbench.tracing.workload import Workload


def test_of_a_captured_model() -> None:
    import torch

    module = nn.Sequential(nn.Linear(10, 20), nn.BatchNorm1d(20))
    captured = capture(
        Workload("m", module, lambda: (torch.randn(4, 10),), lambda m, x: m(x).sum())
    )
    graph, kinds = captured.graph, captured.kinds
    parameters = sum(p.nbytes for p in module.parameters())
    buffers = sum(b.nbytes for b in module.buffers())
    full = account("full", graph, kinds, captured.gradient_values)
    assert full is graph
    nothing = account("activations", graph, kinds, captured.gradient_values)
    assert nothing.resident_bytes == 0
    theirs = account("checkmate", graph, kinds, captured.gradient_values)
    tangent = graph.resident_bytes - parameters - buffers - 4 * 10 * 4
    assert theirs.resident_bytes == 2 * parameters + 4 * 10 * 4 + tangent
    sizes = {value.name: value.bytes for value in theirs.values}
    assert {sizes[name] for name in captured.gradient_values} == {0}
    for counted in (full, nothing, theirs):
        simulate(counted, program_order(counted))


def test_of_a_file() -> None:
    with pytest.raises(ConfigError, match="does not say which"):
        account("checkmate", random_graph(3, 0))
    assert account("checkmate", unit_chain(3)) == unit_chain(3)
    with pytest.raises(ConfigError, match="unknown; use one of"):
        account("half", unit_chain(3))
