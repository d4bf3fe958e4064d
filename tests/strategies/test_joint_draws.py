"""Joint planning keeps the order in which random numbers are drawn."""

from __future__ import annotations

import numpy as np
import pytest

from rematbench.engines.joint.implementations import VARIANTS, AllowedImplementations
from rematbench.engines.joint.large import completed
from rematbench.graphs.ir import Graph, Implementation, Op, Phase, Value
from rematbench.graphs.simulate import check_draws


def dropouts(*, random: bool) -> Graph:
    """Two ops on one input; the gradient reads what the first one made, the loss the second's."""

    def op(name: str, *reads: str, phase: Phase = Phase.FORWARD) -> Op:
        draws = random and name in ("early", "late")
        return Op(name, phase, (name,), (Implementation("default", reads, 1.0),), random=draws)

    ops = (
        op("early", "x"),
        op("late", "x"),
        op("loss", "late", phase=Phase.LOSS),
        op("gradient", "early", "loss", phase=Phase.BACKWARD),
    )
    values = (Value("x", 8, resident=True), *(Value(each.name, 8) for each in ops))
    return Graph("dropouts", values, ops, ("gradient",))


@pytest.mark.parametrize(("random", "expected"), [(True, [0, 1, 2, 0, 3]), (False, [1, 2, 0, 3])])
def test_a_random_op_that_is_computed_again_keeps_its_first_compute(
    random: bool, expected: list[int]
) -> None:
    """Nobody reads what it made first; left out, it would draw after the other one."""
    graph = dropouts(random=random)
    implementations = AllowedImplementations.of(graph, VARIANTS["full"], 100)
    choice = implementations.group_at[:-1]
    plan, _ = completed(implementations, choice, np.array([0, 1, 2, 0, 3]), 100)
    codes = plan.codes(graph)
    assert graph.tables.op_of[codes[codes >= 0]].tolist() == expected
    check_draws(graph, plan)
