"""On a new machine a sweep compiles its strategies' kernels before its first job, once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import sleep
from types import SimpleNamespace

import pytest

from rematbench.engines.warm_up import warm_up
from rematbench.strategies.dtr.planner import Dtr
from rematbench.strategies.joins.planner import EquivChain, JoinDp
from rematbench.worker import ahead


def test_each_strategy_once_and_on_a_new_machine_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(ahead, "cache_root", lambda: tmp_path)
    monkeypatch.setattr(subprocess, "run", lambda words, **_: asked.append(words))
    said: list[str] = []
    ahead.compile_ahead(["dtr"], said.append)
    assert not asked  # its job compiles them as well
    ahead.compile_ahead(["dtr", "chain_dp", "dtr"], said.append)
    assert sorted(words[-1] for words in asked) == ["chain_dp", "dtr"]
    assert said[-1] == "compiles kernels, once on this machine: 2 of 2 strategies"
    ahead.compile_ahead(["dtr", "chain_dp"], said.append)
    assert len(asked) == 2


def test_a_strategy_is_warmed_up_if_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    warmed: list[str] = []
    monkeypatch.setattr(Dtr, "warm_up", lambda self: warmed.append(self.heuristic))
    for name in ("checkpoint_all", "dtr"):
        monkeypatch.setattr(sys, "argv", ["ahead", name])
        ahead.main()
    assert warmed == [Dtr().heuristic]


COMPILED = """
import gc, sys
from numba.core.registry import CPUDispatcher
from rematbench.engines.warm_up import warm_up
from rematbench.graphs.builders.synthetic import join
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem
from rematbench.strategies.registry import make

def signatures():
    found = [each for each in gc.get_objects() if isinstance(each, CPUDispatcher)]
    ours = [each for each in found if each.py_func.__module__.startswith("rematbench")]
    return {(each.py_func.__qualname__, *each.signatures) for each in ours}

graph = join([3, 4])
peak = simulate(graph, program_order(graph)).peak_bytes
for name in sys.argv[1:]:
    warm_up(make(name))
    before = signatures()
    make(name).plan(Problem(graph, peak - 1))
    print(name, signatures() - before)
"""
"""Which kernels planners have compiled after they were warmed up."""


def test_nothing_is_compiled_in_a_planners_time() -> None:
    """On a new machine, ap_sqrt lost the first second that it was given to a kernel."""
    pytest.importorskip("numba", reason="kernels are plain Python without it")
    names = ["ap_sqrt", "join_dp", "equiv_chain"]
    words = [sys.executable, "-c", COMPILED, *names]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{name} set()" for name in names]


def test_warming_up_asks_for_no_option_that_a_small_graph_lacks() -> None:
    for strategy in (JoinDp(slots=1), EquivChain(slots=1)):
        warm_up(strategy)


def test_an_interrupt_begins_no_further_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def run(words: list[str], **_: object) -> None:
        asked.append(words[-1])
        sleep(0.05)

    def say(words: str) -> None:
        if words.endswith("1 of 200 strategies"):
            raise KeyboardInterrupt

    monkeypatch.setattr(ahead, "cache_root", lambda: tmp_path)
    monkeypatch.setattr(ahead, "os", SimpleNamespace(cpu_count=lambda: 1))
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(KeyboardInterrupt):
        ahead.compile_ahead(map(str, range(200)), say)
    assert len(asked) < 200
