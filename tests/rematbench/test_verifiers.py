"""The library's verifiers, in Python and in JavaScript, say what the simulator says."""

from __future__ import annotations

import base64
import gzip
import json
import math
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, Browser
from verifying import LIBRARY, graphs, mutated, verifier

from rematbench.base.errors import InvalidPlan, RematbenchError
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.files import graph_document, plan_document, read_graph, read_plan, write_json
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Compute, Free, Plan, in_program_order, program_order
from rematbench.graphs.simulate import check_draws, simulate
from rematbench.instances.records import BestKnown, read_library

NODE = shutil.which("node")
in_javascript = pytest.mark.skipif(
    NODE is CHROMIUM is None, reason="no node, no chromium: install Debian's"
)
JUDGE_PLANS = """
({ graph, plans }) => {
  const net = netOf(graph);
  return plans.map((statements) => {
    try {
      const { peak, cost, recomputations, inOrder } = judge(net, statements);
      return [peak, cost, recomputations, inOrder];
    } catch (error) { return [error.statement]; }
  });
}
"""
PLANS_IN_NODE = f"""
const {{ judge, netOf }} = require(process.argv[1]);
const said = JSON.parse(require("fs").readFileSync(0, "utf8")).map({JUDGE_PLANS});
console.log(JSON.stringify(said));
"""
JUDGE_RECORDS = """
async (graph, plans) => {
  const net = netOf(await documentOf(graph, "graph", "graph"));
  const said = [];
  for (const bytes of plans) {
    const plan = await documentOf(bytes, "plan", "plan");
    const { peak, cost, inOrder } = judge(net, plan.statements);
    said.push([cost, peak, inOrder]);
  }
  return said;
}
"""
REFUSAL = """
async (bytes) => {
  try {
    const told = await documentOf(bytes, null, "p");
    if (told.format === "rematbench-graph") netOf(told);
    return "read";
  } catch (fault) { return fault.message; }
}
"""
REFUSALS_IN_NODE = f"""
const {{ documentOf, netOf }} = require(process.argv[1]);
const texts = JSON.parse(require("fs").readFileSync(0, "utf8"));
Promise.all(texts.map((text) => Buffer.from(text, "base64")).map({REFUSAL})).then((said) =>
  console.log(JSON.stringify(said)));
"""
IN_NODE = f"""
const {{ documentOf, judge, netOf }} = require(process.argv[1]);
const {{ readFileSync }} = require("fs");
const judged = {JUDGE_RECORDS};
(async () => {{
  const said = [];
  for (const [graph, plans] of JSON.parse(readFileSync(0, "utf8")))
    said.push(await judged(readFileSync(graph), plans.map((path) => readFileSync(path))));
  console.log(JSON.stringify(said));
}})();
"""
ON_THE_PAGE = f"""
var verdicts = null;
const [judged, refusal] = [{JUDGE_RECORDS}, {REFUSAL}];
function bytesOf(text) {{
  const [found, bytes] = [atob(text), new Uint8Array(text.length / 4 * 3)];
  for (let k = 0; k < found.length; k++) bytes[k] = found.charCodeAt(k);
  return bytes.subarray(0, found.length);
}}
function judgeFiles([graph, ...plans]) {{
  verdicts = null;
  judged(bytesOf(graph), plans.map(bytesOf)).then((found) => (verdicts = found));
}}
function refuse(texts) {{
  Promise.all(texts.map(bytesOf).map(refusal)).then((found) => (verdicts = found));
}}
"""
Judged = list[Any]
"""Peak, cost, recomputations, whether in program order; of a refused plan the statement alone."""


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
    """2,000 mutated plans, no two alike, and those that they were made from."""
    dice, found = random.Random(38), []
    for graph in graphs():
        plans = []
        for _ in range(40):
            sound = plan_document(recomputing(graph, dice))["statements"]
            plans.append(sound)
            while len(plans) % 11:
                made = mutated(graph, sound, dice)
                plans += [made] if made not in plans else []
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
    order = in_program_order(graph, plan)
    return [trace.peak_bytes, trace.cost, trace.recomputations, order]


def by_python(graph: Graph, plans: Sequence[list[list[str]]]) -> list[Judged]:
    module = verifier()
    net, said = module.net_of(graph_document(graph)), []
    for statements in plans:
        try:
            verdict = module.judge(net, statements)
            facts = [verdict.peak, verdict.cost, verdict.recomputations, verdict.in_order]
            said.append(facts)
        except module.Refused as error:
            said.append([error.statement])
    return said


def in_node(script: str, given: object) -> Any:
    """What a script makes of something that it reads."""
    assert NODE is not None
    command = [NODE, "-e", script, str(LIBRARY / "verify.js")]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def plans_on_the_page(documents: Sequence[dict[str, Any]], profile: Path) -> list[list[Judged]]:
    with Browser(profile / "profile") as page:
        page.open(LIBRARY / "verify.html")
        return [page.run(f"({JUDGE_PLANS})({json.dumps(each)})") for each in documents]


def test_python_says_what_the_simulator_says() -> None:
    expected = [[by_simulator(graph, plan) for plan in plans] for graph, plans in cases()]
    flat = [said for each in expected for said in each]
    assert len(flat) == 2200
    assert 400 < sum(len(said) == 4 for said in flat) < 1500  # there are many of either kind
    assert {said[3] for said in flat if len(said) == 4} == {True, False}
    assert [by_python(graph, plans) for graph, plans in cases()] == expected


@in_javascript
def test_javascript_says_what_the_simulator_says(tmp_path: Path) -> None:
    """In node; where there is none, in the page."""
    expected = [[by_simulator(graph, plan) for plan in plans] for graph, plans in cases()]
    documents = [{"graph": graph_document(graph), "plans": plans} for graph, plans in cases()]
    in_browser = NODE is None
    said = (
        plans_on_the_page(documents, tmp_path) if in_browser else in_node(PLANS_IN_NODE, documents)
    )
    assert said == expected


@cache
def records() -> dict[str, list[BestKnown]]:
    """Every record that has a plan, by its graph's file."""
    library, found = read_library(LIBRARY), dict[str, list[BestKnown]]()
    for problem in library.instances.values():
        record = library.record(problem.instance)
        if record.plan is not None:
            found.setdefault(record.graph, []).append(record)
    assert sum(map(len, found.values())) > 1200
    return found


def expected_of(of: Sequence[BestKnown], said: Sequence[Sequence[Any]]) -> None:
    """A verifier's cost is the record's value, in the budget and in program order."""
    for record, (cost, peak, in_order) in zip(of, said, strict=True):
        assert (cost, in_order) == (record.value, True), record.instance
        assert peak <= record.budget_bytes, record.instance


def test_python_agrees_with_all_records() -> None:
    module = verifier()
    for path, of in records().items():
        net, said = module.net_of(module.read(LIBRARY / path, "graph")), []
        assert net.state == 0  # RULES.md knows no states of generators
        for record in of:
            verdict = module.judge(net, module.read(LIBRARY / record.plan, "plan")["statements"])
            said.append([verdict.cost, verdict.peak, verdict.in_order])
        expected_of(of, said)


@in_javascript
def test_javascript_agrees_with_all_records(tmp_path: Path) -> None:
    """In node; where there is none, in the page."""
    in_browser = NODE is None
    said = records_on_the_page(tmp_path) if in_browser else records_in_node()
    for of, verdicts in zip(records().values(), said, strict=True):
        expected_of(of, verdicts)


def records_in_node() -> list[list[Judged]]:
    files = [
        [str(LIBRARY / path), [str(LIBRARY / str(record.plan)) for record in of]]
        for path, of in records().items()
    ]
    said: list[list[Judged]] = in_node(IN_NODE, files)
    return said


def records_on_the_page(profile: Path) -> list[list[Judged]]:
    said = []
    with Browser(profile / "profile") as page:
        page.open(LIBRARY / "verify.html")
        page.run(ON_THE_PAGE)
        for path, of in records().items():
            files = [LIBRARY / path, *(LIBRARY / str(record.plan) for record in of)]
            texts = [base64.b64encode(file.read_bytes()).decode() for file in files]
            page.run(f"judgeFiles({json.dumps(texts)})")
            page.wait_for("verdicts !== null")
            said.append(page.run("verdicts"))
    return said


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
    assert run(graph, plan) == (0, "peak_bytes=6 cost=9 recomputations=0 program_order=yes\n")
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


NO_PLANS: dict[str, Callable[[dict[str, Any]], object]] = {
    "another key": lambda told: told | {"comment": "mine"},
    "no strategy": lambda told: told | {"strategy": None},
    "a budget in words": lambda told: told | {"budget_bytes": "5"},
    "a budget below none": lambda told: told | {"budget_bytes": -5},
    "a budget that is no number": lambda told: told | {"budget_bytes": math.nan},
    "statements in words": lambda told: told | {"statements": "compute"},
    "a version that is true": lambda told: told | {"version": True},
    "nothing": lambda told: None,
}


@pytest.mark.parametrize("name", NO_PLANS)
def test_what_submit_refuses_is_no_plan(files: tuple[Path, Path], name: str) -> None:
    """With a line that says so."""
    graph, path = files
    path.write_bytes(
        json.dumps(NO_PLANS[name](plan_document(program_order(unit_chain(4))))).encode()
    )
    with pytest.raises(RematbenchError):
        read_plan(path)
    code, said = run(graph, path)
    assert (code, said.startswith(f"verify.py: {path}: ")) == (2, True), said


def overwriting(over: str) -> dict[str, Any]:
    """A graph whose last op overwrites: ``y`` is not read, and no write is as large as ``z``."""
    values = [("x", 2), ("y", 2), ("z", 3)]
    writes = [{"name": f"w{n}", "writes": [n], "cost": 1, "reads": []} for n, _ in values]
    way = {"name": "default", "reads": ["x", "z"], "cost": 1, "overwrites": [over]}
    last = {"name": "f", "writes": ["a"], "implementations": [way]}
    document = {"format": "rematbench-graph", "version": 1, "name": "g", "outputs": ["a"]}
    document["values"] = [{"name": name, "bytes": size} for name, size in [*values, ("a", 2)]]
    return document | {"ops": [*writes, last]}


@pytest.mark.parametrize("over", ["y", "z"])
def test_what_cannot_be_overwritten_makes_no_graph(tmp_path: Path, over: str) -> None:
    """With a line that says so."""
    graph, plan = tmp_path / "g.graph.json", tmp_path / "g.plan.json"
    graph.write_text(json.dumps(overwriting(over)))
    plan.write_text(json.dumps({"format": "rematbench-plan", "version": 1, "statements": []}))
    code, said = run(graph, plan)
    assert (code, "overwrites what is not read, or what no write" in said) == (2, True)


@in_javascript
def test_javascript_refuses_them_too(tmp_path: Path) -> None:
    """In node; where there is none, in the page."""
    sound = plan_document(program_order(unit_chain(4)))
    documents = [change(sound) for change in NO_PLANS.values()]
    graphs = [overwriting(over) for over in ("y", "z")]
    files = [json.dumps(each).encode() for each in (*documents, *graphs, sound)]
    texts = [base64.b64encode(each).decode() for each in files]
    if NODE is not None:
        said = in_node(REFUSALS_IN_NODE, texts)
    else:
        with Browser(tmp_path / "profile") as page:
            page.open(LIBRARY / "verify.html")
            page.run(f"{ON_THE_PAGE}; refuse({json.dumps(texts)})")
            page.wait_for("verdicts !== null")
            said = page.run("verdicts")
    *plans, y, z, read = said
    assert all(each.startswith("p: ") for each in plans), plans
    assert y == z
    assert "overwrites what is not read, or what no write" in y
    assert read == "read"


def test_text_that_is_not_utf8_is_no_plan(files: tuple[Path, Path]) -> None:
    graph, path = files
    document = plan_document(program_order(unit_chain(4)))
    path.write_bytes(json.dumps(document).encode("utf-16"))
    assert run(graph, path)[0] == 2


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
    taken = """(() => {
        const dataTransfer = new DataTransfer();
        for (const [name, text] of [%s])
          dataTransfer.items.add(
            new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name));
        document.querySelector("#drop").dispatchEvent(
          new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
      })()"""
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
    return json.dumps([path.name, base64.b64encode(path.read_bytes()).decode()])


def test_a_graph_that_names_what_there_is_not() -> None:
    module = verifier()
    document = graph_document(unit_chain(2)) | {"outputs": ["nothing"]}
    with pytest.raises(module.BadFile, match="no valid graph"):
        module.net_of(document)
    with pytest.raises(RematbenchError):
        read_graph("no such file")
