"""What the rules see of a captured step, and what they offer for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from rematbench.graphs.ir import Op, Phase
from rematbench.graphs.kinds import ImplementationTraits
from rematbench.tracing.captured import Captured, Ref, TensorSpec, TorchCall, call_names

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Offer:
    """Another implementation of an op.

    Attributes:
        name: see :mod:`rematbench.graphs.kinds`.
        root: the call that replaces the op's first one; its views follow unchanged.
        workspace_bytes: an estimate, until a cost model measures it.
        needs: values that it reads without an argument to show for it.
        overwrites: values whose storages the outputs take over.
    """

    name: str
    root: TorchCall
    traits: ImplementationTraits = field(default_factory=ImplementationTraits)
    workspace_bytes: int = 0
    needs: tuple[str, ...] = ()
    overwrites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OptionalOp:
    """An optional op that makes a mask or an encoding.

    Attributes:
        name: of the op, and of its outputs where there is one.
        after: name of the op that it follows.
        call: its only call.
        outs: what its outputs look like.
    """

    name: str
    after: str
    call: TorchCall
    outs: Mapping[str, TensorSpec]
    workspace_bytes: int = 0
    traits: ImplementationTraits = field(default_factory=ImplementationTraits)


@dataclass(frozen=True, slots=True)
class Declined:
    """An implementation that a rule would have offered, and why it cannot."""

    name: str
    reason: str


Found = Iterator[Offer | OptionalOp | Declined]
Rule = Callable[["Scene", Op, TorchCall], Found]


def entries(spec: TensorSpec) -> int:
    """Number of entries of a tensor."""
    return math.prod(spec.shape)


def contiguous(spec: TensorSpec) -> bool:
    """Is this the ordinary row-major layout?"""
    step = 1
    for length, stride in zip(reversed(spec.shape), reversed(spec.stride), strict=True):
        if length != 1 and stride != step:
            return entries(spec) == 0
        step *= length
    return True


def images(*specs: TensorSpec) -> bool:
    """Are these contiguous batches of images, none of them empty?"""
    return all(len(s.shape) == 4 and contiguous(s) and entries(s) for s in specs)


def out_of(call: TorchCall) -> str | None:
    """A call's first output."""
    return call.outs[0] if call.outs else None


def rounded(tolerance: float, dtype: torch.dtype) -> float:
    """A tolerance stated for single precision, as it is for another type.

    Half precision rounds products of single precision once, to a few units in the last place.
    """
    epsilon, single = torch.finfo(dtype).eps, torch.finfo(torch.float32).eps
    if dtype is torch.float64:
        return float(tolerance * epsilon / single)
    return float(max(tolerance, 4 * epsilon)) if epsilon > single else tolerance


@dataclass(frozen=True)
class Scene:
    """A captured step with the look-ups that rules need.

    Attributes:
        captured: without alternatives.
        density: share of entries that are not zero, per value, where it was measured.
    """

    captured: Captured
    density: Mapping[str, float]

    def spec(self, name: str) -> TensorSpec:
        """What a tensor looks like."""
        return self.captured.tensors[name]

    def root(self, op: str) -> TorchCall:
        """The call that does an op's work."""
        return self.captured.code[op]["default"][0]

    @cached_property
    def writer(self) -> dict[str, Op]:
        """The op that writes each value."""
        return {value: op for op in self.captured.graph.ops for value in op.writes}

    @cached_property
    def readers(self) -> dict[str, list[Op]]:
        """The ops that read each value, in order."""
        table: dict[str, list[Op]] = {}
        for op in self.captured.graph.ops:
            for value in op.reads:
                table.setdefault(value, []).append(op)
        return table

    @cached_property
    def resident(self) -> frozenset[str]:
        """Names of the resident values."""
        return frozenset(v.name for v in self.captured.graph.values if v.resident)

    @cached_property
    def bytes(self) -> dict[str, int]:
        """Bytes per value."""
        return {v.name: v.bytes for v in self.captured.graph.values}

    @cached_property
    def _parameters(self) -> dict[str, Tensor]:
        named = dict(self.captured.workload.module.named_parameters(remove_duplicate=False))
        return {
            r.tensor: named[str(r.target)].detach()
            for r in self.captured.residents
            if r.kind == "parameter"
        }

    def parameter(self, name: str) -> Tensor | None:
        """The parameter behind a tensor, if it is one as a whole."""
        return self._parameters.get(name)

    def maker(self, name: str) -> tuple[Op, TorchCall] | None:
        """The op whose root call returns the tensor ``name``, with that call."""
        op = self.writer.get(self.captured.value_of[name])
        if op is None or name not in self.root(op.name).outs:
            return None
        return op, self.root(op.name)

    @cached_property
    def _by_first_argument(self) -> dict[str, list[tuple[Op, TorchCall]]]:
        table: dict[str, list[tuple[Op, TorchCall]]] = {}
        for op in self.captured.graph.ops:
            call = self.root(op.name)
            if call.args and isinstance(call.args[0], Ref):
                table.setdefault(call.args[0].name, []).append((op, call))
        return table

    def forward_of(
        self, name: str, target: Any, given: tuple[Any, ...], defaults: tuple[Any, ...]
    ) -> tuple[Op, TorchCall] | None:
        """The forward op ``target(name, *given)``, such as the ReLU6 of its input.

        ``defaults`` stand for what the forward call leaves out.
        """
        for op, call in self.forward_calls(name):
            rest = call.args[1:]
            if call.target is target and (*rest, *defaults[len(rest) :]) == given:
                return op, call
        return None

    def forward_calls(self, name: str) -> list[tuple[Op, TorchCall]]:
        """The forward ops that read the tensor ``name`` first."""
        found = self._by_first_argument.get(name, ())
        return [(op, call) for op, call in found if op.phase is not Phase.BACKWARD]

    def why_not_overwritten(self, name: str, call: TorchCall) -> str | None:
        """Why ``call`` may not take over the storage of the tensor ``name``; None: it may.

        Whether the value is still needed depends on the plan: a later read of it is an invalid
        plan, which the simulator refuses.
        """
        captured = self.captured
        value, out = captured.value_of[name], out_of(call)
        if value in self.resident:
            return f"{name} is resident"
        if value in captured.graph.outputs:
            return f"{name} is an output of the step"
        spec = self.spec(name)
        if name != value or entries(spec) * spec.dtype.itemsize != self.bytes[value]:
            return f"{name} is a view"
        if out is None or self.spec(out) != spec or self.bytes.get(out) != self.bytes[value]:
            return f"{name} and the result differ in shape, layout or type"
        if sum(captured.value_of[read] == value for read in call_names(call)) != 1:
            return f"{name} is read twice"
        return None


def inplace_offer(
    scene: Scene,
    call: TorchCall,
    overwritten: str,
    name: str,
    root: TorchCall,
    needs: tuple[str, ...] = (),
) -> Offer | Declined:
    """``root`` as an in-place implementation of ``call``, or why it cannot be."""
    reason = scene.why_not_overwritten(overwritten, call)
    if reason is not None:
        return Declined(name, reason)
    value = scene.captured.value_of[overwritten]
    return Offer(name, root, needs=needs, overwrites=(value,))


def like(call: TorchCall, target: Callable[..., Any], *args: Any) -> TorchCall:
    """``call`` with another target and arguments, the same results."""
    return TorchCall(target, args, {}, call.outs, call.unpack)


def one_out(name: str, target: Callable[..., Any], *args: Any) -> TorchCall:
    """A call with a single result."""
    return TorchCall(target, args, {}, (name,), False)


def plain(shape: tuple[int, ...], dtype: torch.dtype) -> TensorSpec:
    """A contiguous tensor."""
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return TensorSpec(shape, tuple(reversed(strides)), dtype)
