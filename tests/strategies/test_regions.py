"""Whatever ops run again as regions, and whatever is saved in them, the step is a whole one."""

from __future__ import annotations

from functools import cache

import numpy as np
from hypothesis import given, settings, strategies as st

from rematbench import capture
from rematbench.engines.plans.regions import plan_with_regions
from rematbench.graphs.ir import Graph
from rematbench.graphs.simulate import simulate
from rematbench.strategies.sac_ilp.modules import modules_of
from rematbench.zoo import make_model


@cache
def network() -> Graph:
    """Attention, residual connections, and norms that both passes read across modules."""
    sizes = {"layers": 2, "width": 32, "heads": 2, "sequence_length": 16, "vocabulary": 50}
    return capture(make_model("transformer_lm", batch_size=1, **sizes)).graph


@settings(max_examples=60, deadline=None)
@given(st.data(), st.booleans())
def test_any_modules_as_regions(data: st.DataObject, late: bool) -> None:
    graph = network()
    modules = modules_of(graph).modules
    region = np.full(len(graph.ops), -1, dtype=np.int64)
    saved = np.zeros(len(graph.ops), dtype=bool)
    chosen = data.draw(st.lists(st.sampled_from(range(len(modules))), unique=True))
    for number, module in enumerate(chosen):  # a later one may be inside of an earlier one
        ops = np.array(modules[module].ops)
        region[ops] = number
        keep = data.draw(st.lists(st.booleans(), min_size=len(ops), max_size=len(ops)))
        saved[ops] = keep
    trace = simulate(graph, plan_with_regions(graph, region, saved, late))
    early = simulate(graph, plan_with_regions(graph, region, saved, late=False))
    assert trace.cost == early.cost
    assert trace.peak_bytes >= early.peak_bytes
