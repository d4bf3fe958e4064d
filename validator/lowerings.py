"""A plan through ``torch.compile``, in each of its lowerings, beside the plan's own run.

AOTAutograd's graph has the ops that we capture, so that it runs the same plan. Inductor's graph has
others, smaller ones: there the same strategy plans again, for the same budget.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rematbench.graphs.kinds import implementations_of
from rematbench.graphs.plan import Compute, Plan
from rematbench.graphs.planning import CompiledRun, NativeRun, PlannedRun
from rematbench.tracing.captured import Captured
from rematbench.tracing.halves import BORDER
from rematbench.validator.native import Native, measure_native

AOT, INDUCTOR = "aot", "inductor"
"""Of what AOTAutograd traces: its ops one by one; Inductor's kernels."""


def measure_lowered(
    captured: Captured,
    plan: Plan,
    native: NativeRun | None,
    inductor: PlannedRun,
    device: str,
    seed: int = 0,
    repeats: int = 5,
    held_bytes: int = 0,
) -> dict[str, Native]:
    """Time, peak and gradients of a plan in both lowerings, by their names.

    Args:
        native: where PyTorch's partitioner itself made the plan: it makes it again.
        inductor: how others are planned for the graph that Inductor is given: its ops are others.
        held_bytes: of memory that is taken besides.
    """
    implementations: dict[str, NativeRun | PlannedRun]
    if isinstance(native, CompiledRun):
        implementations = {AOT: native, INDUCTOR: replace(native, backend="inductor")}
    elif others := implementations_of(captured.graph, plan):
        op, implementation = others[0]
        reason = f"op {op} runs as {implementation}, which torch.compile's graph does not have"
        return dict.fromkeys((AOT, INDUCTOR), Native("not_applicable", reason))
    else:
        implementations = {
            AOT: PlannedRun(plan_of_halves(captured, plan), "eager"),
            INDUCTOR: inductor,
        }
    return {
        name: measure_native(captured, how, device, seed, repeats, held_bytes)
        for name, how in implementations.items()
    }


def plan_of_halves(captured: Captured, plan: Plan) -> Plan:
    """The computes of a plan as those of the graph that ``torch.compile`` hands its backend.

    That graph has the same ops by the same names, and one more, the border: it reads all results
    of the forward pass, and makes the gradient of the loss. What the plan first computes of them
    later is computed before it.
    """
    graph, tables = captured.graph, captured.graph.tables
    codes = plan.codes(graph)
    ops = tables.op_of[codes[codes >= 0]].tolist()
    begins = {value for value, kind in captured.kinds.items() if kind == "tangent"}
    reads = [op.implementations[0].reads for op in graph.ops]
    border = next((at for at, op in enumerate(ops) if begins.intersection(reads[op])), len(ops))
    needed = _needed(captured, (captured.loss, *captured.updates.values()))
    late = sorted(needed - set(ops[:border]))
    rest = ops[border:]
    for op in late:
        if op in rest:
            rest.remove(op)
    computes = [*(Compute(op.name) for op in graph.ops), Compute(BORDER)]
    order = [*ops[:border], *late, len(graph.ops), *rest]
    return Plan([computes[i] for i in order], graph.name, plan.strategy, plan.budget_bytes)


def _needed(captured: Captured, tensors: Iterable[str]) -> set[int]:
    """The ops that tensors are made by, and those before them."""
    graph, tables = captured.graph, captured.graph.tables
    found: set[int] = set()
    values = (captured.value_of[name] for name in tensors)
    ahead = [int(tables.writer[graph.value_index[value]]) for value in values]
    while ahead:
        op = ahead.pop()
        if op >= 0 and op not in found:
            found.add(op)
            inputs = graph.ops[op].implementations[0].reads
            ahead += [int(tables.writer[graph.value_index[value]]) for value in inputs]
    return found
