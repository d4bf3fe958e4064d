"""Of which plans a bound speaks: is a plan of the space ``9``, ``F`` or ``C``?

``instances/RULES.md`` has the same in words. A **stage** is what a plan computes up to and with the
first compute of one more op. Ops that no output needs count for nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rematbench.graphs.ir import Graph, Phase
from rematbench.graphs.plan import Plan, in_program_order


def why_outside(graph: Graph, plan: Plan, space: str, computes: int | None = None) -> str | None:
    """Why a valid plan is not of a space; None where it is.

    Args:
        space: ``any``; ``9``, Checkmate's problem (9) (Jain et al., 2020, section 4.7); ``F``; or
            ``C`` (Moccasin: Bartan et al., 2023).
        computes: how often a plan of ``C`` may compute an op; None: not known, and none is of it.
    """
    if not in_program_order(graph, plan):
        return "its first computes are not in program order"
    if space == "any":
        return None
    codes, tables, needed = plan.codes(graph), graph.tables, graph.needed_ops()
    codes = codes[codes >= 0]
    codes = codes[needed[tables.op_of[codes]]]
    ops = tables.op_of[codes]
    other = ops[codes != tables.op_first[ops]]
    if len(other):
        label = graph.ops[int(other[0])].label
        return f"it computes {label} by another implementation than the default"
    sequence = ops.tolist()
    found = _outside_stages(graph, sequence)
    if found is None and space == "F":
        found = _outside_f(graph, sequence)
    if found is None and space == "C":
        found = _outside_c(graph, sequence, computes)
    return found


def _outside_stages(graph: Graph, sequence: Sequence[int]) -> str | None:
    """What no schedule of problem (9) does: it recomputes in program order, before a stage's op."""
    seen, last, final = set[int](), -1, max(sequence, default=-1)
    for op in sequence:
        label = graph.ops[op].label
        if op not in seen:
            seen.add(op)
            last = -1
        elif final in seen:
            return f"it computes {label} again after the first compute of the last op"
        elif op == last:
            return f"it computes {label} twice in a stage"
        elif op < last:
            return f"in a stage it computes {label} again after {graph.ops[last].label}"
        else:
            last = op
    return None


def _outside_f(graph: Graph, sequence: Sequence[int]) -> str | None:
    """What no schedule of F does besides: only forward ops again, and after the forward pass."""
    loss = len(graph.ops) if graph.loss_index is None else graph.loss_index
    forward = {op for op in sequence if op < loss and graph.ops[op].phase is Phase.FORWARD}
    left, seen = {*forward}, set[int]()
    for op in sequence:
        if op in seen and left:
            return f"it computes {graph.ops[op].label} again before the forward pass has ended"
        if op in seen and op not in forward:
            return f"it computes {graph.ops[op].label} again, which is no forward op"
        seen.add(op)
        left.discard(op)
    return None


def _outside_c(graph: Graph, sequence: Sequence[int], computes: int | None) -> str | None:
    """Is an op computed more often than a plan of C may?"""
    op, most = Counter(sequence).most_common(1)[0]
    is_inside = computes is not None and most <= computes
    return None if is_inside else f"it computes {graph.ops[op].label} {most} times"
