"""Planners that go on improving, on large and on odd graphs: overhead, gap, and when they end.

Part of ``python -m benchmarks.scale``. Times here are of the clock, since a time limit is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from time import perf_counter

from benchmarks.figures import Figure
from benchmarks.graphs import in_flops
from rematbench.graphs.errors import Infeasible, NotApplicable
from rematbench.graphs.ir import Graph, Phase, Value, simple_op
from rematbench.graphs.layered import random_layered
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.graphs.synthetic import unit_chain, with_backward
from rematbench.strategies.base import Problem, Solution, SupportsWarmUp
from rematbench.strategies.registry import make

OURS = "anytime"
ANYTIME = (OURS, "hierarchical", "anytime_joint", "moccasin", "checkmate_rounding")
LIMITED = (*ANYTIME, "rockmate")
"""Planners that are given a time limit and must keep it."""
SENTENCES = {"width": 256, "heads": 4, "sequence_length": 512, "vocabulary": 5000, "batch_size": 8}
DEEP = {48: 30.0, 192: 60.0}
"""Layers of ``transformer_lm``, 2,512 and 10,000 ops, and seconds for a plan."""
DEEP_GAP, DEEP_OVERHEAD = 3.0, {(48, 0.4): 4.7}
"""At most, in %."""
LAYERED, LAYERED_SECONDS = (500, 1000), 20.0
SIZES, SECONDS = (500, 2500, 10_000), 6.0
LATE, SHORT = 2.0, 5.0
"""Seconds that a planner may go on after its limit, and the limit on odd graphs."""


def blocks(ops: int, cost: float = 1.0) -> Graph:
    """A training step of about so many ops: blocks of three forward ops, with a skip."""
    values, forward, before = [Value("x", 5, resident=True)], [], "x"
    for i in range(ops // 6):
        a, b, c = (f"{letter}{i}" for letter in "abc")
        values += [Value(a, 10), Value(b, 20), Value(c, 10)]
        forward.append(simple_op(a, Phase.FORWARD, [before], [a], 3 * cost))
        forward.append(simple_op(b, Phase.FORWARD, [a], [b], cost))
        forward.append(simple_op(c, Phase.FORWARD, [b, before], [c], 2 * cost))
        before = c
    return with_backward(Graph(f"blocks{ops}", tuple(values), tuple(forward), (before,)))


@cache
def transformer(layers: int) -> Graph:
    """``transformer_lm`` as PyTorch runs it, in FLOPs: 52 ops a layer."""
    return in_flops("transformer_lm", layers=layers, **SENTENCES)


ODD: dict[str, Callable[[], Graph]] = {
    "chain of 25,000 ops": lambda: unit_chain(12_500),
    "50,000 ops": partial(blocks, 50_000),
    "1,000 blocks": partial(blocks, 6_000),
    "costs of zero": partial(blocks, 500, 0.0),
}


def solved(name: str, graph: Graph, share: float, limit: float) -> tuple[Solution | str, float]:
    """A plan within a share of the peak, or why there is none; and the seconds that it took."""
    strategy = make(name)
    if isinstance(strategy, SupportsWarmUp):
        strategy.warm_up()
    budget = int(share * simulate(graph, program_order(graph)).peak_bytes)
    began = perf_counter()
    found: Solution | str
    try:
        found = strategy.plan(Problem(graph, budget, time_limit=limit))
    except (Infeasible, NotApplicable) as error:
        found = str(error)
    return found, perf_counter() - began


def judged(
    title: str, graph: Graph, found: Solution | str, reasons: dict[str, str]
) -> list[Figure]:
    """Overhead and gap, by the simulator; without a plan, its reason goes to ``reasons``."""
    if isinstance(found, str):
        reasons[title] = found
        return []
    cost = simulate(graph, found.plan).cost
    least = simulate(graph, program_order(graph)).cost
    if not cost:
        return []
    figures = [Figure(f"{title}: overhead", 100 * (cost / least - 1), None, "%")]
    if found.bound is not None:
        gap = 100 * (1 - found.bound / cost)
        figures.append(Figure(f"{title}: gap ({found.bound_of})", gap, None, "%"))
    return figures


def quality() -> Iterator[Figure]:
    """Our own search where solvers of integer programs have long given up."""
    for layers, limit in DEEP.items():
        graph = transformer(layers)
        for share in (0.4, 0.25):
            asked = {"gap": DEEP_GAP, "overhead": DEEP_OVERHEAD.get((layers, share))}
            title = f"transformer_lm of {layers} layers, {len(graph.ops)} ops, at {share}"
            yield from _against(title, graph, share, limit, asked)
    for length in LAYERED:
        for share in (0.9, 0.8):
            title = f"random layered graph of {length} ops at {share}"
            yield from _against(title, random_layered(length), share, LAYERED_SECONDS, {})


def _against(
    title: str, graph: Graph, share: float, limit: float, asked: dict[str, float | None]
) -> Iterator[Figure]:
    found, seconds = solved(OURS, graph, share, limit)
    title = f"{title}, {limit:.0f} s"
    reasons: dict[str, str] = {}
    for figure in judged(title, graph, found, reasons):
        what = figure.name.removeprefix(f"{title}: ").split()[0]
        yield Figure(figure.name, figure.value, asked.get(what), figure.unit)
    if reasons:
        print(f"{title}: {reasons[title]}")
        yield Figure(f"{title}: plans found", 0, 1, "", at_least=True)
    yield Figure(f"{title}: past the time limit", max(0.0, seconds - limit), LATE, "s")


def by_size(reasons: dict[str, str]) -> Iterator[Figure]:
    """Each planner to 10,000 ops, or to the reason that it states."""
    for name in ANYTIME:
        for size in SIZES:
            graph = blocks(size)
            found, seconds = solved(name, graph, 0.5, SECONDS)
            title = f"{name}: {len(graph.ops)} ops in {SECONDS:.0f} s"
            print(f"{title}: {seconds:.1f} s", flush=True)
            yield from judged(title, graph, found, reasons)
            yield Figure(f"{title}: past the limit", max(0.0, seconds - SECONDS), LATE, "s")


def odd(reasons: dict[str, str]) -> Iterator[Figure]:
    """Each planner that has a time limit ends by it, on graphs at the edge of what is allowed."""
    for what, make_graph in ODD.items():
        graph = make_graph()
        for name in LIMITED:
            found, seconds = solved(name, graph, 0.5, SHORT)
            title = f"{name}: {what} in {SHORT:.0f} s"
            print(f"{title}: {seconds:.1f} s", flush=True)
            judged(title, graph, found, reasons)  # the simulator accepts it, or it has a reason
            yield Figure(f"{title}: past the limit", max(0.0, seconds - SHORT), LATE, "s")
