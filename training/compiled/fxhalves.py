"""A plan's two halves as FX graphs for Inductor: each recomputation is a node of its own.

Inductor keeps no order of its own accord, but it starts from this one: nodes stand as the plan has
them, a value that is computed again right before its reader is another node there, and nothing
merges nodes after the partition.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Node

from rematbench.base.errors import NotApplicable
from rematbench.graphs.plan import Plan
from rematbench.tracing.captured import Ref, TorchCall, call_reads
from rematbench.tracing.halves import Halves
from rematbench.validator.execute import RandomReplay
from rematbench.validator.halves import TwoPrograms

aten = torch.ops.aten


def graphs_of(halves: Halves, plan: Plan, programs: TwoPrograms) -> tuple[GraphModule, GraphModule]:
    """The forward and the backward module.

    Args:
        programs: of the same plan: they say what is handed over.

    Raises:
        NotApplicable: the plan uses implementations other than PyTorch's own.
    """
    codes = plan.codes(halves.captured.graph).tolist()
    states: dict[int, Node] = {}
    first = _Half(halves, set(programs.states), states)
    for name in halves.primals:
        first.take(name, halves.fakes[name])
    first.emit_views()
    first.emit(codes[: programs.split])
    copies = [first.copy(name) for name in programs.copied]
    for name, new in halves.written:
        first.write(name, new)
    handed = [*map(first.get, programs.saved), *copies]
    handed += [first.states[number] for number in programs.states]
    results = [first.end(end) for end in halves.results]
    forward = first.module([*results, *handed])
    second = _Half(halves, set(), {})
    for name in [*programs.saved, *programs.copied]:
        second.take(name, halves.fakes[name])
    for number in programs.states:
        second.take_state(number, fake_state(halves))
    for name in halves.tangents:
        second.take(name, halves.fakes[name])
    second.emit_views()
    second.emit(codes[programs.split :])
    return forward, second.module([second.end(end) for end in halves.gradients])


def fake_state(halves: Halves) -> Tensor:
    """A stand-in for a state of the random generator."""
    mode: FakeTensorMode = halves.fakes[halves.tangents[0]].fake_mode
    replay = RandomReplay(halves.captured.device)
    replay.record(0)
    size = replay.state(0).numel()
    with mode:
        return torch.empty(size, dtype=torch.uint8, device="cpu")


class _Half:
    """One half under construction.

    Args:
        kept: numbers of random ops whose generator state is handed over.
        states: nodes of the states so far, by number of the random op.
    """

    def __init__(self, halves: Halves, kept: set[int], states: dict[int, Node]) -> None:
        self.halves, self.captured = halves, halves.captured
        self.kept, self.states = kept, states
        self.graph = Graph()
        self.constants = nn.Module()
        self.nodes: dict[str, Node] = {}

    def take(self, name: str, fake: Any) -> None:
        node = self.nodes[name] = self.graph.placeholder(name)
        node.meta["val"] = fake

    def take_state(self, number: int, fake: Tensor) -> None:
        node = self.states[number] = self.graph.placeholder(f"rng_state_{number}")
        node.meta["val"] = fake

    def get(self, name: str) -> Node:
        if name not in self.nodes and name in self.captured.constants:
            self.constants.register_buffer(name, self.captured.constants[name])
            node = self.nodes[name] = self.graph.get_attr(name)
            node.meta["val"] = self.halves.fakes[name]
        return self.nodes[name]

    def end(self, end: Any) -> Any:
        return self.get(end.name) if isinstance(end, Ref) else end

    def copy(self, name: str) -> Node:
        node = self.graph.call_function(aten.clone.default, (self.nodes[name],))
        node.meta["val"] = self.halves.fakes[name]
        return node

    def write(self, name: str, new: str) -> None:
        target = self.nodes[name]
        node = self.graph.call_function(aten.copy_.default, (target, self.get(new)))
        node.meta["val"] = self.halves.fakes[name]

    def emit_views(self) -> None:
        """Views of what the caller holds, as far as that is here."""
        for call in self.captured.prologue:
            if all(self._is_here(ref) for ref in call_reads(call)):
                self._call(call)

    def _is_here(self, name: str) -> bool:
        return name in self.nodes or name in self.captured.constants

    def emit(self, codes: list[int]) -> None:
        """The computes among statements, in order; releases are Inductor's to find."""
        graph, tables = self.captured.graph, self.captured.graph.tables
        for code in codes:
            if code < 0:
                continue
            number = int(tables.op_of[code])
            op = graph.ops[number]
            if op.implementations[code - int(tables.op_first[number])].name != "default":
                raise NotApplicable(
                    f"the plan runs another implementation of {op.name}, which Inductor does not "
                    'have; use lower="eager"'
                )
            random = number if op.name in self.captured.random_ops else None
            for position, call in enumerate(self.captured.code[op.name]["default"]):
                if set(filter(None, call.outs)) & {*self.halves.tangents}:
                    continue  # the border: its tangents are placeholders, views of them are ours
                self._call(call, random if position == 0 else None)

    def _call(self, call: TorchCall, random: int | None = None) -> None:
        args, kwargs = pytree.tree_map_only(
            Ref, lambda ref: self.get(ref.name), (call.args, dict(call.kwargs))
        )
        made = self.halves.nodes[next(filter(None, call.outs))]
        node = self._node(call, args, kwargs, random)
        node.meta = {k: v for k, v in made.meta.items() if k not in ("recompute", "ac_graph_id")}
        fakes = [None if out is None else self.halves.fakes[out] for out in call.outs]
        node.meta["val"] = tuple(fakes) if call.unpack else fakes[0]
        if not call.unpack:
            self.nodes[str(call.outs[0])] = node
            return
        for position, out in enumerate(call.outs):
            if out is not None:
                self.nodes[out] = self._item(node, position, self.halves.fakes[out])

    def _item(self, node: Node, position: int, fake: Any) -> Node:
        item = self.graph.call_function(operator.getitem, (node, position))
        item.meta["val"] = fake
        return item

    def _node(self, call: TorchCall, args: Any, kwargs: Any, random: int | None) -> Node:
        if random is None or (random not in self.kept and random not in self.states):
            return self.graph.call_function(call.target, args, kwargs)
        args, kwargs = pytree.tree_map_only(Node, self._as_eager_has_it, (args, kwargs))
        if random in self.states:
            text = (self.states[random], call.target, *args)
            return self.graph.call_function(run_with_rng_state, text, kwargs)
        both = self.graph.call_function(run_and_save_rng_state, (call.target, *args), kwargs)
        fakes = [None if out is None else self.halves.fakes[out] for out in call.outs]
        state = fake_state(self.halves)
        both.meta["val"] = (state, tuple(fakes) if call.unpack else fakes[0])
        self.states[random] = self._item(both, 0, state)
        return self.graph.call_function(operator.getitem, (both, 1))

    def _as_eager_has_it(self, node: Node) -> Node:
        """The same tensor in the order of eager's: draws follow its memory, and Inductor's may be
        another; it knows that of random ops, not of those that keep or take a state."""
        fake = node.meta["val"]
        if not isinstance(fake, Tensor):
            return node
        forced = self.graph.call_function(
            torch.ops.prims.inductor_force_stride_order.default, (node, list(fake.stride()))
        )
        forced.meta["val"] = fake
        return forced

    def module(self, ends: list[Any]) -> GraphModule:
        self.graph.output(tuple(ends))
        module = GraphModule(self.constants, self.graph)
        module.graph.lint()
        return module
