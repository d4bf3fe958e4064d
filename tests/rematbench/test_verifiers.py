"""The library's verifiers, in Python and in JavaScript, say what the simulator says."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, Browser
from verifying import LIBRARY, graphs, mutated, verifier

from rematbench.base.errors import InvalidPlan, RematbenchError
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.files import graph_document, plan_document, read_graph, write_json
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Compute, Free, Plan, program_order
from rematbench.graphs.simulate import check_draws, simulate

NODE = shutil.which("node")
JUDGE_ALL = """
const { judge, netOf } = require(process.argv[1]);
let text = "";
process.stdin.on("data", (part) => (text += part)).on("end", () => {
  const said = JSON.parse(text).map(({ graph, plans }) => {
    const net = netOf(graph);
    return plans.map((statements) => {
      try {
        const { peak, cost, recomputations } = judge(net, statements);
        return [peak, cost, recomputations];
      } catch (error) { return [error.statement]; }
    });
  });
  console.log(JSON.stringify(said));
});
"""
Judged = list[Any]
"""Peak, cost and recomputations; or, of a plan that is refused, the statement alone."""


def recomputing(graph: Graph, dice: random.Random) -> Plan:
    """A valid plan: what an op reads and is not there any more is computed again before it."""
    tables, live = graph.tables, set[int]()
    statements: list[int] = []

    def compute(op: int) -> None:
        for value in tables.inputs[op].tolist():
            if not tables.resident[value] and value not in live:
                compute(int(tables.writer[value]))
        statements.append(int(tables.op_first[op]))
        live.update(tables.writes[op].tolist())

    for op in range(len(graph.ops)):
        compute(op)
        for value in sorted(live):
            soon = op + 1 < len(graph.ops) and value in tables.inputs[op + 1]
            if not (tables.is_output[value] or soon) and dice.random() < 0.3:
                statements.append(~value)
                live.discard(value)
    return Plan.from_codes(graph, statements)


@cache
def cases() -> tuple[tuple[Graph, list[list[list[str]]]], ...]:
    """2,000 mutated plans, and those that they were made from."""
    dice, found = random.Random(38), []
    for graph in graphs():
        plans = []
        for _ in range(40):
            sound = plan_document(recomputing(graph, dice))["statements"]
            plans += [sound, *(mutated(graph, sound, dice) for _ in range(10))]
        found.append((graph, plans))
    return tuple(found)


def by_simulator(graph: Graph, statements: Sequence[list[str]]) -> Judged:
    kinds = {"compute": Compute, "free": Free}
    plan = Plan(kinds[word](*names) for word, *names in statements)
    try:
        trace = simulate(graph, plan)
        check_draws(graph, plan)
    except InvalidPlan as error:
        return [error.index]
    return [trace.peak_bytes, trace.cost, trace.recomputations]


def by_python(graph: Graph, plans: Sequence[list[list[str]]]) -> list[Judged]:
    module = verifier()
    net, said = module.net_of(graph_document(graph)), []
    for statements in plans:
        try:
            verdict = module.judge(net, statements)
            said.append([verdict.peak, verdict.cost, verdict.recomputations])
        except module.Refused as error:
            said.append([error.statement])
    return said


def by_javascript(documents: Sequence[dict[str, Any]]) -> list[list[Judged]]:
    assert NODE is not None
    command = [NODE, "-e", JUDGE_ALL, str(LIBRARY / "verify.js")]
    done = subprocess.run(command, input=json.dumps(documents), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said: list[list[Judged]] = json.loads(done.stdout)
    return said


def test_python_says_what_the_simulator_says() -> None:
    expected = [[by_simulator(graph, plan) for plan in plans] for graph, plans in cases()]
    flat = [said for each in expected for said in each]
    assert len(flat) == 2200
    assert 400 < sum(len(said) == 3 for said in flat) < 1500  # there are many of either kind
    assert [by_python(graph, plans) for graph, plans in cases()] == expected


@pytest.mark.skipif(NODE is None, reason="no node: install Debian's nodejs")
def test_javascript_says_what_the_simulator_says() -> None:
    expected = [[by_simulator(graph, plan) for plan in plans] for graph, plans in cases()]
    documents = [{"graph": graph_document(graph), "plans": plans} for graph, plans in cases()]
    assert by_javascript(documents) == expected


def test_verify_needs_the_standard_library_alone() -> None:
    text = (LIBRARY / "verify.py").read_text()
    assert len(text.splitlines()) <= 300
    imports = {line.split()[1] for line in text.splitlines() if line.startswith(("import", "from"))}
    assert {name.partition(".")[0] for name in imports} <= {*sys.stdlib_module_names}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    graph = unit_chain(4)
    plan = program_order(graph).labelled("checkpoint_all", 6)
    paths = tmp_path / "a.graph.json.gz", tmp_path / "a.plan.json.gz"
    write_json(paths[0], graph_document(graph))
    write_json(paths[1], plan_document(plan))
    assert read_graph(paths[0]).hash == graph.hash
    return paths


def run(*words: object) -> tuple[int, str]:
    """The command as people run it, in an interpreter without site-packages."""
    command = [sys.executable, "-S", str(LIBRARY / "verify.py"), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert said.count("\n") == 1, said
    return done.returncode, said


def test_the_command(files: tuple[Path, Path], tmp_path: Path) -> None:
    graph, plan = files
    assert run(graph, plan) == (0, "peak_bytes=6 cost=9 recomputations=0\n")
    damaged = tmp_path / "d.graph.json.gz"
    damaged.write_bytes(graph.read_bytes()[:40])
    assert run(damaged, plan)[0] == 2
    assert str(damaged) in run(damaged, plan)[1]
    assert run(graph, graph)[0] == 2
    assert run(graph)[0] == 2
    document = json.loads(gzip.decompress(plan.read_bytes()))
    del document["statements"][0]
    write_json(plan, document)
    code, said = run(graph, plan)
    assert code == 1
    assert f"{plan}: statement" in said


def test_over_its_budget(files: tuple[Path, Path]) -> None:
    done = subprocess.run(
        [sys.executable, "-S", str(LIBRARY / "verify.py"), *map(str, files), "5"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "peaks at 6 bytes, over its budget of 5" in done.stderr


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: install Debian's")
def test_the_page_judges_what_is_dropped_on_it(files: tuple[Path, Path], tmp_path: Path) -> None:
    """From the disk, without network: peak, cost and a picture; a bad plan in one line."""
    taken = """take([%s].map(([name, text]) =>
        new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name)))"""
    with Browser(tmp_path / "profile") as page:
        page.open(LIBRARY / "verify.html")
        page.run(taken % ",".join(_as_file(path) for path in files))
        page.wait_for("document.querySelector('#said table') !== null")
        said = page.run("document.querySelector('#said').innerText")
        assert "Valid." in said
        assert "6 bytes" in said
        assert page.run("document.querySelectorAll('#said svg path').length") == 4
        page.run("document.querySelector('#budget').value = 5; tell()")
        assert "over its budget" in page.run("document.querySelector('#said').innerText")
        broken = files[1].with_name("b.plan.json.gz")
        broken.write_bytes(files[1].read_bytes()[:-12])
        page.run(taken % _as_file(broken))
        page.wait_for(f"document.querySelector('#said').innerText.includes('{broken.name}')")
        assert page.errors == []
        assert all(address.startswith("file:") for address in page.requested)


def _as_file(path: Path) -> str:
    import base64

    return json.dumps([path.name, base64.b64encode(path.read_bytes()).decode()])


def test_a_graph_that_names_what_there_is_not() -> None:
    module = verifier()
    document = graph_document(unit_chain(2)) | {"outputs": ["nothing"]}
    with pytest.raises(module.BadFile, match="no valid graph"):
        module.net_of(document)
    with pytest.raises(RematbenchError):
        read_graph("no such file")
