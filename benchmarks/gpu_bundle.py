"""``make gpu-bundle``: wheels for a machine without network that has PyTorch.

``python -m benchmarks.gpu_bundle FOLDER --python 3.12 --has torch numpy ...`` puts the wheel of
this checkout into a folder, and those of all that it needs and the machine lacks, in the versions
that are installed here; but for what is large and can be done without. ``COMMIT`` beside
them says which checkout it is.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Collection
from importlib.metadata import requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rematbench.rows.provenance import commit

ROOTS = ("rematbench", "pytest", "pytest-xdist")
"""What is run there: the suite, and the tests that need a device."""
WITHOUT = ("llvmlite", "matplotlib", "numba", "plotly", "scipy", "seaborn")
"""What is not carried: without numba, planners run as plain Python; the others draw pages, and the
leaderboard's is made from the rows at home. A machine that has them uses its own."""
MOST_BYTES = 40 * 2**20
_GLIBC = (5, 12, 17, 24, 27, 28, 31, 34)  # pip takes none that it is not told of


def needed(python: str, has: Collection[str]) -> list[str]:
    """``name==version`` of every package that is needed and not there, without our own.

    Args:
        python: its version there, such as ``3.12``.
        has: names of the packages that are there.
    """
    there = {canonicalize_name(name) for name in (*has, *WITHOUT)}
    environment = {"python_version": python, "platform_system": "Linux", "extra": ""}
    found: dict[str, str] = {}
    waiting = [name for name in ROOTS if name not in there]
    while waiting:
        name = waiting.pop()
        found[name] = version(name)
        fresh = _asked_for(name, environment) - found.keys() - there
        waiting += sorted(fresh)
    return sorted(f"{name}=={v}" for name, v in found.items() if name != "rematbench")


def _asked_for(name: str, environment: dict[str, str]) -> set[str]:
    asked = map(Requirement, requires(name) or ())
    return {
        canonicalize_name(each.name)
        for each in asked
        if each.marker is None or each.marker.evaluate(environment)
    }


def fetch(folder: Path, python: str, packages: list[str]) -> None:
    """Put the wheels into ``folder``, which has none before."""
    folder.mkdir(parents=True, exist_ok=True)
    for wheel in folder.glob("*.whl"):
        wheel.unlink()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    kinds = [f"--platform=manylinux_2_{minor}_x86_64" for minor in _GLIBC]
    there = [f"--python-version={python}", "--implementation=cp", "--only-binary=:all:", *kinds]
    for package in packages:
        asked = [*pip, "download", "--no-deps", f"--dest={folder}", *there, package]
        lacking = subprocess.run(asked, stderr=subprocess.DEVNULL).returncode
        if lacking:  # there is no wheel: of pure Python, from source
            build = [*pip, "wheel", "--no-deps", f"--wheel-dir={folder}", package]
            subprocess.run(build, check=True)
    subprocess.run([*pip, "wheel", "--no-deps", f"--wheel-dir={folder}", "."], check=True)
    (folder / "COMMIT").write_text(f"{commit() or ''}\n")


def main() -> None:
    """Fetch, and say what it takes; exit code 1 where it is too large to carry."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12")
    parser.add_argument("--has", nargs="*", default=[], metavar="PACKAGE")
    given = parser.parse_args()
    fetch(given.folder, given.python, needed(given.python, given.has))
    sizes = {wheel.name: wheel.stat().st_size for wheel in given.folder.glob("*.whl")}
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        print(f"{size / 2**20:8.2f} MiB  {name}")
    total = sum(sizes.values())
    print(f"{total / 2**20:8.2f} MiB  in {given.folder}")
    if total > MOST_BYTES:
        sys.exit(f"above {MOST_BYTES >> 20} MiB: name with --has what the machine has of these")


if __name__ == "__main__":
    main()
