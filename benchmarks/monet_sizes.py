"""MONeT's programs with the products that its published code has (Table 7).

``python -m benchmarks.monet_sizes`` writes ``runs/benchmarks/monet_sizes.json``, which
docs/claims.csv quotes: rows and columns before and after HiGHS's presolve, which takes CPU
minutes. ``benchmarks.causes`` has VGG-16's, where it takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.causes import SHARE, AsProgrammed
from benchmarks.figures import Figure, publish
from benchmarks.graphs import captured
from benchmarks.monet import costed
from rematbench.base.errors import RematbenchError
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate

BATCHES = {"resnet50": 184, "googlenet": 320}
SECONDS = 3600.0
"""For presolve, on a busy machine, too."""


def sizes(network: str) -> Iterator[Figure]:
    """Rows and columns, before and after presolve."""
    graph = costed(captured(network, batch_size=BATCHES[network]), "full")
    budget = int(SHARE * simulate(graph, program_order(graph)).peak_bytes)
    program = AsProgrammed(graph, budget, True, "loose")
    left = program.presolved(SECONDS)
    if "presolved_rows" not in left:
        raise RematbenchError(f"{network}: presolve did not end")
    title = f"{network}, MONeT as programmed"
    for which in ("rows", "columns"):
        yield Figure(f"{title}: {which}", program.facts[f"published_{which}"], None, "")
        yield Figure(f"{title}: {which} after presolve", left[f"presolved_{which}"], None, "")


def main() -> None:
    """Count, print, write."""
    publish("monet_sizes", [figure for network in BATCHES for figure in sizes(network)])


if __name__ == "__main__":
    main()
