"""Hostile but fair input, as a table: what each command says, how it ends, what it leaves on disk.

``cases/*.yaml`` hold lists of cases; :class:`Step` documents their keys. Cases run in this
process, but for those with ``process: fresh`` (console scripts as they start, own PYTHONPATH).
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import without_progress
from hydra.core.global_hydra import GlobalHydra

HERE = Path(__file__).parent
SCRIPTS: dict[str, str] = tomllib.loads((HERE.parents[1] / "pyproject.toml").read_text())[
    "project"
]["scripts"]
TIMEOUT = 300.0  # seconds of a fresh process
Outcome = tuple[int, str, str]
"""Exit code, standard output, standard error."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One command of a case.

    Attributes:
        command: as typed into a shell: ``rematbench ...``, ``python -m rematbench ...``,
            ``rematbench-fit ...`` and so on. None only writes and removes files.
        files: written first, by path: text, or bytes where YAML says ``!!binary``.
        remove: files removed first.
        env: environment variables of the command.
        exit: the exit code.
        says: what standard output and error together hold (runs of white space count as one).
        never: what they do not hold.
        one_line: standard error is one line that begins with the command's name, and standard
            output is empty; by default where the exit code is 2 and it is no sweep.
        present: patterns of paths that exist afterwards.
        absent: patterns of paths that do not.
        holds: what the one file of a pattern holds.
    """

    command: str | None = None
    files: dict[str, str | bytes] = field(default_factory=dict)
    remove: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    exit: int = 2
    says: list[str] = field(default_factory=list)
    never: list[str] = field(default_factory=lambda: ["Traceback"])
    one_line: bool | None = None
    present: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    holds: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_one_line(self) -> bool:
        """Is there to be a single line?"""
        if self.one_line is None:
            return self.exit == 2 and not {"-m", "--multirun"} & set(_words(self.command or "")[1])
        return self.one_line


@dataclass(frozen=True)
class Case:
    """Commands that run one after the other in a folder of their own.

    Attributes:
        name: unique in its file.
        fresh: run each command in a process of its own.
    """

    name: str
    fresh: bool
    steps: tuple[Step, ...]


def read_cases() -> Iterator[Any]:
    """All cases, as pytest parameters named ``topic-name``."""
    for path in sorted((HERE / "cases").glob("*.yaml")):
        for given in yaml.safe_load(path.read_text()):
            rest = dict(given)
            name, fresh = rest.pop("name"), rest.pop("process", "here") == "fresh"
            steps = tuple(Step(**step) for step in rest.pop("steps", None) or [rest])
            yield pytest.param(Case(name, fresh, steps), id=f"{path.stem}-{name}")


CASES = list(read_cases())


def test_names_are_unique() -> None:
    names = [case.id for case in CASES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("case", CASES)
def test_bad_input(
    case: Case,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for step in case.steps:
        for name in step.remove:
            (tmp_path / name).unlink()
        for name, content in step.files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        if step.command is None:
            continue
        with monkeypatch.context() as patched:
            for key, value in step.env.items():
                patched.setenv(key, value)
            if case.fresh:
                outcome = run_fresh(step.command)
            else:
                modules = any(name.endswith(".py") for each in case.steps for name in each.files)
                outcome = run_here(step.command, patched, capsys, modules)
        judge(step, outcome, tmp_path)


def judge(step: Step, outcome: Outcome, folder: Path) -> None:
    """Compare what happened with what the step asks for."""
    code, out, err = outcome
    text = f"exit {code}\nstdout: {out}\nstderr: {err}"
    assert code == step.exit, text
    words = " ".join((err + " " + out).split())
    for said in step.says:
        assert " ".join(said.split()) in words, f"{said!r} is not in\n{text}"
    for said in step.never:
        assert said not in words, text
    if step.is_one_line:
        assert step.command is not None
        err = without_progress(err)
        name = _words(step.command)[0]
        assert err.startswith(f"{name}: "), text
        assert err.count("\n") == 1, text
        assert err.endswith("\n"), text
        assert not out, text
    for pattern in step.present:
        assert list(folder.glob(pattern)), f"{pattern} is missing\n{text}"
    for pattern, texts in step.holds.items():
        (path,) = folder.glob(pattern)
        content = path.read_text()
        assert not [text for text in texts if text not in content], content
    for pattern in step.absent:
        assert not list(folder.glob(pattern)), f"{pattern} is there\n{text}"


def _words(command: str) -> tuple[str, list[str]]:
    """A command's name and its arguments."""
    words = shlex.split(command)
    if words[:3] == ["python", "-m", "rematbench"]:
        return "rematbench", words[3:]
    assert words[0] in SCRIPTS, words[0]
    return words[0], words[1:]


def run_here(
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    modules: bool,
) -> Outcome:
    """Run a command in this process.

    Args:
        modules: the folder has modules: this process forgets them (the worker does so itself).
    """
    name, arguments = _words(command)
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    module, _, function = SCRIPTS[name].partition(":")
    before = set(sys.modules)
    if modules:
        monkeypatch.syspath_prepend(os.getcwd())
    GlobalHydra.instance().clear()
    code: Any = 0
    capsys.readouterr()
    try:
        getattr(import_module(module), function)()
    except SystemExit as leaving:
        code = leaving.code or 0
    finally:
        GlobalHydra.instance().clear()
        if modules:
            for found in set(sys.modules) - before:
                if str(getattr(sys.modules[found], "__file__", "")).startswith(os.getcwd()):
                    del sys.modules[found]
    out, err = capsys.readouterr()
    if isinstance(code, str):  # as the interpreter does
        code, err = 1, f"{err}{code}\n"
    return code, out, err


def run_fresh(command: str) -> Outcome:
    """Run a command as a shell would."""
    name, arguments = _words(command)
    if command.startswith("python "):
        start = [sys.executable, "-m", "rematbench"]
    else:  # what the console script does; -P, since it does not look into the current folder
        module, _, function = SCRIPTS[name].partition(":")
        code = f"import sys; sys.argv[0] = {name!r}; from {module} import {function} as f; f()"
        start = [sys.executable, "-P", "-c", code]
    done = subprocess.run(
        [*start, *arguments], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    return done.returncode, done.stdout, done.stderr
