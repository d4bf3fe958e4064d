"""The blocks that a model repeats, by the scopes of its ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rematbench.base.errors import GraphError, InvalidPlan
from rematbench.graphs.blocks import block_of_ops, blocks_named, repeated_blocks
from rematbench.graphs.ir import Graph, Op, Phase, Value, simple_op
from rematbench.graphs.plan import Compute, Plan
from rematbench.graphs.simulate import simulate


def scoped(scopes: Sequence[str], phase: Phase = Phase.FORWARD) -> Graph:
    """A chain of one op per scope."""
    names = [f"v{i}" for i in range(len(scopes))]
    ops = []
    for i, (name, scope) in enumerate(zip(names, scopes, strict=True)):
        op = simple_op(name, phase, names[max(i - 1, 0) : i], [name], 1)
        ops.append(Op(op.name, op.phase, op.writes, op.implementations, scope))
    return Graph("scoped", tuple(Value(name, 1) for name in names), tuple(ops), (names[-1],))


def names(graph: Graph) -> list[str]:
    return [block.name for block in repeated_blocks(graph)]


def inside(*blocks: str) -> list[str]:
    """Scopes of the ops of blocks with two parts each."""
    return [f"{block}.{part}" for block in blocks for part in ("norm", "feed.0", "feed.1")]


@pytest.mark.parametrize(
    ("scopes", "expected"),
    [
        # The list of layers, not a layer's own list, though that is as long.
        (["tokens", *inside("layers.0", "layers.1"), "head"], ["layers.0", "layers.1"]),
        # Numbered otherwise.
        (inside("body.layer_0", "body.layer_1"), ["body.layer_0", "body.layer_1"]),
        # The longest list, and what has several ops elsewhere: encoder and decoder.
        (
            inside("enc.b.0", "enc.b.1", "dec.b.0", "dec.b.1", "dec.b.2"),
            ["enc.b.0", "enc.b.1", "dec.b.0", "dec.b.1", "dec.b.2"],
        ),
        # Stages of blocks: the stages themselves lie around blocks that are chosen.
        (
            inside("layer1.0", "layer1.1", "layer2.0", "layer2.1", "layer2.2"),
            ["layer1.0", "layer1.1", "layer2.0", "layer2.1", "layer2.2"],
        ),
        # A plain sequence: its modules have one op each.
        (["body.0", "body.1", "body.2", "head.0", "head.1"], ["body.0", "body.1", "body.2"]),
        (["a", "b.c", ""], []),
        (["", ""], []),
    ],
)
def test_repeated_blocks(scopes: list[str], expected: list[str]) -> None:
    assert names(scoped(scopes)) == expected


def test_blocks_have_their_forward_ops_and_all_ops_have_a_block() -> None:
    graph = scoped(["tokens", *inside("layers.0", "layers.1"), ""])
    blocks = repeated_blocks(graph)
    assert [block.ops for block in blocks] == [(1, 2, 3), (4, 5, 6)]
    assert block_of_ops(graph, blocks) == ["", *["layers.0"] * 3, *["layers.1"] * 3, ""]
    assert repeated_blocks(scoped(inside("layers.0", "layers.1"), Phase.BACKWARD)) == ()


def test_blocks_by_pattern() -> None:
    graph = scoped(inside("layers.0", "layers.1", "layers.10"))
    assert [b.name for b in blocks_named(graph, ["layers.1"])] == ["layers.1"]
    assert [b.name for b in blocks_named(graph, ["*.1*"])] == ["layers.1", "layers.10"]
    # Of nested modules the outermost.
    both = blocks_named(graph, ["layers.0.feed.*", "layers.0"])
    assert [(b.name, b.ops) for b in both] == [("layers.0", (0, 1, 2))]
    assert blocks_named(graph, ["layer*.feed.*"]) == ()


def test_messages_name_the_module_that_an_op_came_from() -> None:
    graph = scoped(["tokens", "layers.0.norm", ""])
    with pytest.raises(InvalidPlan) as caught:
        simulate(graph, Plan([Compute("v1")]))
    assert "op 'v1' (layers.0.norm) reads 'v0'" in str(caught.value)
    assert "compute op 'v0' (tokens) first" in str(caught.value)
    with pytest.raises(InvalidPlan, match="compute op 'v2' and do not free it"):
        simulate(graph, Plan([]))
    wide = replace(graph, outputs=("v0",), ops=graph.ops[:1], values=graph.values[:1])
    assert "op 'v0' (tokens)" not in wide.floor()[1]
    assert scoped(["a", "b"]).floor()[1] == "op 'v1' (b)"
    twice = replace(graph.ops[0], name="v1")
    with pytest.raises(GraphError, match=r"op 'v1' \(layers\.0\.norm\) appears twice"):
        replace(graph, ops=(twice, *graph.ops[1:]))
