"""What is wrong with a training step, in one line: what PyTorch said, where, and the remedy."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from rematbench.base.errors import CaptureError
from rematbench.base.origin import accuse, own, shown
from rematbench.tracing.scopes import label

aten = torch.ops.aten
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\w+)')

_BRANCHES = (
    "what the step does depends on the values of its tensors (.item(), tolist(), a branch on a "
    "tensor, a mask that selects); a plan needs the same ops for every batch: use torch.where and "
    "fixed shapes"
)
# By exception type, or by words of the message: what to do about it.
_REMEDIES = {
    "DataDependentOutputException": _BRANCHES,
    "DynamicOutputShapeException": _BRANCHES,
    "GuardOnDataDependentSymNode": _BRANCHES,
    "PendingUnbackedSymbolNotFound": _BRANCHES,
    "UnsupportedOperatorException": "the op has no rule for tracing (torch.library.register_fake)",
    ".numpy() is not supported": "NumPy sees no traced tensor: compute with torch",
    "Cannot backprop through mirrored meta": "leave backward() to the step: return the loss",
    "modified by an inplace operation": "do without the in-place op, or clone() before it",
    "torch._C.Generator": "no plan keeps the state of a random generator of its own; draw "
    "without generator=",
    "uninitialized parameter": "a lazy layer: run the module on a batch once before",
}
# Kernels that take tensors of one type only; a trace takes any.
_ONE_TYPE = frozenset(
    op.overloadpacket
    for op in (
        *(aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default),
        *(aten.mv.default, aten.addmv.default, aten.dot.default, aten.convolution.default),
    )
)

_TURNED = (aten.t.default, aten.transpose.int, aten.permute.default)


def cannot(what: str, name: str, error: BaseException) -> CaptureError:
    """The error of a step that failed.

    Args:
        what: was tried: ``traced`` or ``recorded``.
        name: of the model.
    """
    words = f"{type(error).__name__} {error}"
    remedy = next((text for part, text in _REMEDIES.items() if part in words), None)
    said = f"model {name!r} cannot be {what}: {accuse(error)}"
    return CaptureError(f"{said.rstrip('.')}; {remedy}" if remedy else said)


def check_loss(name: str, loss: Any) -> Tensor:
    """The loss of a step, which has to be a scalar with a gradient.

    Raises:
        CaptureError: it is not; says what came.
    """
    where = f"model {name!r}: the loss is"
    if isinstance(loss, Mapping):
        raise CaptureError(
            f"{where} a dict of {', '.join(map(str, loss)) or 'nothing'}, not a scalar tensor; "
            "return the loss in it"
        )
    if not isinstance(loss, Tensor):
        raise CaptureError(f"{where} of type {type(loss).__name__}, not a scalar tensor")
    if loss.numel() != 1:
        raise CaptureError(
            f"{where} of shape {tuple(loss.shape)}, not a scalar; let it end in a mean or a sum"
        )
    if not loss.is_floating_point():
        why = "take its real part" if loss.is_complex() else "of argmax or a comparison, say"
        raise CaptureError(f"{where} of {loss.dtype}, which has no gradient; {why}")
    if not loss.requires_grad:
        raise CaptureError(
            f"{where} a scalar without a gradient: it was detached, computed under no_grad, or "
            "without the parameters"
        )
    return loss


def depends_on_values(nodes: Iterable[Node]) -> bool:
    """Has a trace numbers, or shapes, that the values of its tensors decide?"""
    return next(_by_values(nodes), None) is not None


def check_values(name: str, nodes: Iterable[Node]) -> None:
    """Raises CaptureError for a trace with numbers, or shapes, that its tensors' values decide."""
    for node in _by_values(nodes):
        frames = _FRAME.findall(str(node.meta.get("stack_trace") or ""))
        mine = [frame for frame in frames if own(frame[0])] or frames
        at = f" at {shown(mine[-1][0])}:{mine[-1][1]} in {mine[-1][2]}" if mine else ""
        raise CaptureError(f"model {name!r} is not one graph: {node.name}{at}: {_BRANCHES}")


def _by_values(nodes: Iterable[Node]) -> Iterator[Node]:
    for node in nodes:
        if any(_undecided(each) for each in tree_leaves(node.meta.get("val"))):
            yield node


def _undecided(found: Any) -> bool:
    """Will only a run tell this number, or this tensor's shape?"""
    numbers = found.shape if isinstance(found, Tensor) else (found,)
    return any(isinstance(n, (torch.SymInt, torch.SymFloat, torch.SymBool)) for n in numbers)


@contextlib.contextmanager
def no_seeds(name: str) -> Iterator[None]:
    """While it is open, a step that seeds the global random generator gets a CaptureError."""
    whole = torch.random.default_generator
    torch.random.default_generator = _Unseeded(name)
    try:
        yield
    finally:
        torch.random.default_generator = whole


class _Unseeded:
    """The global random generator, which cannot be seeded."""

    def __init__(self, model: str) -> None:
        self._model, self._generator = model, torch.random.default_generator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)

    def manual_seed(self, _seed: int) -> NoReturn:
        raise CaptureError(
            f"model {self._model!r} cannot be planned: it seeds the random generator within the "
            "step (torch.manual_seed), and a plan's ops draw from where the step began; seed "
            "before the step"
        )


def check_types(name: str, nodes: Iterable[Node]) -> None:
    """Raises CaptureError for an op that no plan runs.

    Its tensors are of several types, or it makes a sparse one, which has no storage to count, or
    it draws from a generator whose state nobody keeps.
    """
    for node in nodes:
        for made in tree_leaves((node.meta.get("val"), node.meta.get("constant"), node.args)):
            if isinstance(made, torch.Generator):
                raise CaptureError(
                    f"model {name!r} cannot be planned: it draws from a random generator of its "
                    "own, whose state no plan keeps; draw without generator="
                )
            if getattr(made, "layout", torch.strided) is not torch.strided:
                raise CaptureError(
                    f"model {name!r} cannot be planned: {label(node)} makes a tensor of layout "
                    f"{made.layout}, whose bytes nobody knows beforehand; use dense tensors"
                )
        if getattr(node.target, "overloadpacket", None) not in _ONE_TYPE:
            continue
        found = {
            each: each.meta["val"].dtype
            for each in node.all_input_nodes
            if isinstance(each.meta.get("val"), Tensor)
        }
        if len(set(found.values())) > 1:
            types = ", ".join(f"{_named(each)} is {dtype}" for each, dtype in found.items())
            raise CaptureError(
                f"model {name!r} cannot run: {label(node)} takes one type, but {types}; cast the "
                "batch or the model (dtype=... casts both)"
            )


def check_leaves(name: str, nodes: Iterable[Node], inputs: Iterable[Any]) -> None:
    """Raises CaptureError for a step that changes a parameter in place where autograd looks.

    Args:
        inputs: what AOTAutograd found out of the first placeholders.
    """
    places = [node for node in nodes if node.op == "placeholder"]
    for node, facts in zip(places, inputs, strict=False):
        hidden = (
            facts.mutations_hidden_from_autograd or facts.mutations_under_no_grad_or_inference_mode
        )
        if facts.mutates_data and facts.requires_grad and not hidden:
            raise CaptureError(
                f"model {name!r} cannot run: it changes {_named(node)} in place, a leaf that needs "
                "a gradient; change a clone, or under torch.no_grad()"
            )


def _named(node: Node) -> str:
    """What people call a tensor: a parameter by its name, an item of the batch by its place."""
    while node.target in _TURNED:
        node = node.all_input_nodes[0]
    found = node.meta.get("desc")
    target = getattr(found, "target", None)
    if isinstance(target, str):
        return target.removeprefix("model.")
    place = getattr(found, "idx", None)
    return node.name if place is None else f"item {place} of the batch"
