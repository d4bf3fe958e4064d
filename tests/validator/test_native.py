"""PyTorch's own checkpointing, run natively and judged like a plan."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from devices import DEVICES

from rematbench.base.errors import ConfigError, ExecutionError, Infeasible, NotApplicable
from rematbench.graphs.plan import program_order
from rematbench.graphs.planning import CheckpointedRun, CompiledRun
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem, Solution
from rematbench.strategies.chen import LinearizedSqrt
from rematbench.strategies.torch_budget import SOLVERS, TorchBudget, halvings
from rematbench.strategies.torch_checkpoint import TorchCheckpoint
from rematbench.strategies.torch_knapsack import TorchKnapsack, recomputed
from rematbench.tracing.captured import Captured
from rematbench.tracing.partition import knapsack_solver
from rematbench.tracing.trace import capture, trace_joint
from rematbench.validator.native import measure_native
from rematbench.zoo import make_model

try:
    from torch._inductor.custom_graph_pass import CustomKnapsackSolver
except ImportError:
    CustomKnapsackSolver = None
needs_hook = pytest.mark.skipif(
    CustomKnapsackSolver is None, reason=f"PyTorch {torch.__version__} has no knapsack hook"
)


@functools.cache
def captured(name: str = "resnet32", device: str = "cpu") -> Captured:
    options: dict[str, Any] = {"batch_size": 16, "resolution": 32, "blocks": 1}
    if name == "transformer_lm":  # no batch norm, no dropout
        options = {"batch_size": 8, "layers": 3, "width": 32, "heads": 2, "sequence_length": 32}
        options |= {"vocabulary": 50, "dropout": 0.0}
    torch.manual_seed(0)
    return capture(make_model(name, **options), device)


@pytest.mark.parametrize("how", [CheckpointedRun(), CheckpointedRun(None, ("convolution",))])
@pytest.mark.parametrize("device", DEVICES)
def test_checkpoint_updates_buffers_twice(device: str, how: CheckpointedRun) -> None:
    found = measure_native(captured(device=device), how, device, repeats=1)
    assert found.wrapped
    if device == "cpu":  # on a GPU, both peaks are in the workspace of one convolution
        assert found.measured_peak_bytes != found.eager_peak_bytes
    assert found.status == "failed"  # gradients are right, running statistics are not
    assert "buffer" in found.reason


@pytest.mark.parametrize("device", DEVICES)
def test_selective_checkpointing_keeps_what_its_policy_says(device: str) -> None:
    model = captured("transformer_lm", device)
    base = simulate(model.graph, program_order(model.graph))
    simulated, measured = [], []
    problem = Problem(model.graph, captured=model)
    for policy in (None, "alternate", "contractions"):
        solution = TorchCheckpoint(policy=policy, segments=3).plan(problem)
        trace = simulate(model.graph, solution.plan)
        assert trace.peak_bytes < base.peak_bytes
        simulated.append(trace.recomputations)
        found = measure_native(model, solution.native, device, repeats=1)
        assert (found.status, found.wrapped) == ("ok", ("layers.0", "layers.1", "layers.2"))
        measured.append(found.measured_peak_bytes)
    assert simulated == sorted(simulated, reverse=True)
    assert len(set(simulated)) == 3
    assert measured == sorted(measured)
    with pytest.raises(ConfigError, match="policy=magic"):
        TorchCheckpoint(policy="magic")
    with pytest.raises(NotApplicable, match="graph file"):
        TorchCheckpoint(policy="alternate").plan(Problem(model.graph))


def test_what_goes_wrong_is_a_result() -> None:
    found = measure_native(captured(), CompiledRun(7.0, "dp"), "cpu", repeats=1)
    assert found.status == "failed"
    assert "memory_budget" in found.reason or "valid ranges" in found.reason


@pytest.mark.parametrize("device", DEVICES)
def test_compiled_by_pytorch(device: str) -> None:
    found = measure_native(captured(device=device), CompiledRun(0.5, "dp"), device, repeats=1)
    assert found.status == "ok"


def test_the_partitioner_as_a_strategy() -> None:
    graph = captured().graph
    base = simulate(graph, program_order(graph))
    budget = int(0.95 * base.peak_bytes)
    found = TorchBudget(step=0.5).plan(Problem(graph, budget, captured=captured()))
    assert simulate(graph, found.plan).peak_bytes <= budget
    assert found.details["ratio"] in (0.0, 0.5)
    assert found.variant in SOLVERS
    plain = TorchBudget().plan(Problem(graph, captured=captured()))
    assert simulate(graph, plain.plan).cost == base.cost
    with pytest.raises(NotApplicable, match="PyTorch model"):
        TorchBudget().plan(Problem(graph))
    with pytest.raises(ConfigError, match="solver=magic"):
        TorchBudget(solver="magic")


def test_a_knapsack_hands_over_nothing_of_the_search_inside() -> None:
    """Its plans are the graph's, and not what the partitioner makes of them."""
    taken = captured("transformer_lm")
    budget = int(0.8 * simulate(taken.graph, program_order(taken.graph)).peak_bytes)
    handed: list[Solution] = []
    problem = Problem(taken.graph, budget, 1.0, captured=taken, hand_over=handed.append)
    assert TorchKnapsack("anytime").plan(problem).plan is not None
    assert handed
    assert not any(each.details for each in handed)


@needs_hook
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["resnet32", "transformer_lm"])
def test_our_strategy_inside_the_partitioner(name: str, device: str) -> None:
    model = captured(name, device)
    graph = model.graph
    base = simulate(graph, program_order(graph))
    inner = LinearizedSqrt()
    problem = Problem(graph, captured=model)
    found = TorchKnapsack(inner).plan(problem)
    trace = simulate(graph, found.plan)
    assert trace.peak_bytes < base.peak_bytes
    # What it computes again and PyTorch would not is what the strategy computes again.
    asked = recomputed(graph, inner.plan(problem).plan)
    ours = recomputed(graph, found.plan)
    heavy = {n for n in ours if n.split("_")[0] in ("convolution", "mm", "addmm", "bmm")}
    assert heavy
    assert heavy <= set(asked)
    assert found.native is not None
    assert found.native.as_json()["recomputed"] == list(asked)
    measured = measure_native(model, found.native, device, repeats=1)
    assert measured.status == "ok"
    # The default, by name, saves all that PyTorch asks about.
    plain = TorchKnapsack().plan(problem)
    assert simulate(graph, plain.plan).recomputations < trace.recomputations


@needs_hook
def test_the_partitioner_is_made_to_fit_a_true_peak() -> None:
    model = captured("transformer_lm")
    graph = model.graph
    base = simulate(graph, program_order(graph))
    budget = int(0.6 * base.peak_bytes)  # below what the first try needs
    found = TorchKnapsack().plan(Problem(graph, budget, captured=model))
    assert simulate(graph, found.plan).peak_bytes <= budget
    assert found.details["share"] is not None
    with pytest.raises(Infeasible) as raised:
        TorchKnapsack().plan(Problem(graph, int(0.3 * base.peak_bytes), captured=model))
    assert raised.value.smallest_peak_found


@needs_hook
def test_another_model_in_the_partitioner_is_noticed() -> None:
    how = {"how": "torch.compile", "recomputed": ["convolution_1"]}
    other = capture(make_model("resnet32", batch_size=16, resolution=32, blocks=2))
    solver = knapsack_solver(how["recomputed"], captured("transformer_lm").graph.op_index)
    node = next(
        n for n in trace_joint(other.workload, "cpu").graph.nodes if "convolution" in n.name
    )
    with pytest.raises(ExecutionError, match="asks about convolution"):
        solver([1.0], None, 1.0, None, [node])


@needs_hook
def test_views_that_the_partitioner_asks_about_are_made_again() -> None:
    """A captured graph has none; the cross-modal network's ``diagonal`` is such a one."""
    joint = torch.fx.Graph()
    x = joint.placeholder("x")
    diagonal = joint.call_function(torch.ops.aten.diagonal.default, (x,))
    product = joint.call_function(torch.ops.aten.mm.default, (x, x), name="mm")
    solver = knapsack_solver([], ["mm"])
    assert solver([1.0, 1.0], None, 1.0, None, [diagonal, product]) == ([1], [0])


def test_no_hook_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor.custom_graph_pass as module

    monkeypatch.delattr(module, "CustomKnapsackSolver", raising=False)
    with pytest.raises(NotApplicable, match=r"has no CustomKnapsackSolver; 2\.11 to 2\.15"):
        TorchKnapsack().plan(Problem(captured().graph, captured=captured()))
    with pytest.raises(NotApplicable, match="graph file"):
        TorchKnapsack().plan(Problem(captured().graph))
    for wrong in ("magic", "rematbench.strategies.chen.Magic", "rematbench.graphs.ir.Phase"):
        with pytest.raises(ConfigError, match=r"strategy\.inner="):
            TorchKnapsack(wrong).plan(Problem(captured().graph, captured=captured()))


def test_segments() -> None:
    graph = captured().graph
    base = simulate(graph, program_order(graph))
    found = TorchCheckpoint().plan(Problem(graph))
    trace = simulate(graph, found.plan)
    assert trace.peak_bytes < base.peak_bytes
    assert found.details["segments"] > 2
    with pytest.raises(NotApplicable, match="segments"):
        TorchCheckpoint(segments=10_000).plan(Problem(graph))


def test_halvings() -> None:
    assert halvings(0.25) == [1.0, 0.0, 0.5, 0.25, 0.75]
    assert sorted(halvings(1 / 16)) == [k / 16 for k in range(17)]
