"""Graphs for plans with copies; and every such plan of a tiny one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rematbench.graphs.builders.synthetic import unit_chain, with_backward
from rematbench.graphs.ir import Graph, Phase, Value, simple_op
from rematbench.graphs.link import Link
from rematbench.graphs.plan import Offload, Plan


@dataclass(frozen=True)
class Label:
    """A prefix of a plan: what is where, and when."""

    live: frozenset[int]
    hosted: frozenset[int]
    done: frozenset[int]
    clock: tuple[float, float, float]
    ready: tuple[float, ...]
    sent: tuple[float, ...]
    whole: tuple[float, ...]

    @property
    def times(self) -> tuple[float, ...]:
        return (*self.clock, *self.ready, *self.sent, *self.whole)


def is_there_a_better_plan(graph: Graph, budget: int, link: Link, cost: float) -> bool:
    """Exhaustive search for a plan, in any order, that is done before ``cost``.

    Nothing is dropped (there is no limit of the host); labels that another one dominates are cut.
    """
    count = len(graph.values)
    size = [v.bytes for v in graph.values]
    ops = [(n, op.implementations[0].cost, graph.tables.inputs[n].tolist(),
            graph.tables.writes[n].tolist()[0]) for n, op in enumerate(graph.ops)]  # fmt: skip
    outputs = set(graph.tables.outputs.tolist())
    zero = (0.0,) * count
    empty = frozenset[int]()
    stack = [Label(empty, empty, empty, (0.0, 0.0, 0.0), zero, zero, zero)]
    seen: dict[object, list[tuple[float, ...]]] = {}

    def put(times: tuple[float, ...], v: int, time: float) -> tuple[float, ...]:
        return (*times[:v], time, *times[v + 1 :])

    def visit(label: Label) -> None:
        rest = sum(op[1] for op in ops if op[0] not in label.done)
        if label.clock[0] + rest >= cost - 1e-9:
            return
        key = label.live, label.hosted, label.done
        known = seen.setdefault(key, [])
        times = label.times
        if any(all(a <= b for a, b in zip(one, times, strict=True)) for one in known):
            return
        known[:] = [k for k in known if not all(b <= a for a, b in zip(k, times, strict=True))]
        known.append(times)
        stack.append(label)

    while stack:
        at = stack.pop()
        c, o, i = at.clock
        if at.times not in seen.get((at.live, at.hosted, at.done), [at.times]):
            continue
        ended = outputs <= at.live and len(at.done) == len(ops)
        if ended and max([c, *(at.ready[v] for v in outputs)]) < cost - 1e-9:
            return True
        held = sum(size[v] for v in at.live)
        for n, takes, reads, v in ops:
            if v not in at.live and set(reads) <= at.live and held + size[v] <= budget:
                end = max([c, *(at.ready[r] for r in reads)]) + takes
                visit(Label(at.live | {v}, at.hosted, at.done | {n}, (end, o, i),
                            put(at.ready, v, end), put(at.sent, v, 0.0), at.whole))  # fmt: skip
        for v in at.live:
            after = max(c, at.ready[v], at.sent[v])
            visit(Label(at.live - {v}, at.hosted, at.done, (after, o, i),
                        put(at.ready, v, 0.0), put(at.sent, v, 0.0), at.whole))  # fmt: skip
            if v not in at.hosted:
                end = max(o, at.ready[v]) + link.copy_out(size[v])
                both = end if link.shared else i
                visit(Label(at.live, at.hosted | {v}, at.done, (c, end, both), at.ready,
                            put(at.sent, v, end), put(at.whole, v, end)))  # fmt: skip
        for v in at.hosted - at.live:
            if held + size[v] <= budget:
                end = max(i, c, at.whole[v]) + link.copy_in(size[v])
                both = end if link.shared else o
                visit(Label(at.live | {v}, at.hosted, at.done, (c, both, end),
                            put(at.ready, v, end), put(at.sent, v, 0.0), at.whole))  # fmt: skip
    return False


def chain(sizes: list[int], costs: list[float]) -> Graph:
    """A chain of layers with sizes and costs, its loss and gradients."""
    base = unit_chain(len(sizes))
    bytes_ = [*sizes, 1, *reversed(sizes)]
    time = [*costs, 1.0, *(2 * c for c in reversed(costs))]
    values = tuple(Value(v.name, b) for v, b in zip(base.values, bytes_, strict=True))
    ops = tuple(
        simple_op(op.name, op.phase, list(op.implementations[0].reads), list(op.writes), cost)
        for op, cost in zip(base.ops, time, strict=True)
    )
    return Graph("chain", values, ops, base.outputs)


def scoped(blocks: int = 3) -> Graph:
    """Blocks of a product and an activation, with backward."""
    values, ops, last = [Value("x", 2000, resident=True)], [], "x"
    for n in range(blocks):
        for kind in ("mm", "gelu"):
            name = f"b{n}_{kind}"
            values.append(Value(name, 2000))
            op = simple_op(name, Phase.FORWARD, [last], [name], 2.0)
            target = f"aten.{kind}.default"
            ops.append(replace(op, scope=f"layers.{n}.{kind}", target=target))
            last = name
    return with_backward(Graph("scoped", tuple(values), tuple(ops), (last,)))


def offloaded(plan: Plan | None) -> list[str]:
    assert plan is not None
    return [s.value for s in plan.statements if isinstance(s, Offload)]
