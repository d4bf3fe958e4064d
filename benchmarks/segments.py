"""Feng and Huang's Table 2 by the paper's own accounting, where the simulator's differs.

``python -m benchmarks.segments`` writes ``runs/benchmarks/segments.json``. PyTorch's own
checkpointing recomputes a segment whole and keeps all of it meanwhile: its peaks on the CPU, beside
ordinary training's, with gradients of parameters allocated beforehand. DenseNets: checkpoints and
the largest segment over all values, with dense blocks as lists and as chains of concatenations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from benchmarks.figures import Figure, publish
from benchmarks.graphs import layers
from rematbench.costmodel.device import peak_of, steady_allocator
from rematbench.graphs.ir import Graph, Op
from rematbench.strategies.feng_huang.network import forward_network
from rematbench.strategies.feng_huang.solver import solve
from rematbench.zoo import make_model

TRAINED = {"resnet18": 8, "resnet34": 8, "vgg13": 2, "vgg16": 2, "vgg19": 2}
"""Batch sizes."""
DENSE = ("densenet121", "densenet161", "densenet169", "densenet201")


def segments_of(model: nn.Module) -> list[nn.Module]:
    """Cut where the objective's checkpoints are that decide the peak: after the large layers."""
    if isinstance(features := getattr(model, "features", None), nn.Sequential):
        pools = [i for i, layer in enumerate(features) if isinstance(layer, nn.MaxPool2d)]
        cuts = [0, pools[0] + 1, pools[1] + 1, len(features)]
        parts = [features[a:b] for a, b in pairwise(cuts)]
        return [*parts, nn.Sequential(model.avgpool, nn.Flatten(), model.classifier)]
    return [
        nn.Sequential(model.conv1, model.bn1, model.relu),
        nn.Sequential(model.maxpool, model.layer1),
        model.layer2,
        nn.Sequential(model.layer3, model.layer4, model.avgpool, nn.Flatten(), model.fc),
    ]


def measured(name: str, batch: int) -> Figure:
    """Share of memory that PyTorch's checkpointing cuts off."""
    torch.manual_seed(0)
    workload = make_model(name, batch_size=batch, resolution=224)
    images, labels = workload.make_batch()
    model = workload.module.train()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    parts = segments_of(model)

    def step(checkpointed: bool) -> None:
        found: Tensor = images
        for part in parts:
            found = checkpoint(part, found, use_reentrant=False) if checkpointed else part(found)
        F.cross_entropy(found, labels).backward()

    peaks = [peak_of(lambda on=on: step(on), "cpu").peak_bytes for on in (False, True)]
    return Figure(f"{name}: cut off by PyTorch", 100 * (1 - peaks[1] / peaks[0]), None, "%")


def chained(graph: Graph) -> Graph:
    """Each concatenation adds to an earlier one where that is of its first parts."""
    ops: list[Op] = []
    known: dict[tuple[str, ...], str] = {}
    for op in graph.ops:
        made = op
        if op.name.startswith("cat"):
            reads = op.reads
            known[reads] = op.writes[0]
            for count in range(len(reads) - 1, 1, -1):
                if before := known.get(reads[:count]):
                    (implementation,) = op.implementations
                    implementation = replace(implementation, reads=(before, *reads[count:]))
                    made = replace(op, implementations=(implementation,))
                    break
        ops.append(made)
    return replace(graph, ops=tuple(ops))


def cut_by_objective(graph: Graph) -> float:
    """In %: checkpoints and the largest segment over all values of the forward pass."""
    network = forward_network(graph)
    found = solve(network.costs, network.edges)
    return 100 * (1 - (found.objective + network.kept_bytes) / sum(network.costs[1:-1]))


def dense() -> Iterator[Figure]:
    """DenseNets by the paper's objective."""
    for name in DENSE:
        graph = layers(name, batch_size=16)
        yield Figure(f"{name}, lists: cut off by the objective", cut_by_objective(graph), None, "%")
        cut = cut_by_objective(chained(graph))
        yield Figure(f"{name}, chains: cut off by the objective", cut, None, "%")


def main() -> None:
    """Measure, print, write."""
    steady_allocator()
    publish("segments", [*(measured(*each) for each in TRAINED.items()), *dense()])


if __name__ == "__main__":
    main()
