"""What people do by hand: which values stay, what runs again, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rematbench.base.errors import ConfigError, Infeasible, NotApplicable
from rematbench.graphs.builders.synthetic import unit_chain, with_backward
from rematbench.graphs.ir import Graph, Phase, Value, simple_op
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem, Solution
from rematbench.strategies.practice import (
    EveryLayer,
    EveryNLayers,
    SaveDots,
    SelectiveAttention,
    SelectiveOps,
)

BLOCK = ("norm", "mm", "gelu", "mm", "mul")


def network(blocks: int = 3, block: tuple[str, ...] = BLOCK) -> Graph:
    """Blocks in a row: ops are named as capture names them (``mm``, ``mm_1``, ...)."""
    values, ops, seen, last = [Value("x", 1, True)], [], {}, "x"
    for number in range(blocks):
        for name in block:
            seen[name] = seen.get(name, -1) + 1
            value = f"{name}_{seen[name]}" if seen[name] else name
            ops.append(simple_op(value, Phase.FORWARD, [last], [value], 1))
            ops[-1] = replace(ops[-1], scope=f"layers.{number}.{name}")
            values.append(Value(value, 1))
            last = value
    return with_backward(Graph("network", tuple(values), tuple(ops), (last,)))


def computed(graph: Graph, solution: Solution) -> list[str]:
    """Names of all ops from the loss on, in the plan's order."""
    assert solution.plan is not None
    codes = solution.plan.codes(graph)
    names = [graph.ops[op].name for op in graph.tables.op_of[codes[codes >= 0]].tolist()]
    return names[names.index("loss") + 1 :]


def again(graph: Graph, solution: Solution) -> list[str]:
    forward = {op.name for op in graph.ops if op.phase is Phase.FORWARD}
    return [name for name in computed(graph, solution) if name in forward]


def test_each_block_runs_again_once_when_its_backward_pass_begins() -> None:
    graph = network(2)
    solution = EveryLayer().plan(Problem(graph))
    # grad_v reads v and what is above it: the last value of a block stays, as the next one's input.
    second = ["norm_1", "mm_2", "gelu_1", "mm_3"]
    first = ["norm", "mm", "gelu", "mm_1"]
    assert again(graph, solution) == [*second, *first]
    order = computed(graph, solution)
    assert order.index("norm_1") == order.index("grad_mul_1") + 1 == 1
    assert order[order.index("mm_3") + 1] == "grad_mm_3"
    assert order[order.index("grad_mul") + 1] == "norm"
    assert solution.details["checkpointed"] == {"layers.*": 2}
    assert solution.native is not None
    assert solution.native.as_json() == {"how": "checkpoint"}


def test_every_nth_block() -> None:
    graph = network(4)
    base = simulate(graph, program_order(graph))
    third = EveryNLayers(3).plan(Problem(graph))
    assert again(graph, third) == ["norm_2", "mm_4", "gelu_2", "mm_5"]
    assert third.native is not None
    assert third.native.modules == ("layers.2",)
    # Without n: the cheapest that fits, which checkpoints no more blocks than it must.
    curve = EveryNLayers().plan(Problem(graph)).details["curve"]
    assert [point["knob"] for point in curve] == [4, 3, 2, 1]
    peaks = [point["peak_bytes"] for point in curve]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[3] < peaks[2] < peaks[0] == base.peak_bytes
    fits = EveryNLayers().plan(Problem(graph, peaks[2]))
    assert fits.details["n"] == 3  # as lean as 2, and cheaper
    assert fits.details["checkpointed"] == {"layers.*": 1}
    with pytest.raises(Infeasible) as caught:
        EveryNLayers().plan(Problem(graph, curve[-1]["peak_bytes"] - 1))
    assert caught.value.smallest_peak_found == curve[-1]["peak_bytes"]
    with pytest.raises(NotApplicable, match=r"there are 4 blocks; set strategy\.n to no more"):
        EveryNLayers(5).plan(Problem(graph))


def test_of_a_blocks_products_every_second_runs_again() -> None:
    graph = network(2)
    rest = ["norm_1", "gelu_1", "mm_3", "norm", "gelu", "mm_1"]
    assert again(graph, SelectiveOps().plan(Problem(graph))) == rest
    assert again(graph, SelectiveOps(every=1).plan(Problem(graph))) == [
        *("norm_1", "gelu_1", "norm", "gelu")
    ]
    assert again(graph, SelectiveOps(every=1, also=["gelu"]).plan(Problem(graph))) == [
        *("norm_1", "norm")
    ]
    with pytest.raises(Infeasible, match="the budget is 3"):
        SelectiveOps().plan(Problem(graph, 3))


def test_attention_is_saved_and_products_without_batches_too() -> None:
    fused = "_scaled_dot_product_flash_attention_for_cpu"
    graph = network(1, ("norm", "mm", fused, "addmm", "gelu", "bmm", "convolution"))
    graph = replace(
        graph, ops=tuple(replace(op, scope=op.scope.replace("layers.0", "l.0")) for op in graph.ops)
    )
    options = {"blocks": "l.0"}
    saved = {"norm", "mm", fused, "addmm", "gelu", "bmm", "convolution"}

    def kept(strategy) -> set[str]:
        return saved - set(again(graph, strategy.plan(Problem(graph))))

    assert kept(EveryLayer(**options)) == {"convolution"}  # the loss reads it
    assert kept(SelectiveOps(**options)) == {"mm", fused, "convolution"}
    assert kept(SaveDots(**options)) == {"mm", "addmm", "convolution"}
    dots = SaveDots("dots_saveable", **options)
    assert kept(dots) == {"mm", "addmm", "bmm", "convolution"}
    assert dots.plan(Problem(graph)).variant == "dots_saveable"


def test_eager_mode_holds_what_nothing_reads_again() -> None:
    # The last product of a block is saved, and not wanted: its reader keeps nothing of it.
    values = (Value("x", 1, True), *(Value(n, 64) for n in ("norm", "mm", "add", "norm_1", "tail")))
    edges = {"norm": ["x"], "mm": ["norm"], "add": ["mm"], "norm_1": ["add"], "tail": ["norm_1"]}
    forward = [simple_op(n, Phase.FORWARD, reads, [n], 1) for n, reads in edges.items()]
    scopes = ("a.0", "a.0", "a.0", "a.1", "a.1")
    forward = [replace(op, scope=s) for op, s in zip(forward, scopes, strict=True)]
    backward = [
        simple_op("loss", Phase.LOSS, ["tail"], ["loss"], 1),
        simple_op("g1", Phase.BACKWARD, ["loss", "norm_1"], ["g1"], 1),
        simple_op("g0", Phase.BACKWARD, ["g1", "norm"], ["g0"], 1),
    ]
    values += tuple(Value(n, 1) for n in ("loss", "g1", "g0"))
    graph = Graph("unread", values, (*forward, *backward), ("loss", "g0"))
    late = SelectiveOps().plan(Problem(graph)).plan
    early = SelectiveOps(release="early").plan(Problem(graph)).plan
    assert late is not None
    assert early is not None
    names = [getattr(s, "op", None) or f"free {s.value}" for s in late.statements]
    assert names.index("free mm") > names.index("g0")
    assert simulate(graph, late).peak_bytes > simulate(graph, early).peak_bytes
    assert simulate(graph, late).cost == simulate(graph, early).cost


def attention(*names: str, scope: str = "core") -> Graph:
    """Ops in a row; those between the products of queries, keys and values are in a scope."""
    graph = network(1, names)
    inner = [i for i, name in enumerate(names) if name in ("bmm", "mul", "_softmax", "clone")]
    ops = tuple(
        replace(op, scope=f"attend.{scope}".strip(".") if i in inner else "attend")
        for i, op in enumerate(graph.ops)
    )
    return replace(graph, ops=ops)


def test_core_attention_runs_again() -> None:
    names = ("addmm", "clone", "bmm", "mul", "_softmax", "bmm", "mm", "gelu")
    graph = attention(*names)
    solution = SelectiveAttention().plan(Problem(graph))
    assert again(graph, solution) == ["clone", "bmm", "mul", "_softmax"]
    assert solution.native is not None
    assert solution.native.modules == ("attend.core",)
    # Written into a module with weights: from product to product, and PyTorch has no name for it.
    graph = attention(*names, scope="")
    solution = SelectiveAttention().plan(Problem(graph))
    assert again(graph, solution) == ["bmm", "mul", "_softmax"]
    assert solution.native is None
    with pytest.raises(NotApplicable, match="there is no attention"):
        SelectiveAttention().plan(Problem(attention("mm", "bmm", "mm", "_softmax", "bmm")))


@pytest.mark.parametrize("strategy", [EveryLayer(), EveryNLayers(), SelectiveOps(), SaveDots()])
def test_without_scopes_there_are_no_blocks(strategy) -> None:
    with pytest.raises(NotApplicable, match=r'no op says which module.*a "scope", or use ap_sqrt'):
        strategy.plan(Problem(unit_chain(8)))
    bare = network(2)
    one = replace(bare, ops=tuple(replace(op, scope="alone") for op in bare.ops))
    with pytest.raises(NotApplicable, match=r"no module is repeated; name modules by strategy\.bl"):
        strategy.plan(Problem(one))
    named = replace(strategy, blocks=["layer.*"])
    with pytest.raises(
        NotApplicable, match=r"strategy\.blocks=layer\.\*: no module.*there are lay"
    ):
        named.plan(Problem(network(2)))


def test_bad_options_are_refused() -> None:
    for make, says in (
        (lambda: EveryNLayers(0), r"strategy\.n=0: give a whole number, 1 or more, or null"),
        (lambda: SelectiveOps(every=0), r"strategy\.every=0: give a whole number, 1 or more"),
        (lambda: EveryLayer(release="now"), r"release is 'now'; choose late or early"),
        (lambda: SaveDots("dots"), r"variant is 'dots'; choose dots_saveable or dots_with_no_bat"),
    ):
        with pytest.raises(ConfigError, match=says):
            make()


def test_eager_mode_frees_nothing_within_an_autograd_node() -> None:
    # y = a * b: b's gradient reads a alone, and a's reads b.
    shared = {"grad_a": 0, "grad_b": 0}
    edges = {"a": ["x"], "b": ["a"], "y": ["a", "b"], "loss": ["y"]}
    edges |= {"grad_b": ["loss", "a"], "grad_a": ["loss", "b"], "grad_x": ["grad_a", "grad_b"]}
    ops = []
    for name, reads in edges.items():
        phase = Phase.LOSS if name == "loss" else Phase.FORWARD
        phase = Phase.BACKWARD if name.startswith("grad") else phase
        op = simple_op(name, phase, reads, [name], 1)
        scope = "" if name == "loss" else f"layers.{int(name == 'y')}"
        ops.append(replace(op, scope=scope, autograd_node=shared.get(name)))
    values = (Value("x", 1, True), *(Value(name, 1) for name in edges))
    graph = Graph("product", values, tuple(ops), ("grad_x",))

    def order(graph: Graph, release: str) -> list[str]:
        plan = EveryLayer(["layers.1"], release).plan(Problem(graph)).plan
        assert plan is not None
        return [getattr(s, "op", None) or f"free {s.value}" for s in plan.statements]

    late, early = order(graph, "late"), order(graph, "early")
    assert early.index("free a") < early.index("grad_a")
    assert late.index("free a") > late.index("grad_a")
    apart = replace(graph, ops=tuple(replace(op, autograd_node=None) for op in graph.ops))
    assert order(apart, "late") == early
