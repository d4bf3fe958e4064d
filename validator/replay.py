"""A plan as a CUDA graph: its kernels are launched once, by one call."""

from __future__ import annotations

import functools
from typing import Any

import torch

from rematbench.costmodel.device import empty_cache, seconds_of, spread
from rematbench.tracing.devices import Accelerator, accelerator_of
from rematbench.validator.check import Validator
from rematbench.validator.codegen import Program
from rematbench.validator.execute import RandomReplay


class _NoRandomness(RandomReplay):
    """Random states cannot be read or set while a graph is captured."""

    def record(self, op: int) -> None:
        raise RuntimeError("the plan repeats random draws, which a CUDA graph cannot")


@functools.cache
def _capture_stream(device: Accelerator) -> Any:
    """One for all: cuBLAS keeps a workspace for each stream that it has seen."""
    return device.new_stream()


def replayed_seconds(validator: Validator, program: Program, repeats: int) -> dict[str, Any]:
    """Seconds of a program's replay as a CUDA graph, for a row's ``extra``.

    Shapes and places of all tensors are fixed, as in the captured model.

    Returns:
        ``cuda_graph_seconds`` (median of ``repeats``), or ``cuda_graph``: why there is none.
    """
    device = accelerator_of(validator.device)
    if device is None or device.name != "cuda":
        return {"cuda_graph": "only CUDA has graphs"}
    if program.copies is not None:
        return {"cuda_graph": "the plan copies to the host"}
    graph, bench, stream = torch.cuda.CUDAGraph(), validator.bench, _capture_stream(device)
    current = device.current_stream()
    try:
        with torch.no_grad():
            stream.wait_stream(current)
            with device.on(stream):  # warms up what may not begin inside a capture
                bench.run(program)
            current.wait_stream(stream)
            # Other threads wait for planners, and may do what they like.
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
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
        device.set_stream(current)  # a capture that breaks leaves its own
        graph.reset()
        empty_cache("cuda")
