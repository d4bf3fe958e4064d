"""The front doors: help, versions, and interrupts while a command loads."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version

import pytest

from rematbench.cli import commands
from rematbench.cli.conf_keys import read_keys
from rematbench.cli.helps import HELPS, help_text
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
