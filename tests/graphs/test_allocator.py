"""The model of CUDA's caching allocator: by hand, and by what must hold of any run."""

from __future__ import annotations

import numpy as np
import pytest

from rematbench.graphs.allocator import (
    _OFFSET,
    _SEGMENT,
    Allocation,
    _allocate,
    _enlarged,
    _new,
    _release,
    replay,
)
from rematbench.graphs.builders.synthetic import random_graph, unit_chain
from rematbench.graphs.ir import Graph, Phase, Value, simple_op
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem
from rematbench.strategies.chen import ApSqrt

KIB, MIB = 2**10, 2**20


def played(*events: tuple[int, int]) -> tuple[list[list[int]], Allocation]:
    """Plays allocations (a handle, bytes) and frees (a handle, -1).

    Returns:
        Per event, the segment and the offset in it (-1 for none and for frees), and the totals.
    """
    blocks, totals = _new(4)
    block = np.full(len(events), -1, dtype=np.int64)
    size, places = dict[int, int](), []
    for handle, wanted in events:
        blocks = _enlarged(blocks, 2, block)
        places.append([-1, -1])
        if wanted < 0:
            _release(blocks, totals, block[handle], size[handle])
            block[handle] = -1
            continue
        row = block[handle] = _allocate(blocks, totals, wanted)
        size[handle] = wanted
        if row >= 0:
            places[-1] = [int(blocks[row, _SEGMENT]), int(blocks[row, _OFFSET])]
    return places, Allocation(*totals[:4].tolist())


@pytest.mark.parametrize(
    ("bytes_", "reserved", "allocated"),
    [
        (0, 0, 0),
        (1, 2 * MIB, 512),
        (512, 2 * MIB, 512),
        (513, 2 * MIB, 1024),
        (MIB, 2 * MIB, MIB),
        (MIB + 1, 20 * MIB, MIB + 512),
        (10 * MIB - 512, 20 * MIB, 10 * MIB - 512),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB, 10 * MIB + 512),  # what remains is split off: above 1 MiB
        (11 * MIB + 1, 12 * MIB, 12 * MIB),  # too little remains to be split off
    ],
)
def test_one_block(bytes_: int, reserved: int, allocated: int) -> None:
    assert played((0, bytes_))[1] == Allocation(reserved, allocated, bytes_, int(reserved > 0))


def test_pools_are_apart() -> None:
    places, found = played((0, 512), (1, 2 * MIB), (2, 512), (3, 2 * MIB))
    assert places == [[0, 0], [1, 0], [0, 512], [1, 2 * MIB]]
    assert found.reserved == 22 * MIB


def test_best_fit_takes_the_smallest_hole() -> None:
    fill = [(0, 6 * MIB), (1, 2 * MIB), (2, 4 * MIB), (3, 2 * MIB), (4, 6 * MIB)]
    holes = [(0, -1), (2, -1)]  # of 6 MiB at 0, of 4 MiB at 8 MiB
    places, _ = played(*fill, *holes, (5, 4 * MIB), (6, 4 * MIB))
    assert places[-2:] == [[0, 8 * MIB], [0, 0]]


def test_neighbours_merge() -> None:
    fill = [(k, 5 * MIB) for k in range(4)]
    places, found = played(*fill, (1, -1), (3, -1), (2, -1), (4, 15 * MIB))
    assert places[-1] == [0, 5 * MIB]
    assert found.segments == 1
    apart, more = played(*fill, (1, -1), (3, -1), (4, 10 * MIB))
    assert apart[-1] == [1, 0]  # ten are free, in two pieces
    assert more == Allocation(30 * MIB, 20 * MIB, 20 * MIB, 2)
    assert more.fragmentation == 10 * MIB


@pytest.mark.parametrize("seed", range(6))
def test_what_always_holds(seed: int) -> None:
    """Live blocks never overlap, lie in their segments, and reserved >= allocated >= requested."""
    random = np.random.default_rng(seed)
    live: dict[int, int] = {}
    events: list[tuple[int, int]] = []
    for handle in range(400):
        events.append((handle, int(random.choice([700, 40 * KIB, 900 * KIB, 3 * MIB, 17 * MIB]))))
        live[handle] = events[-1][1]
        while live and random.random() < 0.48:
            gone = int(random.choice(list(live)))
            events.append((gone, -1))
            del live[gone]
    places, found = played(*events)
    there: dict[int, tuple[int, int, int]] = {}
    most = 0
    for (handle, wanted), (segment, offset) in zip(events, places, strict=True):
        if wanted < 0:
            del there[handle]
            continue
        for other, low, high in there.values():
            assert other != segment or offset + wanted <= low or high <= offset
        there[handle] = (segment, offset, offset + wanted)
        most = max(most, sum(high - low for _, low, high in there.values()))
    assert found.requested == most
    assert found.reserved >= found.allocated >= found.requested


@pytest.mark.parametrize("seed", range(8))
def test_the_order_of_frees_makes_no_difference(seed: int) -> None:
    """Between two allocations: neighbours merge at once, whichever was freed first."""
    random = np.random.default_rng(seed)
    events: list[tuple[int, int]] = []
    shuffled: list[tuple[int, int]] = []
    live: list[int] = []
    for handle in range(300):
        new = (handle, int(random.choice([700, 40 * KIB, 900 * KIB, 3 * MIB, 17 * MIB])))
        live.append(handle)
        gone = [each for each in live if random.random() < 0.12]
        live = [each for each in live if each not in gone]
        events += [new, *((each, -1) for each in gone)]
        shuffled += [new, *((int(each), -1) for each in random.permutation(gone))]
    places, found = played(*events)
    others, other = played(*shuffled)
    taken = [tuple(place) for place, (_, size) in zip(places, events, strict=True) if size > 0]
    retaken = [tuple(place) for place, (_, size) in zip(others, shuffled, strict=True) if size > 0]
    assert (taken, found) == (retaken, other)


@pytest.mark.parametrize("seed", range(4))
def test_plans(seed: int) -> None:
    """What is in use at most, as asked for, is the simulated peak."""
    for graph in (random_graph(12, seed), unit_chain(9)):
        for plan in (program_order(graph), ApSqrt().plan(Problem(graph)).plan):
            found, trace = replay(graph, plan), simulate(graph, plan)
            assert found.requested == trace.peak_bytes
            assert found.reserved >= found.allocated >= found.requested


def test_reserved_is_what_fragmentation_makes_of_the_peak() -> None:
    """Two values of 6 MiB go, one of 12 MiB comes: it finds no room where they were."""
    sizes = {"a": 6, "b": 6, "c": 6, "d": 12}
    values = tuple(Value(name, size * MIB) for name, size in sizes.items())
    reads: tuple[tuple[str, ...], ...] = ((), (), ("a",), ("b", "c"))
    ops = tuple(
        simple_op(name, Phase.FORWARD, read, [name], 1)
        for name, read in zip(sizes, reads, strict=True)
    )
    graph = Graph("g", values, ops, ("d",))
    found = replay(graph, program_order(graph))
    # a, b, c fill 18 of 20 MiB; a goes before c's readers come; 12 MiB need a segment of their own.
    assert found.requested == 24 * MIB == simulate(graph, program_order(graph)).peak_bytes
    assert found.reserved == 32 * MIB
