"""PyTorch's export of a step's joint graph, without what nobody here looks at."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch.fx._lazy_graph_module import _use_lazy_graph_module

# Which torch function called each op: a Python call around each. Older releases always note it.
_SPARED = {"_disable_torch_fn_metadata_mode": True}
_KNOWN = inspect.signature(aot_export_joint_with_descriptors).parameters
_OPTIONS = {key: value for key, value in _SPARED.items() if key in _KNOWN}


def export_joint(stack: contextlib.ExitStack, step: nn.Module, batch: Sequence[Tensor]) -> Any:
    """Forward and backward of ``step(*batch)``, a scalar, as one functional ATen graph.

    Args:
        stack: keeps what the export patched until its graph has been read.
        batch: fake tensors.

    Returns:
        As ``aot_export_joint_with_descriptors`` does.
    """
    with _use_lazy_graph_module(True):  # nobody runs the graph: no Python code is made of it
        return aot_export_joint_with_descriptors(stack, step, tuple(batch), **_OPTIONS)
