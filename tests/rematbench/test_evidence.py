"""What bounds rest on, who is credited, what the news say, and how much is closed."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_library import (
    CHAIN,
    FOUR,
    TWICE,
    Command,
    command as command,
    peak_and_cost,
    place as place,
    plan_file,
    run_folder,
)

from rematbench.graphs.ir import Graph, Implementation, Op, Phase, Value
from rematbench.instances.evidence import NEEDED, needed_once
from rematbench.instances.least import add_least
from rematbench.instances.news import RecordStep, counted
from rematbench.instances.records import (
    UNDATED,
    BestKnown,
    is_closed,
    proof_line,
    read_library,
)
from rematbench.instances.submit import is_better_bound
from rematbench.instances.table import read_table, write_table
from rematbench.instances.tally import by_space, put

HOUSE = Path(__file__).parents[2]
COMMITTED = read_library(HOUSE / "instances")
KEPT = "evidence/chains/unit_chain8@2.json"
BEST = peak_and_cost(FOUR)[1]


def proven(name: str = "run", **columns: Any) -> Path:
    """A run with a bound, by a commit and with options."""
    known = {"bound": BEST - 3, "bound_of": "9", "gap": 0.2, "commit": "0123456789ab", "seed": 3}
    run = run_folder(FOUR, name, **(known | columns))
    (run / ".hydra").mkdir(parents=True)
    words = ["model=graph_file", "budget=7", "strategy=anytime", "strategy.gap=0.002", "seed=3"]
    text = "\n".join(f"- {word}" for word in words)
    (run / ".hydra/overrides.yaml").write_text(text)
    return run


def test_a_bound_keeps_its_evidence_and_its_date(place: Path, command: Command) -> None:
    code, said = command("submit", proven())
    assert code == 0, said
    record = read_library(place).records["unit_chain8@2"]
    by = "anytime (1 s, rematbench 0.1.0 0123456789ab, strategy.gap=0.002 seed=3)"
    assert (record.by, record.bound_by, record.bound_date) == (by, by, "2026-01-31")
    told = json.loads((place / KEPT).read_text())
    assert (told["bound"], told["bound_of"], told["budget_bytes"]) == (BEST - 3, "9", 7)
    assert (told["commit"], told["options"]) == ("0123456789ab", ["strategy.gap=0.002", "seed=3"])
    assert told["graph_hash"] == CHAIN.hash
    smaller = read_library(place).records["unit_chain8@1"]  # holds for it, too
    assert (smaller.bound, smaller.bound_date) == (BEST - 3, "2026-01-31")
    assert command("check", "unit_chain8@1,unit_chain8@2")[0] == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (None, "unit_chain8@2.json: "),
        ({"bound": 5}, "unit_chain8@2.json: is of the bound 5 (9), the record's is"),
        ({"bound_of": "any"}, "(any), the record's is"),
        ({"budget_bytes": 6}, "is for a budget of 6 bytes, the record's is 7"),
        ({"bound": "x"}, "is of the bound x (9), the record's is"),
        ([], "unit_chain8@2.json: is no JSON object"),
        ({"plan_cpu_seconds": 12.5}, "took 12.5 processor seconds; an easy problem is closed in"),
        ({"budget_bytes": 8}, "is for another budget; an easy problem is closed by a run of its"),
        ({"graph_hash": "0"}, f"is of graph_hash 0, the record's is {CHAIN.hash}"),
        ({"strategy": "dtr"}, "is by dtr (1 s, rematbench 0.1.0 0123456789ab, strategy.gap=0.002"),
        ({"options": None}, "0123456789ab), the record's bound by anytime (1 s"),
    ],
)
def test_check_wants_the_evidence(
    place: Path, command: Command, change: dict[str, Any] | list[Any] | None, said: str
) -> None:
    assert command("submit", proven(bound=BEST if "easy" in said else BEST - 3))[0] == 0
    told = json.loads((place / KEPT).read_text())
    (place / KEPT).unlink()
    if change is not None:
        (place / KEPT).write_text(json.dumps(told | change if change else change))
    code, found = command("check", "unit_chain8@2")
    assert (code, said in found) == (1, True), found


def test_evidence_goes_with_its_bound(place: Path, command: Command) -> None:
    """A plan below a bound of narrower plans takes bound, date and evidence away."""
    run = proven(bound=BEST + 9, status="time_limit", cost=None)
    (run / "plan.json").unlink()
    assert command("submit", run)[0] == 0
    assert (place / KEPT).is_file()
    assert command("submit", plan_file(TWICE, 7))[0] == 0
    record = read_library(place).records["unit_chain8@2"]
    assert (record.value, record.bound, record.bound_by) == (BEST + 2, 17, NEEDED)
    assert not (place / KEPT).exists()
    (place / KEPT).write_text("{}")
    assert "the evidence of no bound; remove it" in command("check", "unit_chain8@2")[1]


def bound_file(**told: Any) -> Path:
    path = Path("mine.bound.json")
    known = {"format": "rematbench-bound", "version": 1, "graph": CHAIN.name, "budget_bytes": 7}
    known |= {"bound": BEST, "bound_of": "any", "by": "A. Person", "proof": "solver 2, here"}
    path.write_text(json.dumps(known | told))
    return path


def test_a_bound_of_somebody_elses_program(place: Path, command: Command) -> None:
    assert command("submit", plan_file(FOUR, 7))[0] == 0
    code, said = command("submit", bound_file())
    assert code == 0, said
    assert f"bound {BEST:g} (any) by A. Person" in said
    record = read_library(place).records["unit_chain8@2"]
    assert (record.bound, record.bound_by, record.status) == (BEST, "A. Person", "closed")
    assert json.loads((place / KEPT).read_text())["proof"] == "solver 2, here"
    kept = json.loads((place / KEPT).read_text())
    for change in ({"graph": "unit_chain9"}, {"by": ""}, {"proof": ""}, {"by": "B. Person"}):
        (place / KEPT).write_text(json.dumps(kept | change))
        code, said = command("check", "unit_chain8@2")
        assert (code, "unit_chain8@2.json: is " in said, "the record's" in said) == (1, True, True)
    (place / KEPT).write_text(json.dumps(kept))
    bound_file().rename("mine.json")
    assert "a bound's file is named NAME.bound.json" in command("submit", Path("mine.json"))[1]
    assert command("check", "unit_chain8@2")[0] == 0
    assert "not better" in command("submit", bound_file())[1]


def test_a_proof_of_somebody_elses_that_there_is_no_plan(place: Path, command: Command) -> None:
    assert command("submit", bound_file(bound=None, budget_bytes=5))[0] == 0
    record = read_library(place).records["unit_chain8@1"]
    assert (record.status, record.bound_of, record.bound) == ("closed", "any", None)
    assert command("check", "unit_chain8@1")[0] == 0
    tally = command("list", "unit_chain8@1")[1].splitlines()[-1]
    assert tally.endswith("100.0% closed (easy ones too): 1 without a plan in any")


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"format": "bound"}, '"format" must be "rematbench-bound"'),
        ({"proof": ""}, "proof='': give graph, budget_bytes, by, proof, bound_of, bound"),
        ({"bound_of": "all"}, "bound_of='all': give one of any, 9, F, C"),
        ({"bound": "much"}, "bound='much': give a number"),
        ({"bound": math.inf}, "Infinity"),
        ({"bound": 10**400}, "give a number"),
        ({"bound_of": "C"}, "computes=None: give a whole number above 0"),
        ({"link": 12}, "the library's problems of unit_chain8 have no link; name one of them"),
        ({"by": "A.\nPerson"}, "'A. Person' is no name for a record"),
        ({"bound": BEST + 1}, "is above the known plan of"),
        ({"graph": "unit_chain9"}, "did you mean unit_chain8?"),
        ({"budget_bytes": 8}, "no instance of budget 8"),
    ],
)
def test_bad_bound_files(place: Path, command: Command, told: dict[str, Any], said: str) -> None:
    assert command("submit", plan_file(FOUR, 7))[0] == 0
    code, found = command("submit", bound_file(**told))
    assert (code, found.count("\n"), said in found) == (1, 1, True), found
    assert not (place / "evidence").exists()


def test_each_needed_op_once_is_a_bound(place: Path, command: Command) -> None:
    """Where there is none: of a plan, when it is submitted; of others, by its command. Rows without
    the latest columns are read, and get them."""
    assert command("submit", proven())[0] == 0
    table = place / "records.csv"
    rows = read_table(table)
    short = [name for name in rows[0] if name not in ("ops", "values", "bound_date")]
    write_table(table, short, [{name: row[name] for name in short} for row in rows])
    before = read_library(place).records["unit_chain8@2"]
    assert (before.ops, before.values, before.bound_date) == (17, 17, None)
    steps = add_least(read_library(place), "2026-02-01")
    assert [s.new.instance for s in steps] == ["join2_3@1", "join2_3@2"]
    assert read_table(table)[0].keys() == rows[0].keys()
    records = read_library(place).records
    for name in ("unit_chain8@3", "join2_3@1"):
        assert (records[name].bound_of, records[name].bound_by) == ("any", NEEDED)
    least = records["join2_3@1"].bound
    table.write_text(table.read_text().replace(f",{least},any,each", ",99,any,each"))
    assert f"{NEEDED} costs {least}, the record says 99" in command("check", "join2_3@1")[1]


def test_each_needed_op_once_takes_the_place_of_a_lower_bound(
    place: Path, command: Command
) -> None:
    """With its evidence; a proof that there is no plan stays, and so does a higher bound."""
    assert command("submit", proven(bound=16.0))[0] == 0
    assert command("submit", bound_file(bound=None, budget_bytes=5))[0] == 0
    steps = add_least(read_library(place), "2026-02-01")
    assert [step.new.instance for step in steps] == ["unit_chain8@2", "join2_3@1", "join2_3@2"]
    assert (steps[0].new.bound_date, steps[0].new.ops) == ("2026-02-01", 17)
    assert not (place / KEPT).exists()
    assert command("check", "unit_chain8@1,unit_chain8@2")[0] == 0
    assert add_least(read_library(place), "2026-02-01") == []


def test_the_least_bound_takes_the_cheapest_way() -> None:
    """By hand: b has two ways, of which one reads the optional a."""
    ways = (Implementation("default", ("a",), 9), Implementation("other", ("x",), 5))
    ops = (
        Op("a", Phase.FORWARD, ("a",), (Implementation("default", ("x",), 7),)),
        Op("b", Phase.FORWARD, ("b",), ways),
        Op("c", Phase.FORWARD, ("c",), (Implementation("default", ("b",), 2),)),
    )
    values = (Value("x", 1, resident=True), Value("a", 1), Value("b", 1), Value("c", 1))
    assert needed_once(Graph("ways", values, ops, ("c",), "unit")) == 7


def test_a_bound_that_nothing_was_kept_of_is_proven_again(place: Path, command: Command) -> None:
    """The same bound is taken for its evidence; a second time it is nothing new."""
    run = proven()
    assert command("submit", run)[0] == 0
    old = read_library(place)
    record = replace(old.records["unit_chain8@2"], bound_date=None)
    old.write(old.records | {record.instance: record})
    (place / KEPT).unlink()
    assert "has no date, and is none of" in command("check", "unit_chain8@2")[1]
    code, said = command("submit", run)
    assert (code, f"evidence of its bound {BEST - 3:g} (9) by anytime" in said) == (0, True), said
    assert read_library(place).records["unit_chain8@2"].bound_date == "2026-01-31"
    assert command("check", "unit_chain8@2")[0] == 0
    assert command("submit", run)[0] == 1


def test_evidence_is_better_than_a_little_more_without(place: Path, command: Command) -> None:
    """Where both bounds close the problem; and of the same proof that there is no plan."""
    chain = known("a@1", value=10000, bound=9999, bound_of="9", status="closed")
    for date, bound, is_better in ((None, 9995, True), (None, 9980, False), ("2026", 9995, False)):
        assert is_better_bound(bound, "9", replace(chain, bound_date=date), False) is is_better
    assert is_better_bound(9995, "9", replace(chain, bound_date="2026"), True)  # by a quick run
    of_no_plan = {"status": "infeasible", "cost": None, "extra": {"no_plan_in": ["9"]}}
    run = run_folder(FOUR, budget_bytes=7, **of_no_plan)
    assert command("submit", run)[0] == 0
    old = read_library(place)
    undated = (replace(old.record(f"unit_chain8@{k}"), bound_date=None) for k in (1, 2))
    old.write(old.records | {record.instance: record for record in undated})
    code, said = command("submit", run)
    assert (code, "@2: evidence that it has no plan (9) by anytime" in said) == (0, True), said
    assert command("check", "unit_chain8@2")[0] == 0
    assert command("submit", run)[0] == 1


def test_an_easy_problem_keeps_its_quick_run(place: Path, command: Command) -> None:
    """A slower one's higher bound is no news; of a slow one, a quick one takes the place."""
    slow = proven("slow", bound=BEST, extra={"plan_cpu_seconds": 50.0})
    quick = proven("quick", bound=BEST)
    for run, status in ((slow, "closed"), (quick, "easy")):
        assert command("submit", run)[0] == 0
        assert read_library(place).records["unit_chain8@2"].status == status
        assert command("check", "unit_chain8@2")[0] == 0
    assert command("submit", slow)[0] == 1


def test_the_list_of_old_bounds_only_gets_shorter() -> None:
    """Neither may grow: they are of the day from which evidence was kept."""
    for folder, most in (("instances", 142), ("instances/two-memories", 0)):
        library = read_library(HOUSE / folder)
        records = [each for each in library.records.values() if each.bound_of is not None]
        old = [proof_line(each) for each in records if each.bound_date is None]
        assert sorted(library.undated()) == sorted(old)
        assert len(old) <= most
    page = (HOUSE / "docs/instances.md").read_text()
    assert f"Each of its {len(records)} bounds has its evidence there" in page


def test_a_bound_that_is_replaced_leaves_the_list(place: Path, command: Command) -> None:
    """So that it cannot come back without evidence; `check` wants no line of no record."""
    assert command("submit", proven(bound=BEST - 5))[0] == 0
    library = read_library(place)
    old = replace(library.record("unit_chain8@2"), bound_date=None)
    library.write(library.records | {old.instance: old})
    (place / KEPT).unlink()
    line = dict(zip(("instance", "bound", "bound_of", "bound_by"), proof_line(old), strict=True))
    write_table(place / UNDATED, [*line], [line])
    assert command("check", "unit_chain8@2")[0] == 0
    assert command("submit", proven("later"))[0] == 0
    assert read_table(place / UNDATED) == []
    assert command("check", "unit_chain8@2")[0] == 0
    write_table(place / UNDATED, [*line], [line])
    said = command("check", "unit_chain8@2")[1]
    assert f"{UNDATED}: 1 bounds of no record, first that of unit_chain8@2; remove them" in said


def known(name: str, **told: Any) -> BestKnown:
    plain = replace(next(iter(COMMITTED.records.values())), instance=name, bound=None)
    empty = replace(plain, value=None, bound_of=None, by=None, bound_by=None, status="open")
    return replace(empty, **told)


def test_news_credit_what_changed_and_name_it() -> None:
    """Whoever found a value is not credited for the bound that another proves, nor the reverse."""
    old = known("a@1", value=9, by="P", bound=5, bound_of="9", bound_by="Q")
    steps = [
        RecordStep(old, replace(old, value=8, by="R")),
        RecordStep(old, replace(old, instance="a@2", bound=6, bound_by="S")),
        RecordStep(known("a@3"), known("a@3", bound_of="9", bound_by="T", status="closed")),
    ]
    assert counted(steps) == (
        "3 problems: 1 value, 1 bound, 1 without a plan, 1 of them now closed, by R, S, T.\n"
        "  <details><summary>which</summary>"
        "a@1 (value), a@2 (bound), a@3 (no plan, closed)</details>"
    )


def test_how_much_is_closed() -> None:
    """60 % (in the space that each says), 95 % with a bound, 50 open; the page tells it."""
    records = [COMMITTED.record(name) for name in COMMITTED.instances]
    assert sum(map(is_closed, records)) >= 0.6 * len(records)
    assert all(record.bound_of for record in records if is_closed(record))
    assert sum(record.bound is not None for record in records) >= 0.95 * len(records)
    assert sum(record.status == "open" for record in records) >= 50
    page = (HOUSE / "docs/instances.md").read_text()
    assert put(page, records) == page, "run python -m rematbench.instances.tally"
    assert by_space(records) in page


def test_the_committed_library_is_small() -> None:
    files = [path for path in (HOUSE / "instances").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 60_000_000


_COMMIT = re.compile(r" [0-9a-f]{7,12}(-dirty)?\)")


def test_the_transcript_in_docs(place: Path, command: Command) -> None:
    """A record made worse on purpose, and improved: what the page says is what comes."""
    page = (HOUSE / "docs/instances.md").read_text()
    text = page.partition("made worse on purpose")[2].partition("```\n")[2].partition("```")[0]
    shutil.rmtree(place)
    for part in ("chains", "plans/chains"):
        shutil.copytree(HOUSE / "instances" / part, place / part)
    for part in ("problems.csv", "records.csv", "NEWS.md"):
        shutil.copy(HOUSE / "instances" / part, place / part)
    steps = [step.partition("\n") for step in text.removeprefix("$ ").split("\n$ ")]
    assert len(steps) == 7
    for line, _, said in steps:
        program, *words = shlex.split(line)
        if program != "rematbench-instances":
            subprocess.run([program, *words], check=True)
            continue
        found = command(*words)[1]
        assert said == "..." or _COMMIT.sub(")", said.strip()) == _COMMIT.sub(")", found.strip())


def test_the_bound_file_in_docs(place: Path, command: Command) -> None:
    page = (HOUSE / "docs/instances.md").read_text()
    text = page.partition("```json\n")[2].partition("```")[0]
    known = json.loads(text) | {"graph": CHAIN.name}
    Path("theirs.bound.json").write_text(json.dumps(known))
    code, said = command("submit", "theirs.bound.json")
    assert (code, "unit_chain8@1: bound 51 (any) by A. Person" in said) == (0, True), said
