"""How sparse a step's values are, measured by running its forward pass once."""

from __future__ import annotations

import torch
from torch import Tensor

from rematbench.graphs.ir import Phase
from rematbench.graphs.plan import Compute, program_order
from rematbench.tracing.captured import Captured
from rematbench.validator.execute import Bench
from rematbench.validator.interpret import run_call

DENSE = 0.95  # above it, no sparse encoding is worth its trouble


def densities(captured: Captured, device: str, seed: int = 0) -> dict[str, float]:
    """Share of entries that are not zero in each forward value, with the batch of ``seed``.

    Only values in single precision below :data:`DENSE` are listed: those are what Gist's sparse
    encodings (:mod:`rematbench.tracing.alternatives`) are for.

    Raises:
        ConfigError: there is no such device.
    """
    bench = Bench(captured, device, seed)
    graph = captured.graph
    tensors = {
        r.tensor: tensor for r, tensor in zip(captured.residents, bench.residents, strict=True)
    }
    found: dict[str, float] = {}
    torch.manual_seed(seed + 1)
    with torch.no_grad():
        for call in captured.prologue:
            tensors |= run_call(call, tensors)
        for statement in program_order(graph).statements:
            if not isinstance(statement, Compute):
                gone = [n for n in tensors if captured.value_of[n] == statement.value]
                for name in gone:
                    del tensors[name]
                continue
            op = graph.ops[graph.op_index[statement.op]]
            if op.phase is not Phase.FORWARD:
                break
            for call in captured.code[op.name]["default"]:
                tensors |= run_call(call, tensors)
            for value in op.writes:
                density = _density(tensors.get(value))
                if density < DENSE:
                    found[value] = density
    return found


def _density(tensor: Tensor | None) -> float:
    if tensor is None or tensor.dtype is not torch.float32 or not tensor.numel():
        return 1.0
    return int(tensor.count_nonzero()) / int(tensor.numel())
