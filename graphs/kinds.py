"""What an implementation is, told by its name: works on graphs from files, without PyTorch.

A name is ``kind`` or ``kind:detail``, and ``+`` joins two kinds: ``conv:winograd``, ``output``,
``intermediate:bits``, ``statistics+inplace``. MONeT's ablations choose by kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from graphs.ir import Graph
from graphs.plan import Plan


class Kind(StrEnum):
    """What is special about an implementation.

    - ``conv``: another algorithm of a convolution (or of its gradients);
    - ``input``: a backward op that reads the forward op's input (MONeT, section 3);
    - ``output``: ... the forward op's output, perhaps with a few side bits;
    - ``intermediate``: ... a mask or index that an optional op makes;
    - ``shape``: ... neither, since only a shape was needed;
    - ``replay``: ... nothing: a random mask is drawn again from its seed;
    - ``inplace``: takes over the storage of one of its reads;
    - ``statistics``: recomputes a batch norm by its saved statistics;
    - ``encoded``: reads a lossless encoding (Gist's sparse storage);
    - ``lossy``: reads a lossy one (Gist's delayed precision reduction).
    """

    DEFAULT = "default"
    CONVOLUTION = "conv"
    INPUT = "input"
    OUTPUT = "output"
    INTERMEDIATE = "intermediate"
    SHAPE = "shape"
    REPLAY = "replay"
    INPLACE = "inplace"
    STATISTICS = "statistics"
    ENCODED = "encoded"
    LOSSY = "lossy"


_KNOWN = {kind.value: kind for kind in Kind}


def kinds_of(implementation: str) -> frozenset[Kind]:
    """The kinds that an implementation's name tells; unknown words tell nothing."""
    words = (part.split(":", 1)[0] for part in implementation.split("+"))
    return frozenset(_KNOWN[word] for word in words if word in _KNOWN)


@dataclass(frozen=True, slots=True)
class ImplementationTraits:
    """What a graph does not say about an implementation.

    Attributes:
        tolerance: largest error of its results against the default implementation's, relative
            to the largest entry of each; 0 means that every bit is equal.
        flops: floating-point operations, or None: bound by memory.
        replays: the random op whose draws it repeats, or None.
        runs_default: it decodes, and then runs the default implementation.
        density: of an op that encodes sparsely: the share of its input's entries that are not
            zero, as measured.
    """

    tolerance: float = 0.0
    flops: float | None = None
    replays: str | None = None
    runs_default: bool = False
    density: float = 1.0


TraitsTable = Mapping[tuple[str, str], ImplementationTraits]
"""Traits by names of op and implementation; what is missing is exact and draws nothing."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An implementation that an op could have had.

    Attributes:
        op, implementation: what was refused.
        reason: why, and what would change it.
    """

    op: str
    implementation: str
    reason: str


def plan_tolerance(traits: TraitsTable, graph: Graph, plan: Plan) -> float:
    """How far a plan's gradients may be off, relative to the largest entry of each.

    The sum over the distinct implementations that it runs: errors of first order add up. 0 means
    that all of them are exact.
    """
    if not traits:
        return 0.0
    codes = plan.codes(graph)
    chosen = set(codes[codes >= 0].tolist())
    tables = graph.tables
    total = 0.0
    for code in chosen:
        op = graph.ops[int(tables.op_of[code])]
        name = op.implementations[code - int(tables.op_first[graph.op_index[op.name]])].name
        found = traits.get((op.name, name))
        total += 0.0 if found is None else found.tolerance
    return total
