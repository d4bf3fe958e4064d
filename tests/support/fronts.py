"""Both front ends, the plain trace and TorchDynamo, side by side."""

from __future__ import annotations

from rematbench.tracing import Captured, Workload, capture


def check_same_graph(workload: Workload) -> Captured:
    """Both make the same graph of a step: ops, sizes, reads, code, scopes, names of parameters."""
    plain, read = (capture(workload, front=front) for front in ("trace", "dynamo"))
    for one, other in zip(_facts(read), _facts(plain), strict=True):
        assert one == other, f"{one} != {other}"
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

    found, read = [], []
    for op in graph.ops:
        code = [str(call.target) for call in captured.code[op.name]["default"]]
        reads = numbers(op.implementations[0].reads)
        if code == ["aten.add.Tensor"]:  # it commutes
            reads.sort(key=str)
        shared = op.autograd_node is not None
        found.append((op.phase, op.scope, shared, [size[name] for name in op.writes], code))
        read.append(reads)
    ends = {**captured.gradients, **captured.updates}
    read.append(numbers(captured.value_of[tensor] for tensor in ends.values()))
    where = sorted((where, size[name]) for name, where in residents.items())
    return [found, read, list(ends), where]
