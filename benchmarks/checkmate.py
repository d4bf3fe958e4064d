"""anytime: optima, gaps, seconds and memory at the sizes of the papers and of real models.

``python -m benchmarks.checkmate`` writes runs/benchmarks/checkmate.json. Graphs come from the zoo:
layer by layer as the papers have them, and op by op as PyTorch runs them. Each solve has the time
that was asked for as its limit, and stops at the gap that was.
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.figures import Figure, publish
from benchmarks.graphs import in_flops, layers
from rematbench.base.errors import Infeasible
from rematbench.engines.stages.relaxation import Relaxation, single_stages
from rematbench.engines.stages.space import Space
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import Trace, simulate
from rematbench.strategies.anytime.planner import Anytime
from rematbench.strategies.base import Problem, Solution
from rematbench.strategies.checkmate.published.paper_model import PaperModel, integrality_gap

MOST_GB = 4.0
LATE = 2.0
"""Seconds that a planner may go on after its time limit."""


@dataclass(frozen=True)
class Target:
    """What was asked of one budget, in %, of a graph.

    Attributes:
        fraction: of checkpoint-all's peak.
        seconds: the time limit.
        gap, overhead: at most, in %.
        first: seconds until there is a plan, at most.
    """

    fraction: float
    seconds: float
    gap: float = 0.01
    overhead: float | None = None
    first: float = 30.0


UNET = {"batch_size": 32, "resolution": "416x608"}
PAPERS: list[tuple[str, dict[str, Any], list[Target]]] = [
    ("vgg16", {"merged": True}, [Target(f, 5) for f in (0.84, 0.86, 0.9, 0.95)]),
    ("unet", {"merged": True, **UNET}, [Target(f, 60) for f in (0.42, 0.5, 0.6)]),
    ("mobilenet_v1", {}, [Target(0.3, 60, 0.2), Target(0.22, 120, 1.5)]),
    (
        "resnet50",
        {},
        [
            Target(0.5, 60, 0.3),
            Target(0.35, 60, 0.3),
            Target(0.2, 180, 1.5, overhead=5, first=10),
            Target(0.12, 300, 15, overhead=28),
        ],
    ),
    # Its floor is 0.199 of its peak, so that 0.12, which was asked for, has no plan.
    ("densenet161", {}, [Target(0.12, 180, 0.5), Target(0.24, 180, 0.5)]),
]
"""Layer by layer."""
HALF = 0.5
REAL: list[tuple[str, dict[str, Any], Target]] = [
    ("resnet50", {"batch_size": 64}, Target(HALF, 300, 3)),
    ("mobilenet_v2", {"batch_size": 64}, Target(HALF, 300, 3)),
    ("googlenet", {"batch_size": 64}, Target(HALF, 300, 3)),
    ("unet", {"batch_size": 4}, Target(HALF, 300, 3)),
    ("vit_b_16", {"batch_size": 32}, Target(HALF, 300, 3)),
    ("resnet152", {"batch_size": 32}, Target(HALF, 120, 5, first=120)),
    ("densenet161", {"batch_size": 32}, Target(HALF, 120, 5, first=120)),
]
"""Op by op; the first five have a plan in 30 s at every feasible budget, too."""
SWEPT = ("resnet50", "mobilenet_v2", "googlenet", "unet", "vit_b_16")
SWEEP = (0.9, 0.8, 0.7, 0.6, 0.4, 0.3, 0.2)
SHORT = 10.0
"""Seconds for a plan of the sweep, which stops at a gap of 5 %."""


@dataclass(frozen=True)
class Solved:
    """A solve: its solution, or why there is none; seconds by the clock; GB resident at most."""

    solution: Solution | None
    why: str
    seconds: float
    gigabytes: float


def solve(graph: Graph, budget: int, limit: float, gap: float) -> Solved:
    """Plan once."""
    gc.collect()
    forget_peak()
    began, found, why = perf_counter(), None, ""
    try:
        found = Anytime(gap=gap).plan(Problem(graph, budget, time_limit=limit))
    except Infeasible as error:
        why = str(error)
    return Solved(found, why, perf_counter() - began, peak_gigabytes())


def forget_peak() -> None:
    """Count this process's peak from now on, where Linux lets it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:  # then the peak is that of the process so far
        return


def peak_gigabytes() -> float:
    """Resident at most since :func:`forget_peak`."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def first_plan(solution: Solution, whole: float) -> float:
    """Seconds until there was one, of so many on the whole."""
    kept = solution.details.get("incumbents") or [(whole, 0.0, None)]
    return float(next(seconds for seconds, cost, _ in kept if cost is not None))


def judged(name: str, graph: Graph, everything: Trace, target: Target) -> Iterator[Figure]:
    """One budget against what was asked of it."""
    title = f"{name} at {target.fraction:g}"
    budget = int(target.fraction * everything.peak_bytes)
    if graph.floor_bytes() > budget:
        short = graph.floor_bytes() / budget
        yield Figure(f"{title}: floor / budget (above 1 there is no plan)", short, 1, "x")
        return
    done = solve(graph, budget, target.seconds, target.gap / 100)
    yield Figure(f"{title}: memory of the solve", done.gigabytes, MOST_GB, "GB")
    if done.solution is None or done.solution.bound is None:
        print(f"{title}: {done.why}")
        yield Figure(f"{title}: plans found", 0, 1, "plans", at_least=True)
        return
    cost = simulate(graph, done.solution.plan).cost
    over, gap = 100 * (cost / everything.cost - 1), 100 * (1 - done.solution.bound / cost)
    assert gap > -1e-7, f"{title}: its bound is above its plan's cost"
    yield Figure(f"{title}: overhead", over, target.overhead, "%")
    yield Figure(f"{title}: gap ({done.solution.bound_of})", gap, target.gap, "%")
    yield Figure(f"{title}: seconds", done.seconds, target.seconds, "s")
    yield Figure(f"{title}: past the time limit", max(0, done.seconds - target.seconds), LATE, "s")
    yield Figure(f"{title}: first plan", first_plan(done.solution, done.seconds), target.first, "s")


def sweep(name: str, graph: Graph, everything: Trace) -> Iterator[Figure]:
    """Every budget of a row of them that may have a plan: how many have one, and when."""
    budgets = [int(f * everything.peak_bytes) for f in SWEEP]
    feasible = [budget for budget in budgets if graph.floor_bytes() <= budget]
    proven, firsts, sizes = 0, [], []
    for budget in feasible:
        done = solve(graph, budget, SHORT, 0.05)
        sizes.append(done.gigabytes)
        if done.solution is not None:
            firsts.append(first_plan(done.solution, done.seconds))
        else:
            print(f"{name} at {budget / everything.peak_bytes:.2f}: {done.why}")
            proven += "has no plan" in done.why
    title = f"{name}, {len(feasible)} budgets above its floor"
    missing = len(feasible) - len(firsts)
    yield Figure(f"{title}: without a plan, not proven to have none", missing - proven, 0, "")
    yield Figure(f"{title}: slowest first plan", max(firsts, default=0.0), 30, "s")
    yield Figure(f"{title}: most memory of a solve", max(sizes, default=0.0), MOST_GB, "GB")


def verbatim() -> Iterator[Figure]:
    """Problem (9) as printed, on the paper's chain and on 353 ops."""
    chain = unit_chain(8)
    began = perf_counter()
    best = Anytime(gap=0.0).plan(Problem(chain, 4))
    optimum = simulate(chain, best.plan).cost
    partitioned = integrality_gap(chain, 4, optimum=optimum)
    unpartitioned = integrality_gap(chain, 4, partitioned=False, optimum=optimum)
    spent = perf_counter() - began
    yield Figure("chain of 8: optimum", optimum, 26, "ops")
    yield Figure("chain of 8: gap of (9), less 1.1818", abs(partitioned - 1.1818), 1e-3, "")
    yield Figure("chain of 8: gap of (1), less 21.557", abs(unpartitioned - 21.557), 1e-3, "")
    yield Figure("chain of 8: all three", spent, 2, "s")
    graphs: Sequence[tuple[str, Callable[[], Graph]]] = [
        ("chain", lambda: unit_chain(176)),
        ("resnet50", lambda: layers("resnet50", batch_size=32)),
    ]
    for name, make in graphs:
        graph = make()
        budget = simulate(graph, program_order(graph)).peak_bytes // 2
        gc.collect()
        forget_peak()
        before, began = peak_gigabytes(), perf_counter()
        PaperModel(graph, budget, most=400)
        built, title = perf_counter() - began, f"{name}, {len(graph.ops)} ops"
        yield Figure(f"{title}: building (9) in Pyomo", built, 30, "s")
        yield Figure(f"{title}: memory of (9)", peak_gigabytes() - before, 1, "GB")
        space = Space.reduced(graph)
        began = perf_counter()
        Relaxation(space, budget, single_stages(space))
        built = perf_counter() - began
        yield Figure(f"{title}: building F with rows on demand", built, 4, "s")


def main() -> None:
    """Run it all; print a table."""
    Anytime().warm_up()
    figures = list(verbatim())
    for name, options, targets in PAPERS:
        graph = layers(name, **{"batch_size": 32, **options})
        everything = simulate(graph, program_order(graph))
        for target in targets:
            title = f"{name}, {len(graph.ops)} layers and gradients,"
            figures += judged(title, graph, everything, target)
        publish("checkmate", figures)  # so far
    for name, options, target in REAL:
        graph = in_flops(name, **options)
        everything = simulate(graph, program_order(graph))
        title = f"{name}, {len(graph.ops)} ops,"
        figures += judged(title, graph, everything, target)
        if name in SWEPT:
            figures += sweep(title, graph, everything)
        publish("checkmate", figures)  # so far
    publish("checkmate", figures)


if __name__ == "__main__":
    main()
