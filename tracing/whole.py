"""What a trace adds to eager training's ops, or takes apart of them: as eager training has it.

PyTorch registers decompositions in Python for some ops that have kernels of their own. While a step
is traced they go before these kernels, and their results differ from eager training's in the last
bits; a plan would also account for many small ops where one runs.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._C import DispatchKey
from torch._subclasses.fake_impls import op_implementations_dict
from torch.distributions import Distribution
from torch.fx import Node

from rematbench.base.errors import CaptureError
from rematbench.tracing.ctc import CTC_KERNELS, CTC_RULES

_WHOLE = (
    *("upsample_bilinear2d", "upsample_bicubic2d", "upsample_linear1d", "upsample_trilinear3d"),
    *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "hardshrink", "softshrink"),
    *("multi_margin_loss", "multilabel_margin_loss_forward", "lstm", "gru", "rnn_tanh", "rnn_relu"),
)
_KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)


@contextlib.contextmanager
def kept_whole() -> Iterator[None]:
    """While it is open, these ops are not decomposed in Python; not for two threads at once.

    Nor do distributions look at the values of their arguments, which a trace does not have. The
    CTC loss, which PyTorch does not trace, is traced.
    """
    validates = Distribution._validate_args
    removed: list[tuple[Any, DispatchKey, Any]] = []
    for name in _WHOLE:
        packet = getattr(torch.ops.aten, name, None)
        for overload in () if packet is None else packet.overloads():
            op = getattr(packet, overload)
            removed += [(op, key, op.py_kernels.pop(key)) for key in _KEYS if key in op.py_kernels]
            op._dispatch_cache.clear()
    Distribution.set_default_validate_args(False)
    op_implementations_dict.update(CTC_RULES)
    for op, kernel in CTC_KERNELS.items():
        op.py_kernels[DispatchKey.CompositeImplicitAutograd] = kernel
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op in CTC_RULES:
            del op_implementations_dict[op]
        for op in CTC_KERNELS:
            del op.py_kernels[DispatchKey.CompositeImplicitAutograd]
            op._dispatch_cache.clear()
        Distribution.set_default_validate_args(validates)
        for op, key, kernel in removed:
            op.py_kernels[key] = kernel
            op._dispatch_cache.clear()


def without_tokens(nodes: Sequence[Node]) -> list[Node]:
    """The nodes without those that only order effects: tokens, and checks of linear algebra.

    ``torch.linalg`` looks whether a matrix was singular. A trace does so by an op that has no
    result and is ordered by tokens; a plan runs without that check.

    Raises:
        CaptureError: an op has another effect, which a plan would lose.
    """
    gone: set[Node] = set()
    for node in nodes:
        if _orders_effects(node, gone):
            gone.add(node)
    if gone:
        output = nodes[-1]
        pairs = zip(output.args[0], output.meta["desc"], strict=True)
        ends, described = zip(*(pair for pair in pairs if pair[0] not in gone), strict=True)
        output.args, output.meta["desc"] = (list(ends),), list(described)
    return [node for node in nodes if node not in gone]


def _orders_effects(node: Node, others: set[Node]) -> bool:
    """Does a node only order effects, as a token, a check or one of ``others``' results do?"""
    if str(node.target) == "with_effects":
        if str(node.args[1]) != "aten._linalg_check_errors.default":
            raise CaptureError(
                f"the step has an effect besides its results, {node.args[1]}; a plan may run "
                "an op twice: remove it from the step"
            )
        return True
    if node.op == "placeholder":
        return type(node.meta.get("desc")).__name__.endswith("TokenAOTInput")
    return node.target is operator.getitem and node.args[0] in others
