"""Time limits: whose seconds they are, what ends a planner that overruns, what is kept of it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from time import perf_counter, sleep
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from rematbench.base import clock
from rematbench.base.clock import (
    BACKGROUND,
    OutOfTime,
    available_threads,
    planning_seconds,
    stopped_after,
)
from rematbench.base.errors import Infeasible, Stopped
from rematbench.cli.commands import rematbench
from rematbench.graphs.builders.synthetic import random_graph, with_backward
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import simulate
from rematbench.rows.row import Row, find_rows
from rematbench.strategies.base import Problem, SupportsWarmUp, cheapest_within
from rematbench.strategies.registry import make
from rematbench.worker import time_limits
from rematbench.worker.process_memory import cpu_seconds
from rematbench.worker.serve import PATROL, _World
from rematbench.worker.worker import the_worker

HEEDLESS = """
import hashlib
import threading
import time
from dataclasses import dataclass
from rematbench.graphs.plan import program_order
from rematbench.jobs import job
from rematbench.strategies.base import Solution, Traits

def spin():
    while True:
        pass

@dataclass(frozen=True)
class Heedless:
    what: str = "spins"
    traits = Traits("yes", "no", "no")

    def plan(self, problem):
        plan = program_order(problem.graph)
        if self.what == "sleeps":
            time.sleep(1.5)
        if self.what == "hands over":
            problem.hand_over(Solution(plan, bound=1.0, bound_of="any", details={"handed": 1}))
            problem.hand_over(Solution(plan, bound=2.0, bound_of="any", details={"handed": 2}))
            spin()
        if self.what == "hands over, then calls":
            problem.hand_over(Solution(plan, bound=1.0, bound_of="any", details={"handed": 1}))
        if "calls" in self.what:
            sum(range(10**12))  # no signal gets into this
        if self.what == "has many threads":  # and a core for each, says the clock on the wall
            wall, began, data = job.perf_counter, job.perf_counter(), bytes(10**6)
            def work():
                while time.thread_time() < 0.4:
                    hashlib.sha256(data)
            threads = [threading.Thread(target=work) for _ in range(3)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            def once():
                job.perf_counter = wall
                return began + 0.4
            job.perf_counter = once
        if self.what == "spins":
            spin()
        while self.what == "swallows":
            try:
                spin()
            except Exception:
                continue
        return Solution(plan)
"""


def planned(
    what: str, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: float = 0.5
) -> Row:
    """The row of a planner that does not look at its limit, in seconds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "heedless.py").write_text(HEEDLESS)
    the_worker().stop()  # a new one sees this folder
    options = ["model=unit_chain", f"time_limit={limit}", f"threads={threads}", "cache=null"]
    named = ["strategy._target_=heedless.Heedless", f"+strategy.what='{what}'"]
    argv = ["rematbench", *options, *named, "hydra.run.dir=runs/heedless"]
    monkeypatch.setattr(sys, "argv", argv)
    rematbench()
    (row,) = find_rows([Path("runs/heedless")])
    return row


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("what", ["spins", "swallows"])
def test_a_planner_that_ignores_its_limit_is_stopped(
    what: str, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = planned(what, threads, tmp_path, monkeypatch)
    assert (row["status"], row["cost"], row["extra"]["stopped"]) == ("time_limit", None, True)
    assert "overran its time limit without a plan; give more time or budget" in row["reason"]


def test_what_it_handed_over_last_is_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = planned("hands over", 1, tmp_path, monkeypatch)
    assert (row["status"], row["overhead"], row["bound"]) == ("ok", 0.0, 2.0)
    assert (row["extra"]["stopped"], row["extra"]["handed"]) == (True, 2)


@pytest.mark.parametrize("what", ["calls", "hands over, then calls"])
def test_the_parent_ends_what_no_signal_ends(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is killed; another one makes the row of what had been handed over."""
    row = planned(what, 1, tmp_path, monkeypatch)
    if what == "calls":
        assert (row["status"], row["cost"]) == ("time_limit", None)
        assert "ran on past its time limit" in row["reason"]
        return
    assert (row["status"], row["overhead"], row["bound"]) == ("ok", 0.0, 1.0)
    assert (row["extra"]["stopped"], row["extra"]["handed"]) == (True, 1)
    assert row["extra"]["plan_cpu_seconds"] > 0.5
    left = {path.name for path in Path("runs/heedless").iterdir()}
    assert "plan.json" in left
    assert not any(name.startswith("handed_over") for name in left)


def test_what_a_started_process_uses_counts_at_once() -> None:
    """A solver's, say: its planner waits for it."""
    before = cpu_seconds(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as solver:
        deadline = perf_counter() + 60.0
        while cpu_seconds(solver.pid) < 0.5 and perf_counter() < deadline:
            sleep(0.05)
        assert cpu_seconds(os.getpid()) - before >= 0.5
        solver.kill()
        solver.wait()
        assert 0.5 <= cpu_seconds(os.getpid()) - before < 30.0  # and once


@pytest.mark.parametrize(("limit", "latest"), [(1.0, 2.0), (20.0, 21.0), (60.0, 63.0)])
def test_none_is_later_than_a_second_or_a_twentieth(limit: float, latest: float) -> None:
    """It is asked to stop, killed at the next look after that, and by then not too late."""
    given = SimpleNamespace(time_limit=limit, threads=1, job_time_limit=None, job_memory_limit=None)
    asked = limit + clock.LATE + clock.LATE_SHARE * limit
    assert asked < time_limits.Limits.of(given).busy < latest - PATROL


def test_a_planner_that_takes_more_threads_than_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of 0.4 CPU seconds each, in 0.4 seconds."""
    row = planned("has many threads", 1, tmp_path, monkeypatch, limit=60.0)
    assert row["extra"]["plan_cpu_seconds"] > 1.2
    used = row["extra"]["plan_cpu_seconds"] / row["plan_seconds"]
    assert row["extra"]["threads_used"] == pytest.approx(used)


@pytest.mark.parametrize(("threads", "status"), [(1, "ok"), (2, "time_limit")])
def test_with_one_thread_the_seconds_are_the_processors(
    threads: int, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = planned("sleeps", threads, tmp_path, monkeypatch)
    assert row["status"] == status
    assert row["extra"].get("stopped", False) == (status == "time_limit")


def test_the_clock_of_one_thread_stands_still_while_it_sleeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for threads, passes in (("1", False), ("2", True)):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        assert available_threads() == int(threads)
        began, by_the_wall = planning_seconds(), perf_counter()
        sleep(0.5)
        share = (planning_seconds() - began) / (perf_counter() - by_the_wall)
        assert (share > 0.5) == passes


def test_nothing_is_stopped_outside_of_the_main_thread() -> None:
    def work() -> None:
        with stopped_after(0.0):
            sleep(0.5)
        ended.append(True)

    ended: list[bool] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ended


class Counted(NamedTuple):
    """What a kernel returns."""

    steps: int


def test_a_kernel_that_overran_hands_over_its_result() -> None:
    """Numba goes on with a named tuple that an exception has prevented: the process crashed."""
    numba = pytest.importorskip("numba", reason="kernels are plain Python without it")

    @numba.njit(nogil=True)
    def count(steps: int) -> Counted:
        found = 1
        for step in range(steps):
            found = (found * 7 + step) % 1_000_003
        return Counted(found)

    assert count(1).steps == 7
    ended: list[int] = []

    def call_for_seconds() -> None:
        while len(ended) < 100:  # all but microseconds are the kernel's
            ended.append(count(20_000_000).steps)

    with pytest.raises(OutOfTime), stopped_after(0.0):
        call_for_seconds()
    assert len(ended) < 100
    assert sys.gettrace() is None


def test_a_kernel_that_is_being_compiled_is_compiled_first() -> None:
    """Numba would be left with half of one: "no compiled object yet", in all calls that follow."""
    numba = pytest.importorskip("numba", reason="kernels are plain Python without it")

    @numba.njit
    def total(numbers: Any) -> float:
        found = 0.0
        for number in np.sort(numbers):
            found += number
        return found

    def call_for_long() -> None:
        total(np.ones(3))  # compiles, which takes more than the limit
        while True:
            total(np.ones(3))

    with pytest.raises(OutOfTime), stopped_after(0.0):
        call_for_long()
    assert len(total.signatures) == 1
    assert total(np.ones(3)) == 3.0
    assert sys.gettrace() is None


def test_an_import_that_is_under_way_comes_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a module stays in others, and whoever imports it next fails."""
    monkeypatch.syspath_prepend(tmp_path)
    busy = "from time import process_time\nwhile process_time() < {}: pass\n"
    (tmp_path / "imported_inside.py").write_text(busy.format(clock.process_time() + 1) + "END = 1")
    (tmp_path / "imported_late.py").write_text("from imported_inside import END")

    def import_for_long() -> None:
        importlib.import_module("imported_late")
        while True:
            pass

    with pytest.raises(OutOfTime), stopped_after(0.0):
        import_for_long()
    assert sys.modules["imported_late"].END == sys.modules["imported_inside"].END == 1
    assert sys.gettrace() is None


def test_a_block_may_lie_in_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then what is under way in the block counts: this one is stopped, and not its importer."""
    monkeypatch.syspath_prepend(tmp_path)
    lines = ["from rematbench.base.clock import OutOfTime, stopped_after", "try:"]
    lines += ["    with stopped_after(0.0):", "        while True:", "            pass"]
    lines += ["except OutOfTime:", "    stopped = True"]
    (tmp_path / "plans_itself.py").write_text("\n".join(lines))
    assert importlib.import_module("plans_itself").stopped
    assert sys.gettrace() is None


def test_candidates_until_the_end_count() -> None:
    graph = random_graph(8, 0)

    def candidates(first: int):
        for number in range(first, 2):
            yield number, program_order(graph)
        raise OutOfTime

    found, _, _, curve = cheapest_within(Problem(graph), candidates(0))
    assert (found, len(curve)) == (0, 2)
    with pytest.raises(Stopped, match="no plan was made; it was stopped after 60 s") as caught:
        cheapest_within(Problem(graph), candidates(2))
    assert isinstance(caught.value, Infeasible)
    assert not caught.value.proven
    with pytest.raises(Stopped, match="the leanest of 2 plans tried needs"):
        cheapest_within(Problem(graph, 1), candidates(0))


def test_a_solver_that_was_left_behind_takes_no_time_of_the_next_job() -> None:
    """Its process is not fit for another job."""
    request, end = {"cwd": os.getcwd(), "settings": {"model": {}}}, threading.Event()
    assert not _World().is_another(request)
    behind = threading.Thread(target=end.wait, name=BACKGROUND)
    behind.start()
    assert _World().is_another(request)
    end.set()
    behind.join()
    assert not _World().is_another(request)


ANYTIME = (
    "anytime",
    "anytime_joint",
    "checkmate_d",
    "checkmate_ilp",
    "hierarchical",
    "moccasin",
)


@cache
def training_step() -> Graph:
    return with_backward(random_graph(24, 5, edges_per_op=1.6))


def kept(name: str, seconds: float) -> tuple[Plan, list[float], float]:
    """The plan of a strategy, the costs of its incumbents, and that of the plan."""
    graph, strategy = training_step(), make(name)
    if isinstance(strategy, SupportsWarmUp):
        strategy.warm_up()
    budget = int(0.6 * simulate(graph, program_order(graph)).peak_bytes)
    found = strategy.plan(Problem(graph, budget, time_limit=seconds))
    costs = [cost for _, cost, _ in found.details["incumbents"] if cost is not None]
    trace = simulate(graph, found.plan)
    assert trace.peak_bytes <= budget
    return found.plan, costs, trace.cost


@pytest.mark.parametrize("name", ANYTIME)
def test_incumbents_are_kept(name: str) -> None:
    """They only get cheaper, and the last one is the answer, so that more time is never worse."""
    _, costs, cost = kept(name, 15.0 if name == "moccasin" else 5.0)  # a process starts first
    assert costs == sorted(costs, reverse=True)
    assert cost == pytest.approx(costs[-1])


def test_warming_up_is_no_part_of_a_jobs_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels compile once on a machine, and may take longer than a job."""
    now = 0.0
    monkeypatch.setattr(time_limits, "monotonic", lambda: now)
    watch = time_limits.WatchedJob(os.getpid(), time_limits.Limits(job=60.0))
    watch.enter("warm up: kernels compile once")
    now = 100.0
    assert watch.end(0) is None
    watch.enter("plan")
    now = 159.0
    assert watch.end(0) is None
    now = 161.0
    end = watch.end(0)
    assert end is not None
    assert "the job ran longer than job_time_limit=60 s" in str(end)
