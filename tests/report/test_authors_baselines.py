"""Checkmate's baselines as its authors' program has them."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import authors_baselines as authors
from rematbench.engines.plans.stages import optimal_recomputation, plan_from_stages
from rematbench.graphs.builders.synthetic import random_graph, unit_chain
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate


def test_what_is_kept_of_a_chain_by_hand() -> None:
    """Ops 0 to 3, the loss 4, gradients 5 (of 3) to 8 (of 0); a checkpoint at 1."""
    graph = unit_chain(4)
    assert (len(graph.ops), graph.loss_index) == (9, 4)
    lean = authors.kept_whole(graph, [1], gradients=False)
    whole = authors.kept_whole(graph, [1], gradients=True)
    assert not np.triu(lean).any()
    assert lean[5, :4].tolist() == [False, True, True, True]  # the last segment, while it is due
    assert lean[8, 0]  # the first one, from its first stage on
    assert not lean[5, 0]
    assert lean[8, 7]
    assert not lean[8, 5]
    assert whole[7, 5]  # read by op 6 alone, and kept with its segment
    assert not lean[7, 5]
    assert (whole | ~lean).all()


@pytest.mark.parametrize("gradients", [False, True])
def test_what_is_spent_is_never_less_than_the_simulator_says(gradients: bool) -> None:
    graph = random_graph(12, seed=3)
    for chosen in ([], [3], [2, 5, 9]):
        kept = authors.kept_whole(graph, chosen, gradients)
        found = authors.spent(graph, kept)
        trace = simulate(graph, plan_from_stages(graph, optimal_recomputation(graph, kept)))
        assert found.cost == pytest.approx(trace.cost)
        assert found.peak >= trace.peak_bytes


def test_nothing_kept_for_longer_than_needed_is_what_the_simulator_says() -> None:
    graph = unit_chain(6)
    everything = np.tril(np.ones((13, 13), dtype=bool), -1)
    assert authors.spent(graph, everything).cost == simulate(graph, program_order(graph)).cost
    assert authors.budgets_of(graph)[0] < simulate(graph, program_order(graph)).peak_bytes
