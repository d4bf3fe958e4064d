"""Gist: exact without half precision, and each encoding does something."""

from __future__ import annotations

import functools

import pytest
import torch

from rematbench import costmodel, validator
from rematbench.base.errors import ConfigError, Infeasible
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import Trace, simulate
from rematbench.strategies.base import ChoosesImplementations, Problem, Solution
from rematbench.strategies.gist import Gist
from rematbench.tracing.alternatives import with_alternatives
from rematbench.tracing.captured import Captured
from rematbench.tracing.trace import capture
from rematbench.zoo import make_model


@functools.cache
def measured() -> tuple[Captured, dict[str, float]]:
    torch.manual_seed(0)
    captured = capture(make_model("resnet32", batch_size=8, resolution=32, blocks=1))
    return captured, validator.densities(captured, "cpu")


def encoded(gist: Gist) -> tuple[Captured, Solution, Trace, Trace]:
    plain, density = measured()
    captured = with_alternatives(plain, gist.kinds, density)
    graph = costmodel.apply("flops", captured.graph, captured)
    found = gist.plan(Problem(graph, captured=captured))
    base = simulate(graph, program_order(graph))
    return captured, found, simulate(graph, found.plan), base


@pytest.mark.parametrize("sparse", ["csr", "bitmap", "either"])
def test_exact_without_half_precision(sparse: str) -> None:
    captured, found, trace, base = encoded(Gist(sparse=sparse, half=False))
    assert trace.recomputations == 0
    assert trace.peak_bytes < base.peak_bytes
    assert not found.details["lossy"]
    assert found.details["ways"]["encoded"] > 0
    assert all(0 < share < 1 for share in found.details["sparsity"].values())
    result = validator.measure(captured, found.plan, device="cpu", repeats=1)
    assert result.reason is None
    assert result.gradient_bitwise


def test_half_precision_is_lossy_and_smaller() -> None:
    captured, found, trace, base = encoded(Gist())
    assert found.details["lossy"]
    assert found.details["encoded_to_bytes"] < found.details["encoded_from_bytes"]
    assert trace.peak_bytes < 0.8 * base.peak_bytes
    result = validator.measure(captured, found.plan, device="cpu", repeats=1)
    assert result.reason is None
    assert result.verdict == "lossy"
    assert 1e-4 < result.rounding.lossy_error < 2e-3
    assert result.rounding.float64_error < 1e-11
    assert 0 < result.gradient_max_error < 0.1
    assert "lossy" in result.remark


def test_everything_off_is_checkpoint_all() -> None:
    off = Gist(binarize=False, sparse=None, half=False, in_place=False)
    assert isinstance(off, ChoosesImplementations)
    _, found, trace, base = encoded(off)
    assert trace.cost <= base.cost
    assert trace.peak_bytes <= base.peak_bytes
    assert found.details["encoded_values"] == 0


def test_bad_input() -> None:
    with pytest.raises(ConfigError, match=r"strategy\.sparse"):
        Gist(sparse="some")
    with pytest.raises(ConfigError, match=r"strategy\.convolutions"):
        Gist(convolutions="some")
    plain, _ = measured()
    with pytest.raises(Infeasible):
        Gist().plan(Problem(plain.graph, 1))
