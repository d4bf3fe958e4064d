"""``backend="rematbench"`` on batches of many sizes: each is planned from those before."""

from __future__ import annotations

import copy
import gc
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compiling import compile_it, fresh
from torch import Tensor, nn

from rematbench import costmodel
from rematbench.base.errors import Infeasible
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import program_order
from rematbench.training.compiled import backend as compiled, by_size, sizes
from rematbench.training.compiled.background import BACKGROUND, Background
from rematbench.training.compiled.planning import Planned

LENGTHS = (96, 128, 77, 111, 96, 63, 128, 89)


_fresh = pytest.fixture(autouse=True)(fresh)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.rest = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1))
        self.last = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.mix(self.first(x)).chunk(3, -1)
        x = x + self.out(torch.softmax(q @ k.transpose(1, 2), -1) @ v)
        found: Tensor = x + self.last(self.rest(self.second(x)))
        return found


def transformer() -> nn.Module:
    blocks = [Block(16) for _ in range(4)]
    return nn.Sequential(nn.Embedding(40, 16), *blocks, nn.Linear(16, 40))


def step(run: Any, batch: int, length: int) -> Planned | None:
    """A step's gradients stay; returns what the newest graph runs."""
    torch.manual_seed(length)
    tokens = torch.randint(40, (batch, length))
    F.cross_entropy(run(tokens).flatten(0, 1), tokens.flatten()).backward()
    newest = max(compiled.regions, key=lambda each: each.number, default=None)
    return None if newest is None else newest.planned


def assert_same(model: nn.Module, twin: nn.Module) -> None:
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)


def trained(shapes: Any, budget: Any, **others: Any) -> list[Planned]:
    """Each step's plan; gradients are eager's bits, and peaks within the budget."""
    model = transformer()
    twin, found = copy.deepcopy(model), []
    run = compile_it(model, budget, **others)
    for batch, length in shapes:
        model.zero_grad()
        twin.zero_grad()
        step(twin, batch, length)
        planned = step(run, batch, length)
        assert_same(model, twin)
        assert planned is not None
        assert planned.allowed is not None
        assert planned.share.peak <= planned.allowed
        found.append(planned)
    return found


def test_each_length_begins_with_the_plan_of_another() -> None:
    found = trained([(4, length) for length in LENGTHS], 1_600_000)
    later = [each.source for each in found]
    assert later.count("planned") <= 3  # the third once what lies outside is counted
    assert {"another size", "improved"} & set(later)
    assert max(each.trace.recomputations for each in found) > 0


def test_a_further_size_is_improved_while_the_loop_goes_on() -> None:
    """It begins with the plan of a larger one, which computes too much again for it."""
    model = transformer()
    twin = copy.deepcopy(model)
    run = compile_it(model, 1_600_000, strategy="anytime", time_limit=2, replan_seconds=2)
    found = [step(run, 4, length) for length in (128, 100)]
    BACKGROUND.wait()
    again = step(run, 4, 100)
    newest = max(compiled.regions, key=lambda each: each.number).planned
    assert found[1] is not None
    assert newest is not None
    assert again is not None
    assert (found[1].source, newest.source) == ("another size", "improved")
    assert newest.overhead < found[1].overhead
    for length in (128, 100, 100):
        step(twin, 4, length)
    assert_same(model, twin)


class Owner:
    def __init__(self) -> None:
        self.plans: list[Any] = []

    def adopt(self, found: Any) -> None:
        self.plans.append(found)


def test_what_fails_in_the_background_leaves_the_plan(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> Any:
        raise ValueError("no luck")

    def refuses() -> Any:
        raise Infeasible("too small")

    background, owner, gone = Background(), Owner(), Owner()
    better: Any = object()
    for improve in (fails, refuses, lambda: None, lambda: better):
        background.submit(improve, owner.adopt)
    background.submit(lambda: better, gone.adopt)
    del gone
    background.wait()
    background.collect()
    background.collect()
    assert owner.plans == [better]
    assert [each.getMessage() for each in caplog.records] == [
        "rematbench: a plan is not improved: no luck"
    ]


def test_two_sizes_at_once() -> None:
    shapes = [(4, 96), (6, 80), (3, 128), (5, 64), (4, 110)]
    found = trained(shapes, 1_700_000)
    assert "another size" in [each.source for each in found]


def test_lengths_between_measured_ones_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    real, measured = costmodel.apply, []

    def apply(*args: Any, **others: Any) -> Graph:
        measured.append(args[0])
        return real(*args, **others)

    monkeypatch.setattr(costmodel, "apply", apply)
    shapes = [(2, length) for length in (48, 64, 56, 60, 64, 52)]
    trained(shapes, 900_000, costmodel="profiled")
    assert len(measured) == 2


def sized(graph: Graph, factor: int) -> Graph:
    values = tuple(replace(value, bytes=factor * value.bytes) for value in graph.values)
    ops = tuple(
        replace(
            op,
            implementations=tuple(
                replace(way, cost=float(factor * factor), workspace_bytes=factor)
                for way in op.implementations
            ),
        )
        for op in graph.ops
    )
    return replace(graph, values=values, ops=ops)


def family(*factors: int, measured: bool = True) -> sizes.KnownSizes:
    known = sizes.KnownSizes()
    for factor in factors:
        graph = sized(unit_chain(5), factor)
        known.add(graph, program_order(graph), 0.0, measured)
    return known


def test_costs_lie_between_those_of_two_sizes() -> None:
    between = family(10, 30).costed(sized(unit_chain(5), 20))
    assert between is not None
    assert {op.cost for op in between.ops} == {(100 + 900) / 2}
    assert {op.implementations[0].workspace_bytes for op in between.ops} == {30}


@pytest.mark.parametrize(
    ("known", "factor"),
    [(family(10, 30), 40), (family(10, 30), 5), (family(10, 30, measured=False), 20)],
    ids=["above", "below", "between guesses"],
)
def test_costs_are_measured_elsewhere(known: sizes.KnownSizes, factor: int) -> None:
    assert known.costed(sized(unit_chain(5), factor)) is None


def test_size_that_is_known_is_known() -> None:
    known, graph = family(10, 30), sized(unit_chain(5), 30)
    assert known.same(graph) is known.sizes[-1]
    assert known.costed(graph) == graph


def test_oldest_of_a_thousand_sizes_go() -> None:
    many = range(1, 1001)
    known = family(*many)
    assert len(known.sizes) == sizes.MOST_SIZES
    assert known.same(sized(unit_chain(5), 1)) is None
    assert known.same(sized(unit_chain(5), many[-1])) is not None


def test_code_of_the_oldest_sizes_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_size, "MOST_SIZES", 2)
    trained([(2, length) for length in (30, 40, 50, 60, 70, 40)], "1GiB")
    gc.collect()
    assert len([each for each in compiled.regions if each.planned]) <= 4
