"""Planners that go on improving, on large and on odd graphs: overhead, gap, and when they end.

Part of ``python -m benchmarks.scale``. Times here are of the clock, since a time limit is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import perf_counter

from benchmarks.figures import Figure
from benchmarks.graphs import captured
from rematbench import costmodel
from rematbench.base.clock import OutOfTime, stopped_after
from rematbench.base.errors import Infeasible, NotApplicable
from rematbench.engines.warm_up import warm_up
from rematbench.graphs.builders.layered import random_layered
from rematbench.graphs.builders.synthetic import unit_chain, with_backward
from rematbench.graphs.ir import Graph, Phase, Value, simple_op
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem, Solution, Strategy
from rematbench.strategies.registry import make
from rematbench.tracing.alternatives import with_alternatives
from rematbench.tracing.captured import Captured

OURS = "anytime"
ANYTIME = (OURS, "hierarchical", "anytime_joint", "moccasin", "checkmate_rounding")
LIMITED = (*ANYTIME, "rockmate")
"""Planners that are given a time limit and must keep it."""
STOPPED = (
    *("monet", "checkmate_ilp", "checkmate_d", "checkmate_o", "sac_ilp"),
    *("kusumoto", "chain_dp", "xla_remat", "dtr", "coop"),
)
"""The others that may take long: each plans in a process of its own, which is stopped."""
SENTENCES = {"width": 256, "heads": 4, "sequence_length": 512, "vocabulary": 5000, "batch_size": 8}
DEEP = {48: 30.0, 192: 60.0}
"""Layers of ``transformer_lm``, 2,512 and 10,000 ops, and seconds for a plan."""
DEEP_GAP = 3.0
DEEP_OVERHEAD = {(48, 0.4): 4.7, (48, 0.25): 11.2, (192, 0.4): 3.55, (192, 0.25): 10.2}
LAYERED = {500: 20.0, 1000: 60.0}
"""Ops of random layered graphs, and seconds for a plan."""
LAYERED_OVERHEAD = {(500, 0.9): 0.7, (500, 0.8): 3.1, (1000, 0.9): 0.685, (1000, 0.8): 2.69}
"""Gaps and overheads at most, in %: what was asked for, else what was seen before."""
SIZES, SECONDS = (500, 2500, 10_000), 6.0
LATE, SHORT, QUICK = 2.0, 5.0, 1.0
"""Seconds that a planner may go on after its limit, and the limits on odd graphs."""
KILLED = 1.05
"""Seconds after the limit at which a process that does not end is killed, as a job does it."""

_KILLED = "it could not even be stopped in time, and was killed as a job does it"


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
def _transformer(layers: int) -> Captured:
    return captured("transformer_lm", layers=layers, **SENTENCES)


@cache
def transformer(layers: int) -> Graph:
    """``transformer_lm`` as PyTorch runs it, in FLOPs: 52 ops a layer."""
    found = _transformer(layers)
    return costmodel.apply("flops", found.graph, found)


def encodable(layers: int) -> Graph:
    """The same with the encodings that Gist chooses from."""
    found = with_alternatives(_transformer(layers), make("gist").kinds, None)
    return costmodel.apply("flops", found.graph, found)


ODD: dict[str, Callable[[], Graph]] = {
    "chain of 25,000 ops": partial(unit_chain, 12_500),
    "50,000 ops": partial(blocks, 50_000),
    "1,000 blocks": partial(blocks, 6_000),
    "costs of zero": partial(blocks, 500, 0.0),
}


def solved(name: str, graph: Graph, share: float, limit: float) -> tuple[Solution | str, float]:
    """A plan within a share of the peak, or why there is none; and the seconds that it took."""
    return planned(warm(name), graph, share, limit)


def warm(name: str) -> Strategy:
    """A strategy that has imported and compiled what it needs."""
    strategy = make(name)
    warm_up(strategy)
    return strategy


def planned(
    strategy: Strategy, graph: Graph, share: float, limit: float
) -> tuple[Solution | str, float]:
    """As :func:`solved`."""
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
            asked = {"gap": DEEP_GAP, "overhead": DEEP_OVERHEAD[layers, share]}
            title = f"transformer_lm of {layers} layers, {len(graph.ops)} ops, at {share}"
            yield from _against(title, graph, share, limit, asked)
    for (length, share), most in LAYERED_OVERHEAD.items():
        title = f"random layered graph of {length} ops at {share}"
        graph, limit = random_layered(length), LAYERED[length]
        yield from _against(title, graph, share, limit, {"overhead": most})


def _against(
    title: str, graph: Graph, share: float, limit: float, asked: Mapping[str, float]
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


def stopped(reasons: dict[str, str]) -> Iterator[Figure]:
    """The planners that may overrun: of blocks of all sizes, and on odd graphs."""
    for size in SIZES:
        yield from _apart("monet", f"{size:,} ops", partial(blocks, size), SECONDS, reasons)
    for what, make_graph in ODD.items():
        for name in STOPPED:
            for figure in _apart(name, what, make_graph, QUICK, reasons):
                if figure.name.endswith("past the limit"):
                    yield figure


def _apart(
    name: str, what: str, make_graph: Callable[[], Graph], limit: float, reasons: dict[str, str]
) -> list[Figure]:
    """A planner in a process of its own, since it may not end; stopped as a job stops it."""
    title = f"{name}: {what} in {limit:.0f} s"
    context = get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.large"])
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_alone, args=(name, title, make_graph, limit, theirs))
    process.start()
    theirs.close()
    figures: list[Figure] = []
    try:
        mine.recv()  # it begins
        began = perf_counter()
        why, seconds = _KILLED, 0.0
        if mine.poll(limit + KILLED):
            why, seconds, figures = mine.recv()
    except EOFError:
        why = "its process ended without an answer"
    process.kill()
    process.join()
    seconds = seconds or perf_counter() - began
    print(f"{title}: {seconds:.1f} s {why}", flush=True)
    if why:
        reasons[title] = why
    return [*figures, Figure(f"{title}: past the limit", max(0.0, seconds - limit), LATE, "s")]


def _alone(
    name: str, title: str, make_graph: Callable[[], Graph], limit: float, pipe: Connection
) -> None:
    """Plan, and tell why there is no plan, how long it took, and what the plan is worth."""
    graph, strategy, reasons = make_graph(), warm(name), dict[str, str]()
    pipe.send(None)
    began = perf_counter()
    found: Solution | str
    try:
        with stopped_after(limit):
            found, _ = planned(strategy, graph, 0.5, limit)
    except OutOfTime:
        found = "it did not end by itself in time, and was stopped as a job stops it"
    seconds = perf_counter() - began
    figures = judged(title, graph, found, reasons)
    pipe.send((reasons.get(title, ""), seconds, figures))
