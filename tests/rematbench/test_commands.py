"""The front doors: help, versions, and interrupts while a command loads."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from rematbench.cli import commands
from rematbench.cli.conf_keys import read_keys
from rematbench.cli.helps import HELPS, help_text
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.files import write_graph, write_plan
from rematbench.graphs.plan import program_order
from rematbench.rows.row import make_row, write_row
from rematbench.strategies import registry

NAMES = {name: name.removeprefix("rematbench").strip("-") or "rematbench" for name in HELPS}


@pytest.mark.parametrize("name", HELPS)
def test_help(name: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    getattr(commands, NAMES[name].replace("-", "_"))()
    text = capsys.readouterr().out
    assert re.match(r"[A-Z][^:]+\.\n", text)
    for section in ("Usage:", "Examples:", "More:"):
        assert f"\n{section}\n" in text
    _, _, examples = text.partition("Examples:\n")
    assert examples.partition("\n\n")[0].count(f"  {name} ") == 3
    assert max(map(len, text.splitlines())) <= 100
    # Each key has a line that says what it is.
    _, _, keys = text.partition("Keys, with their defaults:\n")
    lines = re.split(r"\n  (?=\S)", f"\n{keys.partition('Options of')[0].partition('Examples')[0]}")
    assert all(re.search(r"=\S+\s+\S", line) for line in lines if "=" in line)
    assert bool(keys) == (HELPS[name].config is not None)


def test_help_of_what_is_chosen() -> None:
    text = help_text("rematbench", ["--help", "strategy=dtr", "model=unet"])
    for option in registry.entry("dtr").options:
        assert f"  strategy.{option.name}=" in text
    assert "  model.options.base_channels=64\n" in text
    assert "there is none of that name" in help_text("rematbench", ["strategy=nix"])


def test_keys_of_a_configuration_file() -> None:
    text = "defaults:\n  - job\na: 1  # one\nb:  # two\n  - x\n  - y\nc: 3  # of\n       # more\n"
    assert read_keys(text) == [("a", "1", "one"), ("b", "[x,y]", "two"), ("c", "3", "of more")]


def test_version(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["rematbench-fit", "--version"])
    commands.fit()
    ours, torch = capsys.readouterr().out.strip().split(", ")
    assert (ours, torch) == (f"rematbench {version('rematbench')}", f"torch {version('torch')}")


def test_help_loads_nothing() -> None:
    code = (
        "import sys; sys.argv = ['rematbench', '--help', '--version']\n"
        "from rematbench.cli.helps import HELPS, help_text, version_text\n"
        "version_text(), [help_text(name, ['strategy=dtr', 'model=unet']) for name in HELPS]\n"
        "print({'hydra', 'numpy', 'numba', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


INTERRUPTED = """
import os, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell runs this aside
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == asked:
            os.kill(os.getpid(), signal.SIGINT)
asked, sys.argv = sys.argv[1], ["rematbench", "model=unit_chain", "cache=null"]
sys.meta_path.insert(0, Interrupt())
runpy.run_module("rematbench", run_name="__main__")
"""


@pytest.mark.parametrize(
    "module", ["rematbench.cli.app", "omegaconf", "rematbench.rows.row", "antlr4"]
)
def test_an_interrupt_while_it_loads(module: str, tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "rematbench: interrupted\n"
    assert not list(tmp_path.iterdir())


def without_a_reader(command: str, folder: Path, unbuffered: bool) -> tuple[int, str]:
    """Exit code and errors of a command that prints into a pipe whose reader has gone."""
    name, *words = command.split()
    door = NAMES[name].replace("-", "_")
    code = f"import sys; sys.argv = {[name, *words]}; from rematbench.cli.commands import {door}"
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-c", f"{code}; {door}()"],
            cwd=folder,
            env=os.environ | {"PYTHONUNBUFFERED": "1" if unbuffered else ""},
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        os.close(write)
    return done.returncode, done.stderr


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A run, a graph, a plan for it, and one that peaks above its own budget."""
    graph = unit_chain(3)
    plan = program_order(graph)
    write_graph(tmp_path / "graph.json", graph)
    write_plan(tmp_path / "plan.json", plan)
    write_plan(tmp_path / "above.json", plan.labelled("mine", 1))
    write_row(tmp_path / "run" / "row.json", make_row(model="chain", status="ok"))
    return tmp_path


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize(
    "command",
    [
        *("rematbench --help strategy=revolve", "rematbench --version", "rematbench-fit --help"),
        *("rematbench-instances --help", "rematbench-report run --out page"),
        "rematbench-verify graph.json plan.json",
    ],
)
def test_a_reader_who_has_gone(command: str, unbuffered: bool, files: Path) -> None:
    """As of ``| head``: no traceback, neither while it prints nor as Python ends."""
    assert without_a_reader(command, files, unbuffered) == (1, "")


def test_why_it_failed_is_said_though_the_reader_has_gone(files: Path) -> None:
    code, said = without_a_reader("rematbench-verify graph.json above.json", files, False)
    assert (code, said.count("\n")) == (1, 1)
    assert "above.json: the plan peaks at" in said
