"""moccasin: optimal among plans with at most C computes of an op; the end of its process."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from executed import check_executed

from rematbench.base.errors import ConfigError, ExecutionError, Infeasible, NotApplicable
from rematbench.graphs.builders.synthetic import random_graph, unit_chain
from rematbench.graphs.files import read_graph
from rematbench.graphs.ir import Graph, Implementation, Op, Phase, Value
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem
from rematbench.strategies.moccasin import Moccasin, process
from rematbench.strategies.moccasin.instance import Scaled, instance_of, peak_of

SHARED = Path(__file__).parents[1] / "data" / "golden" / "moccasin"
SOLVE = """
import json, sys, time
from rematbench.strategies.moccasin.instance import Instance
from rematbench.strategies.moccasin.worker import solve
for given in json.loads(sys.stdin.read()):
    solve(Instance.of_json(given), time.time() + 60, threads=1, seed=0, gap=0.0)
"""


def tiny(seed: int) -> Graph:
    """Seven ops there and back; with workspaces, second outputs, and values without bytes."""
    random, graph = np.random.default_rng(seed), random_graph(3, seed)
    values, ops = list(graph.values), []
    extra: dict[str, str] = {}
    for op in graph.ops:
        writes, reads = op.writes, op.reads
        if op.phase is Phase.FORWARD and random.random() < 0.6:
            extra[op.name] = f"w_{op.name}"
            writes += (extra[op.name],)
            values.append(Value(extra[op.name], int(random.integers(0, 60))))
        if op.phase is Phase.BACKWARD and op.writes[0][5:] in extra:
            reads += (extra[op.writes[0][5:]],)
        workspace = int(random.integers(0, 40)) if random.random() < 0.5 else 0
        implementation = Implementation("default", reads, op.cost, workspace)
        ops.append(Op(op.name, op.phase, writes, (implementation,)))
    kept = tuple(extra.values())[:1] if seed % 3 == 0 else ()
    return Graph(f"tiny{seed}", tuple(values), tuple(ops), (*graph.outputs, *kept))


def brute_force(scaled: Scaled) -> list[tuple[int, int]]:
    """(simulated peak, cost of recomputation) of every plan with at most two computes of an op."""
    count, found = len(scaled.ops), []
    for stages in itertools.product(*(range(op, count) for op in range(count))):
        again = [(stage, op) for op, stage in enumerate(stages) if stage > op]
        order = [op for _, op in sorted([(op, op) for op in range(count)] + again)]
        trace = simulate(scaled.graph, scaled.plan(order))
        found.append((trace.peak_bytes, round(trace.cost - scaled.base_cost)))
    return found


def scaled_at(graph: Graph, budget: int) -> Scaled:
    peak = simulate(graph, program_order(graph)).peak_bytes
    return instance_of(graph, budget, peak, 2)


def test_the_optimum_of_all_plans_at_every_budget() -> None:
    cases = []
    for seed in range(10):
        graph = tiny(seed)
        peak = simulate(graph, program_order(graph)).peak_bytes
        plans = brute_force(scaled_at(graph, peak))
        peaks = sorted({p for p, _ in plans if p < peak})
        for budget in [peaks[0] - 1, *peaks[:3]] if peaks else []:
            best = min((cost for p, cost in plans if p <= budget), default=None)
            cases.append((scaled_at(graph, budget), budget, best))
    assert len(cases) > 8
    asked = json.dumps([scaled.instance.as_json() for scaled, _, _ in cases])
    command = [sys.executable, "-c", SOLVE]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True)
    messages = iter(map(json.loads, done.stdout.splitlines()))
    for scaled, budget, best in cases:
        cost = None
        for message in messages:
            if "order" in message:
                trace = simulate(scaled.graph, scaled.plan(message["order"]))
                assert scaled.peak_bytes(peak_of(scaled.instance, message["order"])) == (
                    trace.peak_bytes
                )
                if "peak" not in message:
                    assert trace.peak_bytes <= budget
                    cost = round(trace.cost - scaled.base_cost)
            if "end" in message:
                assert message["end"] == ("infeasible" if best is None else "optimal")
                break
        assert cost == best


@pytest.mark.parametrize("seed", range(5))
def test_peaks_of_orders_are_those_of_the_simulator(seed: int) -> None:
    graph = random_graph(8, seed)
    peak = simulate(graph, program_order(graph)).peak_bytes
    scaled = instance_of(graph, peak, peak, 3)
    random = np.random.default_rng(seed)
    for _ in range(30):
        order = []
        for op in range(len(scaled.ops)):  # every stage computes again what it likes
            order += [each for each in range(op) if random.random() < 0.2] + [op]
        plan = scaled.plan(order)
        assert (
            scaled.peak_bytes(peak_of(scaled.instance, order)) == simulate(graph, plan).peak_bytes
        )


def test_costs_are_rounded_down_only_where_they_must() -> None:
    graph = unit_chain(4)
    assert instance_of(graph, 6, 6, 2).cost_unit == 1.0
    ops = tuple(
        Op(op.name, op.phase, op.writes, (Implementation("default", op.reads, 0.1 * (i + 1)),))
        for i, op in enumerate(graph.ops)
    )
    fine = instance_of(Graph("fine", graph.values, ops, graph.outputs), 6, 6, 2)
    exact = [0.1 * (i + 1) for i in range(9)]
    assert all(
        whole * fine.cost_unit <= cost < (whole + 1) * fine.cost_unit + 1e-12
        for whole, cost in zip(fine.instance.cost, exact, strict=True)
    )
    assert fine.bound(0) == pytest.approx(sum(exact))


def test_a_published_optimum() -> None:
    """Their Table 2: 0.8 % more at nine tenths of the peak (0.79 % exactly)."""
    path = SHARED / "random_layered_n100.graph.json"
    graph = read_graph(path)
    base = simulate(graph, program_order(graph))
    found = Moccasin(threads=2).plan(Problem(graph, int(0.9 * base.peak_bytes), 60))
    assert found.plan is not None
    trace = simulate(graph, found.plan)
    assert trace.cost / base.cost - 1 == pytest.approx(0.00789, abs=1e-5)
    assert (found.bound, found.bound_of) == (trace.cost, "C")
    assert found.details["solver_status"] == "optimal"


def test_one_compute_each_is_the_program_order_or_nothing() -> None:
    graph = unit_chain(6)
    peak = simulate(graph, program_order(graph)).peak_bytes
    found = Moccasin(computes=1).plan(Problem(graph, peak))
    assert found.bound == 13
    with pytest.raises(Infeasible, match=r"strategy\.computes=1") as caught:
        Moccasin(computes=1).plan(Problem(graph, peak - 1))
    assert caught.value.proven
    assert caught.value.smallest_peak_found == peak


def test_more_computes_reach_lower_budgets() -> None:
    graph = unit_chain(6)
    with pytest.raises(Infeasible, match=r"strategy\.computes=3 allows more") as caught:
        Moccasin(threads=1).plan(Problem(graph, 4))
    assert caught.value.proven
    found = Moccasin(computes=6, threads=1).plan(Problem(graph, 4))
    assert found.plan is not None
    assert simulate(graph, found.plan).peak_bytes <= 4


def test_a_start_is_gone_on_from() -> None:
    graph = random_graph(12, 3)
    budget = int(0.8 * simulate(graph, program_order(graph)).peak_bytes)
    costs = []
    for start in ("search", "none"):
        found = Moccasin(threads=1, start=start).plan(Problem(graph, budget))
        assert found.plan is not None
        assert found.details["solver_status"] == "optimal"
        costs.append(simulate(graph, found.plan).cost)
    assert costs[0] == costs[1]


def test_without_ortools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NotApplicable, match=r"rematbench\[moccasin\]"):
        Moccasin().plan(Problem(unit_chain(6), 5))


@pytest.mark.parametrize(
    "options", [{"computes": 0}, {"threads": True}, {"gap": 1.5}, {"start": "no"}]
)
def test_options_out_of_range(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="strategy"):
        Moccasin(**options)  # type: ignore[arg-type]


def _speaking(*lines: str, then: str) -> list[str]:
    said = "".join(f"print({line!r}, flush=True)\n" for line in lines)
    return [sys.executable, "-c", f"import sys, time\nsys.stdin.readline()\n{said}{then}"]


@pytest.fixture
def chain() -> tuple[Graph, str]:
    """A chain, and an incumbent for 5 bytes in the words of the solver's process."""
    graph = unit_chain(4)
    again = [0, 1, 2, 3, 4, 5, 6, 0, 7, 8]
    assert simulate(graph, instance_of(graph, 5, 6, 2).plan(again)).peak_bytes == 5
    return graph, json.dumps({"order": again, "bound": 0})


def test_a_process_that_is_killed_leaves_its_last_plan(
    monkeypatch: pytest.MonkeyPatch, chain: tuple[Graph, str]
) -> None:
    graph, incumbent = chain
    ends = f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})"
    monkeypatch.setattr(process, "command", lambda: _speaking(incumbent, '{"bo', then=ends))
    found = Moccasin(start="none").plan(Problem(graph, 5))
    assert found.plan is not None
    assert simulate(graph, found.plan).cost == 10
    assert found.bound == 9
    assert found.details["solver_status"] == "the solver's process was ended by signal 9"


def test_a_process_that_says_nothing_ends_at_the_limit(
    monkeypatch: pytest.MonkeyPatch, chain: tuple[Graph, str]
) -> None:
    graph, incumbent = chain
    monkeypatch.setattr(process, "PATIENCE", 0.0)
    started: list[process.SolverProcess] = []
    close = process.SolverProcess.close
    monkeypatch.setattr(
        process.SolverProcess, "close", lambda self: (started.append(self), close(self))
    )
    sleeps = _speaking(incumbent, then="time.sleep(600)")
    monkeypatch.setattr(process, "command", lambda: sleeps)
    found = Moccasin().plan(Problem(graph, 5, time_limit=2.0))
    assert found.plan is not None
    assert found.details["solver_status"] == "time_limit"
    with pytest.raises(ProcessLookupError):
        os.kill(started[0].pid, 0)


def test_a_process_that_dies_without_a_plan(
    monkeypatch: pytest.MonkeyPatch, chain: tuple[Graph, str]
) -> None:
    dies = _speaking(then="raise MemoryError('not enough')")
    monkeypatch.setattr(process, "command", lambda: dies)
    with pytest.raises(ExecutionError, match="exit code 1: MemoryError: not enough"):
        Moccasin(start="none").plan(Problem(chain[0], 5))


def test_executed() -> None:
    check_executed(Moccasin(threads=1, gap=0.01))
