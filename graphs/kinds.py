"""What an implementation is, told by its name: works on graphs from files, without PyTorch.

A name is ``kind`` or ``kind:detail``, and ``+`` joins two kinds: ``conv:winograd``, ``output``,
``intermediate:bits``, ``statistics+inplace``. MONeT's ablations choose by kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Plan


class Kind(StrEnum):
    """What is special about an implementation.

    - ``conv``: another algorithm of a convolution (or of its gradients);
    - ``input``: a backward op that reads the forward op's input (MONeT, section 3);
    - ``output``: ... the forward op's output, perhaps with a few side bits;
    - ``intermediate``: ... a mask or index that an optional op makes;
    - ``shape``: ... neither, since only a shape was needed;
    - ``parts``: a convolution that reads the parts of a concatenation, or a sum that reads a copy
      of the part of its gradient that it needs;
    - ``replay``: a backward op that reads nothing: a random mask is drawn again from its seed;
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
    PARTS = "parts"
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
            to the largest entry of each; 0 means that every bit is equal. Where a result is what
            large terms leave of each other (batch norm's input gradient, of a few samples), it is
            relative to these terms, as rounding is.
        flops: floating-point operations, or None: bound by memory.
        replays: the random op whose draws it repeats, or None.
        runs_default: it decodes, and then runs the default implementation.
        passes: how often it fills its workspace: once per chunk of the batch.
        density: of an op that encodes sparsely: the share of its input's entries that are not
            zero, as measured.
        float64: given float64 instead of the captured types, it computes in float64; else it does
            something else then, such as run PyTorch's own implementation.
    """

    tolerance: float = 0.0
    flops: float | None = None
    replays: str | None = None
    runs_default: bool = False
    passes: int = 1
    density: float = 1.0
    float64: bool = True


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


ImplementationName = tuple[str, str]
"""The names of an op and of one of its implementations."""


def implementations_of(graph: Graph, plan: Plan) -> tuple[ImplementationName, ...]:
    """Each distinct implementation that a plan runs and that is not its op's default, in order."""
    codes = plan.codes(graph)
    tables = graph.tables
    found: list[ImplementationName] = []
    for code in np.unique(codes[codes >= 0]).tolist():
        number = int(tables.op_of[code])
        implementation = code - int(tables.op_first[number])
        if implementation:
            op = graph.ops[number]
            found.append((op.name, op.implementations[implementation].name))
    return tuple(found)
