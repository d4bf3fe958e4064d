"""A plan as a CUDA graph: its kernels are launched once, by one call."""

from __future__ import annotations

from typing import Any

import torch

from costmodel.device import release, seconds_of, spread
from validator.check import Validator
from validator.codegen import Program
from validator.execute import RandomReplay


class _NoRandomness(RandomReplay):
    """Random states cannot be set while a graph is captured."""

    def record(self, op: int) -> None:
        raise RuntimeError("the plan draws random numbers, which a CUDA graph would repeat")


def replayed_seconds(validator: Validator, program: Program, repeats: int) -> dict[str, Any]:
    """Seconds of a program's replay as a CUDA graph, for a row's ``extra``.

    Shapes and places of all tensors are fixed, as in the captured model.

    Returns:
        ``cuda_graph_seconds`` (median of ``repeats``), or ``cuda_graph``: why there is none.
    """
    if validator.device != "cuda":
        return {"cuda_graph": "only CUDA has graphs"}
    graph, bench, stream = torch.cuda.CUDAGraph(), validator.bench, torch.cuda.Stream()
    try:
        with torch.no_grad():
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):  # warms up what may not begin inside a capture
                bench.run(program)
            torch.cuda.current_stream().wait_stream(stream)
            with torch.cuda.graph(graph):
                program.step(bench.residents, _NoRandomness("cuda"))
        graph.replay()
        return {
            "cuda_graph_seconds": spread(
                [seconds_of(graph.replay, "cuda") for _ in range(repeats)]
            )[0]
        }
    except RuntimeError as error:
        return {"cuda_graph": " ".join(str(error).split())[:300]}
    finally:
        del graph
        release("cuda")
