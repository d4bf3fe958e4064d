"""The joint graph of ``torch.compile`` as a captured step: forward half, border, backward half.

AOTAutograd hands its partitioner forward and backward as one graph: its inputs are those of the
forward pass and, as tangents, the gradients of what that returns; its outputs are what the forward
pass returns, then the gradients of its inputs. Between the halves the caller goes on with the
results, so that everything returned has to be there before any tangent is. One op of our own,
the *border*, says so: it reads all results and makes the tangents.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from rematbench.base.errors import CaptureError
from rematbench.graphs.ir import Phase
from rematbench.tracing.captured import Captured, Ref, Resident, TorchCall
from rematbench.tracing.joint import Builder, Draft
from rematbench.tracing.trouble import depends_on_values
from rematbench.tracing.workload import Workload

BORDER = "tangents_of_results"
"""The op between the halves."""

_ROOT = re.compile(r"^L\['\w+'\](\[\d+\])?\.?")  # the compiled module itself
_TABLE = re.compile(r"(?:\.?__dict__\['_modules'\]|\.?_modules)\['(\w+)'\]")
_PHASES = list(Phase)  # as a step runs them
_AGAIN = (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)
aten = torch.ops.aten


@dataclass(frozen=True, eq=False)
class JointWorkload(Workload):
    """What is known of a compiled step: no module and no batch, but the joint graph itself.

    Attributes:
        joint: as AOTAutograd traced it.
        returned: how many of its outputs, from the first, belong to the forward pass.
    """

    joint: GraphModule
    returned: int


@dataclass(frozen=True, slots=True)
class Source:
    """Where an input of the forward pass comes from.

    Attributes:
        kind: ``parameter``, ``buffer`` or ``input``.
        name: as people call it.
    """

    kind: str
    name: str


@dataclass(frozen=True)
class Halves:
    """A captured step in two halves.

    Attributes:
        captured: the whole, with :data:`BORDER` as its loss.
        primals: the tensors that the forward pass is called with.
        tangents: the tensors that the backward pass is called with, besides what was saved.
        results: what the forward pass returns: tensors by :class:`Ref`, as is a mesh of ranks that
            it was given; constants as they are.
        gradients: what the backward pass returns, likewise.
        changed: primals that the caller changes once the forward pass has returned.
        written: (primal, its new tensor), where the forward pass itself has to change it.
        held: values that the caller holds from the forward pass on.
        dropped: values in regions of ``torch.utils.checkpoint`` that are not kept for the backward
            pass, but computed again.
        fakes: a stand-in for each tensor; inputs that are numbers as they are.
        nodes: the traced node of each tensor.
    """

    captured: Captured
    primals: tuple[str, ...]
    tangents: tuple[str, ...]
    results: tuple[Any, ...]
    gradients: tuple[Any, ...]
    changed: frozenset[str]
    written: tuple[tuple[str, str], ...]
    held: frozenset[str]
    dropped: frozenset[str]
    fakes: Mapping[str, Any]
    nodes: Mapping[str, Node]


def tangents_like(*results: Tensor, specs: Sequence[tuple[Any, Any, torch.dtype]]) -> list[Tensor]:
    """Room for the tangents: what the caller makes of the results is not ours to run.

    Args:
        specs: shape, stride and dtype of each.
    """
    device = results[0].device if results else None
    return [
        torch.empty_strided(shape, stride, dtype=dtype, device=device)
        for shape, stride, dtype in specs
    ]


def halves_of(name: str, nodes: Sequence[Node], returned: int, sources: Sequence[Source]) -> Halves:
    """Two halves of the nodes of a joint graph.

    Args:
        name: of the compiled module.
        returned: how many outputs, from the first, belong to the forward pass.
        sources: of the inputs, by position; where there are more inputs, they are ``input``.

    Raises:
        CaptureError: shapes depend on data or are dynamic, or the graph holds what no plan can
            run: says what.
    """
    if depends_on_values(nodes):
        raise CaptureError(
            f"{name}: its graph has sizes or numbers that only a run tells; a plan needs fixed "
            "ones: compile with dynamic=False, and use torch.where instead of .item() and masks "
            "that select"
        )
    return _HalvesBuilder(name, list(nodes), returned, sources).halves()


def _path(text: str) -> str:
    """``L['args'][0].__dict__['_modules']['base'].model.layers.3`` as ``base.model.layers.3``."""
    return _ROOT.sub("", _TABLE.sub(r".\1", text)).lstrip(".")


def _device(nodes: Sequence[Node]) -> str:
    """The device of the step; scalars on the CPU go with any."""
    found = {
        value.device.type
        for node in nodes
        if isinstance(value := node.meta.get("val"), Tensor) and value.dim() > 0
    }
    if len(found) > 1:
        raise CaptureError(f"the compiled graph uses {sorted(found)}; keep it on one device")
    return found.pop() if found else "cpu"


def _no_loss(*arguments: Any) -> Tensor:
    raise AssertionError("what is compiled is run by its caller only")


class _HalvesBuilder(Builder):
    """Builds the ops of a joint graph, whose inputs and outputs are known by position."""

    def __init__(
        self, name: str, nodes: list[Node], returned: int, sources: Sequence[Source]
    ) -> None:
        joint, device = nodes[0].graph.owning_module, _device(nodes)
        assert joint is not None
        super().__init__(
            JointWorkload(name, nn.Module(), tuple, _no_loss, joint, returned), device, nodes
        )
        self.returned, self.sources = returned, sources
        self.fakes: dict[str, Any] = {}
        self.made_by: dict[str, Node] = {}
        self.primals: list[str] = []
        self.tangents: list[str] = []
        self.written: list[tuple[str, str]] = []
        self.ends: list[Any] = []
        self.border = Draft(Phase.LOSS, [], [])

    def halves(self) -> Halves:
        self._walk()
        return self._joined()

    def _tensor(self, name: str, fake: Tensor) -> str:
        self.fakes[name] = fake
        return super()._tensor(name, fake)

    def _placeholder(self, node: Node) -> None:
        self.name[node] = node.name
        value = node.meta.get("val")
        unread = all(user.op == "output" for user in node.users)
        if not isinstance(value, Tensor) and unread:  # a size that is known; a mesh of ranks
            self.fakes[node.name] = value
            self.primals.append(node.name)
            return
        if not isinstance(value, Tensor):
            raise CaptureError(f"input {node.name} is no tensor; compile with dynamic=False")
        self._tensor(node.name, value)
        self.made_by[node.name] = node
        if node.name.startswith("tangents"):
            self.tangents.append(node.name)
            value = self.value_of[node.name]
            self.border.values.append(value)
            self.owner[value] = self.border  # so that views of it come after the border
            return
        place = getattr(_outermost(node.meta.get("desc")), "idx", len(self.primals))
        known = place < len(self.sources)
        source = self.sources[place] if known else Source("input", node.name)
        self.primals.append(node.name)
        self.residents.append(Resident(node.name, source.kind, source.name))

    def _constant(self, node: Node) -> None:
        owner = node.graph.owning_module
        found = None if owner is None else _attribute(owner, str(node.target))
        if not isinstance(found, Tensor):
            raise CaptureError(
                f"the graph calls a graph of its own ({node.target}), which a plan cannot look into"
            )
        node.meta["constant"] = found
        super()._constant(node)
        self.made_by[node.name] = node

    def _call(self, node: Node) -> None:
        if node.target is operator.getitem:
            super()._call(node)
            return
        if not isinstance(node.target, torch._ops.OpOverload):
            raise CaptureError(
                f"op {node.name} ({node.target}) is no single kernel, so that no plan can run it"
            )
        if node.target is aten.copy_.default and self._writes_primal(node):
            return
        if node.target._schema.is_mutable:
            raise CaptureError(f"op {node.name} changes its argument in place")
        super()._call(node)

    def _place(self, node: Node, call: TorchCall, made: Mapping[str, Tensor]) -> None:
        super()._place(node, call, made)
        self.made_by.update(dict.fromkeys(made, node))

    @staticmethod
    def _scope(node: Node) -> str:
        """The path of the submodule that a node came from, from the compiled module on."""
        modules = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
        paths = [path for path, _ in modules.values()]
        return _path(paths[-1]) if paths else ""

    def _writes_primal(self, node: Node) -> bool:
        """Is it the copy of a result into an input? Then the forward half does it, last."""
        target, source = node.args[:2]
        if not (isinstance(target, Node) and isinstance(source, Node)):
            return False
        name, new = self.name[target], self.name[source]
        if not (isinstance(name, str) and isinstance(new, str) and name in self.primals):
            return False
        self.written.append((name, new))
        self.name[node] = name
        return True

    @staticmethod
    def _is_alias(node: Node, source: Node) -> bool:
        """A copy that leaves the graph is a tensor of its own, which the caller may change."""
        leaves = any(user.op == "output" for user in node.users)
        is_copy = node.target is aten.clone.default
        return Builder._is_alias(node, source) and not (leaves and is_copy)

    def _output(self, node: Node) -> None:
        self.ends = [self._argument(each) for each in node.args[0]]

    def _joined(self) -> Halves:
        results, gradients = self.ends[: self.returned], self.ends[self.returned :]
        returned, wanted = self._tensors(results), self._tensors(gradients)
        needed = [*returned, *(new for _, new in self.written)]
        self._put_border(needed)
        self._prune([*dict.fromkeys([*needed, *wanted])])
        if BORDER not in self.drafts:
            raise CaptureError("no gradient depends on what the compiled module returns")
        changes = self._changes(results)
        held = self._values(returned) - self._values(changes.values())
        outputs = held | self._values(wanted)
        return Halves(
            captured=self._captured(
                [value for value in self.bytes if value in outputs],
                loss=self.tangents[0],
                gradients=self._gradients(gradients),
                updates=changes,
            ),
            primals=tuple(self.primals),
            tangents=tuple(self.tangents),
            results=tuple(results),
            gradients=tuple(gradients),
            changed=frozenset([*changes, *(name for name, _ in self.written)]),
            written=tuple(self.written),
            held=frozenset(held - self._resident()),
            dropped=frozenset(self._dropped(held)),
            fakes=self.fakes,
            nodes=self.made_by,
        )

    def _tensors(self, ends: Sequence[Any]) -> list[str]:
        """Those among what a half returns; it may return a mesh of ranks that it was given."""
        return [name for name in tensors_among(ends) if name in self.tensors]

    def _changes(self, results: Sequence[Any]) -> dict[str, str]:
        """New tensors of the inputs that the caller changes for us, by primal."""
        described = self.nodes[-1].meta.get("desc") or ()
        found = {}
        for end, description in zip(results, described, strict=False):
            place = getattr(getattr(description, "mutated_input", None), "idx", None)
            if place is not None and isinstance(end, Ref):
                found[self.primals[place]] = end.name
        return found

    def _dropped(self, held: set[str]) -> set[str]:
        """What checkpointed regions make, but for what is read outside of them, or held."""
        forward = [draft for draft in self.drafts.values() if draft.phase is not Phase.BACKWARD]
        found: set[str] = set()
        region: dict[str, int] = {}
        for draft in forward:
            number, again = self._region(draft)
            outside = {value for value in self._reads(draft) if region.get(value) != number}
            found -= outside.difference(draft.values)
            region |= dict.fromkeys(draft.values, number)
            if again and held.isdisjoint(draft.values):
                found.update(draft.values)
        return found

    def _region(self, draft: Draft) -> tuple[int, bool]:
        """The number of the region that an op is in, -1 for none; is it to be computed again?"""
        outs = [out for call in draft.calls for out in call.outs if out in self.made_by]
        meta = self.made_by[outs[0]].meta if outs else {}
        return meta.get("ac_graph_id", -1), meta.get("recompute") in _AGAIN

    def _gradients(self, ends: Sequence[Any]) -> dict[str, str]:
        target = {resident.tensor: str(resident.target) for resident in self.residents}
        return {
            target[name]: end.name
            for name, end in zip(self.primals, ends, strict=False)
            if isinstance(end, Ref) and name in target
        }

    def _put_border(self, needed: Sequence[str]) -> None:
        """Order the ops: what results need and what came before the first tangent; the rest."""
        late = {*self.border.values}
        drafts = list(self.drafts.values())
        for draft in drafts:
            draft.phase = Phase.BACKWARD
            if late & self._reads(draft):
                late.update(draft.values)
        wanted = self._values(needed)
        if wanted & late:
            raise CaptureError("a result of the forward pass depends on a gradient")
        first = next((i for i, draft in enumerate(drafts) if {*draft.values} & late), len(drafts))
        for i, draft in reversed([*enumerate(drafts)]):
            if i < first or wanted.intersection(draft.values):
                draft.phase = Phase.FORWARD
                wanted |= self._reads(draft)
        self.border.calls.insert(0, self._border(needed))
        order = [*self.drafts.items(), (BORDER, self.border)]
        self.drafts = dict(sorted(order, key=lambda item: _PHASES.index(item[1].phase)))

    def _border(self, needed: Sequence[str]) -> TorchCall:
        specs = [
            (spec.shape, spec.stride, spec.dtype)
            for spec in map(self.tensors.__getitem__, self.tangents)
        ]
        resident = self._resident()
        reads = [name for name in dict.fromkeys(needed) if self.value_of[name] not in resident]
        return TorchCall(
            tangents_like, tuple(map(Ref, reads)), {"specs": specs}, tuple(self.tangents), True
        )


def _outermost(description: Any) -> Any:
    """Of what a tensor is a part of: a DTensor, say."""
    while (base := getattr(description, "base", None)) is not None:
        description = base
    return description


def _attribute(owner: nn.Module, path: str) -> Any:
    for part in path.split("."):
        owner = getattr(owner, part)
    return owner


def tensors_among(ends: Sequence[Any]) -> list[str]:
    """The names of the tensors among what a half returns."""
    return [end.name for end in ends if isinstance(end, Ref)]
