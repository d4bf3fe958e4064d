"""The scripts in ``examples/`` run, at tiny sizes, and keep what they promise."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
Runs = Callable[[str], str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Runs:
    """Run a script as from the command line; returns what it prints."""

    def ran(command: str) -> str:
        script, *words = command.split()
        monkeypatch.syspath_prepend(EXAMPLES)
        monkeypatch.setattr(sys, "argv", [script, *words])
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")
        return capsys.readouterr().out

    return ran


def test_half_the_memory_by_apply(run: Runs) -> None:
    said = run("train_cifar.py --steps 3 --batch-size 16 --blocks 3")
    assert "curves equal to the last bit: True; parameters and buffers: True" in said
    peaks = [
        float(line.split("peak ")[1].split()[0]) for line in said.splitlines() if "MiB," in line
    ]
    assert len(peaks) == 2
    assert peaks[1] < 0.7 * peaks[0]


SMALL = "--steps 3 --strategy linearized_greedy"


@pytest.mark.parametrize("script", ["train_gpt2.py", "train_gpt2_trainer.py"])
def test_a_language_model_within_a_budget(run: Runs, script: str) -> None:
    pytest.importorskip("transformers")
    said = run(f"{script} {SMALL} --budget 0.7 --batch-size 8 --length 64 --layers 3 --width 64")
    assert "recomputed in transformer.h." in said  # what rematbench.explain tells
    assert ": True\nlosses equal to the last bit: True" in said


def test_a_torchvision_network_within_a_budget(run: Runs) -> None:
    given = "--budget 0.7 --resolution 64 --model shufflenet_v2_x0_5"
    said = run(f"train_resnet.py {SMALL} {given}")
    assert "parameters and buffers equal: True" in said
    assert ": True\nlosses equal to the last bit: True" in said


def test_changing_lengths_within_a_budget(run: Runs) -> None:
    given = "--budget 0.75 --steps 6 --batch-size 8 --shortest 48 --longest 96 --layers 3"
    said = run(f"train_lengths.py {given} --strategy linearized_greedy")
    assert "5 lengths: ops measured for" in said
    assert ": True\nlosses equal to the last bit: True" in said
