"""cuDNN's own convolution plans, each with its workspace, through ``nvidia-cudnn-frontend``.

UNVERIFIED: no machine with a GPU was at hand when this was written; tests only check that
nothing is offered elsewhere. Needs the optional extra ``gpu`` and a CUDA device; without either,
this offers nothing.

One implementation per engine configuration, ``conv:cudnn<n>``, of the forward convolution. The
heuristics list them fastest first; the workspace is cuDNN's own figure, and is allocated by
PyTorch, so that the memory statistics see it.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from rematbench.graphs.ir import Op
from rematbench.graphs.kinds import ImplementationTraits
from rematbench.tracing.alternatives.scene import (
    Found,
    Offer,
    Scene,
    entries,
    images,
    one_out,
    out_of,
)
from rematbench.tracing.captured import TorchCall

aten = torch.ops.aten

MOST_PLANS = 4
TOLERANCE = 1e-5


@functools.cache
def available() -> bool:
    """Are the package and a device there?"""
    return importlib.util.find_spec("cudnn") is not None and torch.cuda.is_available()


Sizes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@functools.cache
def _graph(
    sizes: Sizes, stride: Any, padding: Any, dilation: Any, tf32: bool
) -> tuple[Any, Any, Any, Any, list[int]]:
    """(cuDNN graph, its tensors x, w and y, numbers of the first plans that can be built)."""
    import cudnn

    graph = cudnn.pygraph(
        io_data_type=cudnn.data_type.FLOAT,
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
    )
    x, w = (
        graph.tensor(name=name, dim=list(size), stride=_strides(size))
        for name, size in zip("xw", sizes[:2], strict=True)
    )
    y = graph.conv_fprop(
        image=x, weight=w, padding=list(padding), stride=list(stride), dilation=list(dilation)
    )
    y.set_output(True).set_dim(list(sizes[2])).set_stride(_strides(sizes[2]))
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    if not tf32:  # tensor cores round single precision to it
        graph.deselect_numeric_notes([cudnn.numerical_note.TENSOR_CORE])
    graph.check_support()
    return graph, x, w, y, list(islice(_built(graph), MOST_PLANS))


def _built(graph: Any) -> Iterator[int]:
    """Numbers of plans, each as it is built: some are compiled, which takes seconds."""
    for plan in range(graph.get_execution_plan_count()):
        try:
            graph.build_plan_at_index(plan)
        except Exception:  # barred, or not for this device; told in many types
            continue
        yield plan


def _strides(size: tuple[int, ...]) -> list[int]:
    _, c, h, w = size
    return [c * h * w, h * w, w, 1]


def convolve(
    x: Tensor, w: Tensor, b: Tensor | None, geometry: Any, out: list[int], plan: int
) -> Tensor:
    """A convolution by cuDNN's plan number ``plan``; in double precision, PyTorch's own."""
    if x.dtype is torch.float64:
        own: Tensor = aten.convolution.default(x, w, b, *geometry, False, [0, 0], 1)
        return own
    sizes = (tuple(x.shape), tuple(w.shape), tuple(out))
    tf32 = torch.backends.cudnn.allow_tf32
    graph, x_, w_, y_, _ = _graph(sizes, *(tuple(part) for part in geometry), tf32)
    y = x.new_empty(out)
    size = max(1, graph.get_workspace_size_plan_at_index(plan))
    workspace = torch.empty(size, dtype=torch.uint8, device=x.device)
    graph.execute_plan_at_index({x_: x, w_: w, y_: y}, workspace, plan)
    return y if b is None else y.add_(b.view(1, -1, 1, 1))


def _workspaces(sizes: Sizes, geometry: Any) -> dict[int, int]:
    """Bytes of workspace by plan; none where cuDNN has no plan for the convolution."""
    try:
        tf32 = torch.backends.cudnn.allow_tf32
        graph, *_, plans = _graph(sizes, *(tuple(part) for part in geometry), tf32)
        return {plan: graph.get_workspace_size_plan_at_index(plan) for plan in plans}
    except Exception:  # it says so in many types
        return {}


def offers(scene: Scene, op: Op, call: TorchCall) -> Found:
    """cuDNN's plans for a forward convolution captured on CUDA."""
    if scene.captured.device != "cuda" or call.target is not aten.convolution.default:
        return
    x, w, b, stride, padding, dilation, transposed, _, groups = call.args
    out = out_of(call)
    if transposed or groups != 1 or out is None or not available():
        return
    source, weight, result = map(scene.spec, (x.name, w.name, out))
    if not images(source, weight, result) or source.dtype is not torch.float32:
        return
    geometry = (stride, padding, dilation)
    flops = 2.0 * entries(result) * entries(weight) / weight.shape[0]
    workspaces = _workspaces((source.shape, weight.shape, result.shape), geometry)
    for plan, workspace in workspaces.items():
        root = one_out(out, convolve, x, w, b, geometry, list(result.shape), plan)
        traits = ImplementationTraits(TOLERANCE, flops=flops, float64=False)
        yield Offer(f"conv:cudnn{plan}", root, traits, max(1, int(workspace)))
