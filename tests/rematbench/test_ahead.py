"""On a new machine a sweep compiles its strategies' kernels before its first job, once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("name", ["kusumoto", "checkpoint_all"])
def test_a_strategy_is_warmed_up_if_it_can_be(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["ahead", name])
    ahead.main()
