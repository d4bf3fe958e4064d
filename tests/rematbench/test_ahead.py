"""On a new machine a sweep compiles its strategies' kernels before its first job, once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from time import sleep
from typing import Any, ClassVar

import pytest

from rematbench.engines.warm_up import warm_up
from rematbench.strategies.anytime.planner import Anytime
from rematbench.strategies.chain_dp.planner import ChainDp
from rematbench.strategies.checkpoint_all.planner import CheckpointAll
from rematbench.strategies.dtr.planner import Dtr
from rematbench.strategies.joins.planner import EquivChain, JoinDp
from rematbench.worker import ahead


class Helper:
    """Stands in for the process that compiles: it has two lines to say."""

    asked: ClassVar[list[list[str]]] = []

    def __init__(self, words: list[str], **_: object) -> None:
        self.asked.append(words)
        self.stdout = iter(["1 of 2\n", "2 of 2\n"])

    def __enter__(self) -> Helper:
        return self

    def __exit__(self, *_: object) -> None: ...


def test_each_strategy_once_and_on_a_new_machine_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Helper, "asked", [])
    monkeypatch.setattr(ahead, "cache_root", lambda: tmp_path)
    monkeypatch.setattr(subprocess, "Popen", Helper)
    said: list[str] = []
    ahead.compile_ahead(["dtr"], said.append)
    assert not Helper.asked  # its job compiles them as well
    ahead.compile_ahead(["dtr", "chain_dp", "dtr"], said.append)
    assert [words[-2:] for words in Helper.asked] == [["dtr", "chain_dp"]]
    assert said[-1] == "compiles kernels, once on this machine: 2 of 2 parts"
    ahead.compile_ahead(["dtr", "chain_dp"], said.append)
    assert len(Helper.asked) == 1


def test_parts_that_fail_keep_no_other_from_being_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def warm_up(self: object) -> None:
        (tmp_path / type(self).__name__).touch()

    def fail() -> None:
        raise RuntimeError("no space left")

    monkeypatch.setattr(Dtr, "warm_up", warm_up)
    monkeypatch.setattr(ChainDp, "warm_up", warm_up)
    monkeypatch.setattr(Anytime, "warm_ups", lambda self: (fail, lambda: warm_up(self)))
    names = ["dtr", "no_such_strategy", "checkpoint_all", "chain_dp", "anytime"]
    monkeypatch.setattr(sys, "argv", ["ahead", *names])
    ahead.main()
    assert capfd.readouterr().out.splitlines()[-1] == "4 of 4"
    assert {path.name for path in tmp_path.iterdir()} == {"Anytime", "ChainDp", "Dtr"}


def test_a_strategy_is_warmed_up_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    warmed: list[Dtr] = []
    monkeypatch.setattr(Dtr, "warm_up", lambda self: warmed.append(self))
    monkeypatch.setattr("rematbench.engines.warm_up._warm", set())
    for strategy in (Dtr(), CheckpointAll(), Dtr(), Dtr(heuristic="lru"), Dtr()):
        warm_up(strategy)
    assert warmed == [Dtr(), Dtr(heuristic="lru")]


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


def test_an_interrupt_ends_what_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[subprocess.Popen[str]] = []
    popen, late = subprocess.Popen, tmp_path / "late"

    def slow(words: list[str], **given: Any) -> subprocess.Popen[str]:
        line = f"(sleep 1; touch {late}) & echo 1 of 2; wait"
        begun.append(popen(["sh", "-c", line], **given))
        return begun[0]

    def say(words: str) -> None:
        if words.endswith("1 of 2 parts"):
            raise KeyboardInterrupt

    monkeypatch.setattr(ahead, "cache_root", lambda: tmp_path)
    monkeypatch.setattr(subprocess, "Popen", slow)
    with pytest.raises(KeyboardInterrupt):
        ahead.compile_ahead(["dtr", "chain_dp"], say)
    assert begun[0].returncode == -signal.SIGKILL
    sleep(1.5)
    assert not late.exists()  # what it had begun is gone, too
