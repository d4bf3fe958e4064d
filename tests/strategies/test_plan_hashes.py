"""Strategies that need no time limit make the plans that are recorded, on every graph."""

from __future__ import annotations

import plan_hashes
import pytest

QUICK = plan_hashes.FILES
"""Graph files; captured models depend on PyTorch's version, and are compared by hand."""


@pytest.mark.parametrize("name", plan_hashes.names())
def test_plans_are_the_recorded_ones(name: str) -> None:
    expected = {line for line in plan_hashes.recorded() if line.strategy == name}
    assert {line.graph for line in expected} >= set(QUICK)
    assert set(plan_hashes.lines(name, QUICK)) == {x for x in expected if x.graph in QUICK}
