"""A torch module and a batch in, a graph and the code of its ops out.

The adapter to PyTorch's private APIs: ``aot_export_joint_with_descriptors`` traces forward and
backward into one functional ATen graph, with fake activations, so that a
batch of any size costs no memory. Two front ends lead there: the step as it is, run on fake
tensors, and TorchDynamo's reading of its Python (:mod:`rematbench.tracing.dynamo`). What both take
becomes the same graph, to the names of its ops and its hash.
"""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node

from rematbench.base.errors import CaptureError, ConfigError, is_out_of_memory
from rematbench.base.origin import own_place
from rematbench.tracing.captured import Captured
from rematbench.tracing.costless import mode_of, place
from rematbench.tracing.export import export_joint
from rematbench.tracing.joint import Builder
from rematbench.tracing.scopes import marked_scopes
from rematbench.tracing.trouble import (
    cannot,
    check_leaves,
    check_loss,
    check_types,
    check_values,
    no_seeds,
)
from rematbench.tracing.whole import kept_whole, without_tokens
from rematbench.tracing.workload import Workload

FRONTS = ("auto", "trace", "dynamo")


class _Step(nn.Module):
    """The workload as a module whose forward is the scalar loss."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.model = workload.module
        self.loss = workload.loss
        self.name = workload.name

    def forward(self, *batch: Tensor) -> Tensor:
        return check_loss(self.name, self.loss(self.model, *batch)).reshape(())


def capture(
    workload: Workload, device: str = "cpu", *, train: bool = True, front: str = "auto"
) -> Captured:
    """Trace one training step of ``workload`` (forward, loss, backward).

    Args:
        workload: module, batch and loss. The module keeps its parameters and is moved to
            ``device``; the batch is only imitated. Parameters without data (on the meta device)
            become fake tensors: the graph is the same, and nothing can run it.
        device: ``cpu`` or ``cuda``.
        train: put the module into training mode; False leaves each submodule in its own.
        front: ``trace``, ``dynamo``, or ``auto``: Dynamo where the plain trace fails.

    Raises:
        CaptureError: there is no scalar loss, or the step cannot be traced; says why.
        ConfigError: an unknown front end.
    """
    if front not in FRONTS:
        raise ConfigError(f"capture.front={front}: unknown; use one of {', '.join(FRONTS)}")
    place(workload.module, device)
    if train:
        workload.module.train()
    if not any(p.requires_grad for p in workload.module.parameters()):
        raise CaptureError(f"model {workload.name!r} has no parameter to train")
    try:
        nodes = _trace(workload, device, "trace" if front == "auto" else front)
    except CaptureError:
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise
        failed = cannot("traced", workload.name, error)
        failed.__cause__ = error
        if front != "auto":
            raise failed  # noqa: B904 (it has its cause)
        nodes = _by_dynamo(workload, device, failed)
    check_types(workload.name, nodes)
    return Builder(workload, device, nodes).build()


def _by_dynamo(workload: Workload, device: str, failed: CaptureError) -> list[Node]:
    """The step's nodes by Dynamo, where the plain trace failed; where both do, its error.

    Where that names a library's line, what Dynamo says of the user's own is told, too.
    """
    try:
        return _trace(workload, device, "dynamo")
    except Exception as error:
        if is_out_of_memory(error):
            raise
        if isinstance(error, CaptureError) and own_place(failed.__cause__ or failed) is None:
            raise CaptureError(f"{failed}; TorchDynamo: {error}") from failed.__cause__
        raise failed from error


def _trace(workload: Workload, device: str, front: str) -> list[Node]:
    joint = trace_joint(workload, device, front)
    nodes = without_tokens(list(joint.graph.nodes))
    if front == "dynamo":  # which traces them, with numbers that only a run tells
        check_values(workload.name, nodes)
    for node in nodes:
        if node.op == "get_attr":
            node.meta["constant"] = getattr(joint, str(node.target))
    return nodes


def trace_joint(workload: Workload, device: str, front: str = "trace") -> GraphModule:
    """Forward and backward as one functional ATen graph; ops have the names of their nodes.

    Args:
        front: ``trace`` or ``dynamo``.
    """
    with mode_of(workload.module), torch.device(device):
        batch = workload.make_batch()
    # oneDNN's fused LSTM has no trace on the CPU.
    recurrent = any(isinstance(m, nn.RNNBase) for m in workload.module.modules())
    state = torch.get_rng_state()
    with contextlib.ExitStack() as stack:
        stack.enter_context(kept_whole())
        stack.enter_context(no_seeds(workload.name))
        if recurrent:
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        if front == "dynamo":
            from rematbench.tracing.dynamo import joint_by_dynamo

            joint = joint_by_dynamo(stack, workload.name, _Step(workload), batch)
        else:
            stack.enter_context(marked_scopes(workload.module))
            joint = export_joint(stack, _Step(workload), batch)
    torch.set_rng_state(state)
    inputs = joint._aot_state.fw_metadata.input_info
    check_leaves(workload.name, joint.graph_module.graph.nodes, inputs)
    return joint.graph_module
