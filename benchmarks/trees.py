"""An earlier state of this repository beside ours: the same lines, run by the code of each.

And what else a clone may lack.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rematbench.rows.provenance import HOUSE

FIRST = "12162e4"
"""Before retention intervals, equal blocks and captures of published sizes came in."""
NEEDED = {
    "startup": "4f1d762",
    "commands": "2815b6c6",
    "kernels": "c7868bd",
    "capture": FIRST,
    "proven": FIRST,
    "before": "4f1d762",
    "online": "4f1d762",
}
"""Earlier commits that benchmarks run, by the benchmarks' names."""
SIMRD = Path("../shared/data/simrd")
OUTSIDE = {
    "dtr": (
        SIMRD / "golden.csv",
        "the golden rows, and the speed on simrd's own log",
        "python -m benchmarks.dtr FOLDER takes them from elsewhere",
    )
}
"""A file outside of the repository, what is left out without it, and the remedy."""


def lacking(commit: str) -> str | None:
    """What to do where this clone does not have a commit; None where it has it."""
    asked = ["git", "cat-file", "-e", f"{commit}^{{commit}}"]
    if subprocess.run(asked, cwd=HOUSE, capture_output=True).returncode == 0:
        return None
    return (
        f"it runs the code of commit {commit}, which is not in this clone: fetch the rest of the "
        "history (git fetch --unshallow)"
    )


def left_out(name: str) -> str | None:
    """What a benchmark leaves out here, and the remedy; None: nothing."""
    if name not in OUTSIDE:
        return None
    path, what, remedy = OUTSIDE[name]
    if (HOUSE / path).exists():
        return None
    return f"{path} is not beside this clone: without {what} ({remedy})"


@contextmanager
def both(commit: str) -> Iterator[tuple[Path, Path]]:
    """Folders to import ``rematbench`` from: as it is here, and as it was at ``commit``.

    Raises:
        SystemExit: this clone does not have the commit.
    """
    if said := lacking(commit):
        sys.exit(said)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield _linked(HOUSE, folder / "ours"), _at(commit, folder)


def said(tree: Path, lines: str, *words: str) -> list[float]:
    """What a program prints at its end, as numbers, run by the code of a tree."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-c", lines, *words]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=environment, cwd=tree
    )
    return [float(word) for word in done.stdout.splitlines()[-1].split()]


def _at(commit: str, folder: Path) -> Path:
    """The package of an earlier commit."""
    tree = folder / "tree"
    tree.mkdir()
    packed = subprocess.run(["git", "archive", commit], cwd=HOUSE, check=True, capture_output=True)
    subprocess.run(["tar", "-x"], cwd=tree, check=True, input=packed.stdout)
    return _linked(tree, folder / "theirs")


def _linked(tree: Path, folder: Path) -> Path:
    """A tree as the one package that it is once installed."""
    package = folder / "rematbench"
    package.mkdir(parents=True)
    text = tomllib.loads((tree / "pyproject.toml").read_text())
    rooms = text["tool"]["setuptools"]["package-dir"]
    own = {path.name: path for path in (tree / "rematbench").iterdir()}
    named = {name.partition(".")[2]: tree / path for name, path in rooms.items()}
    for name, path in (own | {n: p for n, p in named.items() if n and "." not in n}).items():
        (package / name).symlink_to(path)
    return folder
