"""The nodes of a traced step turned into ops, values and calls."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from rematbench.base.errors import CaptureError
from rematbench.graphs.ir import Graph, Implementation, Op, Phase, Value
from rematbench.tracing.captured import Captured, Ref, Resident, TensorSpec, TorchCall, call_reads
from rematbench.tracing.nested import mapped
from rematbench.tracing.scopes import label, scope_of
from rematbench.tracing.workload import Workload

aten = torch.ops.aten

_ALIASES = {aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default}
_WAITS = ("_c10d_functional.wait_tensor.default", "c10d_functional.wait_tensor.default")
"""Of collectives; by name, since not every build of PyTorch has them."""


def _first_names(module: nn.Module) -> dict[str, str]:
    """Each parameter's and buffer's name to the first one of the same tensor."""
    first: dict[int, str] = {}
    named = [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
    return {name: first.setdefault(id(tensor), name) for name, tensor in named}


def _storage(fake: Tensor) -> int:
    if fake.layout is not torch.strided:  # it has none of its own
        return id(fake)
    return int(fake.untyped_storage()._cdata)


def _bytes(fake: Tensor) -> int:
    """Of a sparse gradient those of its indices and values, which the trace has made before."""
    if fake.layout is not torch.strided:
        return int(fake._indices().nbytes + fake._values().nbytes)
    return int(fake.untyped_storage().nbytes())


def _spec(fake: Tensor) -> TensorSpec:
    stride = tuple(fake.stride()) if fake.layout is torch.strided else ()
    return TensorSpec(tuple(fake.shape), stride, fake.dtype)


@dataclass
class Draft:
    """An op under construction: its root call, then the views of what it makes."""

    phase: Phase
    calls: list[TorchCall]
    values: list[str]
    scope: str = ""
    sequence: int | None = None  # of the autograd node that it is part of, in the trace's count
    adds_gradients: bool = False  # of a tensor that several ops read, as autograd's engine does


class Builder:
    """Turns the traced nodes into ops, values and calls."""

    def __init__(self, workload: Workload, device: str, nodes: list[Node]) -> None:
        self.workload = workload
        self.device = device
        self.nodes = nodes
        self.name: dict[Node, str | tuple[str | None, ...]] = {}
        self.value_at: dict[int, str] = {}  # storage -> value
        self.bytes: dict[str, int] = {}
        self.value_of: dict[str, str] = {}
        self.tensors: dict[str, TensorSpec] = {}
        self.residents: list[Resident] = []
        self.constants: dict[str, Tensor] = {}
        self.prologue: list[TorchCall] = []
        self.drafts: dict[str, Draft] = {}
        self.owner: dict[str, Draft] = {}  # value -> the op that makes it
        self.first_name = _first_names(workload.module)
        self.parameter: dict[str, str] = {}  # first name -> tensor
        self.results: dict[Any, str] = {}

    def build(self) -> Captured:
        self._walk()
        return self._assemble(self.results)

    def _walk(self) -> None:
        takes = {
            "placeholder": self._placeholder,
            "get_attr": self._constant,
            "call_function": self._call,
            "output": self._output,
        }
        for node in self.nodes:
            takes[node.op](node)

    def _tensor(self, name: str, fake: Tensor) -> str:
        """Register a tensor; returns its value, made anew for a new storage."""
        storage = _storage(fake)
        if storage not in self.value_at:
            self.value_at[storage] = name
            self.bytes[name] = _bytes(fake)
        self.value_of[name] = self.value_at[storage]
        self.tensors[name] = _spec(fake)
        return self.value_of[name]

    def _placeholder(self, node: Node) -> None:
        description = node.meta["desc"]
        kind, target = {
            "ParamAOTInput": lambda d: ("parameter", d.target.removeprefix("model.")),
            "BufferAOTInput": lambda d: ("buffer", d.target.removeprefix("model.")),
            "PlainAOTInput": lambda d: ("input", d.idx),
            "TangentAOTInput": lambda d: ("tangent", 0),
        }.get(type(description).__name__, lambda d: ("unknown", str(d)))(description)  # type: ignore[no-untyped-call]
        if kind == "unknown":
            raise CaptureError(f"the trace has an input of unknown kind: {target}")
        if kind == "parameter":
            first = self.parameter.setdefault(self.first_name[target], node.name)
            if first != node.name:  # a tied parameter: the trace gives it an input per name
                self.name[node] = first
                return
        self.name[node] = node.name
        self._tensor(node.name, node.meta["val"])
        self.residents.append(Resident(node.name, kind, target))

    def _constant(self, node: Node) -> None:
        self.name[node] = node.name
        self.constants[node.name] = node.meta["constant"]
        self._tensor(node.name, node.meta.get("val", node.meta["constant"]))
        self.residents.append(Resident(node.name, "constant", str(node.target)))

    def _argument(self, argument: Any) -> Any:
        """One item of a node's arguments, with :class:`Ref` in place of nodes."""
        if isinstance(argument, Node):
            name = self.name[argument]
            if not isinstance(name, str):
                raise CaptureError(f"{label(argument)} returns a tuple that is read as a whole")
            return Ref(name)
        return argument

    def _call(self, node: Node) -> None:
        source = node.args[0] if node.args else None
        if node.target is operator.getitem:
            assert isinstance(source, Node)
            names = self.name[source]
            assert isinstance(names, tuple)
            name = names[node.args[1]]
            assert name is not None
            self.name[node] = name
            return
        if isinstance(source, Node) and self._is_alias(node, source):
            self.name[node] = self.name[source]
            self._shares(node, source)  # views of the copy are views of the original
            return
        if isinstance(source, Node) and str(node.target) in _WAITS:
            self._shares(node, source)  # it returns what it waits for, which the trace does not say
        self._kernel(node)

    def _shares(self, node: Node, source: Node) -> None:
        """What a node makes lies in the storage of another's result."""
        alias = self.name[source]
        if isinstance(alias, str):
            self.value_at.setdefault(_storage(node.meta["val"]), self.value_of[alias])

    def _kernel(self, node: Node) -> None:
        """Name what a kernel returns, and put its call where it belongs."""
        result = node.meta["val"]
        unpack = isinstance(result, (tuple, list))
        fakes = list(result) if unpack else [result]
        names = [f"{node.name}_out{i}" if unpack else node.name for i in range(len(fakes))]
        made = {name: f for name, f in zip(names, fakes, strict=True) if isinstance(f, Tensor)}
        outs = tuple(name if name in made else None for name in names)
        self.name[node] = outs if unpack else node.name
        call = TorchCall(
            node.target,
            mapped(node.args, self._argument),
            mapped(dict(node.kwargs), self._argument),
            outs,
            unpack,
        )
        self._place(node, call, made)

    @staticmethod
    def _is_alias(node: Node, source: Node) -> bool:
        if node.target in _ALIASES:
            return True
        if node.target is not aten.clone.default:
            return False
        # The trace is functional, so a copy of equal layout can share the original's storage.
        return bool(node.meta["val"].stride() == source.meta["val"].stride())

    def _place(self, node: Node, call: TorchCall, made: Mapping[str, Tensor]) -> None:
        """Make ``call`` an op of its own, or attach it, as a view, to the op of its storage.

        Args:
            made: its results, by name.
        """
        viewed = {self.value_at.get(_storage(fake), "") for fake in made.values()}
        for name, fake in made.items():
            self._tensor(name, fake)
        if any(viewed):
            value, *others = viewed
            if others:
                raise CaptureError(f"{label(node)} returns a view beside a new tensor")
            owner = self.owner.get(value)
            (self.prologue if owner is None else owner.calls).append(call)
            return
        backward = node.meta.get("partitioner_tag") == "is_backward"
        phase = Phase.BACKWARD if backward else Phase.FORWARD
        adds = bool(node.meta.get("is_gradient_acc")) and node.target is aten.add.Tensor
        for name, part in _split(node.name, call):
            values = list(dict.fromkeys(self.value_of[out] for out in filter(None, part.outs)))
            draft = Draft(phase, [part], values, self._scope(node), _sequence(node), adds)
            self.drafts[name] = draft
            self.owner.update(dict.fromkeys(values, draft))

    _scope = staticmethod(scope_of)

    def _output(self, node: Node) -> None:
        for argument, description in zip(node.args[0], node.meta["desc"], strict=True):
            if isinstance(argument, Node):
                name = self.name[argument]
                assert isinstance(name, str)
                self.results[description] = name

    def _sort(self, results: dict[Any, str]) -> tuple[str, dict[str, list[str]], dict[str, str]]:
        """The loss, the parts of each parameter's gradient, and the new value of each buffer."""
        parts: dict[str, list[str]] = {}
        updates: dict[str, str] = {}
        loss = ""
        for description, name in results.items():
            kind = type(description).__name__
            if kind == "GradAOTOutput":
                target = description.grad_of.target.removeprefix("model.")
                parts.setdefault(self.first_name[target], []).append(name)
            elif kind == "InputMutationAOTOutput":
                source = description.mutated_input
                if not hasattr(source, "target"):
                    raise CaptureError("the step changes its own batch in place; clone it first")
                updates[source.target.removeprefix("model.")] = name
            elif kind == "PlainAOTOutput":
                loss = name
        for name in updates:
            if self.first_name[name] != name:
                raise CaptureError(
                    f"the step changes buffer {name}, which is {self.first_name[name]} too; "
                    "register it under one name"
                )
        return loss, parts, updates

    def _assemble(self, results: dict[Any, str]) -> Captured:
        loss, parts, updates = self._sort(results)
        gradients = {name: self._sum(tensors) for name, tensors in parts.items()}
        ends = list(dict.fromkeys([loss, *gradients.values(), *updates.values()]))
        self._prune(ends)
        self.owner[self.value_of[loss]].phase = Phase.LOSS
        outputs = dict.fromkeys(self.value_of[end] for end in ends)
        return self._captured(outputs, loss, gradients, updates)

    def _captured(
        self,
        outputs: Iterable[str],
        loss: str,
        gradients: Mapping[str, str],
        updates: Mapping[str, str],
    ) -> Captured:
        """The step with these values as its outputs, but for those that are resident."""
        return Captured(
            graph=self._graph(outputs),
            workload=self.workload,
            device=self.device,
            code={name: {"default": tuple(d.calls)} for name, d in self.drafts.items()},
            prologue=tuple(self.prologue),
            tensors=self.tensors,
            value_of=self.value_of,
            residents=tuple(self.residents),
            loss=loss,
            gradients=gradients,
            updates=updates,
            constants=self.constants,
        )

    def _sum(self, parts: list[str]) -> str:
        """The gradient of a tied parameter, added up as autograd does: as its parts are made.

        Each name of the parameter may have been read several times; the trace has added those up.
        """
        if len(parts) == 1:  # as nearly all: what follows looks at every tensor of the step
            return parts[0]
        order = {name: position for position, name in enumerate(self.tensors)}
        single = [summand for part in parts for summand in self._summands(part)]
        total, *rest = sorted(single, key=order.__getitem__)
        for part in rest:
            specs = [self.tensors[name] for name in (total, part)]
            like = [
                torch.empty_strided(s.shape, s.stride, dtype=s.dtype, device="meta") for s in specs
            ]
            name = f"tied_{part}"
            call = TorchCall(aten.add.Tensor, (Ref(total), Ref(part)), {}, (name,), False)
            out = like[0] + like[1]
            self.bytes[name], self.value_of[name] = int(out.untyped_storage().nbytes()), name
            self.tensors[name] = TensorSpec(tuple(out.shape), tuple(out.stride()), out.dtype)
            draft = Draft(Phase.BACKWARD, [call], [name])
            maker = self.owner[self.value_of[part]]
            ops = list(self.drafts.items())
            after = 1 + next(i for i, (_, made) in enumerate(ops) if made is maker)
            self.drafts = dict([*ops[:after], (name, draft), *ops[after:]])
            self.owner[name] = draft
            total = name
        return total

    def _summands(self, part: str) -> list[str]:
        """The gradients that the trace has added up to a part."""
        draft = self.owner.get(self.value_of[part])
        if draft is None or not draft.adds_gradients or len(draft.calls) > 1:
            return [part]
        return [name for ref in draft.calls[0].args for name in self._summands(ref.name)]

    def _prune(self, ends: list[str]) -> None:
        """Drop ops and views that nothing needs; ops that draw random numbers stay in the draw."""
        wanted = set(ends)
        for name, draft in reversed(list(self.drafts.items())):
            kept: list[TorchCall] = []
            for call in reversed(draft.calls):
                root = call is draft.calls[0]
                if (root and (kept or _draws(call))) or wanted.intersection(call.outs):
                    kept.append(call)
                    wanted |= call_reads(call)
            if kept:
                draft.calls[:] = reversed(kept)
            else:
                del self.drafts[name]
        kept = []
        for call in reversed(self.prologue):
            if wanted.intersection(call.outs):
                kept.append(call)
                wanted |= call_reads(call)
        self.prologue = kept[::-1]

    def _values(self, names: Iterable[str]) -> set[str]:
        """The values that tensors lie in."""
        return {self.value_of[name] for name in names}

    def _resident(self) -> set[str]:
        return self._values(resident.tensor for resident in self.residents)

    def _reads(self, draft: Draft) -> set[str]:
        """The values that an op's calls read, its own included."""
        return {value for call in draft.calls for value in self._values(call_reads(call))}

    def _graph(self, ends: Iterable[str]) -> Graph:
        resident = self._resident()
        outputs = tuple(value for value in ends if value not in resident)
        written = {value for draft in self.drafts.values() for value in draft.values}
        values = tuple(
            Value(name, self.bytes[name], name in resident)
            for name in self.bytes
            if name in resident or name in written
        )
        place = {name: position for position, name in enumerate(self.bytes)}
        nodes = _autograd_nodes(list(self.drafts.values()))
        ops = []
        for (name, draft), autograd_node in zip(self.drafts.items(), nodes, strict=True):
            reads = self._reads(draft).difference(draft.values)
            own = tuple(sorted(reads, key=place.__getitem__))
            ops.append(
                Op(
                    name,
                    draft.phase,
                    tuple(draft.values),
                    (Implementation("default", own, 1.0),),
                    draft.scope,
                    autograd_node,
                    _draws(draft.calls[0]),
                    draft.calls[0].operator,
                )
            )
        return Graph(self.workload.name, values, tuple(ops), outputs)


def _sequence(node: Node) -> int | None:
    """The number of the autograd node that a backward node is part of, as the trace counts."""
    if node.meta.get("partitioner_tag") != "is_backward" or node.meta.get("is_gradient_acc"):
        return None  # sums of gradients are between nodes, and have the number of another
    found: int | None = node.meta.get("seq_nr")
    return found


def _autograd_nodes(drafts: list[Draft]) -> list[int | None]:
    """Per op, the number of its autograd node, from 0; None where it is alone there."""
    found: list[int | None] = []
    runs = [list(run) for _, run in groupby(drafts, key=lambda draft: draft.sequence)]
    shared = 0
    for run in runs:
        together = len(run) > 1 and run[0].sequence is not None
        found += [shared if together else None] * len(run)
        shared += together
    return found


def _draws(call: TorchCall) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(call.target, "tags", ())


def _split(name: str, call: TorchCall) -> list[tuple[str, TorchCall]]:
    """Split a convolution's backward into parameter and input gradients (output_mask)."""
    if call.target is not aten.convolution_backward.default:
        return [(name, call)]
    outs = (*call.outs, None, None, None)[:3]
    parts = {"input": (outs[0], None, None), "weight": (None, outs[1], outs[2])}
    parts = {part: out for part, out in parts.items() if any(out)}
    if len(parts) < 2:
        return [(name, call)]
    calls = []
    for part, kept in parts.items():
        args = (*call.args[:-1], [out is not None for out in kept])
        calls.append((f"{name}_{part}", TorchCall(call.target, args, call.kwargs, kept, True)))
    return calls
