"""Compiled kernels on disk: never those of an older callee, and never in the way."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from numba.core import event

from rematbench.base import cache_dirs, kernels

HOUSE = Path(__file__).parents[2]
FACTOR = "FACTOR = {factor}\n"
CALLEE = """
from rematbench.base.kernels import kernel
from factor_of_a_kernel import FACTOR

@kernel
def scaled(x):
    return {term} + FACTOR * x
"""
CALLER = """
from rematbench.base.kernels import kernel
import callee_of_a_kernel
from callee_of_a_kernel import scaled

@kernel
def twice(x):
    return 2 * scaled(x)
"""
TUPLE = """
from typing import NamedTuple

class {}(NamedTuple):
    {}: float
    {}: float
"""
READER = """
from rematbench.base.kernels import kernel

@kernel
def first(pair):
    return pair.a
"""
NAMES = ("factor_of_a_kernel", "callee_of_a_kernel", "caller_of_a_kernel")


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Imports the caller as a new process would, over the sources given."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)

    def load(factor: int, term: str = "0") -> ModuleType:
        for name, text in zip(NAMES, (FACTOR, CALLEE, CALLER), strict=True):
            (tmp_path / f"{name}.py").write_text(text.format(factor=factor, term=term))
            sys.modules.pop(name, None)
        forget()
        importlib.invalidate_caches()
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        return importlib.import_module(NAMES[-1])

    yield load
    forget()
    for name in NAMES:
        sys.modules.pop(name, None)


def forget() -> None:
    """What a process knows of files."""
    for memo in (cache_dirs.cache_root, cache_dirs.code_hashes):
        memo.cache_clear()
    for memo in (kernels._folder, kernels._located, kernels._is_installed):
        memo.cache_clear()


def test_a_changed_callee_or_constant_in_another_file_is_compiled_anew(fresh) -> None:
    first = fresh(factor=3)
    assert first.twice(5) == 30
    again = fresh(factor=3)
    assert again.twice(5) == 30
    assert sum(again.twice.stats.cache_hits.values()) == 1
    assert fresh(factor=3, term="1").twice(5) == 32
    assert fresh(factor=4, term="1").twice(5) == 42
    back = fresh(factor=3)
    assert back.twice(5) == 30
    assert sum(back.twice.stats.cache_hits.values()) == 1


@pytest.mark.parametrize("name", ["Pair", "Renamed"])
def test_a_tuple_that_others_hand_over_is_compiled_anew(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's file does not import the tuple's, and does not change."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "user_of_a_tuple.py").write_text(READER)

    def first(name: str, *fields: str) -> float:
        (tmp_path / "tuple_of_a_kernel.py").write_text(TUPLE.format(name, *fields))
        for each in ("tuple_of_a_kernel", "user_of_a_tuple"):
            sys.modules.pop(each, None)
        forget()
        importlib.invalidate_caches()
        pair = getattr(importlib.import_module("tuple_of_a_kernel"), name)(1.0, 2.0)
        return importlib.import_module("user_of_a_tuple").first(pair)

    try:
        assert first("Pair", "a", "b") == 1.0
        assert first(name, "b", "a") == 2.0
    finally:
        forget()


def test_what_kernels_call_is_compiled_once_and_without_a_wrapper(fresh) -> None:
    """A literal is of its type; Python may call it all the same, and then gets a wrapper."""
    scaled = fresh(factor=3).scaled
    compiled: list[bool] = []

    class Listener(event.Listener):
        def on_start(self, found: event.Event) -> None:
            compiled.append(found.data["dispatcher"].targetoptions.get("no_cpython_wrapper", False))

        def on_end(self, found: event.Event) -> None: ...

    @kernels.kernel
    def thrice(x: int) -> int:
        return scaled(x) + scaled(1) + scaled(2)

    with event.install_listener("numba:compile", Listener()):
        assert thrice(5) == 24
        assert compiled == [False, True]
        assert scaled(5) == 15
    assert compiled == [False, True, False]


def test_old_versions_do_not_pile_up(fresh, tmp_path: Path) -> None:
    for factor in range(8):
        fresh(factor)
    kept = list((tmp_path / "cache" / "rematbench").glob("caller_of_a_kernel-*"))
    assert len(kept) == kernels._KEPT


def test_where_nothing_else_can_be_written_a_temporary_folder_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write everywhere: what is a file is no folder for anyone, though."""
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(cache_dirs, "__file__", str(file / "places.py"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    monkeypatch.setattr(cache_dirs.tempfile, "tempdir", str(tmp_path))
    forget()
    try:
        temporary = tmp_path / f"rematbench-{os.getuid()}"
        assert cache_dirs.cache_root() == temporary
        assert temporary.stat().st_mode & 0o777 == 0o700
        # Nor does a folder serve that others can write.
        temporary.chmod(0o777)
        forget()
        assert cache_dirs.cache_root() is None

        def triple(x: int) -> int:
            return 3 * x

        assert kernels.kernel(triple)(2) == 6
    finally:
        forget()


def test_every_kernel_of_ours_is_kept_this_way() -> None:
    rooms = (
        "graphs",
        "engines",
        "strategies",
        "streams",
        "tracing",
        "costmodel",
        "validator",
        "training",
    )
    files = [file for room in rooms for file in (HOUSE / room).rglob("*.py")]
    assert len(files) > 50
    own = [f for f in files if "cache=True" in f.read_text()]
    assert not own  # but through graphs.kernels


WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = None
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.planning import Problem
from rematbench.graphs.simulate import simulate
from rematbench.strategies.registry import make
graph = unit_chain(8)
for name in ("ap_greedy", "dtr", "kusumoto", "coop", "checkmate_rounding"):
    plan = make(name).plan(Problem(graph, 8, time_limit=60, seed=0)).plan
    print(name, simulate(graph, plan).cost)
"""


def test_kernels_run_as_python_where_numba_is_not() -> None:
    """Records have fields, and numbers come out as Python's; costs are those of compiled ones."""
    asked = [sys.executable, "-c", WITHOUT_NUMBA]
    ran = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = ["ap_greedy 21.0", "dtr 19.0", "kusumoto 19.0", "coop 19.0", "checkmate_rounding 19.0"]
    assert ran.stdout.splitlines() == found
    assert "numba cannot be imported" in ran.stderr
