"""What compiling costs on a new machine: the kernels of the quickstart's planners.

``python -m benchmarks.kernels`` compiles them in empty folders, by the code of today and of
c7868bd, one after the other, and writes ``runs/benchmarks/kernels.json``: CPU seconds of the
process, and compilations. One pair; on a busy machine seconds differ by a fifth.
"""

from __future__ import annotations

import os
import tempfile

from benchmarks.figures import Figure, publish
from benchmarks.trees import NEEDED, both, said

COMMIT = NEEDED["kernels"]
"""The last one that compiled all that kernels call for Python, too."""
SHARE = 0.7
"""Of its CPU seconds, at most."""
PLANNERS = "ap_sqrt ap_greedy linearized_greedy chain_dp feng_huang dtr anytime"
LINES = """
import sys, time
from numba.core import event
from rematbench.strategies.registry import make
from rematbench import program_order, simulate, unit_chain

with event.install_recorder("numba:compile") as record:
    graph = unit_chain(6)
    simulate(graph, program_order(graph))
    for name in sys.argv[1:]:
        getattr(make(name), "warm_up", int)()
print(time.process_time(), sum(each.is_start for _, each in record.buffer))
"""


def main() -> None:
    """Measure, print, write."""
    found = []
    os.environ["PYTHONSAFEPATH"] = "1"
    with both(COMMIT) as trees:
        for tree in trees:
            with tempfile.TemporaryDirectory() as folder:
                os.environ["NUMBA_CACHE_DIR"] = folder
                found.append(said(tree, LINES, *PLANNERS.split()))
    (ours, count), (theirs, count_theirs) = found
    figures = [
        Figure("the quickstart's planners: CPU seconds", ours, None, "s"),
        Figure(f"the quickstart's planners: CPU seconds of {COMMIT}", theirs, None, "s"),
        Figure(f"the quickstart's planners: over those of {COMMIT}", ours / theirs, SHARE, "x"),
        Figure("functions compiled", count, None, ""),
        Figure(f"functions compiled by {COMMIT}", count_theirs, None, ""),
    ]
    publish("kernels", figures)


if __name__ == "__main__":
    main()
