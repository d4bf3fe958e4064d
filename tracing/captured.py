"""What capture makes: a graph with the code that runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from rematbench.graphs.ir import Graph
from rematbench.graphs.kinds import Refusal, TraitsTable
from rematbench.tracing.nested import mapped
from rematbench.tracing.workload import Workload


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor by name, as an argument of a :class:`TorchCall`."""

    name: str


@dataclass(frozen=True, slots=True)
class TorchCall:
    """One call: ``outs = target(*args, **kwargs)``.

    Attributes:
        outs: a name per output; None for an output that is None or that nobody wants.
        unpack: does the target return a tuple or list?
    """

    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outs: tuple[str | None, ...]
    unpack: bool

    @property
    def operator(self) -> str | None:
        """The target as :class:`~rematbench.graphs.ir.Op` names it; None of no PyTorch operator."""
        return str(self.target) if isinstance(self.target, OpOverload) else None


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What a tensor looks like: enough to make a stand-in for it."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Resident:
    """Where a resident tensor comes from.

    Attributes:
        tensor: its name.
        kind: ``parameter``, ``buffer``, ``input``, ``tangent`` or ``constant``.
        target: qualified name of the parameter or buffer, or position in the batch.
    """

    tensor: str
    kind: str
    target: str | int


@dataclass(frozen=True)
class Captured:
    """A graph with the code that runs it.

    Attributes:
        graph: the training step; costs are 1 until :meth:`with_graph` brings others.
        workload: what was captured.
        device: ``cpu`` or ``cuda``: graphs differ between them.
        code: calls by op name, then implementation name.
        prologue: views of residents, made once per step.
        tensors: what each tensor looks like.
        value_of: the value whose storage each tensor lies in.
        residents: where resident tensors come from, in call order.
        loss: tensor of the scalar loss.
        gradients: tensor of each parameter's gradient, by qualified name.
        updates: tensor of each mutated buffer's new value, by qualified name.
        constants: tensors that the trace holds itself.
        traits: of implementations that :mod:`rematbench.tracing.alternatives` attached.
        refused: implementations that it could not attach, and why.
    """

    graph: Graph
    workload: Workload
    device: str
    code: Mapping[str, Mapping[str, tuple[TorchCall, ...]]]
    prologue: tuple[TorchCall, ...]
    tensors: Mapping[str, TensorSpec]
    value_of: Mapping[str, str]
    residents: tuple[Resident, ...]
    loss: str
    gradients: Mapping[str, str]
    updates: Mapping[str, str]
    constants: Mapping[str, Tensor]
    traits: TraitsTable = field(default_factory=dict)
    refused: tuple[Refusal, ...] = ()

    def with_graph(self, graph: Graph) -> Captured:
        """The same code for a graph of the same ops and values: with costs, say."""
        return replace(self, graph=graph)

    @property
    def kinds(self) -> dict[str, str]:
        """Kind (``parameter``, ``buffer``, ``input``, ...) of each resident value."""
        return {self.value_of[r.tensor]: r.kind for r in reversed(self.residents)}

    @property
    def random_ops(self) -> frozenset[str]:
        """Names of the ops that draw from the random generator."""
        return self.graph.random_ops

    @property
    def gradient_values(self) -> frozenset[str]:
        """The values that hold parameter gradients."""
        return frozenset(self.value_of[name] for name in self.gradients.values())


def target_name(target: Callable[..., Any]) -> str:
    """The name of a call's target, the same in every process."""
    if isinstance(target, FunctionType):
        return f"{target.__module__}.{target.__qualname__}"
    return str(target)


def call_names(call: TorchCall) -> list[str]:
    """Names of the tensors that a call reads, in order, repeats included."""
    found: list[str] = []
    _note_names(call.args, found)
    _note_names(call.kwargs.values(), found)
    return found


def _note_names(items: Iterable[Any], found: list[str]) -> None:
    # Six times as fast as pytree, and called some six times for each call of a graph.
    for item in items:
        if item.__class__ is Ref:
            found.append(item.name)
        elif isinstance(item, (tuple, list)):
            _note_names(item, found)
        elif isinstance(item, Mapping):
            _note_names(item.values(), found)


def call_reads(call: TorchCall) -> set[str]:
    """Names of the tensors that a call reads."""
    return set(call_names(call))


def filled(call: TorchCall, tensor: Callable[[str], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a call, positional and by key, with ``tensor(name)`` for each tensor."""

    def given(item: Any) -> Any:
        return tensor(item.name) if item.__class__ is Ref else item

    return mapped(call.args, given), mapped(dict(call.kwargs), given)
