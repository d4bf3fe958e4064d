"""The same plan through torch.compile: as its ops one by one, and as Inductor's kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rematbench.graphs.ir import Implementation
from rematbench.graphs.plan import Compute, Plan, program_order
from rematbench.graphs.planning import CompiledRun, PlannedRun, Problem
from rematbench.graphs.simulate import simulate
from rematbench.strategies.chen import LinearizedSqrt
from rematbench.tracing.captured import Captured
from rematbench.tracing.halves import BORDER
from rematbench.tracing.trace import capture
from rematbench.tracing.workload import Workload
from rematbench.validator import lowerings
from rematbench.validator.native import Native, measure_native


@pytest.fixture(scope="module")
def network() -> Captured:
    torch.manual_seed(0)
    blocks = [
        nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.BatchNorm1d(64), nn.Dropout(0.2))
        for _ in range(4)
    ]
    module = nn.Sequential(*blocks, nn.Linear(64, 8))
    return capture(
        Workload(
            "layers",
            module,
            lambda: (torch.randn(512, 64), torch.randint(8, (512,))),
            lambda model, x, y: F.cross_entropy(model(x), y),
        )
    )


def test_a_plan_runs_as_aot_autograd_traces_it(network: Captured) -> None:
    plan = LinearizedSqrt().plan(Problem(network.graph)).plan
    lean, base = (simulate(network.graph, p) for p in (plan, program_order(network.graph)))
    assert lean.peak_bytes < base.peak_bytes
    how = PlannedRun(lowerings.plan_of_halves(network, plan), "eager")
    found = measure_native(network, how, "cpu", repeats=1)
    assert (found.status, found.reason) == ("ok", None)
    assert found.gradient_bitwise
    assert found.measured_peak_bytes < found.eager_peak_bytes
    assert found.compile_seconds > 0


def test_results_of_the_forward_pass_come_before_the_border(network: Captured) -> None:
    graph = network.graph
    codes = program_order(graph).codes(graph)
    computes = codes[codes >= 0].tolist()
    names = [graph.ops[graph.tables.op_of[code]].name for code in computes]
    update = network.value_of[next(iter(network.updates.values()))]
    last = names.index(graph.ops[graph.tables.writer[graph.value_index[update]]].name)
    late = Plan.from_codes(graph, [*computes[:last], *computes[last + 1 :], computes[last]])
    for plan in (program_order(graph), late):
        found = lowerings.plan_of_halves(network, plan).statements
        made = [each.op for each in found if isinstance(each, Compute)]
        assert sorted(made) == sorted([*names, BORDER])
        border = made.index(BORDER)
        assert made.index(names[last]) < border
        assert graph.ops[graph.op_index[made[border + 1]]].phase.value == "backward"


def test_both_lowerings_of_what_pytorch_planned(
    network: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def measured(captured: Captured, how: object, *more: object) -> Native:
        asked.append(how)
        return Native("ok", measured_seconds=1.0)

    monkeypatch.setattr(lowerings, "measure_native", measured)
    theirs = CompiledRun(0.5, "dp")
    plan = program_order(network.graph)
    again = PlannedRun(LinearizedSqrt(), "inductor", 1000)
    found = lowerings.measure_lowered(network, plan, theirs, again, "cpu")
    assert asked == [theirs, replace(theirs, backend="inductor")]
    assert {name: each.status for name, each in found.items()} == {"aot": "ok", "inductor": "ok"}
    lowerings.measure_lowered(network, plan, None, again, "cpu")
    assert asked[2:] == [PlannedRun(lowerings.plan_of_halves(network, plan), "eager"), again]


def test_implementations_of_ours_are_not_pytorchs(network: Captured) -> None:
    graph = network.graph
    first = graph.ops[0]
    implementations = (*first.implementations, Implementation("conv:winograd", first.reads, 1.0))
    ours = replace(graph, ops=(replace(first, implementations=implementations), *graph.ops[1:]))
    plan = program_order(ours)
    others = Plan([Compute(first.name, "conv:winograd"), *plan.statements[1:]])
    again = PlannedRun(LinearizedSqrt(), "inductor")
    found = lowerings.measure_lowered(replace(network, graph=ours), others, None, again, "cpu")
    assert found["aot"].status == "not_applicable"
    assert f"op {first.name} runs as conv:winograd" in (found["inductor"].reason or "")
