"""The library of two memories: its verifier says what the simulator says; problems, records."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from two_memories import random_case
from verifying import LIBRARY, mutated, verifier

from rematbench.base.errors import ConfigError, InvalidPlan
from rematbench.engines.plans.stages import plan_with_checkpoints
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.files import graph_document, plan_document, read_plan, write_graph
from rematbench.graphs.floors import once_floor
from rematbench.graphs.ir import Graph
from rematbench.graphs.link import Link
from rematbench.graphs.plan import Compute, Drop, Fetch, Free, Offload, Plan, program_order
from rematbench.graphs.simulate import check_draws, simulate
from rematbench.instances.linked import FOLDER, NETWORKS, RATES, SHARES, linked
from rematbench.instances.offers import Submission, read_offer
from rematbench.instances.records import COPY, Library, LibraryProblem, read_library, whole_cost
from rematbench.instances.selection import select, sweeps
from rematbench.instances.submit import RecordJudge
from rematbench.instances.verify import faults
from rematbench.rows.row import make_row

TWO = LIBRARY / FOLDER


@pytest.fixture(scope="module")
def copies() -> Any:
    """``instances/verify_copies.py``."""
    verifier()
    found = verifier("verify_copies")
    assert found.COPY == COPY == 10_000
    return found


def simulated(graph: Graph, statements: Sequence[list[str]], link: Link) -> list[Any]:
    """Peak, host's peak, cost and recomputations; of a refused plan the statement alone."""
    kinds = {"compute": Compute, "free": Free, "offload": Offload, "fetch": Fetch, "drop": Drop}
    plan = Plan(kinds[word](*names) for word, *names in statements)
    try:
        trace = simulate(graph, plan, link)
        check_draws(graph, plan)
    except InvalidPlan as error:
        return [error.index]
    cost = pytest.approx(trace.cost, rel=1e-12)
    return [trace.peak_bytes, trace.host_peak_bytes, cost, trace.recomputations]


def test_the_verifier_says_what_the_simulator_says(copies: Any) -> None:
    """Of 2,000 plans that copy, most of them mutated."""
    dice, valid, refused = random.Random(37), 0, 0
    for number in range(400):
        graph, plan, given = random_case(dice)
        rate = given.out or 2.0
        link = Link(rate, rate, number % 2)
        net = copies.verify.net_of(graph_document(graph))
        sound = plan_document(plan)["statements"]
        for statements in (sound, *(mutated(graph, sound, dice) for _ in range(4))):
            try:
                found = copies.judge(net, statements, link.out, link.latency)
                said = [found.peak, found.host_peak, found.makespan, found.recomputations]
            except copies.verify.Refused as error:
                said = [error.statement]
            assert said == simulated(graph, statements, link)
            valid, refused = valid + (len(said) == 4), refused + (len(said) == 1)
    assert valid > 500
    assert refused > 500


def test_the_problems_are_those_of_the_track() -> None:
    library = read_library(TWO)
    assert [*library.instances.values()] == [*linked(LIBRARY)]
    assert len(library.instances) == 120
    track = OmegaConf.load(LIBRARY.parent / "conf/experiment/leaderboard_offload.yaml")
    assert [f"{job.model}_b{job.batch_size}" for job in track.problems] == [*NETWORKS]
    assert sorted(track.budgets) == [*SHARES]
    assert [f"{rate}GB/s" for rate in RATES] == [*track.links]
    made = sweeps(str(TWO), "gpt2_b8@*-25")
    (keys,) = made
    assert (keys["link"], keys["link.out"], keys["link.in"]) == ("given", 25, 25)
    assert keys["link.latency"] == COPY
    assert len(keys["budget"]) == 3


def test_every_record_is_sound() -> None:
    library = read_library(TWO)
    assert [*faults(library, select(library, ["ALL"]))] == []
    assert all(library.record(name).value is not None for name in library.instances)


@pytest.mark.parametrize("name", ["resnet50_b128@2-25", "gpt2_b8@1-450"])
def test_the_command_says_what_the_record_says(name: str, copies: Any, capsys: Any) -> None:
    library = read_library(TWO)
    record, problem = library.record(name), library.instances[name]
    words = [str(TWO / problem.graph), str(TWO / str(record.plan)), str(problem.link)]
    assert copies.main(words) == 0
    said = capsys.readouterr().out
    assert f" cost={record.value} " in said
    assert copies.main([*words, "1000"]) == 1
    assert "over its budget of 1000" in capsys.readouterr().err
    assert copies.main(words[:2]) == 2


def test_a_plan_that_copies_is_judged_with_each_link(tmp_path: Path) -> None:
    """And refused by the library without links, which names the remedy."""
    library, name = read_library(TWO), "resnet50_b128@2-25"
    path = TWO / str(library.record(name).plan)
    offer = read_offer(path, "me", "2026-01-01")
    judge = RecordJudge(library)
    judge.records[name] = replace(judge.records[name], value=10**12, bound=None, bound_of=None)
    (step,) = judge.take(offer)
    graph = library.graph(library.instances[name].graph)
    trace = simulate(graph, read_plan(path), library.instances[name].host_link)
    assert (step.new.instance, step.new.value) == (name, whole_cost(trace.cost))
    one = read_library(LIBRARY)
    budget = replace(offer, plan=offer.plan.labelled("me", None))
    with pytest.raises(ConfigError, match="no link to the host"):
        RecordJudge(one).take(budget)


@pytest.fixture
def linked_chain(tmp_path: Path) -> Library:
    """A library of a chain, one budget and two links."""
    graph = unit_chain(8)
    peak = simulate(graph, program_order(graph)).peak_bytes
    problem = LibraryProblem(
        *("chain@1-3", f"{graph.name}.graph.json.gz", 7, "chains", len(graph.ops)),
        *(len(graph.values), graph.floor_bytes(), once_floor(graph)[0], peak, 0, 3),
    )
    other = replace(problem, instance="chain@1-5", link=5)
    write_graph(tmp_path / problem.graph, graph)
    return Library(tmp_path, {each.instance: each for each in (problem, other)}, {})


def offer_of(strategy: str, library: Library, rate: float) -> Submission:
    """A run's, with a plan that copies nothing, and a bound."""
    graph = library.graph(library.instances["chain@1-3"].graph)
    plan = plan_with_checkpoints(graph, [1, 3, 5]).labelled(strategy, 7)
    link = {"out": rate, "in": rate, "latency": float(COPY), "shared": False}
    trace = simulate(graph, plan)
    row = make_row(
        **{"model": graph.name, "strategy": strategy, "graph_hash": graph.hash, "status": "ok"},
        **{"budget_bytes": 7, "cost": trace.cost, "peak_bytes": trace.peak_bytes, "gap": 0.1},
        **{"checkpoint_all_cost": 17.0, "overhead": trace.cost / 17 - 1},
        **{"bound": 18.0, "bound_of": "any", "extra": {"link": link, "plan_cpu_seconds": 1.0}},
    )
    return Submission(Path("row.json"), plan, row, "me", "2026-01-01", graph.name)


@pytest.mark.parametrize(("strategy", "bound"), [("anytime", None), ("hybrid", 18)])
def test_a_bound_is_of_plans_that_copy(
    strategy: str, bound: int | None, linked_chain: Library
) -> None:
    """What a strategy without copies proves is nothing here; its plan counts for the run's link."""
    judge = RecordJudge(linked_chain)
    steps = judge.take(offer_of(strategy, linked_chain, 3.0))
    assert {step.new.instance for step in steps} == {"chain@1-3"}
    assert judge.records["chain@1-3"].bound == bound
    assert judge.records["chain@1-3"].value is not None
    assert judge.records["chain@1-5"].value is None


def test_a_run_with_another_link_is_refused(linked_chain: Library) -> None:
    with pytest.raises(ConfigError, match=r"a link of 4 out.*have a link of 3 out"):
        RecordJudge(linked_chain).take(offer_of("hybrid", linked_chain, 4.0))


def test_a_bound_of_somebody_elses_program_is_of_its_link(
    linked_chain: Library, tmp_path: Path
) -> None:
    told = {"format": "rematbench-bound", "version": 1, "graph": "unit_chain8", "budget_bytes": 7}
    told |= {"bound": 18, "bound_of": "any", "by": "A. Person", "proof": "solver 2, here"}
    path = tmp_path / "theirs.bound.json"
    path.write_text(json.dumps(told | {"link": 5}))
    judge = RecordJudge(linked_chain)
    (step,) = judge.take(read_offer(path, None, "2026-01-01"))
    assert (step.new.instance, step.new.bound) == ("chain@1-5", 18)
    path.write_text(json.dumps(told))
    with pytest.raises(ConfigError, match=r'planned with no link.*name one of them, as "link": 12'):
        judge.take(read_offer(path, None, "2026-01-01"))
