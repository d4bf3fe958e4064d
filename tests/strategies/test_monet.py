"""MONeT: plans, bounds and ablations on small graphs and a small network."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rematbench import costmodel, validator
from rematbench.base.errors import ConfigError, Infeasible, InvalidPlan, NotApplicable, Stopped
from rematbench.engines.joint.implementations import VARIANTS, AllowedImplementations
from rematbench.engines.joint.space import ImplementationSpace
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.ir import Graph, Implementation, Op, Phase, Value
from rematbench.graphs.kinds import implementations_of, kinds_of
from rematbench.graphs.plan import Compute, Plan, program_order, with_frees
from rematbench.graphs.simulate import Trace, simulate
from rematbench.strategies.anytime_joint.planner import AnytimeJoint
from rematbench.strategies.base import ChoosesImplementations, Problem
from rematbench.strategies.checkmate.compared import CheckmateCompared
from rematbench.strategies.gist import Gist
from rematbench.strategies.monet.planner import Monet
from rematbench.strategies.monet.published.decode import stages_of
from rematbench.strategies.monet.published.program import Locals, Published, forward_ops
from rematbench.tracing.alternatives import with_alternatives
from rematbench.tracing.captured import Captured
from rematbench.tracing.trace import capture
from rematbench.tracing.workload import Workload
from rematbench.zoo import make_model

SECONDS = 1
LOCALS = get_args(Locals)


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    """Compiled beforehand, so that time limits are the planner's alone."""
    AnytimeJoint().warm_up()


def tiny() -> Graph:
    """A chain of two forward ops whose gradients have other implementations; one conv, one mask."""
    values = (Value("x", 1, True), *(Value(n, 4) for n in ("a", "b", "ga", "gb", "dx")))
    values += (Value("loss", 1), Value("bits", 1))
    implementation = Implementation
    ops = (
        Op(
            "a",
            Phase.FORWARD,
            ("a",),
            (implementation("default", ("x",), 8), implementation("conv:big", ("x",), 5, 6)),
        ),
        Op(
            "b",
            Phase.FORWARD,
            ("b",),
            (implementation("default", ("a",), 2), implementation("inplace", ("a",), 2, 0, ("a",))),
        ),
        Op("bits", Phase.FORWARD, ("bits",), (implementation("default", ("b",), 1),)),
        Op("loss", Phase.LOSS, ("loss",), (implementation("default", ("b",), 1),)),
        Op("gb", Phase.BACKWARD, ("gb",), (implementation("default", ("b", "loss"), 3),)),
        Op(
            "ga",
            Phase.BACKWARD,
            ("ga",),
            (
                implementation("default", ("a", "gb"), 3),
                implementation("output", ("b", "gb"), 3),
                implementation("intermediate:bits", ("bits", "gb"), 3),
            ),
        ),
        Op("dx", Phase.BACKWARD, ("dx",), (implementation("default", ("x", "ga"), 4),)),
    )
    return Graph("tiny", values, ops, ("loss", "dx"))


def cheapest_plans(graph: Graph, most: int) -> list[tuple[int, float]]:
    """(peak, cost) of every sequence that computes each forward op up to twice, in this order."""
    tables, found = graph.tables, []
    forward = [0, 1, 2]
    recomputed = [s for n in range(4) for s in itertools.permutations(forward, n)]
    for first in ([0, 1], [0, 1, 2]):
        for second, third in itertools.product(recomputed, recomputed):
            ops = [*first, 3, *second, 4, *third, 5, 6]
            implementations = [
                range(int(tables.op_first[o]), int(tables.op_first[o + 1])) for o in ops
            ]
            if len(ops) > most:
                continue
            for codes in itertools.product(*implementations):
                statements = with_frees(graph, np.array(codes))
                try:
                    trace = simulate(graph, Plan.from_codes(graph, statements))
                except InvalidPlan:
                    continue
                found.append((trace.peak_bytes, trace.cost))
    return found


@pytest.fixture(scope="module")
def every_plan() -> list[tuple[int, float]]:
    return cheapest_plans(tiny(), most=9)


@pytest.mark.parametrize("budget", range(10, 19, 2))
def test_bound_and_plan_against_brute_force(budget: int, every_plan) -> None:
    best = min((cost for peak, cost in every_plan if peak <= budget), default=None)
    try:
        found = AnytimeJoint(gap=0.0).plan(Problem(tiny(), budget, time_limit=SECONDS))
    except Infeasible as error:
        assert best is None, error  # noqa: PT017
        return
    trace = simulate(tiny(), found.plan)
    assert found.bound is not None
    assert trace.peak_bytes <= budget
    assert found.bound <= trace.cost
    if best is not None:
        assert found.bound <= best * (1 + 1e-9)


@functools.cache
def network(variant: str) -> tuple[Captured, Graph, Trace]:
    torch.manual_seed(0)
    plain = capture(make_model("resnet32", batch_size=8, resolution=32, blocks=1))
    captured = with_alternatives(plain, VARIANTS[variant])
    graph = costmodel.apply("flops", captured.graph, captured)
    return captured, graph, simulate(graph, program_order(graph))


@functools.cache
def planned(variant: str, fraction: float) -> tuple[float, float, Plan]:
    """Cost, bound and plan."""
    _, graph, base = network(variant)
    budget = int(fraction * base.peak_bytes)
    found = AnytimeJoint(variant).plan(Problem(graph, budget, time_limit=SECONDS))
    trace = simulate(graph, found.plan)
    assert trace.peak_bytes <= budget
    assert found.bound_of == "any"
    assert found.bound is not None
    assert found.bound <= trace.cost
    return trace.cost, found.bound, found.plan


def test_gaps_and_cost_falls_with_the_budget() -> None:
    found = [planned("full", fraction) for fraction in (0.55, 0.65, 0.8)]
    assert [cost for cost, _, _ in found] == sorted((c for c, _, _ in found), reverse=True)
    assert all(cost - bound <= 0.3 * cost for cost, bound, _ in found)


def allowed(variant: str) -> Graph:
    """The tiny graph with the implementations of a variant."""

    def keep(op: Op) -> Op:
        implementations = op.implementations
        return replace(
            op,
            implementations=tuple(
                w for w in implementations if kinds_of(w.name) <= VARIANTS[variant]
            ),
        )

    graph = tiny()
    return replace(graph, ops=tuple(keep(op) for op in graph.ops))


@pytest.mark.parametrize("budget", [12, 14, 16])
def test_order_of_the_ablation(budget: int) -> None:
    cost = {}
    for variant in VARIANTS:
        graph = allowed(variant)
        try:
            found = AnytimeJoint(variant, gap=0.0).plan(Problem(graph, budget, time_limit=SECONDS))
        except Infeasible:
            cost[variant] = math.inf
            continue
        cost[variant] = simulate(graph, found.plan).cost
    for variant in ("conv", "output", "intermediate"):
        assert cost["full"] <= cost[variant] <= cost["noop"]
    assert cost["full"] < math.inf


def test_full_is_cheaper_than_noop() -> None:
    assert planned("full", 0.55)[0] < planned("noop", 0.55)[0]


@pytest.mark.parametrize("operators", [False, True])
def test_published_program(operators: bool) -> None:
    _, graph, base = network("full" if operators else "noop")
    room = int(0.7 * base.peak_bytes)
    programs = [Published(graph, room, operators, bound) for bound in LOCALS]
    loose, tight = (program.facts | program.presolved(60) for program in programs)
    for sizes in (loose, tight):
        assert 0 < sizes["presolved_rows"] <= sizes["published_rows"]
        assert 0 < sizes["presolved_columns"] <= sizes["published_columns"]
    assert loose["published_rows"] == tight["published_rows"]  # they differ in coefficients
    assert loose["forward_ops"] == len(forward_ops(graph))


@pytest.mark.parametrize("operators", [False, True])
def test_the_published_program_is_solved_and_its_plan_fits(operators: bool) -> None:
    _, graph, base = network("full" if operators else "noop")
    costs = []
    for fraction in (0.9, 0.75):
        budget = int(fraction * base.peak_bytes)
        found = Monet(operators).plan(Problem(graph, budget, time_limit=60))
        trace = simulate(graph, found.plan)
        assert trace.peak_bytes <= budget
        assert found.details["program_budget_bytes"] <= budget
        assert found.details["published_rows"] > 5000
        ours = AnytimeJoint("full" if operators else "noop")
        bound = ours.plan(Problem(graph, budget, time_limit=SECONDS)).bound
        assert bound is None or bound <= trace.cost * (1 + 1e-9)
        costs.append(trace.cost)
    assert costs == sorted(costs)


def test_stages_of_the_published_program_are_those_of_the_backward_ops() -> None:
    _, graph, base = network("full")
    published = Published(graph, base.peak_bytes, True, "loose")
    space = ImplementationSpace.start(
        AllowedImplementations.of(graph, Monet().kinds), base.peak_bytes, joint=True
    )
    stages = stages_of(published, space)
    assert (np.diff(stages) >= 0).all()
    kinds = {
        "convolution_backward": "convolution",
        "threshold_backward": "relu",
        "max_pool2d_with_indices_backward": "max_pool2d_with_indices",
        "native_batch_norm_backward": "_native_batch_norm",
    }
    for op, k in zip(space.stages.tolist(), stages.tolist(), strict=True):
        reads = graph.tables.inputs[op]
        writers = set(graph.tables.writer[reads].tolist())
        if not writers & set(range(graph.loss_index)):  # the gradient of the first weight
            continue
        wanted = kinds.get(graph.ops[op].operator, "")
        assert published.operator[published.backward[k].node].startswith(wanted)


def test_without_a_plan_the_published_program_says_how_large_it_is() -> None:
    _, graph, base = network("full")
    budget = int(0.7 * base.peak_bytes)
    with pytest.raises(
        Stopped, match=r"of MONeT's program, [\d,]+ rows and [\d,]+ columns"
    ) as caught:
        Monet().plan(Problem(graph, budget, time_limit=0.0))
    assert caught.value.details["published_rows"] > 5000
    with pytest.raises(Infeasible, match="has no solution for") as caught:
        Monet().plan(Problem(graph, graph.floor_bytes(), time_limit=60))
    assert not caught.value.proven


def test_its_size_after_presolve_is_in_the_row() -> None:
    _, graph, base = network("noop")
    strategy = Monet(operators=False, presolve=True)
    with pytest.raises(Stopped, match="was presolved, not solved") as caught:
        strategy.plan(Problem(graph, int(0.8 * base.peak_bytes), time_limit=60))
    assert caught.value.details["presolved_rows"] > 0
    assert caught.value.details["operators"] is False


def test_forward_ops_of_the_papers_unet() -> None:
    options = {"resolution": 32, "dropout": 0.0, "batch_norm": True, "upsampling": True}
    assert len(forward_ops(capture(make_model("unet", **options)).graph)) == 67


def test_size_of_the_published_program() -> None:
    """Table 7: 40 forward ops, 12,772 x 6,306, for VGG-16 without operators."""
    graph = capture(make_model("vgg16", batch_size=8, resolution=224)).graph
    room = int(0.71 * simulate(graph, program_order(graph)).peak_bytes)
    program = Published(graph, room, False, "loose")
    found = program.facts | program.presolved(60)
    assert found["forward_ops"] == 40
    assert found["presolved_rows"] == pytest.approx(12772, rel=0.15)
    assert found["presolved_columns"] == pytest.approx(6306, rel=0.15)


def test_executed() -> None:
    captured, _, _ = network("noop")
    graph = captured.graph
    base = simulate(graph, program_order(graph))
    budget = int(0.6 * base.peak_bytes)
    plan = AnytimeJoint().plan(Problem(graph, budget, time_limit=SECONDS)).plan
    found = validator.measure(captured, plan, device="cpu", repeats=1)
    assert found.reason is None
    assert found.verdict in ("exact", "rounding")  # by what the plan came to choose
    assert found.rounding is None or found.rounding.float64_error < 1e-11


def test_concatenations_need_not_be_in_memory() -> None:
    """At a third of its memory a U-Net takes convolutions by parts, and copies of gradients."""
    options = {"batch_size": 8, "resolution": "48x64", "base_channels": 4, "dropout": 0.0}
    torch.manual_seed(0)
    plain = capture(make_model("unet", **options, batch_norm=True, upsampling=True))
    captured = with_alternatives(plain, VARIANTS["full"])
    captured = replace(captured, graph=costmodel.apply("roofline", captured.graph, captured))
    budget = simulate(captured.graph, program_order(captured.graph)).peak_bytes // 3
    plan = AnytimeJoint().plan(Problem(captured.graph, budget, time_limit=2 * SECONDS)).plan
    implementations = {
        implementation for _, implementation in implementations_of(captured.graph, plan)
    }
    assert implementations & {"parts", "parts:winograd_image"}
    assert implementations & {"parts:copy", "parts:copy+inplace"}
    found = validator.measure(captured, plan, device="cpu", repeats=1)
    assert found.reason is None
    assert found.verdict in ("exact", "rounding")
    assert found.rounding is None or found.rounding.float64_error < 1e-11


def test_checkpoint_all_stays_the_same() -> None:
    captured, graph, base = network("full")
    assert isinstance(AnytimeJoint(), ChoosesImplementations)
    plain = costmodel.apply("flops", captured.graph, captured)
    only = tuple(replace(op, implementations=op.implementations[:1]) for op in plain.ops)
    again = simulate(replace(graph, ops=only), program_order(replace(graph, ops=only)))
    assert (again.peak_bytes, again.cost) == (base.peak_bytes, base.cost)


def test_no_budget_and_no_alternatives() -> None:
    graph = unit_chain(6)
    plan = AnytimeJoint().plan(Problem(graph)).plan
    assert simulate(graph, plan).cost == simulate(graph, program_order(graph)).cost
    found = AnytimeJoint().plan(Problem(graph, 5, time_limit=SECONDS))
    assert simulate(graph, found.plan).peak_bytes <= 5


def test_nobody_can_meet_it() -> None:
    _, graph, _ = network("full")
    with pytest.raises(Infeasible) as caught:
        AnytimeJoint().plan(Problem(graph, graph.floor_bytes() - 1))
    assert caught.value.proven


def test_bad_input() -> None:
    with pytest.raises(ConfigError, match=r"strategy\.variant"):
        AnytimeJoint("some")
    with pytest.raises(ConfigError, match=r"strategy\.locals"):
        Monet(locals="some")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"strategy\.convolutions"):
        CheckmateCompared("some")
    forward_only = Graph(
        "f",
        (Value("a", 1),),
        (tiny().ops[0].__class__("a", Phase.FORWARD, ("a",), (Implementation("default", (), 1),)),),
        ("a",),
    )
    with pytest.raises(NotApplicable):
        AnytimeJoint().plan(Problem(forward_only, 5))


class _Narrow(nn.Module):
    """Odd channel counts, a batch norm whose weight is zero, an in-place ReLU, an empty branch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 5, 3), nn.Conv2d(5, 7, 3, padding=1)
        self.norm, self.pool = nn.BatchNorm2d(7), nn.MaxPool2d(3, 2, 1)
        nn.init.zeros_(self.norm.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.first(x))
        y = F.relu(self.norm(self.second(x)) + x.mean(1, keepdim=True), inplace=True)
        empty = y[:0].sum()
        return self.pool(y).square().mean() + empty


@pytest.mark.parametrize("strategy", [AnytimeJoint(), Gist(), CheckmateCompared("fastest")])
def test_zero_weights_empty_tensors_and_odd_sizes(strategy: ChoosesImplementations) -> None:
    torch.manual_seed(0)
    workload = Workload(
        "narrow", _Narrow(), lambda: (torch.randn(3, 3, 13, 11),), lambda m, x: m(x)
    )
    plain = capture(workload)
    density = validator.densities(plain, "cpu") if strategy.wants_density else None
    captured = with_alternatives(plain, strategy.kinds, density)
    graph = costmodel.apply("flops", captured.graph, captured)
    base = simulate(graph, program_order(graph))
    budget = None if isinstance(strategy, Gist) else base.peak_bytes
    found = strategy.plan(Problem(graph, budget, SECONDS, captured=captured))
    result = validator.measure(captured, found.plan, device="cpu", repeats=1)
    assert result.reason is None


def test_never_overwrites_what_is_read_again() -> None:
    """The simulator rejects such plans: a read of what was overwritten finds nothing."""
    _, graph, _ = network("full")
    taken = {
        (op.name, implementation.name)
        for op in graph.ops
        for implementation in op.implementations
        if implementation.overwrites
    }
    ran = {(s.op, s.implementation) for s in planned("full", 0.55)[2].statements
           if isinstance(s, Compute)}  # fmt: skip
    assert taken & ran
    simulate(graph, planned("full", 0.55)[2])


def test_interrupted_it_returns_the_best() -> None:
    _, graph, base = network("full")
    budget = int(0.65 * base.peak_bytes)

    def stop(words: str) -> None:
        if words.startswith("cost"):
            raise KeyboardInterrupt

    found = AnytimeJoint().plan(Problem(graph, budget, time_limit=60, report=stop))
    assert simulate(graph, found.plan).peak_bytes <= budget


def test_blind_schedules_ignore_workspace() -> None:
    _, graph, base = network("conv")
    budget = int(0.6 * base.peak_bytes)
    cost = {}
    for convolutions in ("default", "fastest"):
        strategy = CheckmateCompared(convolutions, gap=0.05)
        found = strategy.plan(Problem(graph, budget, time_limit=SECONDS))
        cost[convolutions] = simulate(graph, found.plan)
        assert found.bound is None
        assert "bounds" not in found.details  # they are of the blind graph,
        assert ("incumbents" in found.details) == (convolutions == "default")  # and so are costs
    assert cost["fastest"].cost < cost["default"].cost
    assert cost["fastest"].peak_bytes > budget >= cost["default"].peak_bytes
