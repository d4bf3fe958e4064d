"""Problem (9) against the paper's numbers and against brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from rematbench.base.errors import Infeasible, NotApplicable
from rematbench.engines.plans.stages import (
    dependencies,
    needed,
    optimal_recomputation,
    plan_from_stages,
)
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.ir import Graph, Implementation, Op, Phase, Value, simple_op
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem
from rematbench.strategies.checkmate.published.paper import Nodes, problem_9
from rematbench.strategies.checkmate.published.paper_model import (
    PaperModel,
    integrality_gap,
    solve_paper,
)
from rematbench.strategies.registry import make


def notes_example(workspace: int = 0) -> Graph:
    """Five nodes that (9) fits into 15 bytes, by recomputing during the forward pass."""
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)]
    sizes, costs = [4, 1, 5, 1, 4], [4, 2, 1, 5, 2]
    inputs = [[f"v{a}" for a, b in edges if b == i] for i in range(5)]
    above = [[f"g{b}" for a, b in edges if a == i] or ["loss"] for i in range(5)]
    ops = [
        simple_op(f"v{i}", Phase.FORWARD, inputs[i], [f"v{i}"], costs[i], workspace)
        for i in range(5)
    ]
    ops.append(simple_op("loss", Phase.LOSS, ["v4"], ["loss"], 1))
    for i in reversed(range(5)):
        reads = [f"v{i}", *inputs[i], *above[i]]
        ops.append(simple_op(f"g{i}", Phase.BACKWARD, reads, [f"g{i}"], 2 * costs[i]))
    values = (Value("loss", 1), *(Value(f"{kind}{i}", sizes[i]) for kind in "vg" for i in range(5)))
    return Graph("five", values, tuple(ops), ("g0",))


def random_dag(seed: int, count: int = 5, most_writes: int = 1) -> Graph:
    """Ops with workspaces, a resident value, and outputs here and there."""
    random = np.random.default_rng(seed)
    values, ops, outputs = [Value("x", 3, resident=True)], [], []
    for i in range(count):
        pool = [value.name for value in values[-4:]]
        reads = random.choice(pool, min(len(pool), 1 + int(random.integers(2))), replace=False)
        writes = [f"v{i}_{k}" for k in range(1 + int(random.integers(most_writes)))]
        values += [Value(name, int(random.integers(1, 8))) for name in writes]
        outputs += [name for name in writes if i == count - 1 or random.random() < 0.2]
        cost, workspace = int(random.integers(1, 9)), int(random.integers(3))
        ops.append(simple_op(f"op{i}", Phase.FORWARD, reads.tolist(), writes, cost, workspace))
    return Graph(f"dag{seed}", tuple(values), tuple(ops), tuple(outputs))


def brute_force(graph: Graph) -> list[tuple[float, int]]:
    """(cost, peak) of the plan of each S; outputs that it drops are computed in the last stage."""
    n, depends = len(needed(graph)), dependencies(graph)
    outputs = [i - 1 for i in Nodes.of(graph).outputs]
    below, found = np.tril_indices(n, -1), set()
    for bits in product((False, True), repeat=len(below[0])):
        kept = np.zeros((n, n), dtype=bool)
        kept[below] = bits
        computed = optimal_recomputation(graph, kept)
        computed[-1, outputs] |= ~kept[-1, outputs]
        for j in reversed(range(n)):
            if computed[-1, j]:
                computed[-1] |= depends[:, j] & ~kept[-1]
        trace = simulate(graph, plan_from_stages(graph, computed))
        found.add((trace.cost, trace.peak_bytes))
    return sorted(found)


def cost_or_none(graph: Graph, budget: int, **options) -> float | None:
    try:
        solution = solve_paper(Problem(graph, budget), mip_gap=0.0, **options)
    except Infeasible:
        return None
    trace = simulate(graph, solution.plan)
    assert trace.peak_bytes <= budget
    assert solution.objective == pytest.approx(trace.cost)
    assert solution.bound == pytest.approx(trace.cost)
    return trace.cost


def test_chain_of_the_paper() -> None:
    graph = unit_chain(8)
    solution = solve_paper(Problem(graph, 4))
    trace = simulate(graph, solution.plan)
    assert (trace.cost, trace.peak_bytes) == (26, 4)
    assert solution.bound == pytest.approx(26)
    assert solution.bound_of == "9"
    assert solution.solver.startswith("highs 1.")
    seconds, cost, bound = solution.details["incumbents"][-1]
    assert seconds > 0
    assert cost == pytest.approx(26)
    assert bound is None or bound <= cost


@pytest.mark.parametrize(("partitioned", "gap"), [(True, 1.1818), (False, 21.557)])
def test_integrality_gap_of_the_paper(partitioned: bool, gap: float) -> None:
    assert integrality_gap(unit_chain(8), 4, partitioned) == pytest.approx(gap, abs=5e-4)


@pytest.mark.parametrize(("variant", "gap"), [("paper", 1.0879), ("unpartitioned", 7.7126)])
def test_a_row_has_the_gap_where_it_is_asked_for(variant: str, gap: float) -> None:
    problem = Problem(unit_chain(4), 4)
    asked = make("checkmate_ilp", variant=variant, integrality_gap=True).plan(problem)
    assert asked.details["integrality_gap"] == pytest.approx(gap, abs=5e-4)
    assert (asked.variant, asked.bound) == (
        {"paper": "9"}.get(variant, variant),
        pytest.approx(simulate(problem.graph, asked.plan).cost),
    )
    plain = make("checkmate_ilp", variant=variant).plan(Problem(unit_chain(3), 3))
    assert "integrality_gap" not in plain.details
    without = make("checkmate_ilp", variant=variant, integrality_gap=True)
    assert "integrality_gap" not in without.plan(Problem(problem.graph, None)).details


def test_recomputation_in_the_forward_pass() -> None:
    assert cost_or_none(notes_example(), 15) == 54


# Seeds at which the leanest plans recompute.
@pytest.mark.parametrize("seed", [6, 15, 16, 24, 33, 36])
def test_brute_force(seed: int) -> None:
    graph = random_dag(seed)
    assert Nodes.of(graph).exact
    plans = brute_force(graph)
    lean = min(peak for _, peak in plans)
    for budget in sorted({lean - 1, *(peak for _, peak in plans)})[:3]:
        best = min((cost for cost, peak in plans if peak <= budget), default=None)
        assert cost_or_none(graph, budget) == best


@pytest.mark.parametrize("seed", [4, 15, 17, 20, 21, 22])
def test_safe_side_with_several_values_per_op(seed: int) -> None:
    graph = random_dag(seed, most_writes=3)
    plans = brute_force(graph)
    peak = simulate(graph, program_order(graph)).peak_bytes
    for budget in (peak - 2, peak + 20):
        found = cost_or_none(graph, budget)  # checks the simulated peak
        best = min((cost for cost, peak in plans if peak <= budget), default=None)
        assert found is None or (best is not None and found >= best)
    assert found == simulate(graph, program_order(graph)).cost


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_unpartitioned(seed: int) -> None:
    graph = random_dag(seed, count=4)
    leanest = min(peak for _, peak in brute_force(graph))
    free = cost_or_none(graph, leanest, partitioned=False)
    assert free is not None
    assert free <= cost_or_none(graph, leanest)
    # Fewer outputs at the end, where (1e) alone counts:
    assert cost_or_none(unit_chain(2), 4, partitioned=False) == cost_or_none(unit_chain(2), 4)


def test_infeasible_is_proven() -> None:
    graph = notes_example()
    with pytest.raises(Infeasible, match="no solution within 14 bytes") as caught:
        solve_paper(Problem(graph, 14))
    assert caught.value.proven
    floor = graph.floor_bytes()
    assert floor == 14
    with pytest.raises(Infeasible, match=f"alone must have {floor} bytes") as caught:
        solve_paper(Problem(graph, floor - 1))
    assert caught.value.proven


def test_not_proven_without_time() -> None:
    with pytest.raises(Infeasible, match="HiGHS found no solution") as caught:
        solve_paper(Problem(unit_chain(12), 5, time_limit=0.0))
    assert not caught.value.proven


def test_no_budget() -> None:
    graph = unit_chain(3)
    solution = solve_paper(Problem(graph))
    assert solution.plan == program_order(graph)
    assert solution.bound == 7


def test_refusals() -> None:
    with pytest.raises(NotApplicable, match="129 ops is too large"):
        solve_paper(Problem(unit_chain(64), 20))
    in_place = Op("b", Phase.FORWARD, ("b",), (Implementation("default", ("a",), 1.0, 0, ("a",)),))
    ops = (simple_op("a", Phase.FORWARD, [], ["a"], 1), in_place)
    graph = Graph("in_place", (Value("a", 1), Value("b", 1)), ops, ("b",))
    with pytest.raises(NotApplicable, match="'b' overwrites"):
        solve_paper(Problem(graph, 2))


def test_size_follows_the_paper() -> None:
    nodes = Nodes.of(unit_chain(2))
    model = problem_9(nodes, 4)
    n, edges = len(nodes), nodes.edges
    assert len(model.R) == n * (n + 1) // 2
    assert len(model.S) == n * (n - 1) // 2
    assert len(model.FREE) == sum(n - k + 1 for _, k in edges)
    whole = problem_9(nodes, 4, partitioned=False)
    assert len(whole.R) == len(whole.S) == n * n
    assert len(whole.FREE) == n * len(edges)


def test_warm_relaxations_equal_cold_ones() -> None:
    graph = notes_example(workspace=2)
    assert any(Nodes.of(graph).transient)
    peak = simulate(graph, program_order(graph)).peak_bytes
    warm = PaperModel(graph, peak)
    for share in (1.0, 0.8, 0.7, 0.9):
        budget = int(share * peak)
        warm.change_budget(budget)
        cold = PaperModel(graph, budget).relax()
        assert warm.relax().objective == pytest.approx(cold.objective)
    warm.change_budget(peak)
    assert warm.solve().objective == pytest.approx(simulate(graph, program_order(graph)).cost)


def test_a_compiled_model_reports_its_size() -> None:
    model = PaperModel(unit_chain(3), 4)
    outcome = model.relax()
    assert outcome.status == "optimal"
    assert outcome.nodes == 0
    assert outcome.x is not None
    columns = model.program.size["columns"]
    assert outcome.x.shape == (columns,)
    assert model.size["nonzeros"] > model.size["rows"] > 0  # after presolve
    assert model.size["columns"] <= columns
    assert model.solve(threads=2).objective >= outcome.objective - 1e-9
