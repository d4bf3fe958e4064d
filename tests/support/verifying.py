"""Plans for the library's verifiers: graphs of each kind, and changes that break a plan."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from rematbench.graphs.builders.layered import random_layered
from rematbench.graphs.builders.synthetic import join, unit_chain, with_backward
from rematbench.graphs.ir import Graph, Implementation, Op, Phase, Value

LIBRARY = Path(__file__).parents[2] / "instances"


@cache
def verifier(name: str = "verify") -> ModuleType:
    """A verifier of ``instances/``, which is no module of the package."""
    spec = spec_from_file_location(name, LIBRARY / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # where the others find it
    spec.loader.exec_module(module)
    return module


def choices() -> Graph:
    """Two dropouts that a plan may repeat, an op in place, one of two ways, a mask, no loss."""
    values = [("x", 4, True), ("a", 6), ("m", 1), ("b", 6), ("c", 6), ("n", 2), ("d", 6), ("e", 3)]
    ops = [
        Op("a", Phase.FORWARD, ("a", "m"), (Implementation("default", ("x",), 3, 2),), random=True),
        Op(
            "b",
            Phase.FORWARD,
            ("b",),
            (
                Implementation("default", ("a",), 2),
                Implementation("inplace", ("a",), 1, 1, ("a",)),
            ),
        ),
        Op(
            "c",
            Phase.FORWARD,
            ("c", "n"),
            (
                Implementation("default", ("b",), 4),
                Implementation("again", ("b", "n"), 2, 5, ("b",), replays="c"),
            ),
            random=True,
        ),
        Op("d", Phase.FORWARD, ("d",), (Implementation("default", ("a", "c", "x"), 5),)),
        Op("e", Phase.FORWARD, ("e",), (Implementation("default", ("d", "m", "b"), 5, 7),)),
    ]
    made = tuple(Value(name, size, *rest) for name, size, *rest in values)
    return Graph("choices", made, tuple(ops), ("e", "n"), "unit", random_state_bytes=9)


@cache
def graphs() -> tuple[Graph, ...]:
    layered = (random_layered(length=6, width=3, seed=seed) for seed in (1, 2))
    return (choices(), unit_chain(5), join([3, 4]), *(with_backward(each) for each in layered))


def mutated(graph: Graph, statements: Sequence[list[str]], dice: random.Random) -> list[list[str]]:
    """One to three changes: out, twice, elsewhere, exchanged, another name, another way."""
    plan = [list(each) for each in statements]
    for _ in range(dice.choice((1, 1, 2, 3))):
        at, other = (dice.randrange(len(plan)) for _ in range(2))
        kind = dice.randrange(7)
        if kind == 0:
            del plan[at]
        elif kind == 1:
            plan.insert(other, list(plan[at]))
        elif kind == 2:
            plan.insert(other, plan.pop(at))
        elif kind == 3:
            plan[at], plan[other] = plan[other], plan[at]
        elif kind == 4:
            names = graph.op_index if plan[at][0] == "compute" else graph.value_index
            plan[at] = [plan[at][0], dice.choice([*names, "nothing"])]
        elif kind == 5 and plan[at][0] == "compute":
            plan[at] = [*plan[at][:2], dice.choice(["default", "inplace", "again"])]
        else:
            value = dice.choice(graph.values).name
            plan.insert(at, ["free", value])
    return plan
