"""Random layered DAGs, as papers on scheduling general graphs make them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from rematbench.base.errors import GraphError
from rematbench.base.limits import MOST_STEPS, shown
from rematbench.graphs.ir import Graph, Op, Phase, Value, simple_op

TYPICAL_BYTES, MOST_COST = 2000, 1000
"""Mean of the values' sizes, which are drawn from an exponential distribution, and the limit of
the costs, which are uniform; both as in the public graphs of Moccasin (ICML 2023)."""


def random_layered(
    length: int,
    width: float = 0.36,
    variability: float = 0.75,
    density: float = 0.2,
    skips: float = 0.14,
    seed: int = 0,
) -> Graph:
    """A source, levels of ops, and a sink, in a random topological order.

    The generator of "Neural Topological Ordering for Computation Graphs" (Gagrani et al., NeurIPS
    2022, appendix A), with Moccasin's names for its parameters. The sink writes a token without
    bytes, the only output, so that nothing must stay.

    Args:
        length: ops, 3 or more.
        width: of the levels over their number, on average.
        variability: spread of a level's size around the average, relative.
        density: share of the pairs of ops of neighbouring levels that are edges.
        skips: share of all edges that jump over levels.
        seed: of every random choice.

    Raises:
        GraphError: a parameter is out of its range.
    """
    shape = {"width": (width, 1000), "variability": (variability, 1)}
    _check(shape | {"density": (density, 1), "skips": (skips, 0.9)}, length, seed)
    random = np.random.default_rng(seed)
    inner = length - 2
    average = max(1.0, np.sqrt(inner * width))
    levels: list[list[int]] = [[0]]
    made = 1
    while made <= inner:
        size = round(average * (1 + variability * random.uniform(-1, 1)))
        size = min(max(1, size), inner + 1 - made)
        levels.append(list(range(made, made + size)))
        made += size
    reads = _edges(levels, density, skips, random)
    has_reader = {source for row in reads.values() for source in row}
    reads[length - 1] = [i for i in range(length - 1) if i not in has_reader]
    sizes = np.rint(random.exponential(TYPICAL_BYTES / 10, length)).astype(int) * 10
    costs = random.integers(0, MOST_COST, length)
    order = [0, *_topological(reads, inner, random), length - 1]
    ops = tuple(_op(i, reads.get(i, []), int(costs[i]), length) for i in order)
    values = tuple(
        Value(op.writes[0], 0 if i == length - 1 else int(sizes[i]))
        for i, op in zip(order, ops, strict=True)
    )
    name = f"random_layered_n{length}_w{width:g}_nlv{variability:g}_ed{density:g}_scd{skips:g}"
    return Graph(f"{name}_seed{seed}", values, ops, (ops[-1].writes[0],))


def _check(shape: dict[str, Any], length: object, seed: object) -> None:
    for name, given, least, most in (("length", length, 3, MOST_STEPS), ("seed", seed, 0, 2**63)):
        if type(given) is not int or not least <= given <= most:
            raise GraphError(
                f"random_layered: {name} is {shown(given)}; give a whole number, {least} to {most}"
            )
    for name, (given, most) in shape.items():
        is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
        if not is_number or not 0 <= given <= most or (name == "width" and given == 0):
            begin = "above 0" if name == "width" else "from 0"
            raise GraphError(
                f"random_layered: {name} is {shown(given)}; give a number {begin} to {most}"
            )


def _edges(
    levels: list[list[int]], density: float, skips: float, random: np.random.Generator
) -> dict[int, list[int]]:
    """What each inner op reads: each has an input, and those above have a reader, where it can."""
    reads: dict[int, set[int]] = {i: set() for level in levels[1:] for i in level}
    for above, below in pairwise(levels):
        chosen = random.random((len(below), len(above))) < density
        for row, i in zip(chosen, below, strict=True):
            reads[i] |= {above[k] for k in np.flatnonzero(row).tolist()}
            if not reads[i]:
                reads[i].add(above[int(random.integers(len(above)))])
        for k in np.flatnonzero(~chosen.any(axis=0)).tolist():
            reads[below[int(random.integers(len(below)))]].add(above[k])
    count = sum(map(len, reads.values()))
    for _ in range(int(count * skips / (1 - skips)) if len(levels) > 3 else 0):
        low = int(random.integers(1, len(levels) - 2))
        high = int(random.integers(low + 2, len(levels)))
        source, target = (
            level[int(random.integers(len(level)))] for level in (levels[low], levels[high])
        )
        reads[target].add(source)
    return {i: sorted(row) for i, row in reads.items()}


def _topological(reads: dict[int, list[int]], inner: int, random: np.random.Generator) -> list[int]:
    """The inner ops, each as soon as chance has it after what it reads."""
    waiting = {i: sum(source > 0 for source in reads[i]) for i in range(1, inner + 1)}
    readers: dict[int, list[int]] = {i: [] for i in range(inner + 1)}
    for i in range(1, inner + 1):
        for source in reads[i]:
            readers[source].append(i)
    ready = [i for i, count in waiting.items() if not count]
    found = []
    while ready:
        pick = int(random.integers(len(ready)))
        ready[pick], ready[-1] = ready[-1], ready[pick]
        found.append(ready.pop())
        for reader in readers[found[-1]]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    return found


def _op(i: int, reads: list[int], cost: int, length: int) -> Op:
    written = "token" if i == length - 1 else f"v{i}"
    cost = 0 if i in (0, length - 1) else cost
    return simple_op(f"n{i}", Phase.FORWARD, [f"v{source}" for source in reads], [written], cost)
