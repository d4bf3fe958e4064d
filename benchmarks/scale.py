"""Time and memory of planners, of the simulator, of files and of pages, against ops.

``python -m benchmarks.scale [NAME ...]`` measures them on chains of blocks with a skip, of 500 to
10,000 ops (what people do by hand on a captured transformer), and writes
runs/benchmarks/scale.json and, of all, runs/benchmarks/scale.png, a panel for each. Exponents are
of n log n, whose own is 1. Seconds are the processor's; memory is what the process grew by at
most. Planners that go on improving until a time limit are measured by :mod:`benchmarks.large`.
"""

from __future__ import annotations

import gc
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import process_time

import numpy as np

from benchmarks.figures import RECORDS, Figure, publish
from benchmarks.large import (
    OURS,
    SECONDS as LIMIT,
    blocks,
    by_size,
    encodable,
    odd,
    quality,
    stopped,
    transformer,
)
from benchmarks.report import row
from rematbench.base.errors import Infeasible
from rematbench.engines.warm_up import warm_up
from rematbench.graphs.files import read_graph, read_plan, write_graph, write_plan
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.jobs.job_files import trace_csv
from rematbench.report.collect import collect
from rematbench.report.pages.site import write_pages
from rematbench.rows.row import write_row
from rematbench.strategies.base import Problem
from rematbench.strategies.registry import make

SIZES = (500, 1000, 2500, 5000, 10_000)
STRATEGIES = (
    *("ap_sqrt", "ap_greedy", "ap_revolve", "linearized_sqrt", "linearized_greedy", "chain_dp"),
    *("feng_huang", "random_checkpoints", "kusumoto", "dtr", "coop", "gist", "xla_remat"),
    *("rockmate", "hierarchical"),
)
PRACTICES = ("every_layer", "every_n_layers", "selective_ops", "selective_attention", "save_dots")
LAYERS = (12, 48, 192)
"""Of the transformer that Gist and the practices plan for: 640, 2,512 and 10,000 ops."""
OPTIONS = {"hierarchical": {"polish": False}}
"""Anytime search would take all the time there is."""
SHARE, SECONDS = 0.5, 60.0
SHARES = {"gist": 0.95}
"""It encodes, which saves little of a Transformer; nothing runs again."""
ENOUGH = 8.0
"""CPU seconds after which no larger size is tried."""
SHORT = 1.0
"""CPU seconds under which a call is repeated."""
MEGABYTE = 1.0
MOST_EXPONENT = 1.35
"""Of n log n, with the noise of small sizes."""
REASONS = {
    "ap_revolve": "s snapshots need about n^(1 + 1/s) computations, and each is in the plan",
    "chain_dp": "its table has an entry per pair of stages",
    "coop": "each eviction looks at all addresses",
    "dtr": "each eviction looks at all that is evictable, and its e* are sets of all storages",
    "kusumoto": "its program is over pairs of lower sets",
    "xla_remat": "each block to compute again is the best of all that have run",
    "rockmate": "its table has an entry per pair of blocks",
    "every_n_layers": "it tries a plan per repeated block, and blocks grow with the ops",
}
"""Why some grow faster: it is what their papers do."""


def planner(name: str, graph: Graph) -> Callable[[], object]:
    """Planning within a share of the peak; a fixed rule has none."""
    strategy = make(name, **OPTIONS.get(name, {}))
    warm_up(strategy)
    budget = int(SHARES.get(name, SHARE) * simulate(graph, program_order(graph)).peak_bytes)
    limit = budget if strategy.traits.budgeted or name not in PRACTICES else None
    return lambda: strategy.plan(Problem(graph, limit, time_limit=SECONDS))


def simulation(graph: Graph) -> Callable[[], object]:
    """A hundred simulations."""
    plan = program_order(graph)
    return lambda: [simulate(graph, plan) for _ in range(100)]


def files(graph: Graph) -> Callable[[], object]:
    """A graph and a plan, written and read."""

    def run() -> None:
        with tempfile.TemporaryDirectory() as name:
            one, other = Path(name, "a.graph.json.gz"), Path(name, "a.plan.json")
            write_graph(one, graph)
            write_plan(other, program_order(graph))
            read_graph(one), read_plan(other)

    return run


def page(graph: Graph) -> Callable[[], object]:
    """The report of one row, with its own page and picture."""
    plan = program_order(graph)
    trace = simulate(graph, plan)

    def run() -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name, "runs", "0")
            folder.mkdir(parents=True)
            write_graph(folder / "graph.json.gz", graph)
            write_plan(folder / "plan.json", plan)
            (folder / "trace.csv").write_text(trace_csv(plan, trace))
            sizes = dict.fromkeys(("peak_bytes", "budget_bytes"), trace.peak_bytes)
            write_row(folder / "row.json", row(1) | sizes | {"status": "ok"})
            written = write_pages(collect([folder.parent]), Path(name, "report"))
            assert not written.problems, written.problems[0]

    return run


ALL: dict[str, Callable[[Graph], Callable[[], object]]] = {
    "100 simulations": simulation,
    "graph and plan files": files,
    "page of a row": page,
    **{name: partial(planner, name) for name in (*STRATEGIES, *PRACTICES)},
}


def grown(run: Callable[[], object]) -> tuple[float, float]:
    """Processor seconds of a call, and megabytes that the process grew by at most (Linux).

    A short call is made three times, and the fastest counts: one garbage collection of all that
    the process holds would take longer than the call itself.
    """
    Path("/proc/self/clear_refs").write_text("5")  # forget the highest so far
    before, seconds = _memory("VmRSS"), _seconds(run)
    memory = max(0.1, _memory("VmHWM") - before)
    if seconds < SHORT:
        seconds = min(seconds, _seconds(run), _seconds(run))
    return max(1e-3, seconds), memory


def _seconds(run: Callable[[], object]) -> float:
    gc.collect()
    began = process_time()
    run()
    return process_time() - began


def _memory(field: str) -> float:
    """A line of the process's status, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(field)) / 1e3


def measured(name: str, refused: dict[str, str]) -> tuple[list[int], list[float], list[float]]:
    """Ops, seconds and megabytes at each size; where there is no plan, the reason instead."""
    found: tuple[list[int], list[float], list[float]] = ([], [], [])
    for first, graph in _graphs(name):
        run = ALL[name](graph)
        try:
            figures = grown(run)
        except Exception as error:  # the others are measured all the same
            refused[f"{name}: {len(graph.ops)} ops"] = f"{type(error).__name__}: {error}"
            if isinstance(error, Infeasible):
                continue
            break
        if first:  # what compiles, or is imported
            continue
        print(f"{name} at {len(graph.ops)}: {figures[0]:.3f} s, {figures[1]:.1f} MB", flush=True)
        for each, value in zip(found, (len(graph.ops), *figures), strict=True):
            each.append(value)  # type: ignore[arg-type]
        if figures[0] > ENOUGH:
            break
    return found


def _graphs(name: str) -> Iterator[tuple[bool, Graph]]:
    """Of growing sizes; the first is to warm up."""
    if name in (*PRACTICES, "gist"):
        of = encodable if name == "gist" else transformer
        yield from ((i == 0, of(layers)) for i, layers in enumerate((2, *LAYERS)))
    else:
        yield from ((i == 0, blocks(size)) for i, size in enumerate((60, *SIZES)))


def slope(ops: list[int], found: list[float], least: float = 0.0) -> float:
    """The exponent of n log n that fits best; of too little, none.

    Args:
        least: what is above it counts: of memory, more than the allocator has at hand.
    """
    sizes = np.array(ops, dtype=float)
    known = (np.array(found) > least) & (sizes > SIZES[0] * 1.5)
    if known.sum() < 2 + (least > 0):
        return float("nan")
    grown_by = np.log(sizes[known] * np.log(sizes[known]))
    return float(np.polyfit(grown_by, np.log(np.array(found)[known]), 1)[0])


def draw(
    curves: dict[str, tuple[list[int], list[float], list[float]]], figures: list[Figure]
) -> None:
    """A panel each, CPU seconds against ops beside n log n; of our own search, its gaps."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(-(-(len(curves) + 1) // 4), 4, figsize=(13, 17), sharex=True)
    for axis, (name, (ops, seconds, _)) in zip(axes.flat, curves.items(), strict=False):
        fitted = slope(ops, seconds)
        ideal = np.array(ops) * np.log(ops)
        axis.plot(ops, seconds[0] * ideal / ideal[0], color="0.7", linestyle="--")
        axis.plot(ops, seconds, marker="o")
        grows = f"\nas (n log n)^{fitted:.2f}" if np.isfinite(fitted) else "\n"
        axis.set(title=name + grows, xscale="log", yscale="log")
    last = axes.flat[len(curves)]
    last.plot(*_gaps(figures), marker="o", color="C3")
    last.set(title=f"{OURS} in {LIMIT:.0f} s\ngap to its bound, %", xscale="log", ylim=(0, None))
    for axis in axes.flat[len(curves) + 1 :]:
        axis.set_axis_off()
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    figure.supxlabel("ops")
    figure.supylabel("CPU seconds (dashed: n log n from the first point)")
    figure.tight_layout()
    figure.savefig(RECORDS / "scale.png", dpi=80)
    plt.close(figure)


def _gaps(figures: list[Figure]) -> tuple[list[int], list[float]]:
    """Ops, and the gaps of our own search in percent."""
    pattern = rf"{OURS}: (\d+) ops in .*: gap .*"
    known = [(re.fullmatch(pattern, each.name), each.value) for each in figures]
    found = [(int(match[1]), gap) for match, gap in known if match]
    return [ops for ops, _ in found], [gap for _, gap in found]


def figures_of(
    name: str, ops: list[int], seconds: list[float], memory: list[float]
) -> list[Figure]:
    """Of one curve: the last point, and both exponents; no bound where there is a reason."""
    most = None if name in REASONS else MOST_EXPONENT
    found = [
        (f"{name}: {ops[-1]} ops", seconds[-1], SECONDS + 2, "CPU s"),
        (f"{name}: exponent of time, of n log n", slope(ops, seconds), most, ""),
        (f"{name}: exponent of memory, of n log n", slope(ops, memory, MEGABYTE), most, ""),
    ]
    return [Figure(*each) for each in found if np.isfinite(each[1])]


def main() -> None:
    """Run it all; print a table."""
    chosen = sys.argv[1:] or list(ALL)
    refused: dict[str, str] = {}
    curves = {name: curve for name in chosen if (curve := measured(name, refused))[0]}
    figures = [each for name, curve in curves.items() for each in figures_of(name, *curve)]
    if not sys.argv[1:]:
        figures += [*quality(), *by_size(refused), *odd(refused), *stopped(refused)]
        draw(curves, figures)
    reasons = {name: why for name, why in REASONS.items() if name in curves}
    publish("scale", figures, reasons=reasons, without_a_plan=refused)


if __name__ == "__main__":
    main()
