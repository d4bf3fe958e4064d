"""Coop, and DTR, on memory with addresses."""

from __future__ import annotations

from math import inf
from pathlib import Path

import numpy as np
import pytest

from rematbench.base.errors import ConfigError, Infeasible, Stopped
from rematbench.engines.eviction.compiled import compile_stream
from rematbench.engines.eviction.reference import NothingLeft, drive
from rematbench.engines.eviction.reference_costs import StorageState
from rematbench.engines.eviction.rules import Rules, heuristic_named
from rematbench.graphs.builders.synthetic import random_graph, unit_chain
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem, Strategy
from rematbench.strategies.coop.addresses import AddressMachine, Arena, MemoryPiece, machine_for
from rematbench.strategies.coop.planner import Coop
from rematbench.streams.convert import stream_of_graph
from rematbench.streams.log import read_log

RULES = Rules(heuristic_named("local", {}))
LOG = Path(__file__).parents[1] / "data" / "unet.log"


def layout(arena: Arena) -> list[tuple[int, int, bool]]:
    return [(b.start, b.size, b.free) for b in arena.blocks]


def placed(arena: Arena, size: int, high: bool = False) -> MemoryPiece:
    block = arena.place(size, high, None)
    assert block is not None
    return block


def test_blocks_from_both_ends() -> None:
    arena = Arena(100)
    low, high = placed(arena, 30), placed(arena, 20, high=True)
    assert layout(arena) == [(0, 30, False), (30, 50, True), (80, 20, False)]
    assert arena.place(60, False, None) is None
    middle = placed(arena, 50, high=True)
    assert layout(arena) == [(0, 30, False), (30, 50, False), (80, 20, False)]
    arena.release(low)
    arena.release(high)
    assert layout(arena) == [(0, 30, True), (30, 50, False), (80, 20, True)]
    assert arena.free == 50
    assert arena.place(40, False, None) is None  # fifty are free, in two pieces
    arena.release(middle)
    assert layout(arena) == [(0, 100, True)]


def machine(prices: list[tuple[int, int]], locked: tuple[int, ...] = ()) -> AddressMachine:
    """A machine whose memory is full of storages of (bytes, cost), last used just before."""
    made = machine_for(
        compile_stream(stream_of_graph(unit_chain(1)).stream),
        sum(size for size, _ in prices),
        RULES,
        "window",
        False,
    )
    for number, (size, cost) in enumerate(prices):
        storage = StorageState(size, 0, cost=cost, resident=True, last=0)
        storage.locks = int(number in locked)
        made.homes[storage] = made.arena.place(size, False, storage)
    return made


@pytest.mark.parametrize(
    ("size", "locked", "chosen"),
    [
        (4, (), [3]),  # the cheapest alone is large enough
        (5, (), [0, 1]),  # 2 + 4 for 6 bytes, against 1 + 9 for 7
        (7, (), [2, 3]),  # 9 for 7 bytes; 0 to 2 cost 14, 3 and 4 cost 10
        (7, (2,), [3, 4]),
        (7, (3,), [0, 1, 2]),
        (5, (1,), [2, 3]),
    ],
)
def test_the_run_of_least_cost(size: int, locked: tuple[int, ...], chosen: list[int]) -> None:
    made = machine([(3, 2), (3, 4), (3, 8), (4, 1), (3, 9)], locked)
    order = list(made.homes)
    assert [order.index(storage) for storage in made.cheapest_run(size)] == chosen


def test_holes_are_part_of_a_run() -> None:
    made = machine([(3, 2), (3, 4), (3, 8), (4, 1), (3, 9)])
    order = list(made.homes)
    made.arena.release(made.homes.pop(order[2]))
    assert made.cheapest_run(7) == [order[3]]  # 3 free and 4 at cost 1
    with pytest.raises(NothingLeft):
        machine([(3, 2), (3, 4)], locked=(0,)).cheapest_run(4)


def test_dtr_at_addresses_evicts_more_than_it_needs() -> None:
    """Runs of least cost lie together; storages of least cost do not."""
    made = machine([(3, 1), (3, 9), (3, 2), (3, 9), (3, 3)])
    order = list(made.homes)
    made.pool, made.policy = list(order), "single"
    made.block(6, False, None)
    assert [s.resident for s in order] == [False, True, False, True, False] or made.scattered > 0


class Watched(AddressMachine):
    """Looks at the memory after every op."""

    def compute(self, *what: object) -> list[int]:
        made = super().compute(*what)  # type: ignore[arg-type]
        end = 0
        for block in self.arena.blocks:
            assert block.start == end
            assert block.size > 0
            end += block.size
        assert end == self.budget
        taken = sum(b.size for b in self.arena.blocks if not b.free)
        assert taken == self.budget - self.arena.free == self.memory
        homes = {id(block) for block in self.homes.values()}
        assert {id(b) for b in self.arena.blocks if not b.free} == homes
        return made


@pytest.mark.parametrize("policy", ["window", "single"])
@pytest.mark.parametrize("seed", range(5))
def test_what_always_holds(seed: int, policy: str) -> None:
    graph = random_graph(25, seed)
    budget = int(0.7 * simulate(graph, program_order(graph)).peak_bytes)
    compiled = compile_stream(stream_of_graph(graph).stream)
    watched = Watched(compiled, budget, RULES, policy=policy)  # type: ignore[arg-type]
    run = drive(watched)
    assert run.peak_bytes <= budget
    assert all(0 <= share <= 1 for share in watched.idle_shares)


@pytest.mark.parametrize("cost", ["eqclass", "local"])
@pytest.mark.parametrize("seed", range(4))
def test_plans(seed: int, cost: str) -> None:
    graph = random_graph(25, seed)
    base = simulate(graph, program_order(graph))
    strategy = Coop(cost=cost)  # type: ignore[arg-type]
    assert isinstance(strategy, Strategy)
    unlimited = strategy.plan(Problem(graph))
    assert simulate(graph, unlimited.plan).cost == base.cost
    budget = int(0.75 * base.peak_bytes)
    solution = strategy.plan(Problem(graph, budget))
    trace = simulate(graph, solution.plan)
    assert trace.peak_bytes <= budget
    assert trace.cost - base.cost == solution.details["additional_compute"]
    assert solution.details["dtr_at_addresses"]["status"] in ("ok", "infeasible", "thrashed")
    assert np.array_equal(
        solution.plan.codes(graph), strategy.plan(Problem(graph, budget)).plan.codes(graph)
    )


def test_on_a_log() -> None:
    stream = read_log(LOG)
    graph = unit_chain(2)  # of no account where there is a stream
    free = Coop().plan(Problem(graph, stream=stream)).verdict
    assert free is not None
    assert (free.status, free.cost, free.recomputations) == ("ok", free.base_cost, 0)
    tight = Coop().plan(Problem(graph, free.base_peak_bytes, stream=stream))
    assert tight.verdict is not None
    assert tight.verdict.status == "ok"
    assert tight.verdict.peak_bytes <= free.base_peak_bytes
    assert 1 < tight.verdict.cost / free.base_cost < 1.2
    assert tight.details["judge"] == "dtr"
    # In bytes that is enough for DTR; in one piece it is not.
    assert tight.details["dtr_at_addresses"]["status"] == "infeasible"
    assert tight.details["dtr_at_addresses"]["fragmentation"] > tight.details["fragmentation"]


def test_ends() -> None:
    """Without a limit nothing is evicted, wherever things lie."""
    compiled = compile_stream(stream_of_graph(unit_chain(6)).stream)
    for ends in (True, False):
        run = drive(machine_for(compiled, None, RULES, "window", ends, inf))
        assert run.rematerializations == 0


def test_what_it_refuses() -> None:
    with pytest.raises(ConfigError, match="choose eqclass or local"):
        Coop(cost="full")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="thrash_limit=0"):
        Coop(thrash_limit=0)
    with pytest.raises(Infeasible, match=r"1 bytes in one piece were wanted.*budget is 2"):
        Coop().plan(Problem(unit_chain(8), 2))
    with pytest.raises(Stopped, match="the time limit is over"):
        Coop().plan(Problem(unit_chain(8), 4, time_limit=-1.0))
