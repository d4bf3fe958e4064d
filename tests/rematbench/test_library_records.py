"""The library's records: selections, submissions of each kind, the check, comparisons."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_library import (
    CHAIN,
    FOUR,
    JOIN,
    SPARSE,
    TWICE,
    Command,
    command as command,
    peak_and_cost,
    place as place,
    plan_file,
    run_folder,
)

from rematbench.base.errors import ConfigError, InvalidPlan
from rematbench.graphs.files import write_plan
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Compute, Plan, program_order
from rematbench.graphs.simulate import simulate
from rematbench.instances.evidence import NEEDED
from rematbench.instances.records import read_library, settled, whole_bound
from rematbench.instances.selection import select, sweeps
from rematbench.instances.solve import overrides


def test_selections(place: Path) -> None:
    library = read_library(place)
    assert [each.instance for each in select(library, ["REMATLIB-100"])] == [
        f"unit_chain8@{n}" for n in (1, 2, 3)
    ]
    assert len(select(library, ["ALL"])) == 5
    assert len(select(library, ["unit_chain8@1,join*"])) == 3
    assert len(select(library, ["ALL", "family=joins", "status=open,hard", "ops=-100"])) == 2
    made = sweeps(str(place), "ALL ops=10-", "1/2")
    assert [(each["model.path"], each["budget"]) for each in made] == [
        (str(place / "chains/unit_chain8.graph.json.gz"), [5, 7, 9])
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing*"], "no such instance or graph"),
        (["ALL", "family=chain"], "did you mean chains?"),
        (["ALL", "ops=9"], "give a range"),
        (["ALL", "status=closed"], "no instance is so"),
        (["ALL", "size=3"], "give one of family, status, ops"),
    ],
)
def test_bad_selections(place: Path, words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        select(read_library(place), words)


def test_a_plan_becomes_the_record_of_each_budget_that_holds_it(
    place: Path, command: Command
) -> None:
    peak, cost = peak_and_cost(FOUR)
    assert peak == 7
    code, said = command("submit", plan_file(FOUR, 7), "by=A. Person")
    assert code == 0, said
    records = read_library(place).records
    values = [records[f"unit_chain8@{n}"].value for n in (1, 2, 3)]
    assert values == [None, cost, cost]
    assert records["unit_chain8@2"].by == "A. Person"
    assert records["unit_chain8@2"].status == "open"  # no bound is known
    assert (place / "plans/chains/unit_chain8@2.plan.json.gz").is_file()
    assert "first records of 2 problems" in (place / "NEWS.md").read_text()
    assert command("check", "unit_chain8@2") == (0, "1 record is sound, 0 of them closed\n")


def test_a_record_made_worse_on_purpose_is_improved(place: Path, command: Command) -> None:
    costly = Plan([*FOUR.statements[:1], *FOUR.statements], CHAIN.name)  # computes one op twice
    (peak, cost), (_, best) = peak_and_cost(costly), peak_and_cost(FOUR)
    assert (peak, cost) == (7, best + 1)
    assert command("submit", plan_file(costly, 7))[0] == 0
    code, said = command("submit", plan_file(FOUR, 7), "by=A. Person")
    assert code == 0
    assert f"unit_chain8@2: value {best:g} by A. Person, was {cost:g} by by_hand" in said
    assert f"unit_chain8@2: value {best:g} by A. Person" in (place / "NEWS.md").read_text()
    assert read_library(place).records["unit_chain8@2"].value == best
    assert command("check", "unit_chain8@2")[0] == 0


def test_a_bound_closes_a_problem(place: Path, command: Command) -> None:
    _, cost = peak_and_cost(FOUR)
    assert command("submit", plan_file(FOUR, 7))[0] == 0
    run = run_folder(FOUR, bound=cost - 0.4, bound_of="any", gap=0.0)
    code, said = command("submit", run)
    assert code == 0, said
    records = read_library(place).records
    second, first = records["unit_chain8@2"], records["unit_chain8@1"]
    assert (second.bound, second.gap, second.status) == (cost, 0.0, "easy")
    assert second.bound_by == "anytime (1 s, rematbench 0.1.0)"
    assert (first.bound, first.value) == (cost, None)  # holds for smaller budgets, too
    assert records["unit_chain8@3"].bound_by == NEEDED
    assert f"value {cost:g}" not in said  # the plan was known
    assert command("submit", run)[0] == 1  # nothing is better the second time


def test_a_proof_that_there_is_no_plan_closes_a_problem(place: Path, command: Command) -> None:
    """For smaller budgets, too, until a plan outside of the space is known."""
    proof = run_folder(
        FOUR, "proof", budget_bytes=7, status="infeasible", cost=None, extra={"no_plan_in": ["9"]}
    )
    code, said = command("submit", proof)
    assert code == 0
    assert "unit_chain8@2: no plan (9) by anytime (1 s, " in said
    records = read_library(place).records
    first, second = records["unit_chain8@1"], records["unit_chain8@2"]
    assert (first.status, first.bound_of, first.bound) == ("closed", "9", None)
    assert (second.status, records["unit_chain8@3"].status) == ("easy", "open")
    assert command("check")[0] == 0
    bound = {"status": "time_limit", "cost": None, "bound": 20.0, "bound_of": "9"}
    command("submit", run_folder(FOUR, "bound", budget_bytes=9, **bound))
    assert read_library(place).records["unit_chain8@2"] == second  # a bound says less
    code, said = command("submit", proof)
    assert (code, "unit_chain8@2 has no plan (9) by anytime" in said) == (1, True), said
    wider = proof.parent / "wider"
    run_folder(
        FOUR, "wider", budget_bytes=5, status="infeasible", cost=None, extra={"no_plan_in": ["any"]}
    )
    assert command("submit", wider)[0] == 0
    assert read_library(place).records["unit_chain8@1"].bound_of == "any"
    code, said = command("submit", plan_file(FOUR, 7))
    assert (code, "holds for any plan of space 9, as this one is" in said) == (1, True), said
    assert command("submit", plan_file(TWICE, None))[0] == 0
    found = read_library(place).records["unit_chain8@2"]
    assert (found.value, found.bound_by) == (peak_and_cost(TWICE)[1], NEEDED)
    code, said = command("submit", proof)
    assert (code, "unit_chain8@2 has 22" in said) == (1, True), said  # that plan is not of space 9
    assert command("submit", plan_file(FOUR, 7))[0] == 0
    code, said = command("submit", proof)
    assert (code, f"there is the known plan of {peak_and_cost(FOUR)[1]:g}" in said) == (1, True)


def write_by(name: str) -> Path:
    """A plan for nine bytes by somebody."""
    path = plan_file(FOUR, 9, "theirs.plan.json")
    document = json.loads(path.read_text()) | {"strategy": name}
    path.write_text(json.dumps(document))
    return path


def edited(run: Path, old: str, new: str) -> Path:
    """A run's row, changed by hand."""
    text = (run / "row.json").read_text()
    assert old in text
    (run / "row.json").write_text(text.replace(old, new))
    return run


def mistakes() -> dict[str, tuple[Callable[[], object], list[str]]]:
    """Submissions that are refused, after ``FOUR`` is the record: how, and what is said."""
    _, cost = peak_and_cost(FOUR)
    bad = FOUR.labelled("x", 7)
    other = Plan(program_order(JOIN).statements, "elsewhere")
    late = Plan([Compute("layer0"), Compute("layer2")], CHAIN.name)
    no_plan: dict[str, Any] = {"status": "time_limit", "cost": None}
    return {
        "not better": (lambda: plan_file(FOUR, 7), ["not better", "unit_chain8@2 has"]),
        "of another graph": (lambda: plan_file(other, 7), ["'elsewhere' is not in the library"]),
        "of no instance": (lambda: plan_file(FOUR, 8), ["no instance of budget 8", "5, 7, 9"]),
        "over budget": (lambda: plan_file(bad, 5), ["over budget", "7 bytes, of 5 allowed"]),
        "not valid": (lambda: plan_file(late, 7), ["not valid", "statement 1"]),
        "a forged graph hash": (
            lambda: run_folder(FOUR, graph_hash="0" * 16),
            ["graph_hash is 000"],
        ),
        "a run that was stopped": (
            lambda: run_folder(FOUR, graph_hash=None, status="time_limit"),
            ["ended before it said anything of its graph (time_limit); give it more time"],
        ),
        "a forged plan hash": (
            lambda: run_folder(FOUR, extra={"plan_hash": "0" * 64}),
            ["plan_hash is not that of the plan"],
        ),
        "a bound above a known plan": (
            lambda: run_folder(FOUR, bound=cost + 3.0, bound_of="any"),
            [f"the bound {cost + 3:g} (any) by anytime", f"known plan of {cost:g} by by_hand"],
        ),
        "a name of two lines": (
            lambda: write_by("solver\r2"),
            ["'solver 2' is no name for a record; say who made it in one line"],
        ),
        "a long name": (lambda: write_by("x" * 301), ["is no name for a record"]),
        "a name of no characters": (lambda: write_by("\udcff"), ["is no name for a record"]),
        "a bound above a plan for fewer bytes": (
            lambda: run_folder(FOUR, budget_bytes=9, bound=cost + 3.0, bound_of="any", **no_plan),
            [f"known plan of {cost:g} by by_hand for unit_chain8@2; drop it"],
        ),
        "no plan, where one is known": (
            lambda: run_folder(
                FOUR,
                **(no_plan | {"status": "infeasible"}),
                budget_bytes=9,
                extra={"no_plan_in": ["any"]},
            ),
            ["no plan (any) by anytime", f"the known plan of {cost:g} by by_hand"],
        ),
        "an endless bound": (
            lambda: edited(run_folder(FOUR, bound=4.5), '"bound": 4.5', '"bound": 1e999'),
            ["bound=inf is none of a row"],
        ),
        "a row without extra": (
            lambda: edited(run_folder(FOUR, extra={}), '"extra": {', '"extra": 3, "more": {'),
            ["extra=3 is none of a row; run its job again"],
        ),
        "a limit in words": (
            lambda: run_folder(FOUR, extra={"time_limit": "long"}),
            ["time_limit='long' is none of a row"],
        ),
        "a link in words": (
            lambda: run_folder(FOUR, extra={"link": {"out": "fast"}}),
            ["out='fast' is none of a row"],
        ),
        "no file": (lambda: "nowhere", ["nowhere: no plan file"]),
        "no plan": (lambda: "instances/problems.csv", ["instances/problems.csv"]),
    }


@pytest.mark.parametrize("name", mistakes())
def test_what_is_refused(place: Path, command: Command, name: str) -> None:
    """One line each, and nothing is written."""
    assert command("submit", plan_file(FOUR, 7, "first.plan.json"))[0] == 0
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    made, words = mistakes()[name]
    code, said = command("submit", made())
    assert code == 1
    assert said.count("\n") == 1
    assert all(word in said for word in words), said
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before


def test_a_damaged_run_does_not_hold_up_the_others(place: Path, command: Command) -> None:
    run_folder(FOUR, "all/0")
    run_folder(SPARSE, "all/1")
    (Path("all/0") / "row.json").write_text('{"half')
    code, said = command("submit", "all")
    assert code == 0, said
    assert "all/0/row.json: not valid JSON" in said
    assert read_library(place).records["unit_chain8@2"].value == peak_and_cost(SPARSE)[1]


def test_what_is_refused_has_a_line_each(place: Path, command: Command) -> None:
    for name in ("one", "two"):
        (place.parent / "all" / name).mkdir(parents=True)
        (place.parent / "all" / name / "x.plan.json").write_text("{")
    code, said = command("submit", "all")
    assert (code, said.count("\n"), said.count("x.plan.json: not valid JSON")) == (1, 2, 2)


def test_a_plan_of_no_budget_above_them_all(place: Path, command: Command) -> None:
    plan = program_order(CHAIN)
    peak, _ = peak_and_cost(plan)
    write_plan("all.plan.json", plan)
    code, said = command("submit", "all.plan.json")
    assert (code, f"over budget: the plan peaks at {peak} bytes, of " in said) == (1, True), said


def test_easy_is_judged_and_not_believed(place: Path, command: Command) -> None:
    """A dearer plan than the bound closes nothing, whatever its row says of its gap."""
    _, cost = peak_and_cost(FOUR)
    run = run_folder(FOUR, bound=cost - 2, bound_of="any", gap=0.0)
    assert command("submit", run)[0] == 0
    assert read_library(place).records["unit_chain8@2"].status == "open"


def test_a_bound_for_as_many_bytes_as_one_wants(place: Path, command: Command) -> None:
    """It holds for every budget, and its evidence says so."""
    free = run_folder(FOUR, bound=17.0, bound_of="any", budget_bytes=None)
    assert command("submit", free)[0] == 0
    assert {r.bound for r in read_library(place).records.values() if "chain" in r.instance} == {17}
    assert command("check", "unit_chain8")[0] == 0


def test_a_wider_space_closes_better(place: Path, command: Command) -> None:
    """Neither a higher bound of a narrower space takes its place, nor the same one again."""
    _, cost = peak_and_cost(FOUR)
    wide = run_folder(FOUR, "wide", bound=cost * 0.9995, bound_of="any")
    narrow = run_folder(FOUR, "narrow", bound=cost * 1.0, bound_of="F")
    _, table = command("submit", narrow), place / "records.csv"
    assert read_library(place).records["unit_chain8@2"].bound_of == "F"
    assert command("submit", wide)[0] == 0
    assert read_library(place).records["unit_chain8@2"].bound_of == "any"
    before = table.read_text()
    assert command("submit", narrow)[0] == 1
    assert table.read_text() == before


@pytest.mark.parametrize("space", ["any", "9", "F", "C"])
def test_a_plan_below_a_bound_of_its_space_is_refused(
    place: Path, command: Command, space: str
) -> None:
    """A plan outside of the space is taken, and the record loses its bound."""
    (_, cost), (_, dear) = peak_and_cost(FOUR), peak_and_cost(TWICE)
    extra = {"computes": 2}
    run = run_folder(FOUR, status="time_limit", cost=None, bound=30.0, bound_of=space, extra=extra)
    (run / "plan.json").unlink()
    assert command("submit", run)[0] == 0
    code, said = command("submit", plan_file(FOUR, 7))
    assert (code, f"costs {cost:g}, below the bound 30 by anytime" in said) == (1, True), said
    code, said = command("submit", plan_file(TWICE, 7))
    assert code == (1 if space == "any" else 0), said
    if space != "any":
        told = f"value {dear:g} by by_hand; bound 17 (any) by {NEEDED}, was 30"
        assert told in said


@pytest.mark.parametrize("space", ["any", "9", "F", "C"])
def test_a_bound_above_a_plan_of_its_space_is_refused(
    place: Path, command: Command, space: str
) -> None:
    """Above a plan outside of the space it may be right, and is not better."""
    extra = {"computes": 2}
    run = run_folder(FOUR, status="time_limit", cost=None, bound=30.0, bound_of=space, extra=extra)
    (run / "plan.json").unlink()
    assert command("submit", plan_file(TWICE, 7))[0] == 0
    assert ("drop it" in command("submit", run)[1]) == (space == "any")
    assert read_library(place).records["unit_chain8@2"].bound_by == NEEDED
    assert command("submit", plan_file(FOUR, 7))[0] == 0
    assert "is above the known plan of 20 by by_hand" in command("submit", run)[1]


def test_out_of_program_order(place: Path, command: Command) -> None:
    """Two branches of a join may run in either order, but bounds are of one."""
    computes = [s for s in program_order(JOIN).statements if isinstance(s, Compute)]
    orders = [
        Plan([*computes[:i], computes[i + 1], computes[i], *computes[i + 2 :]], JOIN.name)
        for i in range(len(computes) - 1)
    ]
    valid = [plan for plan in orders if is_valid(JOIN, plan)]
    code, said = command("submit", plan_file(valid[0], None))
    assert code == 1
    assert "not in program order" in said


def is_valid(graph: Graph, plan: Plan) -> bool:
    try:
        simulate(graph, plan)
    except InvalidPlan:
        return False
    return True


def damage(place: Path, name: str) -> str:
    """Break a library; returns what must be named."""
    plan = place / "plans/chains/unit_chain8@2.plan.json.gz"
    graph = place / "chains/unit_chain8.graph.json.gz"
    table = place / "records.csv"
    if name == "a truncated instance":
        graph.write_bytes(graph.read_bytes()[:50])
        return str(graph.relative_to(place.parent))
    if name == "a missing plan":
        plan.unlink()
        return str(plan.relative_to(place.parent))
    if name == "another plan":
        write_plan(plan, program_order(CHAIN).labelled("x", 7))
        return str(plan.relative_to(place.parent))
    if name == "a plan too many":
        plan.with_name("other.plan.json.gz").write_bytes(gzip.compress(b"{}"))
        return "other.plan.json.gz"
    if name == "another graph":
        features = ["name,hash", f"{CHAIN.name},{'0' * 16}"]
        place.joinpath("features.csv").write_text("\n".join(features))
        return f"its hash is {CHAIN.hash}, in features.csv 000"
    if name == "another peak":
        told = place / "problems.csv"
        told.write_text(told.read_text().replace(",10,1,", ",11,1,"))
        return "peak are (17, 17, 3, 3, 10), in problems.csv (17, 17, 3, 3, 11)"
    lines = table.read_text().splitlines(keepends=True)
    if name == "a row twice":
        table.write_text("".join([*lines, lines[-1]]))
        return "instance 'join2_3@2' has 2 rows; keep one"
    if name in ("an invented bound", "another space"):
        record = read_library(place).records["unit_chain8@2"]
        space = "any" if name == "an invented bound" else "all"
        made = replace(record, bound=record.value, bound_of=space, bound_by="me", status="easy")
        made = replace(made, bound_date=None)
        read_library(place).write(read_library(place).records | {record.instance: settled(made)})
        return {
            "any": f"the bound {record.value} (any) has no date, and is none of evidence/undated",
            "all": "bound_of is 'all', and must be one of any, 9, F, C",
        }[space]
    if name == "a missing row":
        table.write_text("".join(lines[:2] + lines[3:]))
        return "unit_chain8@2 has no row"
    cells = lines[2].split(",")
    cells[4] = str(int(cells[4]) - 1)
    table.write_text("".join([*lines[:2], ",".join(cells), *lines[3:]]))
    return "the record says"


@pytest.mark.parametrize(
    "name",
    [
        *("a truncated instance", "a missing plan", "another plan", "a plan too many"),
        *("a missing row", "another value", "another graph", "another peak"),
        *("a row twice", "an invented bound", "another space"),
    ],
)
def test_check_names_what_is_wrong(place: Path, command: Command, name: str) -> None:
    assert command("submit", plan_file(FOUR, 7))[0] == 0
    assert command("check")[0] == 0
    named = damage(place, name)
    code, said = command("check")
    assert code == (2 if name == "a row twice" else 1)
    assert any(named in line for line in said.splitlines()), said


def test_comparing(place: Path, command: Command) -> None:
    for name, plans in (("a", (FOUR, SPARSE)), ("b", (SPARSE,))):
        for number, plan in enumerate(plans):
            peak = 7 if plan is FOUR else 5
            run_folder(plan, f"{name}/{number}", budget_bytes=peak, peak_bytes=peak)
    costly = Plan([*FOUR.statements[:1], *FOUR.statements], CHAIN.name)
    run_folder(costly, "b/9", budget_bytes=7, strategy="dtr")
    assert (
        "rows of one strategy are needed, there are anytime, dtr" in command("compare", "a", "b")[1]
    )
    (_, one), (_, two) = peak_and_cost(FOUR), peak_and_cost(costly)
    code, said = command("compare", "a", "b:dtr")
    assert code == 0, said
    assert "1 problems: A solves 1, B 1" in said
    assert "A cheaper 1, equal 0, dearer 0" in said
    assert f"geometric mean: {one / two:.4f} (too few graphs" in said
    assert "    1.000  100.0%    0.0%" in said
    assert command("compare", "a")[0] == 2


def test_what_comparing_does_not_count(place: Path, command: Command) -> None:
    """A plan out of program order; rows with a link, or of another graph of the same name."""
    run_folder(FOUR, "a", budget_bytes=7)
    run_folder(FOUR, "moved", budget_bytes=7, extra={"in_program_order": False})
    run_folder(FOUR, "linked", budget_bytes=7, extra={"link": {"out": 5, "in": 5, "latency": 0}})
    run_folder(FOUR, "other", budget_bytes=7, graph_hash="0" * 16)
    assert "1 problems: A solves 1, B 0" in command("compare", "a", "moved")[1]
    assert (
        "no row is of the library's graphs, budgets and links"
        in command("compare", "a", "linked")[1]
    )
    assert "1 problems: A solves 1, B 1" in command("compare", "a", "other")[1]
    place.joinpath("features.csv").write_text(f"name,hash\n{CHAIN.name},{CHAIN.hash}\n")
    assert "no row is of the library's graphs" in command("compare", "a", "other")[1]


def test_a_folder_of_plans_of_another_program(place: Path, command: Command) -> None:
    """It is submitted, and compared, as it is: without a row, and a problem without a file counts
    as unsolved."""
    Path("theirs").mkdir()
    plan_file(FOUR, 7, "theirs/one.plan.json")
    plan_file(TWICE, None, "theirs/two.plan.json.gz")  # for every budget that holds it
    run_folder(TWICE, "ours", budget_bytes=9)
    code, said = command("compare", "theirs", "ours", "unit_chain8")
    assert code == 0, said
    assert "1 problems: A solves 1, B 1" in said
    assert "A cheaper 0, equal 1, dearer 0" in said
    code, said = command("submit", "theirs", "by=A. Person")
    assert code == 0, said
    records = read_library(place).records
    (_, best), (_, dear) = peak_and_cost(FOUR), peak_and_cost(TWICE)
    assert [records[f"unit_chain8@{n}"].value for n in (1, 2, 3)] == [None, best, best]
    (place / "records.csv").unlink()
    assert command("submit", "theirs/two.plan.json.gz")[0] == 0
    said = command("compare", "theirs", "records", "unit_chain8")[1]
    assert "3 problems: A solves 2, B 2" in said  # there is no plan for the smallest budget
    assert f"geometric mean: {(best / dear) ** 0.5:.4f}" in said
    plan_file(Plan(FOUR.statements[1:], CHAIN.name), 7, "theirs/bad.plan.json")
    code, said = command("compare", "theirs", "records")
    assert (code, "theirs/bad.plan.json: the plan is not valid" in said) == (2, True), said


def test_each_command_has_a_folder_of_its_own(place: Path) -> None:
    shutil.copytree(place, "other")
    asked = [
        (["unit_chain8", "strategy=dtr"], str(place)),
        (["unit_chain8", "strategy=dtr"], "other"),
        (["unit_chain8*", "strategy=dtr"], "other"),
        (["unit_chain8?*", "strategy=dtr"], "other"),
    ]
    folders = [overrides(*each)[-1] for each in asked]
    assert len({*folders}) == len(asked)
    assert all(
        folder.startswith("hydra.sweep.dir=runs/instances/unit_chain8") for folder in folders
    )
    name = overrides(["ALL", "strategy=dtr", "time_limit=60"], "instances")[-1]
    assert name == "hydra.sweep.dir=runs/instances/ALL_strategy=dtr_time_limit=60_1_1"


def test_list_and_words(place: Path, command: Command) -> None:
    assert command("submit", plan_file(FOUR, 7))[0] == 0
    code, said = command("list", "REMATLIB-100")
    assert code == 0
    assert said.splitlines()[-1].startswith("3 instances of 1 graphs: 0 easy, 0 closed, 0 hard, 3")
    assert command("lst") == (
        2,
        "rematbench-instances: lst: unknown; did you mean list? give one of list, solve, submit, "
        "check, compare\n",
    )
    assert "no problems.csv there" in command("list", "library=elsewhere")[1]
    assert "no strategy" in command("solve", "ALL")[1]
    assert "the library decides it" in command("solve", "ALL", "strategy=dtr", "budget=3")[1]
    assert "part=9" in command("solve", "ALL", "strategy=dtr", "part=9")[1]


def test_solving_goes_on_and_is_submitted(place: Path, command: Command) -> None:
    """Through the sweeps and launchers of ``rematbench -m``: finished jobs are recalled."""
    words = ["solve", "unit_chain8", "strategy=chen_sqrt", "hydra.sweep.dir=runs/mine"]
    words += ["launch=joblib", "hydra.launcher.n_jobs=1"]
    code, said = command(*words)
    assert code == 0, said
    assert "JoblibLauncher" in Path("runs/mine/multirun.yaml").read_text()
    assert len([*Path("runs/mine").rglob("row.json")]) == 3
    assert command(*words)[1].count("(cached)") == 3
    assert command("submit", "runs/mine")[0] == 0
    by = str(read_library(place).records["unit_chain8@3"].by)
    assert re.fullmatch(r"chen_sqrt \(60 s, rematbench 0\.1\.0( [0-9a-f]{7,}(-dirty)?)?\)", by)


def test_whole_bounds_never_pass_the_cost() -> None:
    assert whole_bound(61.0000000001) == 61
    assert whole_bound(60.99999999999997) == 61
    assert whole_bound(10**9 + 0.2) <= 10**9 + 1
