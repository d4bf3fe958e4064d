"""The strategy ``dtr``: plans on graphs, rows on logs, graphs of logs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from event_streams import streams
from helpers import diamond
from hypothesis import given, settings

from rematbench.base.errors import GraphError, Infeasible, Thrashed
from rematbench.graphs.builders.synthetic import join, random_graph, unit_chain
from rematbench.graphs.ir import Graph, Implementation, Op, Phase, Value, simple_op
from rematbench.graphs.plan import Compute, program_order
from rematbench.graphs.simulate import simulate
from rematbench.jobs.task import banishing_peak
from rematbench.strategies.base import Problem, Solution
from rematbench.strategies.chen import ApSqrt
from rematbench.strategies.dtr import Dtr
from rematbench.streams.convert import graph_of_stream, stream_of_graph
from rematbench.streams.events import (
    Annotate,
    Call,
    Constant,
    CopyFrom,
    EventStream,
    Mutate,
    Release,
    Result,
)
from rematbench.streams.ids import resolve
from rematbench.streams.log import read_log, write_log

DATA = Path(__file__).parents[3] / "shared" / "data" / "simrd"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data/simrd")


@pytest.mark.parametrize("heuristic", ["full", "eqclass", "local", "lru", "largest", "random"])
def test_plans_keep_the_budget(heuristic: str) -> None:
    for graph in (unit_chain(40), random_graph(30, seed=1), join((3, 5)), diamond()):
        base = simulate(graph, program_order(graph))
        found = 0
        for fraction in (1.0, 0.8, 0.6, 0.5):
            budget = int(base.peak_bytes * fraction)
            try:
                solution = Dtr(heuristic).plan(Problem(graph, budget))
            except Infeasible:
                continue
            found += 1
            assert solution.plan is not None
            trace = simulate(graph, solution.plan)
            assert trace.peak_bytes <= budget
            computes = sum(isinstance(s, Compute) for s in solution.plan.statements)
            needed = int(graph.needed_ops().sum())
            assert computes == needed + solution.details["rematerializations"]
        assert found >= 1


def test_without_a_budget_it_is_checkpoint_all() -> None:
    graph = random_graph(40, seed=3)
    assert Dtr().plan(Problem(graph)).plan == program_order(graph)


def test_workspace_counts() -> None:
    ops = (
        simple_op("a", Phase.FORWARD, ["x"], ["a"], 1.5, workspace_bytes=50),
        simple_op("loss", Phase.LOSS, ["a"], ["loss"], 0.25),
    )
    values = (Value("x", 10, True), Value("a", 10), Value("loss", 1))
    graph = Graph("work", values, ops, ("loss",))
    with pytest.raises(Infeasible, match="needs 70 bytes with nothing left to evict"):
        Dtr().plan(Problem(graph, 69))
    assert Dtr().plan(Problem(graph, 70)).plan is not None
    assert stream_of_graph(graph).stream.cost_unit.endswith("unit")


def test_ends() -> None:
    with pytest.raises(Thrashed, match="rematerialization costs more"):
        Dtr(thrash_limit=1.0).plan(Problem(unit_chain(60), 12))
    with pytest.raises(Infeasible, match="constants alone are 4 bytes, the budget is 3"):
        Dtr().plan(Problem(diamond(), 3))
    with pytest.raises(Infeasible, match="time limit"):
        Dtr().plan(Problem(unit_chain(60), 12, time_limit=0.0))
    implementation = Implementation("only", ("a",), 1, overwrites=("a",))
    ops = (
        simple_op("a", Phase.FORWARD, [], ["a"], 1),
        Op("b", Phase.FORWARD, ("b",), (implementation,)),
    )
    graph = Graph("in place", (Value("a", 1), Value("b", 1)), ops, ("b",))
    with pytest.raises(GraphError, match="always overwrites"):
        Dtr().plan(Problem(graph))


def test_random_choices_follow_the_seed() -> None:
    plans = [Dtr("random").plan(Problem(unit_chain(40), 20, seed=s)).plan for s in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    assert Dtr("random", seed=2).plan(Problem(unit_chain(40), 20, seed=1)).plan == plans[2]


STEP = EventStream(
    (
        Constant("w", 8),
        Constant("x", 4),
        Call("mm", ("x", "w"), (Result("h", 4),), 10),
        Call("view", ("h",), (Result("v", 4, 0),), 1),
        Mutate("relu_", ("v",), (0,), 3),
        Call("sum", ("v",), (Result("loss", 1),), 2),
        Annotate("BACKWARD"),
        Call("mm_back", ("loss", "x", "v"), (Result("g", 8), Result("spare", 2)), 20),
        Release("spare"),
        CopyFrom("w", "g"),
        Release("h"),
        Release("v"),
        Release("g"),
    ),
    "step",
)


def test_graph_of_a_log() -> None:
    graph = graph_of_stream(STEP)
    assert [op.name.partition(".")[0] for op in graph.ops] == ["mm", "relu_", "sum", "mm_back"]
    assert graph.ops[0].cost == 11  # its view's included
    assert graph.ops[1].reads == ("h",)
    assert graph.loss_index == 2
    assert [v.name for v in graph.values if v.resident] == ["w", "x"]
    assert graph.outputs == ("g", "loss")
    assert simulate(graph, program_order(graph)).cost == resolve(STEP).cost
    with pytest.raises(GraphError, match="every result is released"):
        graph_of_stream(EventStream((*STEP.events[:4], Release("h"), Release("v")), "all"))


@settings(max_examples=100, deadline=None)
@given(streams())
def test_graphs_of_random_streams(stream: EventStream) -> None:
    try:
        graph = graph_of_stream(stream)
    except GraphError as error:
        assert "every result is released" in str(error)  # noqa: PT017
        return
    simulate(graph, program_order(graph))
    plan = Dtr().plan(Problem(graph)).plan
    assert plan == program_order(graph)


@needs_data
def test_static_strategies_run_on_logs() -> None:
    stream = read_log(DATA / "resnet32.log.gz")
    graph = graph_of_stream(stream)
    base = simulate(graph, program_order(graph))
    assert base.cost == pytest.approx(resolve(stream).cost, rel=0.01)
    plan = ApSqrt().plan(Problem(graph)).plan
    assert plan is not None
    assert simulate(graph, plan).peak_bytes < base.peak_bytes


def test_verdict_on_a_log() -> None:
    def judged(budget: int | None) -> Solution:
        return Dtr().plan(Problem(graph_of_stream(STEP), budget, stream=STEP))

    solution = judged(None)
    assert solution.plan is None
    assert solution.verdict is not None
    assert (solution.verdict.status, solution.verdict.cost) == ("ok", 36)
    assert solution.details["judge"] == "dtr"
    assert len(solution.details["events_crc32"]) == 8
    assert ("computed", "loss", 37 - 20) in solution.verdict.trace
    small = judged(11).verdict
    assert small is not None
    assert small.status == "infeasible"
    assert small.reason == "the constants alone are 12 bytes, the budget is 11"


def rematbench(*given: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rematbench", *given, "cache=null"]
    return subprocess.run(
        [*command, f"hydra.run.dir={folder}"], capture_output=True, text=True, check=False
    )


@needs_data
def test_golden_row_on_the_command_line(tmp_path: Path) -> None:
    path = f"model.path={DATA / 'unet.log.gz'}"
    options = ("strategy.heuristic=full", "strategy.dealloc=eager", "strategy.thrash_limit=2.0")
    done = rematbench(
        "model=simrd_log", path, "strategy=dtr", *options, "budget=0.6", folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    row = json.loads((tmp_path / "row.json").read_text())
    assert row["status"] == "ok"
    assert row["extra"]["total_compute"] == 492213205
    assert row["extra"]["events_crc32"] == "cdae845c"
    assert row["budget_bytes"] == 5049458784
    assert not (tmp_path / "plan.json").exists()


@needs_data
@pytest.mark.parametrize(("dealloc", "least"), [("eager", 0.5), ("banish", 0.9)])
def test_the_papers_smallest_memory_of_unet(dealloc: str, least: float) -> None:
    """Section 5.4, on the log that its program ships."""
    stream = read_log(DATA / "unet.log.gz")
    graph, full = graph_of_stream(stream), banishing_peak(stream)

    def status(share: float) -> str:
        problem = Problem(graph, int(share * full), stream=stream)
        verdict = Dtr("full", dealloc=dealloc, thrash_limit=5.0).plan(problem).verdict
        assert verdict is not None
        return verdict.status

    assert status(least) == "ok"
    assert status(least - 0.1) == "infeasible"


def test_a_row_names_its_log_without_a_folder() -> None:
    """Rows travel; the folders of who made them do not."""
    stream = read_log(Path(__file__).parents[1] / "data" / "unet.log")
    problem = Problem(graph_of_stream(stream), banishing_peak(stream) // 2, stream=stream)
    verdict = Dtr().plan(problem).verdict
    assert verdict is not None
    assert verdict.reason is not None
    assert verdict.reason.startswith("unet.log: line ")


def test_bad_logs_end_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.log"
    write_log(path, EventStream((Constant("x", 1), Release("x"), Release("x"))))
    done = rematbench("model=simrd_log", f"model.path={path}", "strategy=dtr", folder=tmp_path)
    assert done.returncode == 2
    assert f"{path}: line 5: 'x' is released, but has no references left" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_executed_with_the_bits_of_eager_training() -> None:
    from rematbench import validator
    from rematbench.tracing.trace import capture
    from rematbench.zoo import make_model

    captured = capture(make_model("resnet32", batch_size=4, resolution=32, blocks=1))
    base = simulate(captured.graph, program_order(captured.graph))
    solution = Dtr().plan(Problem(captured.graph, int(base.peak_bytes * 0.7)))
    assert solution.plan is not None
    assert simulate(captured.graph, solution.plan).recomputations > 0
    found = validator.measure(captured, solution.plan, device="cpu", repeats=1)
    assert found.reason is None
    assert found.gradient_bitwise
