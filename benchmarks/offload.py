"""Keep, recompute or offload: `hybrid` beside recomputation alone, POFO, torchtitan and its bound.

``python -m benchmarks.offload`` runs all parts, ``--only PART ...`` some (the record keeps what it
has of the others, and says of which commit and load each part is). Planners have seconds of the
processor, on one thread, so that other work on the machine changes nothing but the last part:

- ``pofo``: its own setting, chains of a V100's roofline with 12 GB/s;
- ``networks``: those of ``experiment=leaderboard_offload`` at 25, 55 and 450 GB/s;
- ``large``: 10,000 ops;
- ``simulation``: statements per second;
- ``executed``: ten networks on this CPU, links of 1 and 5 GB/s, costs profiled just before.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any, cast

import numpy as np
import torch
from omegaconf import OmegaConf

from benchmarks.figures import LOAD, Figure, commit, publish, record_of
from benchmarks.graphs import captured
from benchmarks.large import SENTENCES, warm
from rematbench import costmodel
from rematbench.base.errors import Infeasible, NotApplicable
from rematbench.costmodel.device import random_state_bytes
from rematbench.graphs.ir import Graph
from rematbench.graphs.link import Link
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.rows.provenance import HOUSE, now
from rematbench.strategies.base import Problem, Solution
from rematbench.tracing.captured import Captured
from rematbench.tracing.trace import capture
from rematbench.validator.check import Validator
from rematbench.validator.timing import Timing
from rematbench.zoo import make_model

SECONDS = 10.0
"""Of a planner, on one thread: the issue allows two minutes on two."""
LARGE_SECONDS, LAYERS = 60.0, 192
"""Of a planner for 10,000 ops, ``transformer_lm`` of so many layers; asked for five minutes."""
POFO = ("resnet50", "densenet121", "inception_v3")
GB = 1e9
POFO_LINK = 12.0
BUDGETS = (0.5, 0.35)
LINKS = (25.0, 55.0, 450.0)
TIE = 1 + 1e-9
EXECUTED_LINKS = (1.0, 5.0)
EXECUTED_BUDGET = 0.6
SHORTEST = 0.01
"""Share of a step that compute waits at least, as simulated, where waiting is compared."""


@dataclass(frozen=True)
class Tried:
    """A planner's plan of a problem.

    Attributes:
        cost: makespan; infinite where there is no plan.
        gap: to its bound, relatively; infinite without.
        least: cost of ordinary training.
    """

    cost: float
    gap: float
    least: float

    @property
    def overhead(self) -> float:
        """Over ordinary training."""
        return self.cost / self.least - 1

    @property
    def least_overhead(self) -> float:
        """Over ordinary training, of every plan: by the bound."""
        return max(0.0, self.cost * (1 - self.gap) / self.least - 1)


def tried(name: str, graph: Graph, share: float, link: Link, seconds: float = SECONDS) -> Tried:
    """A strategy's plan within a share of ordinary training's peak, as simulated."""
    base = simulate(graph, program_order(graph))
    budget = int(share * base.peak_bytes)
    try:
        found = warm(name).plan(Problem(graph, budget, time_limit=seconds, link=link))
    except (Infeasible, NotApplicable) as error:
        print(f"  {name} at {share:g}: {error}", flush=True)
        return Tried(inf, inf, base.cost)
    assert found.plan is not None
    trace = simulate(graph, found.plan, link)
    assert trace.peak_bytes <= budget
    gap = inf if found.bound is None else 1 - found.bound / trace.cost
    print(f"  {name} at {share:g}: +{trace.cost / base.cost - 1:.2%}, gap {gap:.2%}", flush=True)
    return Tried(trace.cost, gap, base.cost)


def _roofline(preset: str, name: str, **options: Any) -> Graph:
    """A network's step in seconds, as a GPU's roofline has them."""
    found = captured(name, **options)
    return costmodel.apply("roofline", found.graph, found, preset=preset)


def _link(rate: float) -> Link:
    """So many gigabytes per second both ways, for costs in seconds."""
    return Link(rate * GB, rate * GB)


def pofo() -> Iterator[Figure]:
    """POFO's setting: ours beside recomputation alone, POFO's plan, and what the bound allows."""
    ratios, least, slower = [], [], 0
    for name in POFO:
        graph = _roofline("v100", name, batch_size=16, resolution=500)
        print(f"{name}: {len(graph.ops)} ops", flush=True)
        for share in (0.7, *BUDGETS):
            ours = tried("hybrid", graph, share, _link(POFO_LINK))
            alone = tried("anytime", graph, share, Link())
            theirs = tried("pofo", graph, share, _link(POFO_LINK))
            slower += ours.cost > TIE * min(theirs.cost, alone.cost)
            ratios.append(ours.overhead / alone.overhead)
            least.append(ours.least_overhead / alone.overhead)
            what = f"{name} at {share:g}, overhead over recomputation alone's"
            yield Figure(what, ratios[-1], None, "x")
            yield Figure(f"{what}: no plan has less than", least[-1], None, "x")
    title = "overhead over recomputation alone's, median"
    yield Figure(title, float(np.median(ratios)), 2 / 3, "x")
    yield Figure(f"{title}: no plans have less than", float(np.median(least)), None, "x")
    yield Figure("plans slower than POFO's or recomputation alone", slower, 0, "")


def chosen() -> list[dict[str, Any]]:
    """The networks of the track: overrides of jobs."""
    text = OmegaConf.load(HOUSE / "conf/experiment/leaderboard_offload.yaml")
    return cast("list[dict[str, Any]]", OmegaConf.to_container(text["problems"]))


def networks() -> Iterator[Figure]:
    """The track's networks by an H100's roofline: gaps, and beside torchtitan's rule."""
    gaps: list[float] = []
    better: list[bool] = []
    points: list[float] = []
    for job in chosen():
        keys = {key: value for key, value in job.items() if key not in ("model", "budget")}
        options = {key.rpartition(".")[2]: value for key, value in keys.items()}
        graph = _roofline("h100", job["model"], **options)
        print(f"{job['model']}: {len(graph.ops)} ops", flush=True)
        for share, rate in ((share, rate) for share in BUDGETS for rate in LINKS):
            ours = tried("hybrid", graph, share, _link(rate))
            theirs = tried("auto_perf", graph, share, _link(rate))
            gaps.append(100 * ours.gap)
            better.append(ours.cost <= TIE * theirs.cost)
            if share == min(BUDGETS):
                points.append(100 * (theirs.overhead - ours.overhead))
    yield from _apart(gaps, better, points)


def _apart(gaps: list[float], better: list[bool], points: list[float]) -> Iterator[Figure]:
    title = f"{len(gaps)} problems, {SECONDS:g} s"
    yield Figure(f"{title}: gap, median", float(np.median(gaps)), 1, "%")
    yield Figure(f"{title}: gap, 90th percentile", float(np.quantile(gaps, 0.9)), 5, "%")
    yield Figure(f"{title}: gap, worst", max(gaps), None, "%")
    share = 100 * float(np.mean(better))
    yield Figure(f"{title}: at least as good as `auto_perf`", share, 95, "%", at_least=True)
    title = f"`auto_perf`'s overhead less ours at {min(BUDGETS):g}"
    planned = [each for each in points if each < inf]
    without = 100 * (1 - len(planned) / len(points))
    yield Figure(f"{title}: problems without a plan of `auto_perf`", without, None, "%")
    middle = float(np.median(points))
    middle = middle if middle < inf else float(np.median(planned))
    yield Figure(f"{title}: median where it has a plan", middle, 3, "points", at_least=True)


def large() -> Iterator[Figure]:
    """10,000 ops at half the memory: the first plan, and the gap when time is up."""
    graph = _roofline("h100", "transformer_lm", layers=LAYERS, **SENTENCES)
    budget = int(0.5 * simulate(graph, program_order(graph)).peak_bytes)
    for rate in (25.0, 55.0):
        first: list[float] = []
        planner, began = warm("hybrid"), time.process_time()

        def seen(solution: Solution, first: list[float] = first, began: float = began) -> None:
            first.append(time.process_time() - began)

        problem = Problem(graph, budget, LARGE_SECONDS, link=_link(rate), hand_over=seen)
        found = planner.plan(problem)
        assert found.plan is not None
        assert found.bound is not None
        title = f"{len(graph.ops)} ops, {rate:g} GB/s"
        yield Figure(f"{title}: first plan", first[0], 2, "CPU s")
        cost = simulate(graph, found.plan, problem.link).cost
        gap = 100 * (1 - found.bound / cost)
        yield Figure(f"{title}: gap after {LARGE_SECONDS:g} s", gap, 3, "%")


def simulation() -> Iterator[Figure]:
    """Statements per second, with copies and without."""
    graph = _roofline("h100", "gpt2", batch_size=8)
    link = _link(25.0)
    found = warm("offload_all").plan(Problem(graph, None, time_limit=SECONDS, link=link))
    assert found.plan is not None
    for what, plan in (("with copies", found.plan), ("without", program_order(graph))):
        codes, rounds = len(plan.codes(graph)), 300
        simulate(graph, plan, link)  # compiles
        began = time.process_time()
        for _ in range(rounds):
            simulate(graph, plan, link)
        rate = rounds * codes / (time.process_time() - began)
        yield Figure(f"statements per second {what}", rate, 2e6, "", at_least=True)


SMALL: dict[str, dict[str, Any]] = {
    "mobilenet_v1": {"batch_size": 16, "resolution": 128},
    "mobilenet_v2": {"batch_size": 16, "resolution": 96},
    "resnet18": {"batch_size": 16, "resolution": 96},
    "densenet_bc": {"batch_size": 32, "depth": 40},
    "unet": {"batch_size": 2, "resolution": "96x128", "base_channels": 8},
    "segnet": {"batch_size": 2, "resolution": "96x128"},
    "lstm_lm": {"batch_size": 1024, "hidden": 128, "vocabulary": 256, "sequence_length": 16},
    "transformer_lm": {
        **{"batch_size": 16, "layers": 4, "width": 128, "heads": 4},
        **{"sequence_length": 128, "vocabulary": 1000},
    },
    "tree_lstm": {"batch_size": 4096, "depth": 4},
    "siamese": {"batch_size": 16},
}
"""Networks that a CPU trains in about a second, and their options: copies of some megabytes."""


def _profiled(name: str, options: dict[str, Any]) -> Captured:
    """Captured, with seconds and workspaces as measured on this CPU just now."""
    found = capture(make_model(name, **options))
    graph = costmodel.apply("profiled", found.graph, found, device="cpu")
    return replace(found, graph=replace(graph, random_state_bytes=random_state_bytes("cpu")))


def executed() -> Iterator[Figure]:
    """Plans that copy, executed: gradients, both peaks, and what compute waits."""
    torch.set_num_threads(1)  # the links have threads of their own
    others, host, peaks, apart, steps = 0, 0, list[float](), list[float](), list[float]()
    for name, options in SMALL.items():
        net = _profiled(name, options)
        graph, validator = net.graph, Validator(net, "cpu", 0)
        plain = program_order(graph)
        took = validator.measure(plain, Timing(5, seconds=5.0)).measured_seconds
        steps.append(100 * abs(simulate(graph, plain).cost / took - 1))
        for rate in EXECUTED_LINKS:
            for plan, link in _copying(net, _link(rate)):
                trace = simulate(graph, plan, link)
                found = validator.measure(plan, Timing(5, seconds=5.0), link)
                assert found.copies is not None
                assert trace.copies is not None
                others += not found.gradient_bitwise
                host += found.copies.measured_host_peak_bytes != trace.host_peak_bytes
                peaks.append(100 * abs(found.measured_peak_bytes / trace.peak_bytes - 1))
                waits, saw = trace.copies.waiting[0], found.copies.measured_waiting["compute"]
                print(f"{name}, {rate:g} GB/s: waits {waits:.4f} s, measured {saw:.4f}", flush=True)
                if waits >= SHORTEST * trace.cost:
                    apart.append(100 * abs(saw / waits - 1))
    title = f"{len(peaks)} plans of {len(SMALL)} networks"
    yield Figure(f"{title}: gradients that are not eager's, bit by bit", others, 0, "")
    yield Figure(f"{title}: device peak beside the simulated, worst", max(peaks), 1, "%")
    yield Figure(f"{title}: host peaks that are not the simulated", host, 0, "")
    title = f"{len(apart)} plans in which compute waits"
    yield Figure(f"{title}: measured beside simulated, median", float(np.median(apart)), 10, "%")
    title = f"{len(steps)} networks, no copies: sum of profiles beside a step"
    yield Figure(f"{title}, median", float(np.median(steps)), None, "%")


def _copying(net: Captured, link: Link) -> Iterator[tuple[Any, Link]]:
    """Plans that copy: all above a size, and ours, where copies pay."""
    graph = net.graph
    budget = max(
        int(EXECUTED_BUDGET * simulate(graph, program_order(graph)).peak_bytes),
        int(1.25 * graph.floor_bytes()),
    )
    for name, limit in (("offload_all", None), ("hybrid", budget)):
        problem = Problem(graph, limit, time_limit=2.0, captured=net, link=link)
        plan = warm(name).plan(problem).plan
        if plan is not None and simulate(graph, plan, link).copies is not None:
            yield plan, link


PARTS: dict[str, Callable[[], Iterator[Figure]]] = {
    each.__name__: each for each in (pofo, networks, large, simulation, executed)
}


def record(names: list[str]) -> None:
    """Run parts, and write the record after each; the others stay as they are."""
    before = record_of("offload") or {"figures": [], "parts": {}}
    parts: dict[str, Any] = before["parts"]
    figures = {name: _kept(name, before["figures"]) for name in PARTS}
    for name in names:
        figures[name] = [replace(each, name=f"{name}: {each.name}") for each in PARTS[name]()]
        parts[name] = {"commit": commit(), "utc": now(), "load": [LOAD, os.getloadavg()[0]]}
        publish("offload", [each for rows in figures.values() for each in rows], parts=parts)


def _kept(part: str, rows: list[dict[str, Any]]) -> list[Figure]:
    return [_figure(row) for row in rows if str(row["figure"]).partition(":")[0] == part]


def _figure(row: dict[str, Any]) -> Figure:
    return Figure(row["figure"], row["value"], row["bound"], row["unit"], row["at_least"])


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    os.environ["OMP_NUM_THREADS"] = "1"  # planners then go by the processor's seconds
    record(parser.parse_args().only)


if __name__ == "__main__":
    main()
