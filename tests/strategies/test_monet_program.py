"""The rows of MONeT's published program, beside the paper's sums written down one by one."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from rematbench import costmodel
from rematbench.engines.joint.implementations import VARIANTS
from rematbench.engines.lp.program import Term
from rematbench.strategies.monet.published.program import Locals, Published
from rematbench.tracing import capture
from rematbench.tracing.alternatives import with_alternatives
from rematbench.zoo import make_model


class RowByRow(Published):
    """Eqs. 5, 12 and 13, a row at a time."""

    def _memory(self, k: int) -> None:
        known, chosen = self._needs(k)
        sizes = self.size.tolist()
        room = self.free_bytes - self._gradients[k] - self.graph.resident_bytes
        certain = [sizes[each] if known[each] else 0.0 for each in range(len(sizes))]

        def stored(at: int, nodes: list[int]) -> list[Term]:
            return [(int(self.s[at, each]), sizes[each]) for each in nodes]

        later = [each for each in range(len(sizes)) if not known[each]]
        self.program.row([*stored(k + 1, later), *chosen], room - sum(certain))
        until = len(sizes) if self.bound == "loose" else self.backward[k].node + 1
        for node in range(len(sizes)):
            readers = range(node, min(until, len(sizes)))
            local = {p for each in readers for p in self.parents[each] if p < node}
            waiting = stored(k, [*range(node + 1, len(sizes))])
            own = sizes[node] + sum(sizes[each] for each in local if not known[each])
            kept = stored(k + 1, [each for each in later if each < node and each not in local])
            runs = [(int(self.r[k, node]), own), *waiting, *chosen, *self._workspace(k, node)]
            self.program.row([*runs, *kept], room - sum(certain[:node]))
            ran = stored(k + 1, [each for each in later if each <= node])
            self.program.row([*ran, *waiting, *chosen], room - sum(certain[: node + 1]))


@pytest.mark.parametrize("bound", get_args(Locals))
@pytest.mark.parametrize("variant", ["full", "noop"])
def test_rows_are_the_papers_sums(variant: str, bound: Locals) -> None:
    """As many rows and columns, each with the same coefficients and limit."""
    plain = capture(make_model("resnet32", batch_size=8, resolution=32, blocks=1))
    captured = with_alternatives(plain, VARIANTS[variant])
    graph = costmodel.apply("flops", captured.graph, captured)
    made, told = (
        kind(graph, 10**7, variant == "full", bound).program for kind in (Published, RowByRow)
    )
    assert made.size == told.size
    found, wanted = made.matrix, told.matrix
    assert np.array_equal(found.start, wanted.start)
    assert np.array_equal(found.upper, wanted.upper)
    assert np.array_equal(found.lower, wanted.lower)
    for begin, end in zip(found.start[:-1], found.start[1:], strict=True):
        one, other = (
            dict(zip(rows.column[begin:end].tolist(), rows.value[begin:end].tolist(), strict=True))
            for rows in (found, wanted)
        )
        assert one == other
