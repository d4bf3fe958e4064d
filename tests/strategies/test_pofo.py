"""pofo: its recurrence by exhaustion, what it claims that no memory holds, and its plans."""

from __future__ import annotations

from math import inf
from pathlib import Path
from random import Random
from typing import Any

import pytest
from copying import chain, is_there_a_better_plan

from rematbench.base.errors import Infeasible, NotApplicable
from rematbench.engines.chain.chain import chain_of
from rematbench.engines.chain.table import Table, build
from rematbench.graphs.builders.synthetic import unit_chain, with_backward
from rematbench.graphs.files import read_graph
from rematbench.graphs.ir import Graph
from rematbench.graphs.link import Link
from rematbench.graphs.plan import Offload, program_order
from rematbench.graphs.planning import Problem, Solution
from rematbench.graphs.simulate import simulate
from rematbench.strategies.pofo.recurrence import StateProgram
from rematbench.strategies.registry import make

GOLDEN = Path(__file__).parents[1] / "data" / "golden"


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    make("pofo").warm_up()


def random_chain(random: Random) -> dict[str, Any]:
    count = random.randrange(2, 5)

    def some(least: int, most: int) -> list[int]:
        return [random.randrange(least, most) for _ in range(count)]

    a = [random.randrange(1, 4), *some(1, 5)]
    abar = [size + more for size, more in zip(a[1:], some(0, 5), strict=True)]
    case = {"u_f": some(1, 6), "u_b": some(1, 6), "o_f": some(0, 3), "o_b": some(0, 3)}
    return case | {"a": a, "abar": abar, "limit": random.randrange(6, 40), "loss_time": 1}


def printed(case: dict[str, Any], table: Table, link: Link) -> float:
    """The recurrence as it is printed, state by state; the input of the chain stays."""
    count, limit = len(case["u_f"]), case["limit"]
    a, abar, out, into = case["a"], case["abar"], link.out, link.into

    def back(s: int, t: int, room: float) -> float:
        segment = s * (count + 1) + t
        steps = range(table.stairs.start[segment], table.stairs.stop[segment])
        return min((table.stairs.time[i] for i in steps if table.stairs.memory[i] <= room),
                   default=inf)  # fmt: skip

    def rest(steps: tuple[int, int], state: tuple[float, float, float], s: int,
             sent: float, fetched: float, whole: bool) -> float:  # fmt: skip
        (first, last), (kept, f, b) = steps, state
        stays = to_come(last + 1, kept + s, max(0, f - sent), max(0, b - fetched), whole)
        if first == 0:
            return stays
        gone = to_come(last + 1, kept, max(0, f + s - sent), max(0, b - fetched) + s, whole)
        return min(stays, gone)

    def to_come(stage: int, kept: float, f: float, b: float, whole: bool) -> float:
        s = a[0] if stage == 0 else abar[stage - 1] if whole else a[stage]
        room, state, best = limit - kept - s, (kept, f, b), inf
        if stage == count:
            return f / out + b / into + case["loss_time"] if a[stage] <= room else inf
        ahead, behind = abar[stage] + case["o_f"][stage], a[stage + 1] + abar[stage] + a[stage]
        behind += case["o_b"][stage]
        if max(ahead, behind) <= room:
            e_f, e_b = max(0, ahead + f - room), max(0, behind + b - room)
            x, y = case["u_f"][stage], case["u_b"][stage]
            after = rest((stage, stage), state, s, x * out + e_f, y * into + e_b, True)
            best = x + y + e_f / out + e_b / into + after
        total, moving = 0.0, -inf
        for last in range(stage, count):
            need = a[last + 1] + case["o_f"][last] + (a[last] if last > stage else 0)
            if need > room:
                break
            moving = max(moving, need - out * total)
            total += case["u_f"][last]
            r, e_f = back(stage, last, room), max(0, moving + f - room)
            if r < inf:
                t = (max(r, b / into) + r + b / into) / 2
                after = rest((stage, last), state, s, total * out + e_f, t * into, False)
                best = min(best, total + e_f / out + t + after)
        return best

    return to_come(0, 0, 0, 0, False)


def test_the_least_time_of_the_recurrence() -> None:
    random, some = Random(3), 0
    for _ in range(150):
        case = random_chain(random)
        numbers, limit = chain_of(case)
        table = build(numbers, limit)
        assert table is not None
        link = Link(random.choice([0.3, 1.0, 4.0]), random.choice([0.5, 2.0]))
        recurrence = StateProgram(table, numbers, 1, link, 10_000)
        claim = recurrence.best(limit)
        expected = printed(case, table, link)
        assert not recurrence.cut
        assert (inf if claim is None else claim.time) == pytest.approx(expected)
        some += claim is not None and any(step.goes for step in claim.steps)
    assert some > 20


def planned(graph: Graph, budget: int | None, link: Link, **limits: Any) -> tuple[Solution, float]:
    """Its answer, checked, and the makespan."""
    found = make("pofo").plan(Problem(graph, budget, 20.0, link=link, **limits))
    assert found.plan is not None
    trace = simulate(graph, found.plan, link)
    assert budget is None or trace.peak_bytes <= budget
    assert limits.get("host") is None or trace.host_peak_bytes <= limits["host"]
    return found, trace.cost


def test_a_claim_below_every_plan() -> None:
    """Bytes of the tensors of 4 leave one by one there, and the first are free at once."""
    graph, link = chain([3, 4, 3], [1.0, 3.0, 3.0]), Link(4.0, 4.0)
    found, cost = planned(graph, 11, link)
    assert found.objective == 22.375
    assert cost == 22.75
    assert not is_there_a_better_plan(graph, 11, link, cost)


@pytest.mark.parametrize(
    ("sizes", "costs", "budget", "rate", "least"),
    [
        ([2, 4], [2.0, 3.0], 10, 2.0, 17.0),  # 1 to the host while 2 is computed: none waits
        ([2, 3], [2.0, 3.0], 7, 0.3, 18.0),  # too slow: the first layer runs again, 16 + 2
        ([1, 2, 4], [1.0, 2.0, 3.0], 9, 4.0, 19.5),
        ([1, 1, 4], [2.0, 2.0, 2.0], 9, 4.0, 19.25),
        ([3, 1, 2], [1.0, 3.0, 1.0], 7, 1.0, 16.0),
    ],
)
def test_small_chains(sizes: list[int], costs: list[float], budget: int, rate: float,
                      least: float) -> None:  # fmt: skip
    graph, link = chain(sizes, costs), Link(rate, rate)
    _, cost = planned(graph, budget, link)
    assert cost == least
    assert not is_there_a_better_plan(graph, budget, link, cost)


def test_gradients_take_room_in_the_table() -> None:
    """Two stages, all sizes 1, 3 bytes: the port in ColossalAI claims a schedule, of 4 bytes."""
    ones = [1, 1]
    case = {"u_f": ones, "u_b": ones, "a": [1, 1, 1], "abar": ones, "o_f": [0, 0], "o_b": [0, 0]}
    numbers, limit = chain_of(case | {"limit": 3})
    table = build(numbers, limit)
    assert table is not None
    assert StateProgram(table, numbers, 1, Link(1.0, 1.0), 100).best(limit) is None


def test_plans_of_networks_fit_both_memories() -> None:
    """Branches and skips lie inside of stages."""
    graph = with_backward(read_graph(GOLDEN / "fenghuang" / "resnet50.graph.json"))
    base = simulate(graph, program_order(graph))
    rate = sum(v.bytes for v in graph.values) / base.cost / 10
    for host in (None, 0, base.peak_bytes // 20):
        found, cost = planned(graph, int(0.6 * base.peak_bytes), Link(rate, rate), host=host)
        assert found.plan is not None
        copied = any(isinstance(s, Offload) for s in found.plan.statements)
        assert copied == (host != 0)
        assert cost >= base.cost
    graph = unit_chain(24)
    found, cost = planned(graph, 14, Link(0.3, 0.3))
    assert found.details["offloaded_inputs"] == 4
    assert cost == pytest.approx(57)
    _, alone = planned(graph, 14, Link(0.3, 0.3), host=0)
    assert alone > 57
    _, ample = planned(graph, None, Link(0.3, 0.3))
    assert ample == pytest.approx(49)


def test_what_it_does_not_apply_to() -> None:
    with pytest.raises(NotApplicable, match="give link=pcie4"):
        make("pofo").plan(Problem(unit_chain(4), 5))
    with pytest.raises(Infeasible, match="no schedule of 8 stages within 2 bytes"):
        make("pofo").plan(Problem(unit_chain(8), 2, link=Link(1.0, 1.0)))
