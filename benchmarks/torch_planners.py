"""PyTorch's partitioner beside our planners, on the same graphs, budgets and time.

``python -m benchmarks.torch_planners`` prints the table and writes
``runs/benchmarks/torch_planners.json`` and ``.md``; batches are such that every budget is at least
1.2 times the floor (U-Net, whose largest op takes a third of its peak, comes to 1.18 at 0.4). All
peaks and overheads are simulated, under one cost model (flops).
``torch_budget`` has every ratio and solver it gets to within the time limit; what it has found for
one budget it knows for the next, so that it never has less time than ours.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

from benchmarks.figures import RECORDS, Figure, publish
from rematbench import costmodel
from rematbench.base.errors import Infeasible, NotApplicable
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.anytime.planner import Anytime
from rematbench.strategies.base import Problem, Strategy
from rematbench.strategies.chen import ApGreedy, LinearizedGreedy
from rematbench.strategies.torch_budget import TorchBudget
from rematbench.strategies.torch_checkpoint import TorchCheckpoint
from rematbench.strategies.torch_knapsack import TorchKnapsack
from rematbench.tracing.captured import Captured
from rematbench.tracing.trace import capture
from rematbench.zoo import make_model

MODELS: dict[str, dict[str, Any]] = {
    "resnet50": {"batch_size": 128},
    "mobilenet_v2": {"batch_size": 64},
    "unet": {"batch_size": 32, "resolution": "416x608"},
    "densenet121": {"batch_size": 64},
    "vit_b_16": {"batch_size": 128},
    "transformer_lm": {"batch_size": 64},
}
BUDGETS = (0.8, 0.6, 0.5, 0.4)
OURS: dict[str, Strategy] = {
    "ap_greedy": ApGreedy(),
    "linearized_greedy": LinearizedGreedy(),
    "anytime": Anytime(),
}
THEIRS: dict[str, Strategy] = {
    "torch_budget": TorchBudget(),
    "torch_checkpoint": TorchCheckpoint(),
    "torch_selective": TorchCheckpoint(policy="contractions"),
    "torch_knapsack": TorchKnapsack(),
}


@dataclass(frozen=True)
class PlannedGraph:
    """One planner on one budget.

    Attributes:
        fraction: of checkpoint-all's simulated peak.
        over_floor: the budget over the graph's floor.
        overhead: simulated; None where there is no plan.
        smallest: the leanest peak that it found, as a fraction, where there is no plan.
        knob: of torch_budget: its ratio and solver.
        seconds: of planning.
    """

    model: str
    batch_size: int
    strategy: str
    fraction: float
    over_floor: float
    status: str
    overhead: float | None
    smallest: float | None
    knob: str | None
    seconds: float


def entry(
    name: str, strategy: Strategy, graph: Graph, captured: Captured, fraction: float, limit: float
) -> PlannedGraph:
    """Plan once."""
    base = simulate(graph, program_order(graph))
    budget = int(fraction * base.peak_bytes)
    began = perf_counter()
    overhead = smallest = knob = None
    try:
        found = strategy.plan(Problem(graph, budget, limit, 0, captured))
        assert found.plan is not None
        trace = simulate(graph, found.plan)
        assert trace.peak_bytes <= budget
        status, overhead = "ok", trace.cost / base.cost - 1
        if "ratio" in found.details:
            knob = f"{found.details['ratio']:g} {found.variant}"
    except Infeasible as error:
        status, peak = error.status, error.smallest_peak_found
        smallest = None if peak is None else peak / base.peak_bytes
    except NotApplicable:
        status = "not_applicable"
    return PlannedGraph(
        model=captured.workload.name,
        batch_size=MODELS.get(captured.workload.name, {}).get("batch_size", 0),
        strategy=name,
        fraction=fraction,
        over_floor=budget / graph.floor_bytes(),
        status=status,
        overhead=overhead,
        smallest=smallest,
        knob=knob,
        seconds=perf_counter() - began,
    )


def measure_model(name: str, budgets: Iterable[float], limit: float) -> list[PlannedGraph]:
    """Every planner at every budget."""
    captured = capture(make_model(name, **MODELS[name]))
    graph = costmodel.apply("flops", captured.graph, captured)
    found = []
    for fraction in budgets:
        for strategy, planner in (THEIRS | OURS).items():
            found.append(entry(strategy, planner, graph, captured, fraction, limit))
            print(_label(found[-1]), flush=True)
    return found


def _label(e: PlannedGraph) -> str:
    result = f"{e.overhead:+.2%}" if e.overhead is not None else f"{e.status} ({e.smallest})"
    return (
        f"{e.model:15} {e.fraction:.2f} ({e.over_floor:.1f} x floor) {e.strategy:18} {result:>10}"
        f"  {e.knob or '':32} {e.seconds:5.0f} s"
    )


def table(entries: list[PlannedGraph]) -> str:
    """Per model and budget: PyTorch's overheads, our best, and whose it is (Markdown)."""
    names = list(THEIRS)
    lines = [
        f"| model, batch | budget | x floor | {' | '.join(names)} | ours | by |",
        "|---|---|---|" + "---|" * len(names) + "---|---|",
    ]
    for here in _cases(entries):
        any_ = next(iter(here.values()))
        fitting = [here[n] for n in OURS if here[n].overhead is not None]
        best = min(fitting, key=lambda e: e.overhead or 0.0, default=None)
        cells = [
            f"{any_.model}, {any_.batch_size}",
            f"{any_.fraction:g}",
            f"{any_.over_floor:.1f}",
            *(_cell(here[name]) for name in names),
            *(_cell(best), best.strategy if best else "-"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cases(entries: list[PlannedGraph]) -> list[dict[str, PlannedGraph]]:
    """Entries by strategy, for each model and budget."""
    found: dict[tuple[str, float], dict[str, PlannedGraph]] = {}
    for each in entries:
        found.setdefault((each.model, each.fraction), {})[each.strategy] = each
    return list(found.values())


def _cell(found: PlannedGraph | None) -> str:
    if found is None:
        return "no plan"
    if found.overhead is not None:
        return f"{found.overhead:+.2%}"
    return f"no plan below {found.smallest:.2f}" if found.smallest else found.status


def summary(entries: list[PlannedGraph]) -> dict[str, int]:
    """How often PyTorch missed the budget, and how often it beat our best plan."""
    missed = worse = cases = ours_missed = 0
    for here in _cases(entries):
        ours = [e.overhead for n, e in here.items() if n in OURS and e.overhead is not None]
        theirs = here["torch_budget"].overhead
        cases += 1
        missed += theirs is None
        ours_missed += not ours
        worse += theirs is not None and (not ours or min(ours) > theirs * (1 + 1e-9) + 1e-12)
    return {
        "cases": cases,
        "torch_budget_missed": missed,
        "ours_missed": ours_missed,
        "torch_budget_cheaper": worse,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--budgets", nargs="+", type=float, default=list(BUDGETS))
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds per planner")
    given = parser.parse_args()
    entries: list[PlannedGraph] = []
    for name in given.models:
        entries += measure_model(name, given.budgets, given.time_limit)
        found = summary(entries)
        figures = [
            Figure("budgets that torch_budget misses", found["torch_budget_missed"], None, ""),
            Figure("budgets that ours miss", found["ours_missed"], 0, ""),
            Figure("budgets where torch_budget is cheaper", found["torch_budget_cheaper"], 0, ""),
        ]
        rows = [asdict(each) for each in entries]
        facts = {"time_limit": given.time_limit, "costmodel": "flops", "summary": found}
        publish("torch_planners", figures, **facts, entries=rows)  # so far
        text = ", ".join(f"{key} {count}" for key, count in found.items())
        words = f"{table(entries)}\n\n{text}; {given.time_limit:g} s per planner\n"
        (RECORDS / "torch_planners.md").write_text(words)
    print(words)


if __name__ == "__main__":
    main()
