"""Training graphs as the papers have them, from the zoo: layers forward, and their gradients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

from rematbench import costmodel
from rematbench.graphs.builders.synthetic import with_backward
from rematbench.graphs.ir import Graph, Op, Phase
from rematbench.jobs.accounting import account
from rematbench.tracing.captured import Captured
from rematbench.tracing.costless import costless_parameters
from rematbench.tracing.trace import capture
from rematbench.zoo import make_model

IN_PLACE = ("relu", "native_dropout", "_log_softmax", "sigmoid")
"""Ops that are one layer with what they read."""
COUNTER_BYTES = 64


def captured(name: str, **options: Any) -> Captured:
    """A zoo model, op by op; its parameters take no memory here."""
    with costless_parameters():
        workload = make_model(name, **options)
    return capture(workload)


def in_flops(name: str, **options: Any) -> Graph:
    """The same with costs in FLOPs."""
    found = captured(name, **options)
    return costmodel.apply("flops", found.graph, found)


def layers(name: str, *, merged: bool = False, **options: Any) -> Graph:
    """A training step of a model's layers in FLOPs, nothing resident: Checkmate's kind of graph.

    An op of the forward pass writes one value here (not a pool's indices, say), and its gradient is
    one op that costs twice as much.

    Args:
        merged: an activation is part of the layer before it.
    """
    graph = account("activations", in_flops(name, **options))
    whole = [op for op in graph.ops if _is_layer(graph, op)]
    needed = {*chain.from_iterable(op.reads for op in whole)}
    ops = [replace(op, writes=_main(op, needed)) for op in whole]
    ops = _merged(ops) if merged else ops
    written = {*chain.from_iterable(op.writes for op in ops)}
    read = {*chain.from_iterable(op.reads for op in ops)}
    values = tuple(value for value in graph.values if value.name in written | read)
    return with_backward(Graph(name, values, tuple(ops), tuple(sorted(written - read))))


def _is_layer(graph: Graph, op: Op) -> bool:
    """Is it of the forward pass, and does not only count, as batch norm counts batches?"""
    reads = [graph.values[graph.value_index[name]] for name in op.reads]
    writes = [graph.values[graph.value_index[name]] for name in op.writes]
    small = sum(value.bytes for value in writes) <= COUNTER_BYTES
    counts = small and bool(reads) and all(value.resident for value in reads)
    return op.phase is Phase.FORWARD and not counts


def _main(op: Op, needed: set[str]) -> tuple[str, ...]:
    return tuple(value for value in op.writes if value in needed) or op.writes[:1]


def _merged(ops: Iterable[Op]) -> list[Op]:
    """Each activation in the op that wrote what it alone reads."""
    made: list[Op] = []
    ops = list(ops)
    for op in ops:
        readers = sum(not set(op.reads).isdisjoint(other.reads) for other in ops)
        before = next((i for i, o in enumerate(made) if set(op.reads) & set(o.writes)), None)
        if not op.name.startswith(IN_PLACE) or readers > 1 or before is None:
            made.append(op)
            continue
        (first,), (second,) = made[before].implementations, op.implementations
        both = replace(first, cost=first.cost + second.cost)
        made[before] = replace(made[before], writes=op.writes, implementations=(both,))
    return made
