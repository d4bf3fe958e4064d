"""The largest numbers that graphs, plans and logs may hold, so that no sum of them overflows.

Bytes are 64-bit integers: a step may hold every value twice (the old copy while the new one is
computed) and a workspace. Costs are 64-bit floats, of which a plan sums millions.
"""

from __future__ import annotations

MOST_BYTES = 2**60
"""Of all values of a graph together with its largest workspace; of a budget."""
MOST_COST = 1e100
"""Of one implementation of an op."""
MOST_TICKS = 2**53
"""Of all times of a log together; they are whole numbers."""
MOST_STEPS = 10**6
"""Of a chain, or of all branches of a join."""
BYTES_TOLD = f"at most {MOST_BYTES} bytes (2^60, 1 EiB) are allowed"
_LONGEST = 40  # characters of a number in a message


def shown(number: object) -> str:
    """A number for a message, cut where it is very long."""
    if isinstance(number, int) and abs(number) >= 10**_LONGEST:
        return f"a number of more than {_LONGEST} digits"
    return repr(number)[: 4 * _LONGEST]
