"""Both front ends, the plain trace and TorchDynamo, side by side."""

from __future__ import annotations

from rematbench.tracing import Captured, Workload, capture


def check_same_graph(workload: Workload) -> Captured:
    """Both make the same graph of a step, to its hash, with the same code, gradients and inputs."""
    plain, read = (capture(workload, front=front) for front in ("trace", "dynamo"))
    for one, other in zip(read.graph.ops, plain.graph.ops, strict=True):
        assert one == other
        assert _code(read, one.name) == _code(plain, one.name)
    assert read.graph == plain.graph
    assert read.graph.hash == plain.graph.hash
    assert (read.loss, read.gradients, read.updates) == (plain.loss, plain.gradients, plain.updates)
    assert _inputs(read) == _inputs(plain)
    return plain


def _code(captured: Captured, op: str) -> list[str]:
    return [str(call.target) for call in captured.code[op]["default"]]


def _inputs(captured: Captured) -> dict[str, tuple[str, object]]:
    return {each.tensor: (each.kind, each.target) for each in captured.residents}
