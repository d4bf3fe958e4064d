"""Collectives in a captured graph: computed once, in order, and measured without other ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import default_partition
from torch.distributed import _functional_collectives as functional
from torch.testing._internal.distributed.fake_pg import FakeStore

from rematbench.base.errors import InvalidPlan
from rematbench.costmodel.profiled import profiled
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import check_draws, simulate
from rematbench.tracing.halves import Halves, halves_of
from rematbench.training.compiled.judging import all_again, settled


@pytest.fixture
def halves() -> Iterator[Halves]:
    """Of a function that sums over ranks twice in its forward pass, and waits each time."""
    found: list[Halves] = []

    def partition(joint: Any, inputs: Any, *, num_fwd_outputs: int, **facts: Any) -> Any:
        found.append(halves_of("summed", list(joint.graph.nodes), num_fwd_outputs, []))
        return default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **facts)

    def step(x: Tensor, weight: Tensor) -> Tensor:
        for _ in range(2):
            x = functional.all_reduce(F.gelu(x @ weight), "sum", dist.group.WORLD).exp()
        return x

    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    backend = aot_autograd(fw_compiler=lambda module, inputs: module, partition_fn=partition)
    try:
        x, weight = torch.randn(8, 8), torch.randn(8, 8, requires_grad=True)
        torch.compile(step, backend=backend, fullgraph=True)(x, weight)
        yield found[0]
    finally:
        torch._dynamo.reset()
        dist.destroy_process_group()


def test_waiting_is_part_of_a_collective(halves: Halves) -> None:
    captured = halves.captured
    found = [op for op in captured.graph.ops if op.collective]
    assert [op.operator for op in found] == ["all_reduce"] * 4  # two of the backward pass
    for op in found:
        first, second, *_ = captured.code[op.name]["default"]
        assert (first.operator, second.operator) == (
            "_c10d_functional.all_reduce.default",
            "_c10d_functional.wait_tensor.default",
        )
        assert captured.value_of[str(second.outs[0])] == op.writes[0]
    assert not any("wait" in op.name for op in captured.graph.ops)


def test_collectives_run_once(halves: Halves) -> None:
    """A plan that computes all again keeps what they make, and nothing runs for them alone."""
    graph = halves.captured.graph
    first = graph.tables.op_first
    twice = [int(first[i]) for i, op in enumerate(graph.ops) for _ in range(2)]
    with pytest.raises(InvalidPlan, match=r"collective 'all_reduce.*computed again"):
        check_draws(graph, Plan.of_computes(graph, twice))
    plan = all_again(halves)
    computes = [graph.ops[int(graph.tables.op_of[c])] for c in plan.codes(graph) if c >= 0]
    assert simulate(graph, plan).recomputations > 0
    assert sum(op.collective for op in computes) == 4
    assert [op.operator for op in computes].count("gelu") == 2  # else only read by a collective
    assert settled(halves, plan) == plan
    check_draws(graph, plan)


def test_collectives_stay_in_order(halves: Halves) -> None:
    graph = halves.captured.graph
    plan = program_order(graph)
    check_draws(graph, plan)
    turned = plan.statements[::-1]
    with pytest.raises(InvalidPlan, match=r"collective 'all_reduce.*out of program order"):
        check_draws(graph, Plan(turned, graph.name))


def test_profiles_need_no_other_rank(halves: Halves) -> None:
    """The fake group runs nothing; what a collective makes is written, no more."""
    graph = profiled(halves.captured, "cpu")
    assert all(op.cost > 0 for op in graph.ops if op.collective)
