"""A plan from a solution of MONeT's published program.

The program knows fewer ops than the graph: its stages are the backward ops of its forward ops.
Each backward op of the graph belongs to the stage whose forward values it reads. What the program
stores before a stage, the plan keeps before the first op of the stage, and until its last one also
what was computed again for it.
"""

from __future__ import annotations

import numpy as np

from rematbench.engines.joint.implementations import AllowedImplementations
from rematbench.engines.joint.space import ImplementationSpace
from rematbench.engines.plans.stages import FloatArray
from rematbench.graphs.ir import IntArray
from rematbench.graphs.plan import Plan
from rematbench.strategies.monet.published.program import PRODUCTS, Published

_OF_PRODUCTS = ("convolution_backward", "mm")


def decoded(
    published: Published, x: FloatArray, implementations: AllowedImplementations, budget: int
) -> Plan:
    """The plan that stores, and computes backward ops by, what a solution does.

    Algorithms of convolutions are the fastest that fit (appendix G), since the room at a statement
    decides on them alone.

    Args:
        x: by column of the program.
        budget: in bytes.
    """
    space = ImplementationSpace.start(implementations, budget, joint=True)
    chosen, stage = x > 0.5, stages_of(published, space)
    first = np.append(True, stage[1:] != stage[:-1])
    keep = np.ones(space.shape, dtype=bool)
    for i, op in enumerate(space.ops.tolist()):
        node = node_of(published, op)
        if node is not None:
            again = chosen[published.r[stage, node]]
            keep[:, i] = chosen[published.s[stage, node]] | (again & ~first)
    choice = space.choice.copy()
    for op, k in zip(space.stages.tolist(), stage.tolist(), strict=True):
        if not published.d[k]:
            continue
        implementation = published.backward[k].implementations[
            int(np.argmax(chosen[published.d[k]]))
        ]
        other = [
            len(_nodes(published, implementations.reads(g)) ^ implementation)
            for g in implementations.groups(op)
        ]
        choice[op] = implementations.groups(op)[int(np.argmin(other))]
    space = space.choosing(choice)
    return space.finished(space.evaluate(keep))


def node_of(published: Published, op: int) -> int | None:
    """The program's node for a forward op of the graph; of an op that makes a mask, the mask."""
    if op in published.of_op:
        return published.of_op[op]
    tables = published.tables
    writers = tables.writer[tables.inputs[op]].tolist()
    sides = (published.side.get(published.of_op.get(writer, -1)) for writer in writers)
    return next((side for side in sides if side is not None), None)


def stages_of(published: Published, space: ImplementationSpace) -> IntArray:
    """Per stage of the space, the program's."""
    found, k = [], 0
    for op in space.stages.tolist():
        implementation = int(space.graph.tables.op_first[op])
        k = _stage(
            published, k, space.graph.ops[op].operator, space.graph.tables.reads[implementation]
        )
        found.append(k)
    return np.array(found, dtype=np.int64)


def _stage(published: Published, k: int, operator: str, reads: IntArray) -> int:
    """The first stage from ``k`` on whose backward op reads such values; ``k`` if there is none."""
    read = _nodes(published, reads)
    for number in range(k, len(published.backward)) if read else ():
        node = published.backward[number].node
        is_product = published.operator[node] in PRODUCTS and operator in _OF_PRODUCTS
        if node in read or (is_product and read <= set(published.parents[node])):
            return number
    return k


def _nodes(published: Published, values: IntArray) -> frozenset[int]:
    """The program's nodes of values of the graph."""
    writers = {int(w) for w in published.tables.writer[values] if w >= 0}
    loss = published.graph.loss_index
    assert loss is not None
    nodes = (node_of(published, writer) for writer in writers if writer < loss)
    return frozenset(node for node in nodes if node is not None)
