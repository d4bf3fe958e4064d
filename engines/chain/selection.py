"""Which memories a chain's table is asked for: the simulator frees earlier than the table."""

from __future__ import annotations

import numpy as np

from rematbench.graphs.ir import IntArray

# The simulator frees earlier than the model, so that plans for more than the budget may fit.
BEYOND = 1.5
_CANDIDATES = 24
# Longer chains take seconds to a minute: look less far beyond, and bound with fewer slots.
LONG = 100
BEYOND_LONG = 1.1


def selection(steps: IntArray, room: int) -> list[int]:
    """Memories to plan for, of a table's steps: some below, most above what is there."""
    at = int(np.searchsorted(steps, room, side="right"))
    below = steps[max(0, at - 4) : at]
    above = steps[at:]
    if len(above) > _CANDIDATES:
        above = above[np.linspace(0, len(above) - 1, _CANDIDATES).astype(int)]
    return [*below[::-1].tolist(), *above.tolist()]
