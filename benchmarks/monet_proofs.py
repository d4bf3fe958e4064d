"""How long HiGHS takes to prove what MONeT's Table 6 says that Gurobi proved.

``python -m benchmarks.monet_proofs`` writes ``runs/benchmarks/monet_proofs.json``, which
docs/claims.csv quotes. Three programs per network and budget: Checkmate's problem (9) as it is
printed, MONeT without a choice of implementations (MONeT-NoOp), and MONeT. HiGHS has one core and
ten CPU minutes for each, more than any of these took in the paper: the seconds until a gap of 2 %
was proven or, where it was not, the gap by then (or that there was no solution, or no bound).
MobileNet-V2's (9) is too large to write down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isfinite

from benchmarks.figures import Figure, publish
from benchmarks.graphs import captured
from benchmarks.monet import CASES, GAP, costed
from rematbench.base.clock import planning_seconds
from rematbench.base.errors import RematbenchError
from rematbench.engines.lp.program import LinearProgram
from rematbench.engines.lp.solver import Solver, SolverRun
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.checkmate.published.paper_model import PaperModel
from rematbench.strategies.monet.published.program import Published
from rematbench.tracing.captured import Captured

SECONDS = 600.0
CHECKMATE, NOOP, MONET = "Checkmate's (9)", "MONeT-NoOp", "MONeT"
MOST_OPS = 300
"""Of a graph whose (9) is written down."""


TRIED = (
    ("vgg16", 0.75, (CHECKMATE, NOOP, MONET)),
    ("unet", 0.67, (CHECKMATE, NOOP, MONET)),
    ("mobilenet_v2", 0.67, (NOOP, MONET)),
)
"""Networks at MONeT's batch sizes, budgets as parts of checkpoint-all's peak, and programs."""


def program(which: str, plain: Captured, share: float) -> LinearProgram:
    """One of the papers' programs, costs as modelled for a V100."""
    graph = costed(plain, "full" if which == MONET else "noop")
    budget = int(share * simulate(graph, program_order(graph)).peak_bytes)
    if which == CHECKMATE:
        return PaperModel(graph, budget, True, MOST_OPS).program
    return Published(graph, budget, which == MONET, "loose").program


def proofs(network: str, share: float, programs: Iterable[str]) -> Iterator[Figure]:
    """Per program, what HiGHS came to."""
    (options,) = [each.options for each in CASES if each.table and each.model == network]
    plain = captured(network, **options)
    for which in programs:
        solver = Solver(program(which, plain, share), integral=True, threads=1)
        solver.stop_when(GAP)
        began = planning_seconds()
        ended = solver.run(began + SECONDS, lambda: False)
        seconds, title = planning_seconds() - began, f"{network} at {share:g}, {which}"
        if ended is not None and ended.status in ("infeasible", "failed"):
            raise RematbenchError(f"{title}: {ended.status}")
        yield Figure(f"{title}: rows", solver.rows, None, "")
        yield outcome(title, ended, seconds)


def outcome(title: str, ended: SolverRun | None, seconds: float) -> Figure:
    """The seconds of a proof; where there is none, the gap, or what there is none of."""
    if ended is None or ended.objective is None:
        return Figure(f"{title}: solutions in {SECONDS:g} s", 0, None, "")
    if ended.status == "optimal":
        return Figure(f"{title}: {GAP:.0%} proven", seconds, None, "CPU s")
    if not isfinite(ended.bound):  # of the first relaxation, which was not solved by then
        return Figure(f"{title}: bounds in {SECONDS:g} s", 0, None, "")
    gap = 100 * (1 - ended.bound / ended.objective)
    return Figure(f"{title}: gap after {SECONDS:g} s", gap, None, "%")


def main() -> None:
    """Solve, print, write."""
    publish("monet_proofs", [figure for each in TRIED for figure in proofs(*each)])


if __name__ == "__main__":
    main()
