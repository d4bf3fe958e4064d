"""Plans for two memories: the contract rule by rule, and a second simulator by events."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from naive import Rejected
from two_memories import random_case, run_by_events

from rematbench.base.errors import ConfigError, InvalidPlan, PlanError
from rematbench.graphs.allocator import replay
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.files import read_plan, write_plan
from rematbench.graphs.ir import Graph, Implementation, Op, Phase, Value, simple_op
from rematbench.graphs.link import Link, rate
from rematbench.graphs.plan import Compute, Drop, Fetch, Free, Offload, Plan, program_order
from rematbench.graphs.simulate import Trace, simulate
from rematbench.rows.memory_parts import memory_parts

ONE = Link(1.0, 1.0)


def graph_of(sizes: dict[str, int], costs: dict[str, float] | None = None) -> Graph:
    """An op without reads for each value, ``r_v`` that reads it and makes nothing else alive."""
    costs = costs or {}
    values = [Value(n, b) for n, b in sizes.items()] + [Value(f"r_{n}", 0) for n in sizes]
    ops = [simple_op(n, Phase.FORWARD, [], [n], costs.get(n, 1)) for n in sizes]
    ops += [simple_op(f"r_{n}", Phase.FORWARD, [n], [f"r_{n}"], 1) for n in sizes]
    return Graph("rules", tuple(values), tuple(ops), ())


def run(graph: Graph, *statements, link: Link = ONE) -> Trace:
    return simulate(graph, Plan(statements, graph.name), link)


A = graph_of({"a": 4, "b": 2})
C, P, F, D, X = Compute, Offload, Fetch, Drop, Free


def test_2000_random_plans_are_as_a_simulator_by_events_says() -> None:
    for seed in range(2000):
        graph, plan, link = random_case(Random(seed))
        try:
            ours = simulate(graph, plan, link)
        except InvalidPlan as error:
            index = error.index
            with pytest.raises(Rejected, match=f"^{index}$"):
                run_by_events(graph, plan, link)
            continue
        theirs = run_by_events(graph, plan, link)
        assert (ours.peak_bytes, ours.host_peak_bytes) == (theirs.peak, theirs.host), seed
        assert ours.bytes_after.tolist() == theirs.after
        assert ours.cost == pytest.approx(theirs.makespan, abs=1e-9, rel=0)
        if ours.copies is not None:
            assert (ours.copies.out_bytes, ours.copies.in_bytes) == theirs.moved
            assert ours.cost == pytest.approx(ours.copies.compute_cost + ours.copies.waiting[0])


def test_random_cases_are_worth_it() -> None:
    plans = [random_case(Random(seed)) for seed in range(300)]
    ran = 0
    for graph, plan, link in plans:
        try:
            trace = simulate(graph, plan, link)
        except InvalidPlan:
            continue
        ran += trace.copies is not None and trace.copies.in_bytes > 0
    assert ran > 100


def test_a_plan_without_copies_does_not_depend_on_the_link() -> None:
    graph = unit_chain(8)
    bare, linked = (simulate(graph, program_order(graph), link) for link in (Link(), ONE))
    assert bare.copies is None
    assert (bare.cost, bare.peak_bytes) == (linked.cost, linked.peak_bytes) == (17, 10)


def test_offload_leaves_the_device_as_it_is_and_free_waits_for_it() -> None:
    trace = run(A, C("a"), P("a"), X("a"), C("b"))
    assert trace.bytes_after.tolist() == [4, 4, 0, 2]
    assert trace.copies is not None
    assert trace.copies.host_after.tolist() == [0, 4, 4, 4]
    assert trace.copies.waiting == (4, 1, 0)  # compute for the copy, the link for a
    assert trace.cost == 1 + 4 + 1


def test_several_reads_during_a_copy_out_are_harmless() -> None:
    assert run(A, C("a"), P("a"), C("r_a"), C("r_a")).cost == 3


def test_offload_waits_for_its_value_alone() -> None:
    late = run(A, C("a"), C("b"), P("a"), X("a"))
    early = run(A, C("a"), P("a"), C("b"), X("a"))
    assert late.cost == early.cost == 5
    assert late.copies is not None
    assert late.copies.begins[2] == 1  # before b, which precedes it in the plan


def test_offloads_queue_in_their_order() -> None:
    trace = run(A, C("a"), C("b"), P("b"), P("a"), X("a"))
    assert trace.cost == 2 + 2 + 4


def test_fetch_waits_for_what_compute_was_given_before() -> None:
    """Its block may have been another's until then."""
    after = run(A, C("a"), P("a"), X("a"), C("b"), F("a"), C("r_a"))
    before = run(A, C("a"), P("a"), X("a"), F("a"), C("b"), C("r_a"))
    assert after.cost == 5 + 1 + 4 + 1
    assert before.cost == 5 + 4 + 1  # b runs meanwhile


def test_fetch_takes_its_room_at_the_statement() -> None:
    trace = run(A, C("a"), P("a"), X("a"), F("a"), C("b"))
    assert trace.bytes_during.tolist() == [4, 4, 4, 4, 6]
    assert trace.peak_bytes == 6


def test_a_free_waits_for_a_fetch_and_an_output_for_its_own() -> None:
    assert run(A, C("a"), P("a"), X("a"), F("a"), X("a")).cost == 9
    graph = Graph("out", A.values, A.ops, ("a",))
    assert run(graph, C("a"), P("a"), X("a"), F("a")).cost == 9


def test_the_end_does_not_wait_for_copies_out() -> None:
    assert run(A, C("a"), P("a")).cost == 1


def test_a_host_copy_may_be_fetched_many_times_and_outlives_a_recompute() -> None:
    steps = (C("a"), P("a"), X("a"), F("a"), X("a"), C("a"), X("a"), F("a"), C("r_a"))
    trace = run(A, *steps)
    assert trace.copies is not None
    assert (trace.copies.in_bytes, trace.host_peak_bytes) == (8, 4)


def test_drop_holds_the_next_offload_until_the_fetch_is_done_and_compute_never() -> None:
    """Decision 1: two values of one byte, room for one on the host, out faster than in."""
    graph, link = graph_of({"a": 1, "b": 1}), Link(10.0, 1.0)
    steps = (C("a"), P("a"), X("a"), F("a"), D("a"), C("b"), P("b"), X("b"))
    trace = run(graph, *steps, link=link)
    assert trace.copies is not None
    assert trace.host_peak_bytes == 1
    fetched = trace.copies.ends[3]
    assert trace.copies.begins[6] == fetched == pytest.approx(2.1)
    assert trace.copies.begins[5] == pytest.approx(1.1)  # b is computed meanwhile


def test_a_replaced_copy_is_freed_after_the_compute() -> None:
    trace = run(A, C("a"), P("a"), C("a"), C("b"))
    assert trace.peak_bytes == 8
    assert trace.cost == 5 + 1  # the second a ends at 2, the copy out of the first at 5
    fetched = run(A, C("a"), P("a"), X("a"), F("a"), C("a"), C("b"))
    assert fetched.cost == 9 + 1


def test_a_new_copy_has_nothing_sent() -> None:
    trace = run(A, C("a"), P("a"), X("a"), C("a"), X("a"))
    assert trace.cost == 6


def test_a_writer_in_place_waits_for_the_copy_out() -> None:
    values = (Value("a", 4), Value("b", 4))
    whole = (Implementation("default", ("a",), 1), Implementation("over", ("a",), 1, 0, ("a",)))
    ops = (simple_op("a", Phase.FORWARD, [], ["a"], 1), Op("b", Phase.FORWARD, ("b",), whole))
    graph = Graph("in_place", values, ops, ("b",))
    assert run(graph, C("a"), P("a"), C("b", "over")).cost == 1 + 4 + 1
    assert run(graph, C("a"), P("a"), C("b")).cost == 2
    trace = run(graph, C("a"), P("a"), C("b", "over"), F("a"))  # the host's copy stays
    assert trace.peak_bytes == 8


def test_shared_links_take_turns() -> None:
    steps = (C("a"), P("a"), X("a"), C("b"), F("a"), P("b"), X("b"))
    duplex = run(A, *steps)
    shared = run(A, *steps, link=Link(1.0, 1.0, shared=True))
    assert duplex.cost == 8  # the copy of b goes out while a comes in
    assert shared.cost == 12


def test_latency_counts_per_copy() -> None:
    assert run(A, C("a"), P("a"), X("a"), link=Link(1.0, 1.0, 0.5)).cost == 5.5


@pytest.mark.parametrize(
    ("statements", "link", "index", "said"),
    [
        ((C("a"), P("a")), Link(), 1, "offload of 'a', but there is no link to the host .*pcie4"),
        ((P("a"),), ONE, 0, "offload of 'a', which is not live; offload it after"),
        ((C("a"), P("a"), P("a")), ONE, 2, "offload of 'a', of which the host has a copy"),
        ((C("a"), F("a")), ONE, 1, "fetch of 'a', of which the host has no copy; offload it"),
        ((C("a"), P("a"), F("a")), ONE, 2, "fetch of 'a', which is on the device; free it"),
        ((C("a"), P("a"), X("a"), F("a")), Link(1.0), 3, "no link from the host"),
        ((C("a"), D("a")), ONE, 1, "drop of 'a', of which the host has no copy"),
        ((C("a"), P("a"), D("a"), F("a")), ONE, 3, "fetch of 'a', of which the host has no copy"),
        ((C("a"), P("nix")), ONE, 1, "offload of 'nix', which graph 'rules' does not have"),
        ((C("a"), P("a"), X("a"), C("r_a")), ONE, 3, "op 'r_a' reads 'a', which is not live"),
        ((C("a"), P("a"), X("a"), X("a")), ONE, 3, "free of 'a', which is not live"),
    ],
)
def test_bad_plans_name_statement_offender_and_remedy(statements, link, index, said) -> None:
    with pytest.raises(InvalidPlan, match=said) as caught:
        run(A, *statements, link=link)
    assert caught.value.index == index


def test_residents_stay_on_the_device() -> None:
    values = (Value("x", 3, resident=True), Value("a", 1))
    graph = Graph("r", values, (simple_op("a", Phase.FORWARD, ["x"], ["a"], 1),), ("a",))
    with pytest.raises(InvalidPlan, match="offload of 'x', which is resident and stays"):
        run(graph, C("a"), P("x"))


def test_codes_beyond_the_statements_are_refused() -> None:
    with pytest.raises(InvalidPlan, match="is no statement"):
        simulate(A, Plan.from_codes(A, [0, ~(4 * len(A.values))]), ONE)


def test_plan_files_hold_the_new_statements(tmp_path: Path) -> None:
    plan = Plan((C("a"), P("a"), X("a"), F("a"), D("a")), A.name)
    write_plan(tmp_path / "a.plan.json", plan)
    document = json.loads((tmp_path / "a.plan.json").read_text())
    assert document["statements"][1:] == [["offload", "a"], ["free", "a"], ["fetch", "a"],
                                          ["drop", "a"]]  # fmt: skip
    again = read_plan(tmp_path / "a.plan.json")
    assert again == plan
    codes = again.codes(A)
    assert Plan.from_codes(A, codes).statements == plan.statements
    document["statements"][1] = ["upload", "a"]
    (tmp_path / "b.plan.json").write_text(json.dumps(document))
    with pytest.raises(PlanError, match=r'statement 1 .*\["offload", value\]'):
        read_plan(tmp_path / "b.plan.json")


def test_more_bandwidth_never_costs_a_plan_more() -> None:
    for seed in range(200):
        graph, plan, link = random_case(Random(seed))
        faster = Link(link.out * 2, link.into * 3, link.latency / 2, link.shared)
        try:
            slow = simulate(graph, plan, link)
        except InvalidPlan:
            continue
        fast = simulate(graph, plan, faster)
        assert fast.cost <= slow.cost + 1e-9
        assert (fast.peak_bytes, fast.host_peak_bytes) == (slow.peak_bytes, slow.host_peak_bytes)


@pytest.mark.parametrize("given", ["fast", True, -1, "1GB", float("nan"), None])
def test_bandwidths_that_are_none_are_refused(given) -> None:
    with pytest.raises(ConfigError, match=r"link\.out=.*no bandwidth; give bytes per second"):
        rate("link.out", given)
    with pytest.raises(ConfigError, match=r"link\.in=-1"):
        Link(1.0, -1.0)


def test_memory_parts_and_the_allocator_follow_fetches() -> None:
    for seed in range(100):
        graph, plan, link = random_case(Random(seed))
        try:
            trace = simulate(graph, plan, link)
        except InvalidPlan:
            continue
        assert sum(memory_parts(graph, trace, None).values()) == trace.peak_bytes
        assert replay(graph, plan).reserved >= 0
