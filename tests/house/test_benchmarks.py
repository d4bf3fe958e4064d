"""The benchmarks' page is made from their records, and has every benchmark."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import __main__ as runner, figures, monet_proofs, table, trees
from benchmarks.figures import Figure
from rematbench.engines.lp.solver import SolverRun

HOUSE = Path(__file__).parents[2]


def test_the_page_is_that_of_the_records() -> None:
    written = (HOUSE / table.PAGE).read_text()
    assert written == table.page(), "make it anew: python -m benchmarks.table"


def test_every_benchmark_is_run() -> None:
    modules = [path for path in (HOUSE / "benchmarks").glob("*.py") if path.stem != "__main__"]
    publishing = {path.stem for path in modules if re.search(r"\bpublish\(\"", path.read_text())}
    assert publishing == set(table.ALL)


def test_a_record_says_what_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(figures, "changed_files", lambda: ["strategies/chen/planner.py"])
    made = [Figure("slow", 3, 2, "s"), Figure("free", 9, None, "s"), Figure("many", 3, 2, "", True)]
    figures.publish("tried", made, note="of a test")
    record: dict[str, Any] = json.loads((tmp_path / "runs/benchmarks/tried.json").read_text())
    assert [row["kept"] for row in record["figures"]] == [False, True, True]
    assert record["commit"] is None or record["commit"].endswith("-dirty")
    assert record["note"] == "of a test"
    assert {"utc", "machine", "versions", "seconds", "cpu_seconds", "load_before"} <= set(record)
    assert not figures.same_code("123456789abc-dirty")


def test_results_pages_and_tests_may_differ_from_a_record_s_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "HOUSE", tmp_path)

    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.check_output(["git", *who, *words], cwd=tmp_path, text=True)

    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)

    paths = ("runs/a.json", "docs/a.md", "tests/a.py", "README.md", "graphs/a.py")
    git("init", "-q")
    for path in paths:
        write(path, "first")
    git("add", ".")
    git("commit", "-qm", "first")
    first = git("rev-parse", "HEAD").strip()
    for path in paths:
        write(path, "second")
        assert figures.same_code(first) == (path != "graphs/a.py")
    assert figures.changed_files() == ["graphs/a.py"]


def test_a_proof_that_did_not_begin_can_be_written_down() -> None:
    """HiGHS may have a solution before it has solved its first relaxation."""
    ended = SolverRun("time_limit", np.zeros(1), 4.0, -math.inf, 0, 600.0)
    found = [
        monet_proofs.outcome("x", each, 9.0)
        for each in (ended, replace(ended, bound=3.0), replace(ended, status="optimal"), None)
    ]
    assert [(each.name, each.value) for each in found] == [
        ("x: bounds in 600 s", 0),
        ("x: gap after 600 s", 25.0),
        ("x: 2% proven", 9.0),
        ("x: solutions in 600 s", 0),
    ]


def test_what_is_not_a_benchmark() -> None:
    command = [sys.executable, "-m", "benchmarks", "chekmate", "--dirty"]
    done = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "chekmate: there is no such benchmark; choose report, " in done.stderr


def test_a_clone_names_what_it_lacks_and_runs_the_rest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def runs(command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
        if command[0] == "git":  # what a shallow clone says
            return subprocess.CompletedProcess(command, 128)
        ran.append(command[-1])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", runs)
    monkeypatch.setattr(runner, "write_page", lambda: table.PAGE)
    asked = ["benchmarks", "--dirty", "--again", "startup", "dtr"]
    monkeypatch.setattr(sys, "argv", asked)
    with pytest.raises(SystemExit, match=r"failed: startup \(not in this clone\)"):
        runner.main()
    assert ran == ["benchmarks.dtr"]
    said = capsys.readouterr().out
    assert "startup: it runs the code of commit 4f1d762" in said
    assert "git fetch --unshallow" in said
    with pytest.raises(SystemExit, match="4f1d762"), trees.both("4f1d762"):
        pass


def test_the_site_needs_mkdocs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "find_spec", lambda name: None)
    assert str(runner.needs("site")).endswith("mkdocs is not installed: run `make docs`")


def test_what_lies_outside_of_a_clone_is_named_and_the_rest_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks import dtr

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dtr, "speed", lambda path: [Figure(path.name, 1, None, "op/s")])
    monkeypatch.setattr(dtr, "golden", lambda folder: [Figure(dtr.GOLDEN, 9, 9, "", True)])
    monkeypatch.setattr(dtr, "warm_up", lambda: None)
    monkeypatch.setattr(sys, "argv", ["dtr"])

    def record() -> dict[str, Any]:
        with pytest.raises(SystemExit) as end:
            dtr.main()
        assert not end.value.code
        found: dict[str, Any] = json.loads((tmp_path / figures.RECORDS / "dtr.json").read_text())
        return found

    for module in (dtr, trees):
        monkeypatch.setattr(module, "HOUSE", tmp_path / "clone")
    (tmp_path / "clone").mkdir()
    part = record()
    assert [row["figure"] for row in part["figures"]] == [dtr.OWN.name]
    assert "golden.csv is not beside this clone: without the golden rows" in part["left_out"]
    assert f"Left out: {part['left_out']}." in table._section("dtr", part)
    assert part["left_out"] in capsys.readouterr().out
    assert runner.state_of("dtr").endswith(part["left_out"])
    monkeypatch.setattr(
        subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 0)
    )
    assert runner.run("dtr", again=True) is None
    assert f"dtr: {part['left_out']}\ndtr ..." in capsys.readouterr().out


def test_a_stopped_run_goes_on_with_what_has_no_record_of_this_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is committed beside the code changes nothing; a commit of code is measured anew."""
    real, ran, stopped = subprocess.run, list[str](), list[str]()
    monkeypatch.setattr(figures, "HOUSE", tmp_path)
    monkeypatch.setattr(runner, "write_page", lambda: table.PAGE)

    def commit(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        for words in (("add", "."), (*who, "commit", "-qm", "one")):
            real(["git", *words], cwd=tmp_path, check=True)

    def runs(command: list[str], **more: Any) -> Any:
        if command[0] == "git":
            return real(command, **more)
        name = command[-1].rpartition(".")[2]
        if name == "spine" and not stopped:
            stopped.append(name)
            raise KeyboardInterrupt
        ran.append(name)
        path = tmp_path / figures.RECORDS / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"commit": figures.commit()}))
        return subprocess.CompletedProcess(command, 0)

    def measured(*words: str) -> list[str]:
        ran.clear()
        monkeypatch.setattr(sys, "argv", ["benchmarks", *words, "report", "spine", "ops"])
        with pytest.raises((SystemExit, KeyboardInterrupt)) as end:
            runner.main()
        assert not getattr(end.value, "code", None)
        return list(ran)

    real(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    commit("code.py", "1")
    monkeypatch.setattr(subprocess, "run", runs)
    assert measured() == ["report"]  # stopped in spine
    assert measured() == ["spine", "ops"]
    commit("docs/page.md", "of the records")
    assert measured() == []
    assert measured("--again") == ["report", "spine", "ops"]
    commit("code.py", "2")
    assert measured() == ["report", "spine", "ops"]


def test_the_list_says_of_which_code_each_record_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records = {"dtr": {"commit": "111", "utc": "2030-01-02T03:04Z", "machine": "X, 2 cores"},
               "spine": {"commit": "222", "utc": "2030-01-02T03:04Z"}}  # fmt: skip
    monkeypatch.setattr(runner, "record_of", records.get)
    monkeypatch.setattr(runner, "same_code", lambda commit: commit == "111")
    monkeypatch.setattr(runner, "left_out", lambda name: None)  # as beside what it may lack
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--list"])
    runner.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(table.ALL) + 1
    said = {line.split(maxsplit=1)[0]: line.split(maxsplit=1)[1] for line in lines}
    assert said["dtr"] == "this code: 111, 2030-01-02, X, 2 cores"
    assert said["spine"].startswith("other code: 222, 2030-01-02")
    assert said["report"] == "not measured yet"
    assert lines[-1] == "2 records of 2 commits; 1 are of this code"


def test_the_record_of_compile_has_every_network() -> None:
    from benchmarks.compile import NETWORKS

    record = figures.record_of("compile")
    assert record is not None
    known = {row["figure"].split(",")[0].split(":")[0] for row in record["figures"]}
    assert set(NETWORKS) <= known


def test_part_of_the_networks_is_not_published_as_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks import compile as compiled

    class Bench:
        def __init__(self, name: str) -> None:
            self.name, self.steps = name, [(compiled.Contender(name, "plain", wall=[1.0]), None)]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compiled, "measured", lambda name, *_: Bench(name))
    made = [Figure("a figure", 1, None, "")]
    monkeypatch.setattr(compiled, "judged", lambda bench, lower: made)
    monkeypatch.setattr(compiled, "steady_allocator", lambda: None)
    part, whole = (figures.RECORDS / f"{name}.json" for name in ("compile-part", "compile"))
    first, *_, last = compiled.NETWORKS
    monkeypatch.setattr(sys, "argv", ["compile", "--networks", first])
    compiled.main()
    assert last in json.loads(part.read_text())["networks_left"]
    assert not whole.exists()
    monkeypatch.setattr(sys, "argv", ["compile"])
    compiled.main()
    assert json.loads(whole.read_text())["networks"] == list(compiled.NETWORKS)
    assert not part.exists()


def test_a_rival_with_other_gradients_is_named_and_not_raced() -> None:
    from benchmarks.compile import Contender, beside

    ours = Contender("net", "ours", budget_bytes=100, peak_bytes=99, wall=[2.0], cpu=[2.0])
    wrong = Contender("net", "ratio 0.5", peak_bytes=90, error=0.77, wall=[1.0], cpu=[1.0])
    right = Contender("net", "ratio 0.25", peak_bytes=95, wall=[4.0], cpu=[4.0])
    large = Contender("net", "ratio 0.9", peak_bytes=101, wall=[1.0], cpu=[1.0])
    found = {f.name: f for f in beside("half", ours, [wrong, right, large], 1e-4)}
    named = found["half: time / ratio 0.5's, whose gradients are off by 0.77"]
    assert (named.value, named.bound) == (2.0, None)
    assert found["half: time / best ratio's that fits"].value == 0.5
    assert found["half: PyTorch's ratios that fit"].value == 1


def test_a_refusal_is_no_time_of_a_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import scale
    from rematbench.base.errors import Infeasible

    def refuses(graph: Any) -> Any:
        def run() -> None:
            if len(graph.ops) > 1000:
                raise Infeasible("too tight", 7)

        return run

    monkeypatch.setattr(scale, "ALL", {"shy": refuses})
    refused: dict[str, str] = {}
    ops, seconds, memory = scale.measured("shy", refused)
    assert [round(size, -2) for size in ops] == [500, 1000]
    assert len(seconds) == len(memory) == 2
    assert len(refused) == 3
    assert all("too tight" in why for why in refused.values())


def test_limits_are_asked_of_every_planner_that_may_take_long() -> None:
    from benchmarks import large, scale

    left_out = {"kusumoto", "coop", "dtr", "xla_remat", "chain_dp", "sac_ilp", "monet"}
    left_out |= {"checkmate_ilp", "checkmate_d", "checkmate_o"}
    assert left_out <= set(large.STOPPED)
    assert not set(large.STOPPED) & set(large.LIMITED)
    asked = {*large.DEEP_OVERHEAD, *large.LAYERED_OVERHEAD}
    assert asked == {(n, s) for n in (48, 192) for s in (0.4, 0.25)} | {
        (n, s) for n in (500, 1000) for s in (0.9, 0.8)
    }
    assert large.LAYERED[1000] == 60
    scale.planner("gist", large.encodable(2))()  # it meets its budget, or there is no curve


def test_a_planner_that_does_not_end_is_stopped_and_says_so() -> None:
    from benchmarks import large

    reasons: dict[str, str] = {}
    (late,) = large._apart("chain_dp", "blocks", partial(large.blocks, 6000), 0.5, reasons)
    assert late.name == "chain_dp: blocks in 0 s: past the limit"
    assert late.value > 0
    assert len(reasons) == 1


def test_exponents_are_of_n_log_n() -> None:
    from math import log

    from benchmarks.scale import slope

    sizes = [1000, 2500, 5000, 10_000]
    assert slope(sizes, [n * log(n) for n in sizes]) == pytest.approx(1)
    assert slope(sizes, [(n * log(n)) ** 2 for n in sizes]) == pytest.approx(2)
