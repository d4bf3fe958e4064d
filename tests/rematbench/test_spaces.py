"""Of which plans a bound speaks: the spaces of RULES.md are those of the searches that prove it."""

from __future__ import annotations

import csv
import random
from functools import cache

import numpy as np
import pytest
from committed import HOUSE
from verifying import verifier

from rematbench.engines.stages.space import Space
from rematbench.graphs.builders.synthetic import random_graph, unit_chain
from rematbench.graphs.files import graph_document, plan_document, read_graph, read_plan
from rematbench.graphs.ir import Graph, Implementation, Op, Phase, Value, simple_op
from rematbench.graphs.plan import Compute, Free, Plan, Statement, program_order
from rematbench.graphs.planning import Problem
from rematbench.graphs.simulate import simulate
from rematbench.instances.spaces import why_outside
from rematbench.strategies.registry import make

LIBRARY = HOUSE / "instances"
SPACES = {"9": Space.full, "F": Space.reduced}


@cache
def drawn() -> tuple[Graph, ...]:
    return tuple(random_graph(5, seed) for seed in range(6))


def computed(graph: Graph, plan: Plan) -> list[int]:
    codes = plan.codes(graph)
    ops: list[int] = graph.tables.op_of[codes[codes >= 0]].tolist()
    return ops


@pytest.mark.parametrize("name", SPACES)
def test_every_schedule_is_inside(name: str) -> None:
    """What a search keeps is drawn; its plans are of the space that its bounds are of."""
    dice, costs = np.random.default_rng(7), set[float]()
    for graph in drawn():
        space = SPACES[name](graph)
        for density in (0.2, 0.5, 0.8):
            for _ in range(20):
                schedule = space.evaluate(dice.random(space.shape) < density)
                assert why_outside(graph, schedule.plan, name) is None
                costs.add(schedule.cost / space.base_cost)
    assert len(costs) > 50
    assert max(costs) > 1.2


def mutated(graph: Graph, dice: random.Random) -> list[int]:
    """Ops in program order, with recomputations anywhere."""
    once = list(range(len(graph.ops)))
    for _ in range(dice.randrange(4)):
        op = dice.choice(once)
        once.insert(dice.randrange(once.index(op) + 1, len(once) + 1), op)
    return once


@pytest.mark.parametrize("name", SPACES)
def test_every_plan_inside_is_a_schedule(name: str) -> None:
    """Of plans that are drawn, exactly those inside are what some schedule computes."""
    dice, inside = random.Random(5), list[bool]()
    for graph in drawn():
        space = SPACES[name](graph)
        for _ in range(150):
            ops = mutated(graph, dice)
            plan = Plan.of_computes(graph, graph.tables.op_first[np.array(ops)])
            recomputed, fits = np.zeros(space.shape, dtype=bool), True
            stage, seen = 0, set[int]()
            for op in ops:
                if op not in seen:
                    seen.add(op)
                    stage += int(op in space.stages)
                elif op in space.ops and stage < len(space.stages):
                    recomputed[stage, space.place[op]] = True
                else:
                    fits = False
            schedule = space.explicit(recomputed) if fits else None
            is_one = schedule is not None and computed(graph, schedule.plan) == ops
            assert (why_outside(graph, plan, name) is None) == is_one, ops
            inside.append(is_one)
    assert 100 < sum(inside) < 800


CHAIN = unit_chain(2)
ONCE = [each for each in program_order(CHAIN).statements if isinstance(each, Compute)]
A, B, C = (repr(each.op) for each in (ONCE[0], ONCE[1], ONCE[3]))


@pytest.mark.parametrize(
    ("again", "space", "why"),
    [
        ([(1, 0)], "9", None),
        ([(1, 0)], "F", f"it computes {A} again before the forward pass has ended"),
        ([(2, 0)], "F", None),
        ([(2, 0), (2, 0)], "9", f"it computes {A} twice in a stage"),
        (
            [(2, 1), (2, 0)],
            "9",
            f"in a stage it computes {A} again after {B}",
        ),
        ([(2, 0), (2, 1)], "9", None),
        ([(4, 3)], "9", None),
        ([(4, 3)], "F", f"it computes {C} again, which is no forward op"),
        ([(5, 0)], "9", f"it computes {A} again after the first compute of the last op"),
        ([(5, 0)], "any", None),
    ],
)
def test_why_by_hand(again: list[tuple[int, int]], space: str, why: str | None) -> None:
    """Before the op ``at`` another one runs again."""
    computes = [
        each
        for at, own in enumerate([*ONCE, None])
        for each in [*(ONCE[op] for place, op in again if place == at), own]
        if each is not None
    ]
    assert len(ONCE) == 5
    assert why_outside(CHAIN, Plan(computes), space) == why


def test_how_often_it_computes() -> None:
    plan = Plan([*ONCE[:2], ONCE[0], ONCE[2], ONCE[0], *ONCE[3:]])
    assert why_outside(CHAIN, plan, "C", 3) is None
    assert why_outside(CHAIN, plan, "C", 2) == f"it computes {A} 3 times"
    assert why_outside(CHAIN, plan, "C") == f"it computes {A} 3 times"  # C is not known


def test_another_order_and_another_implementation() -> None:
    ways = Implementation("default", ("a",), 9), Implementation("other", ("a",), 5)
    ops = (
        simple_op("a", Phase.FORWARD, ("x",), ("a",), 1),
        simple_op("c", Phase.FORWARD, ("x",), ("c",), 1),
        Op("b", Phase.FORWARD, ("b",), ways),
        simple_op("d", Phase.FORWARD, ("b", "c"), ("d",), 1),
    )
    values = (Value("x", 1, resident=True), *(Value(name, 1) for name in "acbd"))
    graph = Graph("ways", values, ops, ("d",))
    plan = Plan([Compute("a"), Compute("c"), Compute("b", "other"), Compute("d")])
    assert why_outside(graph, plan, "any") is None
    assert "computes 'b' by another implementation" in str(why_outside(graph, plan, "9"))
    moved = Plan([Compute("c"), Compute("a"), Compute("b"), Compute("d")])
    assert why_outside(graph, moved, "any") == "its first computes are not in program order"


def two_branches() -> tuple[Graph, Plan]:
    """Two long values cannot be live together, nor besides the op ``big``: a plan has to compute
    ``b1`` before it computes ``a1`` again, in one stage."""
    steps = [
        *(("a1", "x", "A", 0), ("b1", "x", "B", 0), ("a2", "A", "a", 0), ("b2", "B", "b", 0)),
        *(("big", "x", "c", 12), ("last", "abc", "d", 0)),
    ]
    sizes = {"x": 0, "A": 10, "B": 10, "a": 1, "b": 1, "c": 0, "d": 1}
    ops = tuple(
        Op(name, Phase.FORWARD, (to,), (Implementation("default", (*of,), 1, workspace),))
        for name, of, to, workspace in steps
    )
    values = tuple(Value(name, size, resident=name == "x") for name, size in sizes.items())
    words = "a1 -A b1 -B a1 a2 -A b1 b2 -B -a -b big a1 a2 -A b1 b2 -B last"
    statements: list[Statement] = [
        Free(word[1:]) if word[0] == "-" else Compute(word) for word in words.split()
    ]
    return Graph("two_branches", values, ops, ("d",)), Plan(statements)


def test_a_plan_where_the_space_provably_has_none() -> None:
    """It is valid, by the verifier, too; and outside, as it has to be."""
    graph, plan = two_branches()
    module = verifier()
    net = module.net_of(graph_document(graph))
    verdict = module.judge(net, plan_document(plan)["statements"])
    assert (verdict.peak, verdict.cost, verdict.in_order) == (12, 12, True)
    found = make("anytime").plan(Problem(graph, 12, time_limit=5.0))
    assert found.details["no_plan_in"] == ["9"]
    assert (found.bound, found.bound_of) == (6.0, "any")  # each op once
    for each in (plan, found.plan):
        assert "in a stage it computes" in str(why_outside(graph, each, "9"))


def test_a_committed_plan_that_costs_less_than_its_spaces_bound() -> None:
    """``anytime`` proves 94,091 of F: the record is cheaper, and computes backward ops again."""
    graph = read_graph(LIBRARY / "layered/layered70_s18.graph.json.gz")
    with (LIBRARY / "records.csv").open(newline="") as file:
        record = next(row for row in csv.DictReader(file) if row["instance"] == "layered70_s18@1")
    plan = read_plan(LIBRARY / record["plan"])
    assert simulate(graph, plan).cost <= 93863
    assert why_outside(graph, plan, "F") is not None
