"""What only a CUDA device can show (``pytest -m gpu``)."""

from __future__ import annotations

from pathlib import Path

import pytest
import suites
import torch
from devices import gpu
from helpers import recompute_everything

from rematbench import costmodel, validator
from rematbench.cli.suite import run
from rematbench.costmodel.device import release, use_numerics
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.planning import Problem
from rematbench.graphs.simulate import simulate
from rematbench.jobs.columns import failure
from rematbench.strategies.chen import LinearizedGreedy
from rematbench.suite.environment import environment
from rematbench.tracing.captured import Captured
from rematbench.tracing.trace import capture
from rematbench.validator.execute import RandomReplay
from rematbench.validator.replay import replayed_seconds
from rematbench.zoo import make_model

pytestmark = gpu
PLANS = [program_order, recompute_everything]


@pytest.fixture(scope="module")
def resnet() -> Captured:
    use_numerics(tf32=False, cudnn_benchmark=False, deterministic=False)
    return capture(make_model("resnet18", batch_size=64, resolution=128), "cuda")


@pytest.fixture(scope="module")
def transformer() -> Captured:
    """Its peak is of what it saves, not of cuDNN's workspace: plans of 0.6 of it exist."""
    options = {"layers": 6, "width": 256, "heads": 4, "sequence_length": 256, "vocabulary": 1000}
    return capture(make_model("transformer_lm", batch_size=32, dropout=0.0, **options), "cuda")


@pytest.mark.parametrize("make", PLANS)
def test_simulated_peak(resnet: Captured, make: object) -> None:
    graph = costmodel.apply("profiled", resnet.graph, resnet, device="cuda")
    plan: Plan = make(graph)  # type: ignore[operator]
    measured = validator.measure(resnet, plan, device="cuda", repeats=2)
    assert measured.reason is None
    assert simulate(graph, plan).peak_bytes == pytest.approx(measured.measured_peak_bytes, rel=0.03)
    assert measured.measured_reserved_bytes is not None
    assert measured.measured_reserved_bytes >= measured.measured_peak_bytes
    assert measured.requested_bytes is not None
    assert measured.requested_bytes <= measured.measured_peak_bytes
    assert measured.fragmentation_bytes is not None


@pytest.mark.parametrize("make", PLANS)
def test_bitwise_with_deterministic_kernels(make: object) -> None:
    use_numerics(tf32=False, cudnn_benchmark=False, deterministic=True)
    try:
        captured = capture(make_model("mobilenet_v2", batch_size=8, resolution=64), "cuda")
        plan: Plan = make(captured.graph)  # type: ignore[operator]
        measured = validator.measure(captured, plan, device="cuda", repeats=1)
        assert measured.gradient_bitwise
    finally:
        use_numerics(tf32=False, cudnn_benchmark=False, deterministic=False)


def test_no_host_synchronization_inside_a_step(resnet: Captured) -> None:
    program = validator.generate(resnet, recompute_everything(resnet.graph))
    bench = validator.validator_of(resnet, "cuda", 0).bench
    bench.run(program)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.no_grad():
            program.step(bench.residents, RandomReplay("cuda"))
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_replay_as_a_cuda_graph(resnet: Captured) -> None:
    checker = validator.validator_of(resnet, "cuda", 0)
    program = validator.generate(resnet, program_order(resnet.graph))
    assert replayed_seconds(checker, program, 3)["cuda_graph_seconds"] > 0


def test_plans_that_repeat_random_draws_are_not_replayed() -> None:
    options = {"layers": 1, "width": 64, "heads": 4, "sequence_length": 64, "vocabulary": 100}
    captured = capture(make_model("transformer_lm", batch_size=2, **options), "cuda")
    checker = validator.validator_of(captured, "cuda", 0)
    program = validator.generate(captured, program_order(captured.graph))
    assert replayed_seconds(checker, program, 1)["cuda_graph_seconds"] > 0
    program = validator.generate(captured, recompute_everything(captured.graph))
    assert "random draws" in replayed_seconds(checker, program, 1)["cuda_graph"]
    assert checker.check(program).reason is None


def test_less_memory_than_eager_training_needs(transformer: Captured) -> None:
    graph = costmodel.apply("profiled", transformer.graph, transformer, device="cuda")
    base = simulate(graph, program_order(graph)).peak_bytes
    plan = LinearizedGreedy().plan(Problem(graph, int(0.7 * base), captured=transformer)).plan
    assert plan is not None
    memory = torch.cuda.memory_allocated() + int(0.85 * base)
    measured = validator.measure(transformer, plan, device="cuda", repeats=1, memory=memory)
    assert measured.gradient_max_error is not None  # compared without the limit
    assert measured.reason is None
    with pytest.raises(RuntimeError) as caught:
        validator.measure(transformer, program_order(graph), device="cuda", memory=memory // 2)
    assert failure(caught.value)["status"] == "out_of_memory"


def test_out_of_memory_is_recovered_from(resnet: Captured) -> None:
    plan = program_order(resnet.graph)
    checker = validator.validator_of(resnet, "cuda", 1)
    program = validator.generate(resnet, plan)
    assert checker.check(program).reason is None
    release("cuda")
    # What is free between tensors that are kept can be used whatever the limit says.
    most = simulate(resnet.graph, plan).peak_bytes // 4
    with pytest.raises(RuntimeError) as caught:
        checker.measure_within(plan, most, 1)
    assert failure(caught.value)["status"] == "out_of_memory"
    del caught
    release("cuda")
    assert checker.check(program).reason is None


def test_environment_of_a_device() -> None:
    found = environment("cuda")
    assert found["capability"].count(".") == 1
    assert 0 < found["free_memory_bytes"] <= found["memory_bytes"]


def test_the_suite(tmp_path: Path) -> None:
    small = ["layers=2", "width=64", "heads=4", "sequence_length=128", "vocabulary=100"]
    small += ["dropout=0.0"]  # no draws, which cannot be replayed as a CUDA graph
    options = [f"model.options.{option}" for option in small]
    models = [
        ["model=transformer_lm", "batch_size=8", *options, f"device.tf32={on}"]
        for on in (False, True)
    ]
    cases = {
        "models": models,
        "budgets": [0.7],
        "strategies": ["ap_greedy", "dtr"],
        "alone": ["gist"],
    }
    device = {"name": "cuda", "repeats": 2}
    rows = run(suites.made(tmp_path, device=device, cases=cases, cuda_graphs=True))
    assert {row["status"] for row in rows if row["strategy"] == "dtr"} == {"ok"}
    assert all("cuda_graph_seconds" in r["extra"] for r in rows if r["strategy"] == "dtr")
    assert {row["status"] for row in rows if row["strategy"] == "checkpoint_all"} == {"ok"}
    assert len({row["device"] for row in rows if row["device"]}) == 2
