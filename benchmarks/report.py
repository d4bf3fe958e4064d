"""The report of 10,000 rows: seconds and the main page's size, with and without plans to draw."""

from __future__ import annotations

import argparse
import itertools
import random
import tempfile
from pathlib import Path
from time import perf_counter

from benchmarks.figures import Figure, publish
from rematbench.engines.plans.stages import plan_with_checkpoints
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.files import write_bytes, write_graph, write_plan
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import simulate
from rematbench.jobs.job_files import trace_csv
from rematbench.report.collect import collect
from rematbench.report.pages.site import write_pages
from rematbench.rows.row import STATUSES, Row, make_row, write_leaderboard, write_row

STRATEGIES = (
    *("checkpoint_all", "chen_sqrt", "ap_sqrt", "linearized_greedy", "revolve", "feng_huang"),
    *("anytime", "checkmate_rounding", "dtr", "anytime_joint", "gist", "torch_budget"),
)
SWEEP = list(itertools.product(range(12), range(8), STRATEGIES, range(10, 101, 10)))
LENGTH = 100  # layers of the chain that each plan is of: 201 ops


def row(number: int) -> Row:
    """A row like those of a large sweep: hardly two numbers alike, a reason in three of ten."""
    dice = random.Random(number)
    model, batch, strategy, percent = SWEEP[number % len(SWEEP)]
    status = "ok" if dice.random() < 0.7 else dice.choice(STATUSES)
    cost, gap = dice.uniform(1e12, 3e12), dice.random() / 10
    facts = {
        "model": f"model_{model}",
        "batch_size": 2**batch,
        "resolution": "224",
        "graph_hash": f"{model * 8 + batch:016x}",
        "strategy": strategy,
        "variant": None,
        "budget_bytes": percent * 10**8,
        "budget_fraction": percent / 100,
        "status": status,
        "reason": None if status == "ok" else f"the leanest plan needs {dice.random()} bytes",
        "costmodel": "flops",
        "versions": "python 3.11.7; rematbench 0.1.0; torch 2.13.0",
        "utc": f"2026-11-21T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z",
        "extra": {"floor_bytes": 50, "curve": [{"knob": dice.random()} for _ in range(20)]},
    }
    numbers = {
        "cost": cost,
        "checkpoint_all_cost": 1e12,
        "overhead": cost / 1e12 - 1,
        "bound": cost * (1 - gap),
        "gap": gap,
        "peak_bytes": dice.randrange(percent * 10**8),
        "plan_seconds": dice.random(),
        "measured_peak_bytes": dice.randrange(10**10),
        "measured_seconds": dice.random(),
        "measured_overhead": dice.random(),
        "device": "NVIDIA H100 80GB HBM3",
    }
    return make_row(**facts, **(numbers if status == "ok" else {}))


def write_runs(folder: Path, count: int, plans: bool) -> None:
    """Run folders of ``count`` jobs, those with a plan with its files if ``plans``."""
    graph = unit_chain(LENGTH)
    files = [_files(graph, plan, folder / f".{i}") for i, plan in enumerate(_plans(graph))]
    for number in range(count):
        made = row(number)
        if plans and made["status"] == "ok":
            peak, contents = files[number % len(files)]
            made["peak_bytes"] = peak
            for name, content in contents.items():
                write_bytes(folder / str(number) / name, content)
        write_row(folder / str(number) / "row.json", made)


def _plans(graph: Graph) -> list[Plan]:
    checkpoints = [range(step, LENGTH, step) for step in range(2, 20)]
    return [program_order(graph), *(plan_with_checkpoints(graph, each) for each in checkpoints)]


def _files(graph: Graph, plan: Plan, folder: Path) -> tuple[int, dict[str, bytes]]:
    trace = simulate(graph, plan)
    write_graph(folder / "graph.json.gz", graph)
    write_plan(folder / "plan.json", plan)
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    return trace.peak_bytes, contents | {"trace.csv": trace_csv(plan, trace).encode()}


def measure(count: int, plans: bool) -> list[Figure]:
    """Write the report of ``count`` rows."""
    with tempfile.TemporaryDirectory() as name:
        runs, out = Path(name, "runs"), Path(name, "report")
        write_runs(runs, count, plans)
        began = perf_counter()
        collected = collect([runs])
        write_leaderboard(out / "leaderboard.csv", collected.rows)
        written = write_pages(collected, out)
        seconds = perf_counter() - began
        assert not written.problems, written.problems[0]
        size = written.index.stat().st_size / 1e6
    what = f"{count} rows, {written.row_pages} pages of their own"
    return [
        Figure(f"report of {what}", seconds, 60 if plans else 5, "s"),
        Figure(f"main page of {what}", size, 10, "MB"),
    ]


def main() -> None:
    """Print the figures, and keep them in ``runs/benchmarks/report.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    count = parser.parse_args().rows
    publish("report", [*measure(count, plans=False), *measure(count, plans=True)])


if __name__ == "__main__":
    main()
