"""How sparse a step's values are, measured by running its forward pass once."""

from __future__ import annotations

import torch
from torch import Tensor

from rematbench.graphs.ir import Phase
from rematbench.graphs.plan import Compute, program_order
from rematbench.tracing.captured import Captured
from rematbench.validator.execute import Bench
from rematbench.validator.interpret import run_calls

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
    names = (resident.tensor for resident in captured.residents)
    tensors = dict(zip(names, bench.residents, strict=True))
    found: dict[str, float] = {}
    torch.manual_seed(seed + 1)
    with torch.no_grad():
        run_calls(captured.prologue, tensors)
        for statement in program_order(graph).statements:
            if not isinstance(statement, Compute):
                gone = statement.value
                tensors = {n: t for n, t in tensors.items() if captured.value_of[n] != gone}
                continue
            op = graph.ops[graph.op_index[statement.op]]
            if op.phase is not Phase.FORWARD:
                break
            run_calls(captured.code[op.name]["default"], tensors)
            found |= {value: _density(tensors.get(value)) for value in op.writes}
    return {value: density for value, density in found.items() if density < DENSE}


def _density(tensor: Tensor | None) -> float:
    if tensor is None or tensor.dtype is not torch.float32 or not tensor.numel():
        return 1.0
    return int(tensor.count_nonzero()) / int(tensor.numel())
