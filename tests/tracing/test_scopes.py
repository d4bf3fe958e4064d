"""Ops know the module that they came from; files keep it."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from rematbench.graphs.files import read_graph, write_graph
from rematbench.graphs.ir import Phase
from rematbench.tracing import Workload, capture
from rematbench.zoo import make_model


def test_forward_and_backward_ops_name_their_module(tmp_path: Path) -> None:
    workload = make_model("resnet18", batch_size=2, resolution=32)
    hooks = [len(part._forward_hooks) for part in workload.module.modules()]
    graph = capture(workload).graph
    assert [len(part._forward_hooks) for part in workload.module.modules()] == hooks
    parts = {name for name, _ in workload.module.named_modules()}
    assert {op.scope for op in graph.ops} <= parts
    for phase, words in ((Phase.FORWARD, "convolution"), (Phase.BACKWARD, "convolution_backward")):
        ops = [op for op in graph.ops if op.phase is phase and op.name.startswith(words)]
        convolutions = {n for n, m in workload.module.named_modules() if isinstance(m, nn.Conv2d)}
        assert {op.scope for op in ops if op.phase is phase} == convolutions
    write_graph(tmp_path / "g.json", graph)
    again = read_graph(tmp_path / "g.json")
    assert again == graph
    assert again.hash == graph.hash


def test_a_module_that_fails_leaves_no_scope_behind() -> None:
    """A caught exception inside a module: what follows belongs to the module around it."""

    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.fails = nn.Linear(3, 3), Fails()

        def forward(self, x: Tensor) -> Tensor:
            try:
                return self.fails(x)
            except ValueError:
                return self.first(x).tanh()

    net = Net()
    workload = Workload("net", net, lambda: (torch.ones(2, 3),), lambda m, x: m(x).sum())
    graph = capture(workload).graph
    scope = {op.name: op.scope for op in graph.ops}
    assert scope["tanh"] == ""
    assert "first" in scope.values()


def test_backward_ops_of_one_autograd_node_share_its_number() -> None:
    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = (self.one(x) * self.other(x)).tanh()
            return found

    batch = (torch.ones(2, 4),)
    found = capture(Workload("product", Product(), lambda: batch, lambda m, x: m(x).sum())).graph
    node = {op.name: op.autograd_node for op in found.ops}
    assert {op.autograd_node for op in found.ops if op.phase is not Phase.BACKWARD} == {None}
    assert node["tanh_backward"] is None  # alone
    products = [name for name in node if name.startswith("mul")][-2:]
    assert len({node[name] for name in products}) == 1
    assert node[products[0]] is not None
    numbers = [number for number in node.values() if number is not None]
    assert sorted(set(numbers)) == list(range(len(set(numbers))))
