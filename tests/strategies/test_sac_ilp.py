"""sac_ilp: what PyTorch's program is told of each module, and its choices as plans."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from executed import check_executed

from rematbench.base.errors import ConfigError, Infeasible, NotApplicable
from rematbench.graphs.builders.synthetic import with_backward
from rematbench.graphs.ir import Graph, Phase, Value, simple_op
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem
from rematbench.strategies.sac_ilp import SacIlp
from rematbench.strategies.sac_ilp.modules import modules_of
from rematbench.strategies.sac_ilp.program import SacProgram

SIZES = {"norm": 2**20, "wide": 8 * 2**20, "act": 8 * 2**20, "thin": 2 * 2**20, "sum": 2**20}
COSTS = {"norm": 1, "wide": 40, "act": 2, "thin": 40, "sum": 1}


def network(blocks: int = 4, cost: int = 1) -> Graph:
    """Blocks of five ops, ``layers.N`` with ``feed`` inside, forward and backward."""
    values, ops, last = [Value("x", 2**20, resident=True)], [], "x"
    scopes = {}
    for i in range(blocks):
        before = last
        for kind, size in SIZES.items():
            name = f"{kind}{i}"
            reads = [last, before] if kind == "sum" else [last]
            ops.append(simple_op(name, Phase.FORWARD, reads, [name], cost * COSTS[kind]))
            values.append(Value(name, size))
            inside = kind in ("wide", "act", "thin")
            scopes[name] = f"layers.{i}.feed" if inside else f"layers.{i}"
            last = name
    forward = Graph(f"scoped{blocks}", tuple(values), tuple(ops), (last,))
    graph = with_backward(forward)
    scoped = tuple(
        replace(op, scope=scopes.get(op.name.removeprefix("grad_"), "")) for op in graph.ops
    )
    return replace(graph, ops=scoped)


def test_modules_and_their_bytes() -> None:
    graph = network(2)
    tree = modules_of(graph)
    inner = ["model.layers.0", "model.layers.0.feed", "model.layers.1", "model.layers.1.feed"]
    assert [module.name for module in tree.modules] == ["model", "model.layers", *inner]
    assert tree.ended == (inner[1], inner[0], inner[3], inner[2], "model.layers", "model")
    known = {module.name: module for module in tree.modules}
    layer = known["model.layers.0"]
    assert [graph.ops[op].name for op in layer.ops] == ["norm0", "wide0", "act0", "thin0", "sum0"]
    assert known["model.layers.0.feed"].is_leaf
    assert not layer.is_leaf
    # sum0 goes on; gradients read all else.
    assert layer.output == SIZES["sum"]
    assert layer.kept == sum(SIZES.values()) - SIZES["sum"]
    assert layer.live == sum(SIZES.values())
    assert known["model"].live == 2 * sum(SIZES.values())
    assert known["model.layers.1"].transient > 0


def test_the_model_without_checkpoints_is_the_simulators() -> None:
    """Its baseline peak, of our numbers, is near that of the plan that keeps everything."""
    pytest.importorskip("pulp", reason="its program; extra: sac")
    from torch.distributed._tools.ilp_utils import get_peak_memory_runtime_baseline

    graph = network(4)
    program = SacProgram(graph, modules_of(graph), (), 0)
    peak, time = get_peak_memory_runtime_baseline(program._modules)
    assert peak == pytest.approx(simulate(graph, program_order(graph)).peak_bytes, rel=0.1)
    assert time == pytest.approx(100.0)


def test_choices_are_plans_within_the_budget() -> None:
    pytest.importorskip("pulp", reason="its program; extra: sac")
    graph = network(4)
    base = simulate(graph, program_order(graph))
    costs = []
    for share in (0.8, 0.6):
        found = SacIlp().plan(Problem(graph, int(share * base.peak_bytes)))
        assert found.plan is not None
        trace = simulate(graph, found.plan)
        assert trace.peak_bytes <= share * base.peak_bytes
        costs.append(trace.cost)
        names = list(found.details["discarded"])
        assert names
        assert not any(a != b and a.startswith(f"{b}.") for a in names for b in names)
        assert not any(name.endswith("feed") for name in names)
        assert found.details["modelled_peak_bytes"] <= found.details["program_budget_bytes"] * 1.001
    assert base.cost < costs[0] <= costs[1]


def test_equal_seeds_choose_equally() -> None:
    pytest.importorskip("pulp", reason="its program; extra: sac")
    graph = network(3)
    budget = int(0.7 * simulate(graph, program_order(graph)).peak_bytes)
    state = np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]
    plans = [SacIlp().plan(Problem(graph, budget, seed=5)).plan for _ in range(2)]
    assert plans[0] == plans[1]
    assert np.random.get_state()[1].tolist() == state  # type: ignore[index, union-attr]


def test_shares_in_greedy_order() -> None:
    """Most bytes per time first: the activation, then the norm and the sum, products last."""
    pytest.importorskip("pulp", reason="its program; extra: sac")
    graph = network(1)
    program = SacProgram(graph, modules_of(graph), ["wide0", "thin0"], 0)
    (layer,) = (m for m in modules_of(graph).modules if m.name == "model.layers.0")

    def names(share: float) -> list[str]:
        return [graph.ops[op].name for op in program.recomputed(layer, share)]

    assert names(0.0) == []
    assert names(0.3) == ["act0"]
    assert set(names(0.5)) == {"norm0", "act0", "sum0"}
    # Both random ops, together.
    assert names(0.6) == ["norm0", "wide0", "act0", "thin0", "sum0"]
    assert names(1.0) == names(0.6)


def test_nothing_is_imported_in_the_planners_time() -> None:
    """In a process of its own: others have imported much of it here."""
    pytest.importorskip("pulp", reason="its program; extra: sac")
    code = "import sys; from rematbench.strategies.sac_ilp import SacIlp; SacIlp().warm_up()"
    code += "; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"pwlf", "pulp", "scipy.optimize"} <= set(done.stdout.split())


def test_costs_of_nothing() -> None:
    pytest.importorskip("pulp", reason="its program; extra: sac")
    graph = network(3, cost=0)
    budget = int(0.7 * simulate(graph, program_order(graph)).peak_bytes)
    found = SacIlp().plan(Problem(graph, budget))
    assert found.plan is not None
    assert simulate(graph, found.plan).cost == 0


def test_nothing_to_do_and_nothing_possible() -> None:
    graph = network(3)
    peak = simulate(graph, program_order(graph)).peak_bytes
    assert SacIlp().plan(Problem(graph, peak)).details == {"discarded": {}}
    pytest.importorskip("pulp", reason="its program; extra: sac")
    with pytest.raises(Infeasible) as caught:
        SacIlp().plan(Problem(graph, 9 * 2**20))
    assert caught.value.smallest_peak_found is not None


def test_what_it_does_not_apply_to(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = network(2)
    bare = replace(graph, ops=tuple(replace(op, scope="") for op in graph.ops))
    with pytest.raises(NotApplicable, match="no op of graph 'scoped2' says which one"):
        SacIlp().plan(Problem(bare, 100))
    forward = Graph(
        "forward", (Value("a", 1),), (simple_op("a", Phase.FORWARD, [], ["a"], 1),), ("a",)
    )
    with pytest.raises(NotApplicable, match="no loss op"):
        SacIlp().plan(Problem(forward))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NotApplicable, match=r"needs pulp and pwlf.*rematbench\[sac\]"):
        SacIlp().plan(Problem(graph, 100))


def test_options_out_of_range() -> None:
    with pytest.raises(ConfigError, match="late or early"):
        SacIlp(release="never")  # type: ignore[arg-type]


def test_executed() -> None:
    pytest.importorskip("pulp", reason="its program; extra: sac")
    check_executed(SacIlp())
