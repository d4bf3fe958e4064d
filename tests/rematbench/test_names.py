"""Names beyond ASCII, or with escapes, where the locale knows them and where it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.files import write_graph, write_plan
from rematbench.graphs.plan import program_order
from rematbench.rows.row import find_rows

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
UTF8 = {"LC_ALL": "C.UTF-8"}
FORGED = "x\n  status=ok \x1b[31mred\x1b[0m"


def said(folder: Path, locale: dict[str, str], *command: str) -> subprocess.CompletedProcess[bytes]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("LC_")}
    done = subprocess.run(
        [Path(sys.executable).with_name(command[0]), *command[1:]],
        cwd=folder,
        env=kept | locale,
        capture_output=True,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode(errors="replace")
    return done


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    there = tmp_path / "größe"
    there.mkdir()
    for file, name in (("net", "größe_模型"), ("forged", FORGED)):
        graph = replace(unit_chain(4), name=name)
        write_graph(there / f"{file}.graph.json", graph)
        write_plan(there / f"{file}.plan.json", program_order(graph))
    return tmp_path


@pytest.mark.parametrize("locale", [ASCII, UTF8])
def test_names_beyond_ascii(folder: Path, locale: dict[str, str]) -> None:
    job = ("rematbench", "model=graph_file", "strategy=chen_sqrt", "cache=null")
    path = "größe/net.graph.json"
    done = said(folder, locale, *job, f"model.path={path}", "hydra.run.dir=größe/run")
    assert done.returncode == 0, done.stderr
    done = said(folder, locale, "rematbench-report", "größe/run", "--out", "größe/report")
    assert done.returncode == 0, done.stderr
    assert (folder / "größe/report/index.html").exists()
    plan = path.replace("graph", "plan")
    done = said(folder, locale, "rematbench-verify", path, plan)
    assert done.returncode == 0, done.stderr
    shown = "größe_模型" if locale is UTF8 else r"gr\xf6\xdfe_\u6a21\u578b"
    assert f"model={shown}" in done.stdout.decode()


@pytest.mark.parametrize("locale", [ASCII, UTF8])
def test_sweeps_of_files_beyond_ascii(folder: Path, locale: dict[str, str]) -> None:
    """Each value of a sweep reaches its job as it was given."""
    job = ("rematbench", "-m", "model=graph_file", "strategy=chen_sqrt,dtr", "cache=null")
    done = said(folder, locale, *job, "model.path=größe/net.graph.json", "hydra.sweep.dir=sweep")
    assert done.returncode == 0, done.stderr
    assert [row["status"] for row in find_rows([folder / "sweep"])] == ["ok", "ok"]


@pytest.mark.parametrize("plan", ["forged", "net"])
def test_a_name_cannot_forge_a_line(folder: Path, plan: str) -> None:
    """Whether its plan is good, or of another graph."""
    command = ("rematbench-verify", "größe/forged.graph.json", f"größe/{plan}.plan.json")
    done = said(folder, UTF8, *command)
    text = (done.stdout + done.stderr).decode()
    assert "\x1b" not in text
    assert not any(line.strip().startswith("status=ok ") for line in text.splitlines())
