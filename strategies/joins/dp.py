"""The dynamic programs of Beaumont et al. (RR-9273): Theorems 1 and 3, and Lemma 4.

Memory is counted in slots, one per forward or backward value of the homogeneous join; costs are
in the unit of ``Costs``. A chain of length l in PROB(l, c) has l + 1 backward steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rematbench.base.errors import NotApplicable
from rematbench.base.kernels import kernel

FloatArray = NDArray[np.float64]

_LARGEST_TABLE = 100_000_000  # numbers: 800 MB


@dataclass(frozen=True, slots=True)
class Costs:
    """Cost of a forward step, a backward step and the Turn (u_f, u_b and u_t of the paper)."""

    forward: float = 1.0
    backward: float = 1.0
    turn: float = 1.0


def smallest_slots(lengths: Sequence[int], kept: Sequence[int]) -> int:
    """c_min of Lemma 4, with its typo read as "exists i: l_i = 0 and b_i = 0".

    Args:
        lengths: of the branches.
        kept: b, per branch 1 if its last backward value is kept.
    """
    if not any(lengths):
        return len(lengths)
    slots = len(lengths) + sum(length > 0 for length in lengths)
    early = any(n == 1 or (n == 0 and not b) for n, b in zip(lengths, kept, strict=True))
    return slots if early else slots + 1


def enough_slots(lengths: Sequence[int]) -> int:
    """c_opt: with as many slots nothing is recomputed."""
    return sum(lengths) + len(lengths)


def chain_table(length: int, slots: int, costs: Costs) -> FloatArray:
    """Opt_0 of Theorem 1, as ``table[l, c]`` for all l <= length and c <= slots.

    Infinite for c < 2, and for l > 0 with c = 2. The paper's range 1 <= i < l leaves
    l = 1, c > 3 undefined; i <= l is meant.
    """
    table: FloatArray = _chain_table(length, max(slots, 0), costs.forward, costs.backward)
    return table


@kernel
def _chain_table(length, slots, u_f, u_b):  # type: ignore[no-untyped-def]
    table = np.full((length + 1, slots + 1), np.inf)
    table[0, 2:] = u_b
    for n in range(1, length + 1):
        if slots >= 3:
            table[n, 3] = n * (n + 1) / 2 * u_f + (n + 1) * u_b
        for i in range(1, n + 1):
            for c in range(4, slots + 1):
                cost = i * u_f + table[n - i, c - 1] + table[i - 1, c]
                table[n, c] = min(table[n, c], cost)
    return table


class JoinTable:
    """Opt_b-multi of Theorem 3 for every state of a join that can be reached, and every c.

    A branch whose length has been cut has b = 1, so that b needs no dimension of its own.
    Branches of equal length and b are interchangeable: of each set of states that differ by
    their order only one is computed.

    Args:
        lengths: of the branches; zeros are allowed.
        slots: the largest c.
        costs: u_f, u_b and u_t.
        kept: b; zeros if not given.

    Raises:
        NotApplicable: the table would not fit into memory.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        slots: int,
        costs: Costs | None = None,
        kept: Sequence[int] | None = None,
    ) -> None:
        self.lengths = tuple(lengths)
        self.slots = slots
        self.costs = costs or Costs()
        self.kept = tuple(kept) if kept is not None else (0,) * len(self.lengths)
        states = float(np.prod([length + 1.0 for length in self.lengths]))
        if states * (slots + 1) > _LARGEST_TABLE:
            raise NotApplicable(
                f"branches of lengths {list(self.lengths)} with {slots} slots need a table of "
                f"{states * (slots + 1):.3g} numbers; use fewer slots or shorter branches"
            )
        self.chain = chain_table(max((0, *self.lengths)), slots, self.costs)
        radix = [length + 1 for length in reversed(self.lengths)]
        self._stride = np.array(np.cumprod([1, *radix[:-1]])[::-1], dtype=np.int64)
        self._table: FloatArray = _join_table(
            np.array(self.lengths, dtype=np.int64),
            np.array(self.kept, dtype=np.int64),
            self._stride,
            self.chain,
            self.costs.forward,
            self.costs.turn,
            slots,
        )

    def makespan(self, slots: int, lengths: Sequence[int] | None = None) -> float:
        """Optimal cost with ``slots`` slots; infinite below c_min."""
        state = self.lengths if lengths is None else lengths
        return float(self._table[int(np.dot(self._stride, state)), slots])

    def decisions(self, slots: int) -> Iterator[tuple[int, int, int]]:
        """An optimal solution: the cuts of Equation 5, from the first to the last.

        Yields:
            (m, i, c): on branch m go i steps forward and keep the result; once the rest is
            done, PROB(i - 1, c) goes back over these steps.
        """
        state = list(self.lengths)
        while any(state):
            branch, steps, free = self._decide(state, slots)
            yield branch, steps, free
            state[branch] -= steps
            slots -= 1

    def _decide(self, state: list[int], slots: int) -> tuple[int, int, int]:
        occupied = [
            b or n < full for b, n, full in zip(self.kept, state, self.lengths, strict=True)
        ]
        best: tuple[float, tuple[int, int, int]] | None = None
        for m, n in enumerate(state):
            free = slots - (sum(occupied) - occupied[m])
            for i in range(1, n + 1):
                rest = [*state[:m], n - i, *state[m + 1 :]]
                cost = i * self.costs.forward + self.makespan(slots - 1, rest)
                cost += float(self.chain[i - 1, free]) if free >= 0 else np.inf
                if best is None or cost < best[0]:
                    best = (cost, (m, i, free))
        assert best is not None
        return best[1]


@kernel
def _join_table(lengths, kept, stride, chain, u_f, u_t, slots):  # type: ignore[no-untyped-def]
    k = lengths.size
    table = np.full((stride[0] * (lengths[0] + 1), slots + 1), np.inf)
    table[0, k:] = u_t
    state = np.empty(k, dtype=np.int64)
    for index in range(1, table.shape[0]):
        rest = index
        for m in range(k):
            state[m] = rest // stride[m]
            rest -= state[m] * stride[m]
        twin = _first_twin(state.copy(), lengths, kept, stride)
        if twin < index:
            table[index] = table[twin]
            continue
        occupied = 0
        needed = k
        early = False
        for m in range(k):
            cut = kept[m] == 1 or state[m] < lengths[m]
            occupied += cut
            needed += state[m] > 0
            early = early or state[m] == 1 or (state[m] == 0 and not cut)
        if not early:
            needed += 1
        for m in range(k):
            others = occupied - (kept[m] == 1 or state[m] < lengths[m])
            for i in range(1, state[m] + 1):
                target = index - i * stride[m]
                for c in range(max(needed, others), slots + 1):
                    cost = i * u_f + table[target, c - 1] + chain[i - 1, c - others]
                    table[index, c] = min(table[index, c], cost)
    return table


@kernel
def _first_twin(state, lengths, kept, stride):  # type: ignore[no-untyped-def]
    """The lowest index among the states that swap branches of the same length and b."""
    index = 0
    for m in range(state.size):
        for other in range(m + 1, state.size):
            alike = lengths[m] == lengths[other] and kept[m] == kept[other]
            if alike and state[other] < state[m]:
                state[m], state[other] = state[other], state[m]
        index += state[m] * stride[m]
    return index
