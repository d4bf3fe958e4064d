"""What shows why a printed number differs from ours, where that is quickly tried.

``python -m benchmarks.causes`` writes runs/benchmarks/causes.json, which docs/claims.csv quotes.
Checkmate's program of an 8-layer chain (section 4.6) is solved by HiGHS and, where gurobipy can be
imported (its free licence allows so many rows), by Gurobi, which the paper used. The largest batch
of a heuristic (section 6.4) is taken among all batches, and among those that the authors' published
experiment tries: 4, 12, 20 and so on (its ``--batch-size-increment``, 8). MONeT's program of VGG-16
(Table 7) is counted before and after HiGHS's presolve: by the paper's equations, and with the
products that its published program has. Feng and Huang's checkpoints (Table 2) are counted at the
paper's batches by the objective, by our plan, and with segments that run again whole, freed as
PyTorch's eager mode frees. What ResNets need (the join networks' Table 2) is also counted without
freeing: four copies of the weights, and what each layer writes twice, for its gradient; sums are
added in place.
"""

from __future__ import annotations

import importlib
import tempfile
from bisect import bisect
from collections.abc import Iterator, Sequence
from itertools import chain
from math import inf
from pathlib import Path
from time import process_time

import highspy
import numpy as np

from benchmarks.baselines62 import checkpoint_sets
from benchmarks.figures import Figure, publish
from benchmarks.graphs import captured
from benchmarks.monet import costed
from benchmarks.segments import cut_by_objective
from rematbench import costmodel
from rematbench.base.errors import RematbenchError
from rematbench.engines.lp.program import LinearProgram, Term
from rematbench.engines.lp.solver import Solver
from rematbench.engines.plans.regions import plan_with_regions
from rematbench.engines.plans.stages import plan_with_checkpoints
from rematbench.graphs.builders.keras import keras_graph
from rematbench.graphs.builders.layers import kind_of
from rematbench.graphs.builders.synthetic import unit_chain, with_backward
from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.jobs.accounting import account
from rematbench.strategies.base import Problem
from rematbench.strategies.checkmate.published.paper_model import PaperModel
from rematbench.strategies.feng_huang.network import forward_network
from rematbench.strategies.feng_huang.planner import FengHuang
from rematbench.strategies.feng_huang.solver import solve
from rematbench.strategies.monet.published.program import Published

LAYERS, UNITS = 8, 4
"""Of appendix A's chain: its length, and the memory that its plan may take."""
SOLVES = 3
"""The quickest counts."""
MEMORY = 16 * 10**9
BATCHES = range(4, 60, 8)
"""Of U-Net, in the published experiment."""
IMAGE = (416, 608)
TABLE_7 = {"vgg16": 176}
"""MONeT's network, and its batch; presolve of the others' programs takes minutes."""
PUBLISHED = {"alexnet": 1024, "vgg13": 64, "vgg16": 64, "vgg19": 64, "resnet34": 128}
"""Networks of Feng and Huang's Table 2, and their batches there."""
RESNETS = (18, 34, 50, 101, 152)
IMAGES = (224, 500)
"""Pixels, of the join networks' Table 2."""
COPIES = 4
SHARE = 0.7
"""Of checkpoint-all's peak: Table 7's budget."""
SECONDS = 600.0
"""For presolve, and for a plan."""


def chain_program() -> LinearProgram:
    """Problem (9) as printed, of appendix A's chain."""
    return PaperModel(unit_chain(LAYERS), UNITS, True, 500).program


def seconds_of_highs(program: LinearProgram) -> float:
    """CPU seconds until HiGHS has proven the optimum, with one thread."""
    began = process_time()
    solver = Solver(program, integral=True, seed=0, threads=1)
    solver.stop_when(0.0)
    outcome = solver.run(inf, lambda: False)
    if outcome is None or outcome.status != "optimal":
        raise RematbenchError("HiGHS has not solved the chain's program")
    return process_time() - began


def seconds_of_gurobi(path: Path) -> float | None:
    """The same of Gurobi, of a program in a file; None where it is not installed."""
    try:
        gurobi = importlib.import_module("gurobipy")
    except ModuleNotFoundError:
        return None
    model = gurobi.read(str(path))
    model.Params.LogToConsole = 0
    model.Params.Threads, model.Params.MIPGap = 1, 0.0
    began = process_time()
    model.optimize()
    if model.Status != gurobi.GRB.OPTIMAL:
        raise RematbenchError("Gurobi has not solved the chain's program")
    return process_time() - began


def chain_times() -> Iterator[Figure]:
    """Both solvers on the chain of appendix A."""
    program = chain_program()
    name = f"{LAYERS}-layer chain, (9) as printed, optimum proven"
    least = min(seconds_of_highs(program) for _ in range(SOLVES))
    yield Figure(f"{name}: HiGHS", least, None, "CPU s")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain.mps"
        highs = highspy.Highs()
        highs.setOptionValue("output_flag", False)
        program.pass_to(highs, integral=True)
        highs.writeModel(str(path))
        taken = [seconds_of_gurobi(path) for _ in range(SOLVES)]
    if known := [each for each in taken if each is not None]:
        yield Figure(f"{name}: Gurobi", min(known), None, "CPU s")


def network(batch: int) -> Graph:
    """U-Net by Keras' layers, in FLOPs, under Checkmate's accounting."""
    graph = with_backward(keras_graph("unet", batch, *IMAGE))
    kinds = {value.name: kind_of(value.name) for value in graph.values if value.resident}
    return account("checkmate", costmodel.apply("flops", graph, None), kinds)


def fits(graph: Graph) -> bool:
    """Has ``linearized_greedy`` a plan that fits, for one more forward pass at most?"""
    costs = [op.implementations[0].cost for op in graph.ops]
    most = sum(costs) + sum(costs[: graph.loss_index])
    for chosen in checkpoint_sets(graph, "linearized_greedy"):
        trace = simulate(graph, plan_with_checkpoints(graph, chosen))
        if trace.peak_bytes <= MEMORY and trace.cost <= most * (1 + 1e-9):
            return True
    return False


def largest(batches: Sequence[int]) -> int:
    """The largest of the batches that fits, where those below it fit, too."""
    return batches[bisect(batches, 0, key=lambda batch: not fits(network(batch))) - 1]


class AsProgrammed(Published):
    """The program with the products of the authors' code (``SM`` in ``monet/gurobi_solver.py``).

    The equations multiply the choice of a backward op's implementation by what this one reads; the
    code multiplies it by everything that may be stored, for the memory that the op itself needs.
    """

    def _memory(self, k: int) -> None:
        super()._memory(k)
        if not self.d[k] or k + 1 == len(self.backward):
            return
        terms: list[Term] = []
        for chosen, needs in zip(self.d[k], self.backward[k].implementations, strict=True):
            terms.append((chosen, float(self.size[list(needs)].sum())))
            for node in range(len(self.size)):
                if node not in needs:
                    both = self._both(chosen, int(self.s[k + 1, node]))
                    terms.append((both, float(self.size[node])))
        used = self._gradients[k] + self.graph.resident_bytes
        self.program.row(terms, self.free_bytes - used)

    def _both(self, left: int, right: int) -> int:
        """A column for the product of two."""
        column, at_most = self.program.column(integral=True), self.program.at_most
        at_most([column], [left])
        at_most([column], [right])
        at_most([left, right], [column], 1.0)
        return column


def sizes(name: str, batch: int) -> Iterator[Figure]:
    """Rows and columns of MONeT's program by its equations and by its code."""
    plain = captured(name, batch_size=batch)
    graph = costed(plain, "full")
    budget = int(SHARE * simulate(graph, program_order(graph)).peak_bytes)
    for title, kind in (("MONeT", Published), ("MONeT as programmed", AsProgrammed)):
        program = kind(graph, budget, True, "loose")
        facts = program.facts
        for which in ("rows", "columns"):
            yield Figure(f"{name}, {title}: {which}", facts[f"published_{which}"], None, "")
        left = program.presolved(SECONDS)
        for which in ("rows", "columns"):
            size = left[f"presolved_{which}"]
            yield Figure(f"{name}, {title}: {which} after presolve", size, None, "")


def checkpointed(graph: Graph) -> IntArray:
    """Per op its segment between the objective's checkpoints; -1 where it is not forward."""
    network = forward_network(graph)
    kept = [v for c in solve(network.costs, network.edges).vertices for v in network.values[c]]
    ends = np.zeros(len(graph.ops), dtype=np.int64)
    ends[graph.tables.writer[kept]] = 1
    segment = np.cumsum(ends) - ends  # a checkpoint is the last of its segment
    return np.where(graph.tables.forward, segment, -1)


def counted(name: str, batch: int) -> Iterator[Figure]:
    """What the paper's checkpoints cut off at its batch, by three ways to count."""
    found = captured(name, batch_size=batch)
    costed = costmodel.apply("flops", found.graph, found)
    graph = account("activations", costed, found.kinds, found.gradient_values)
    regular = simulate(graph, program_order(graph)).peak_bytes
    mine = FengHuang().plan(Problem(graph, None, SECONDS)).plan
    assert mine is not None
    whole = plan_with_regions(graph, checkpointed(graph), late=True)
    yield Figure(f"{name}, {batch}: cut off by the objective", cut_by_objective(graph), None, "%")
    for way, plan in (("op by op", mine), ("in whole segments", whole)):
        cut = 100 * (1 - simulate(graph, plan).peak_bytes / regular)
        yield Figure(f"{name}, {batch}: cut off, recomputed {way}", cut, None, "%")


def never_freed(depth: int, pixels: int) -> Figure:
    """Weights and all layers' outputs and gradients of a ResNet, for an image."""
    name = f"resnet{depth}"
    found = captured(name, batch_size=1, resolution=pixels)
    graph = found.graph
    assert graph.loss_index is not None
    layers = [op for op in graph.ops[: graph.loss_index] if "add.Tensor" not in str(op.target)]
    size = {value.name: value.bytes for value in graph.values}
    written = sum(size[name] for op in layers for name in op.writes)
    kinds = found.kinds
    weights = sum(v.bytes for v in graph.values if kinds.get(v.name) == "parameter")
    megabytes = (COPIES * weights + 2 * written) / 2**20
    return Figure(f"{name}, {pixels} pixels: nothing freed", megabytes, None, "MB")


def main() -> None:
    """Measure, print, write."""
    greedy = "keras_unet, largest batch of linearized_greedy in 16 GB"
    figures = [
        *chain_times(),
        *chain.from_iterable(sizes(*each) for each in TABLE_7.items()),
        *chain.from_iterable(counted(*each) for each in PUBLISHED.items()),
        *(never_freed(depth, pixels) for depth in RESNETS for pixels in IMAGES),
        Figure(greedy, largest(range(1, BATCHES.stop)), None, "images"),
        Figure(f"{greedy}, of 4, 12, 20, ...", largest(BATCHES), None, "images"),
    ]
    publish("causes", figures)


if __name__ == "__main__":
    main()
