"""Which schedules of a chain are tried: the simulator frees earlier than a chain's table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rematbench.base.errors import Infeasible
from rematbench.engines.chain.table import Table
from rematbench.graphs.ir import IntArray

# The simulator frees earlier than the model, so that plans for more than the budget may fit.
BEYOND = 1.5
_CANDIDATES = 24
# Longer chains take seconds to a minute: look less far beyond, and bound with fewer slots.
LONG = 100
BEYOND_LONG = 1.1


@dataclass(frozen=True)
class Scheduled:
    """One schedule of a chain.

    Attributes:
        table: the chain program's.
        memory: that the schedule may use, in units.
        unit: bytes of one.
    """

    table: Table
    memory: int
    unit: int

    @property
    def bytes(self) -> int:
        """That the schedule may use."""
        return self.memory * self.unit


def schedules(
    build: Callable[..., Table | None],
    ample: int,
    free_bytes: int,
    stages: int,
    exact_steps: int,
    slots: int,
) -> list[Scheduled]:
    """Schedules at and above a budget, and last that of the least memory.

    The first is of the main table: the exact one, or that in whole units.

    Args:
        build: the table for any memory up to the first argument, in units of as many bytes as the
            second says; see :func:`~.table.build`.
        ample: bytes beyond which more do not help.
        free_bytes: bytes of the budget that the chain has.
        exact_steps: most steps of the exact table; 0: there is none.
        slots: units of the budget otherwise.

    Raises:
        Infeasible: even in units the table has too many steps.
    """
    leanest = build(ample, 1, least=True)
    assert leanest is not None
    least = int(leanest.steps()[0][0])
    beyond = BEYOND if stages <= LONG else BEYOND_LONG
    top = min(ample, max(int(beyond * free_bytes), least + least // 4))
    table, unit = build(top, 1, most=exact_steps) if exact_steps else None, 1
    if table is None:
        unit = max(1, max(free_bytes, least) // slots)
        table = build(top // unit, unit)
    if table is None:
        raise Infeasible(f"{slots} slots are too many for this chain; give fewer")
    memories = [int(memory) for memory in selection(table.steps()[0], free_bytes // unit)]
    found = [Scheduled(table, memory, unit) for memory in memories]
    is_there = least in {each.bytes for each in found}
    return found if is_there else [*found, Scheduled(leanest, least, 1)]


def selection(steps: IntArray, free_bytes: int) -> list[int]:
    """Memories to plan for, of a table's steps: some below, most above what is there."""
    at = int(np.searchsorted(steps, free_bytes, side="right"))
    below = steps[max(0, at - 4) : at]
    above = steps[at:]
    if len(above) > _CANDIDATES:
        above = above[np.linspace(0, len(above) - 1, _CANDIDATES).astype(int)]
    return [*below[::-1].tolist(), *above.tolist()]
