"""Both front ends, the plain trace and TorchDynamo, side by side."""

from __future__ import annotations

from rematbench.tracing import Captured, Workload, capture


def check_same_graph(workload: Workload) -> Captured:
    """Both make the same graph of a step: ops, sizes, reads, code, scopes, names of parameters."""
    plain, read = (capture(workload, front=front) for front in ("trace", "dynamo"))
    assert _facts(read) == _facts(plain)
    return plain


def _facts(captured: Captured) -> list[object]:
    """A graph without the names of its values: the sum of a tied weight's gradients has several."""
    graph = captured.graph
    residents = {captured.value_of[r.tensor]: (r.kind, r.target) for r in captured.residents}
    number: dict[str, object] = dict(residents)
    for op in graph.ops:
        number |= {name: len(number) + i for i, name in enumerate(op.writes)}
    size = {value.name: value.bytes for value in graph.values}

    def numbers(names: object) -> list[object]:
        return [number[name] for name in names]  # type: ignore[attr-defined]

    found: list[object] = [
        (
            *(op.phase, op.scope, [size[name] for name in op.writes]),
            [numbers(way.reads) for way in op.implementations],
            [str(call.target) for call in captured.code[op.name]["default"]],
        )
        for op in graph.ops
    ]
    ends = {"gradients": captured.gradients, "updates": captured.updates}
    for what, tensors in ends.items():
        values = numbers(captured.value_of[tensor] for tensor in tensors.values())
        found.append((what, dict(zip(tensors, values, strict=True))))
    return [*found, sorted((where, size[name]) for name, where in residents.items())]
