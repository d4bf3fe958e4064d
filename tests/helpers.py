"""Graphs that several tests use."""

from __future__ import annotations

from graphs.ir import Graph, Phase, Value, simple_op
from graphs.synthetic import with_backward


def diamond() -> Graph:
    """a -> b -> d, a -> c -> d, d -> e."""
    edges = {"a": ["x"], "b": ["a"], "c": ["a"], "d": ["b", "c"], "e": ["d"]}
    ops = tuple(simple_op(n, Phase.FORWARD, reads, [n], 1) for n, reads in edges.items())
    values = (Value("x", 4, True), *(Value(n, 2) for n in edges))
    return with_backward(Graph("diamond", values, ops, ("e",)))
