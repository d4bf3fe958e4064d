"""Where a graph computes attention."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import networkx as nx

from rematbench.graphs.blocks import Block
from rematbench.graphs.ir import Graph
from rematbench.graphs.structure import forward_graph

# Attention in one op. The CPU has one of its own.
FUSED = tuple(
    f"_scaled_dot_product_{name}"
    for name in (
        *("flash_attention", "flash_attention_for_cpu", "efficient_attention"),
        *("cudnn_attention", "attention_math", "fused_attention_overrideable"),
    )
)
_SOFTMAX = ("_softmax", "_safe_softmax", "softmax")
_PRODUCTS = ("bmm", "baddbmm", "matmul")
_WEIGHED = ("mm", "addmm", "linear", "convolution")


@dataclass(frozen=True, slots=True)
class Core:
    """One attention, from queries, keys and values to what their product is.

    Attributes:
        block: its forward ops; named after the innermost module that holds them all.
        whole_module: are these all ops of that module?
        fused: is it one op?
    """

    block: Block
    whole_module: bool
    fused: bool


def attention_cores(graph: Graph) -> tuple[Core, ...]:
    """Every attention of the forward pass that the loss depends on, in program order."""
    net = forward_graph(graph)
    kinds = {op: graph.ops[op].operator for op in net}
    found: list[Core] = []
    for op in sorted(net):
        if kinds[op] in FUSED:
            found.append(_core(graph, net, kinds, {op}))
        elif kinds[op] in _SOFTMAX:
            above = _towards(op, net.predecessors, kinds)
            below = _towards(op, net.successors, kinds)
            if above and below:
                found.append(_core(graph, net, kinds, above | below | {op}))
    return tuple(found)


def _towards(op: int, step: Callable[[int], Iterable[int]], kinds: dict[int, str]) -> set[int]:
    """All ops on ways from ``op`` to the nearest batched products, without ``op``."""
    paths: nx.DiGraph = nx.DiGraph()
    pending, ends = [op], set()
    while pending:
        here = pending.pop()
        for each in step(here):
            if kinds[each] in _WEIGHED:
                continue
            if each not in paths and kinds[each] not in _PRODUCTS:
                pending.append(each)
            paths.add_edge(here, each)
            if kinds[each] in _PRODUCTS:
                ends.add(each)
    found = set(ends)
    for end in ends:
        found |= nx.ancestors(paths, end)
    return found - {op}


def _core(graph: Graph, net: nx.DiGraph, kinds: dict[int, str], ops: set[int]) -> Core:
    scopes = [graph.ops[op].scope.split(".") for op in ops]
    common = []
    for parts in zip(*scopes, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    name = ".".join(common)
    inside = {op for op in net if f"{graph.ops[op].scope}.".startswith(f"{name}.")} if name else ops
    whole = bool(name) and not any(kinds[op] in _WEIGHED for op in inside)
    members = inside if whole else ops
    return Core(Block(name, tuple(sorted(members))), whole, len(ops) == 1)
