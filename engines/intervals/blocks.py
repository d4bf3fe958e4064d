"""Plans from blocks: each is solved alone, equal ones once, and then as many bytes as fit.

The ops before a moment are cut into blocks, where the graph repeats itself, and elsewhere where
little crosses. With a price per byte, what a block keeps and computes again is a minimum cut,
whose linear program has whole solutions; several prices make a few options per kind of block,
on a convex hull. One option per block is chosen (:mod:`combine`). If what a block reads of others
costs nothing, the same programs bound the cost of every plan from below, and the bounds of blocks
add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Literal, NamedTuple

import numpy as np

from rematbench.engines.intervals.combine import Hull, combined
from rematbench.engines.intervals.moments import SCALE, TOLERANCE, demand
from rematbench.engines.intervals.net import Net
from rematbench.engines.intervals.repetition import repeats
from rematbench.engines.intervals.segments import cuts_of
from rematbench.engines.lp.program import LinearProgram
from rematbench.engines.lp.solver import Solver
from rematbench.engines.plans.stages import BoolArray
from rematbench.graphs.ir import IntArray

Border = Literal["kept", "there", "free"]
PRICES = 24
"""Prices per byte at which each kind of block is solved."""
GOOD_ENOUGH = 1e-4
"""What a choice of options may lose, as a share of the cost of all ops."""
SMALLEST = 8
"""Ops of the smallest block; a shorter stretch is several times in one block."""
LONGEST = 400
"""Ops of the longest block where nothing repeats; it grows with the graph's root."""


class BlockOption(NamedTuple):
    """One way through a block.

    Attributes:
        bytes: kept at the moment.
        cost: of recomputation.
        kept: per value of the block, is it kept?
    """

    bytes: int
    cost: float
    kept: BoolArray


class BlockKind(NamedTuple):
    """What equal blocks have in common.

    Attributes:
        cost: per op.
        size: per value.
        writer: per value, its op.
        reads: (op, value) pairs, of the block's own values.
        needed: per value, is it read after the moment?
        passed: per value, do later blocks read it, too?
        fixed: per value, must it be there at the moment?
    """

    cost: tuple[float, ...]
    size: tuple[int, ...]
    writer: tuple[int, ...]
    reads: tuple[tuple[int, int], ...]
    needed: tuple[bool, ...]
    passed: tuple[bool, ...]
    fixed: tuple[bool, ...]

    def solved(self, price: float, unit: float, border: Border) -> tuple[float, BlockOption]:
        """A bound, and all but always the value, of the least cost and price; and how.

        Args:
            price: per byte.
            unit: cost that the program counts in.
            border: what happens to values that later blocks read: they are ``kept``, they are
                ``there``, kept or computed again, or are ``free`` to be gone, for a bound.
        """
        values, ops = len(self.size), len(self.cost)
        program = LinearProgram()
        for size, is_fixed, passed in zip(self.size, self.fixed, self.passed, strict=True):
            stays = is_fixed or (passed and border == "kept")
            program.column(price * size / unit, lower=float(stays))
        for cost in self.cost:
            program.column(cost / unit)
        for v in range(values):
            if self.needed[v] or (self.passed[v] and border != "free"):
                program.row([(v, -1.0), (values + self.writer[v], -1.0)], -1.0)
        for op, v in self.reads:
            again = values + self.writer[v]
            program.row([(values + op, 1.0), (v, -1.0), (again, -1.0)], 0.0)
        solver = Solver(program)
        outcome = solver.run(inf)
        if outcome is None or outcome.x is None or outcome.objective is None:
            return 0.0, BlockOption(sum(self.size), 0.0, np.ones(values, dtype=bool))
        kept = outcome.x[:values] >= 0.5
        again_ops = outcome.x[values : values + ops] >= 0.5
        total = int(np.array(self.size, dtype=np.int64)[kept].sum()) if values else 0
        spent = float(np.array(self.cost)[again_ops].sum())
        return max(0.0, outcome.bound) * unit, BlockOption(total, spent, kept)


Hulls = tuple[tuple[BlockOption, ...], ...]


@dataclass(frozen=True)
class Blocks:
    """The blocks before a moment.

    Attributes:
        net: the graph.
        moment: an op.
        ends: per block, the op after its last.
        first_value: per block, its first value, and one more entry for the end.
        kind_of: per block, the number of its kind.
        kinds: kinds of blocks.
    """

    net: Net
    moment: int
    ends: IntArray
    first_value: IntArray
    kind_of: IntArray
    kinds: tuple[BlockKind, ...]

    @classmethod
    def of(cls, net: Net, moment: int) -> Blocks:
        """Cut where the graph repeats itself, else where little crosses."""
        ends = np.array(_ends(net, moment), dtype=np.int64)
        starts = np.concatenate([[0], ends[:-1]])
        needed, fixed = demand(net, moment, len(net.cost))
        numbers: dict[BlockKind, int] = {}
        edges = _edges(net, ends, moment)
        kind_of = [
            numbers.setdefault(_kind(net, int(a), int(b), needed, fixed, edges), len(numbers))
            for a, b in zip(starts, ends, strict=True)
        ]
        first_value = np.searchsorted(net.writer, np.concatenate([starts, [moment]]))
        return cls(net, moment, ends, first_value, np.array(kind_of), tuple(numbers))

    @cached_property
    def counts(self) -> IntArray:
        """Per kind, its blocks."""
        return np.bincount(self.kind_of, minlength=len(self.kinds))

    @cached_property
    def prices(self) -> list[float]:
        """Of a byte, from almost nothing to more than it is worth."""
        typical = float(self.net.cost.sum()) / max(1.0, float(self.net.size.sum()))
        return [0.0, *(typical * np.geomspace(1e-4, 1e4, PRICES)).tolist()]

    @cached_property
    def hulls(self) -> Hulls:
        """Per kind, options from lean to dear in bytes, each worth its bytes."""
        return self._hulls("there")

    @cached_property
    def closed_hulls(self) -> Hulls:
        """The same where each block keeps what later ones read, and so computes again alone."""
        return self._hulls("kept")

    def _hulls(self, border: Border) -> Hulls:
        unit = (float(self.net.cost.sum()) or 1.0) / SCALE
        found = []
        for kind in self.kinds:
            options: dict[int, BlockOption] = {}
            for price in self.prices:
                _, option = kind.solved(price, unit, border)
                options[option.bytes] = min(option, options.get(option.bytes, option), key=_cost)
            found.append(_hull(list(options.values())))
        return tuple(found)

    def keeping(self, free_bytes: float, closed: bool = False) -> BoolArray | None:
        """What to keep, per value of the net, in some bytes; None if they are too few."""
        hulls = self.closed_hulls if closed else self.hulls
        rows = [
            Hull(np.array([o.bytes for o in hull]), np.array([o.cost for o in hull]))
            for hull in hulls
        ]
        choice = combined(rows, self.kind_of, free_bytes, GOOD_ENOUGH * float(self.net.cost.sum()))
        if choice is None:
            return None
        kept = np.zeros(len(self.net.size), dtype=bool)
        for block, k in enumerate(self.kind_of.tolist()):
            begin, end = self.first_value[block], self.first_value[block + 1]
            kept[begin:end] = hulls[k][choice.level[block]].kept
        return kept

    def bound(self, free_bytes: float) -> float:
        """Recomputation that no plan with so many bytes at the moment can do without."""
        unit = (float(self.net.cost.sum()) or 1.0) / SCALE
        best = 0.0
        low, high = self.prices[1], self.prices[-1]
        for _ in range(PRICES):
            price = float(np.sqrt(low * high))
            total, used = 0.0, 0
            for kind, count in zip(self.kinds, self.counts.tolist(), strict=True):
                value, option = kind.solved(price, unit, "free")
                total += count * (value - TOLERANCE * unit)
                used += count * option.bytes
            best = max(best, total - price * free_bytes)
            low, high = (price, high) if used > free_bytes else (low, price)
        return best


def _cost(option: BlockOption) -> float:
    return option.cost


def _hull(options: list[BlockOption]) -> tuple[BlockOption, ...]:
    """The lower convex hull of costs over bytes, from the fewest bytes on."""
    hull: list[BlockOption] = []
    for option in sorted(options, key=lambda o: (o.bytes, o.cost)):
        if hull and option.cost >= hull[-1].cost:
            continue
        while len(hull) > 1 and _is_above(hull[-2], hull[-1], option):
            hull.pop()
        hull.append(option)
    return tuple(hull)


def _is_above(low: BlockOption, middle: BlockOption, high: BlockOption) -> bool:
    """Is the middle option no better than a mixture of the others?"""
    left = (low.cost - middle.cost) * (high.bytes - middle.bytes)
    return left <= (middle.cost - high.cost) * (middle.bytes - low.bytes)


def _ends(net: Net, moment: int) -> list[int]:
    """Where blocks end, without a block of no ops."""
    ends: list[int] = []
    at = 0
    for repeat in repeats(net, moment):
        times = max(1, -(-SMALLEST // repeat.period))
        _cut(net, at, repeat.first, ends)
        ends += range(repeat.first + repeat.period * times, repeat.end + 1, repeat.period * times)
        at = ends[-1] if ends else at
    _cut(net, at, moment, ends)
    return ends


def _cut(net: Net, begin: int, end: int, ends: list[int]) -> None:
    """Cut a stretch in which nothing repeats into blocks of moderate size."""
    if begin >= end:
        return
    ops = min(LONGEST, max(SMALLEST, int(4 * np.sqrt(end - begin))))
    share = ops / (end - begin)
    if share < 1:
        ends += [
            begin + cut + 1 for cut in cuts_of(net, begin, end, share) if begin + cut + 1 < end
        ]
    ends.append(end)


Edges = tuple[IntArray, IntArray, BoolArray, BoolArray]
"""Reads by ops before the moment: op, value, is the writer in the op's block; and per value, is it
read by a later block?"""


def _edges(net: Net, ends: IntArray, moment: int) -> Edges:
    reader = np.repeat(np.arange(moment), np.diff(net.reads.start[: moment + 1]))
    value = net.reads.items[: len(reader)]
    own = np.searchsorted(ends, reader, side="right")
    inside = np.searchsorted(ends, net.writer[value], side="right") == own
    passed = np.zeros(len(net.size), dtype=bool)
    passed[value[~inside]] = True
    return reader, value, inside, passed


def _kind(
    net: Net,
    begin: int,
    end: int,
    needed: BoolArray,
    fixed: BoolArray,
    edges: Edges,
) -> BlockKind:
    reader, value, inside, passed = edges
    low, high = np.searchsorted(net.writer, [begin, end]).tolist()
    first, last = np.searchsorted(reader, [begin, end]).tolist()
    chosen = np.flatnonzero(inside[first:last]) + first
    return BlockKind(
        tuple(net.cost[begin:end].tolist()),
        tuple(net.size[low:high].tolist()),
        tuple((net.writer[low:high] - begin).tolist()),
        tuple(zip((reader[chosen] - begin).tolist(), (value[chosen] - low).tolist(), strict=True)),
        tuple(needed[low:high].tolist()),
        tuple(passed[low:high].tolist()),
        tuple(fixed[low:high].tolist()),
    )
