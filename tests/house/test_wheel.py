"""What an install puts on a machine, and whether it works beside somebody else's packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]
SETTINGS = tomllib.loads((HOUSE / "pyproject.toml").read_text())["tool"]["setuptools"]
ROOMS = {"rematbench": "rematbench", "hydra_plugins": "hydra_plugins"} | SETTINGS["package-dir"]
# Names that a project with Hydra, graphs or reports of its own is likely to have.
FOREIGN = ("conf", "graphs", "report", "strategies", "validator", "zoo", "training")
TRAINING = """
import torch, rematbench
from rematbench.strategies.chen import ApGreedy
import graphs, conf
assert graphs.MINE and conf.MINE
model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4)))
batch = torch.randn(4, 8), torch.randn(4, 8)
loss = lambda module, x, y: ((module(x) - y) ** 2).mean()
step = rematbench.apply(model, loss, batch, ApGreedy(), costmodel="flops")
print("loss", float(step(*batch)))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of a copy of the tree: no folder of an earlier build gets into it."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    ignore = shutil.ignore_patterns("__pycache__")
    for folder in ROOMS.values():
        shutil.copytree(HOUSE / folder, source / folder, ignore=ignore)
    for name in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(HOUSE / name, source)
    asked = ["wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(place), str(source)]
    subprocess.run([sys.executable, "-m", "pip", *asked], check=True, capture_output=True)
    (made,) = place.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment's Python: the wheel, and what it needs from this environment."""
    place = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    python = place / "bin" / "python"
    (packages,) = place.glob("lib/python*/site-packages")
    ours = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "needed.pth").write_text("\n".join(ours))
    asked = ["--python", str(python), "install", "-q", "--no-deps", "--ignore-installed"]
    subprocess.run(
        [sys.executable, "-m", "pip", *asked, str(wheel)], check=True, capture_output=True
    )
    return python


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Somebody's project, whose packages have the names of our folders."""
    for name in FOREIGN:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("MINE = True\n")
    (tmp_path / "conf" / "config.yaml").write_text("mine: true\n")
    (tmp_path / "mymodel.py").write_text(
        "import torch, graphs\n"
        "assert graphs.MINE\n"
        "def make():\n"
        "    layers = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4)))\n"
        "    return layers, (torch.randn(512, 8),), lambda module, x: module(x).square().mean()\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _run(*command: object) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _tree() -> set[str]:
    """Every file of the packages, as an install is to have it."""
    found = set()
    for package, folder in ROOMS.items():
        for path in (HOUSE / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                found.add(f"{package.replace('.', '/')}/{path.relative_to(HOUSE / folder)}")
    return found


def test_the_wheel_holds_the_tree_and_nothing_else(wheel: Path) -> None:
    names = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    assert names == _tree()
    assert {name.partition("/")[0] for name in names} == {"rematbench", "hydra_plugins"}
    assert "hydra_plugins/__init__.py" not in names  # a namespace: others' plugins stand there, too


@pytest.mark.parametrize("command", [["-m", "rematbench"], ["bin/rematbench"]])
def test_a_job_beside_foreign_packages(fresh: Path, project: Path, command: list[str]) -> None:
    first = [fresh, *command] if command[0] == "-m" else [fresh.parent / "rematbench"]
    job = ["model=python", "model.target=mymodel:make", "strategy=ap_greedy", "budget=0.9"]
    assert "status=ok" in _run(*first, *job, "device=cpu", "hydra.run.dir=runs/job")
    report = fresh.parent / "rematbench-report"
    _run(report, "runs/job", "--out", "drawn")
    assert (project / "drawn" / "leaderboard.csv").exists()


def test_apply_beside_foreign_packages(fresh: Path, project: Path) -> None:
    assert _run(fresh, "-c", TRAINING).startswith("loss ")
