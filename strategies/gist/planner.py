"""gist: one plan that stores encodings instead of values (Gist: Jain et al., ISCA 2018).

Nothing is recomputed. A forward value that only waits for the backward pass is replaced by the
smallest lossless encodings that all its backward readers can work from, by half precision where
there are none, and freed after its last forward read:

- *binarize*: one bit per entry where only the sign is read, four bits per max-pool window;
- *sparse*: the entries that are not zero (section 4.1, "sparse storage, dense compute"), exact;
- *half*: delayed precision reduction (section 4.2): half precision, *lossy*;
- *in place*: where nobody reads the value again.

MONeT reimplements it as a baseline (appendix E), which is what its ``convolutions`` is from.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.kinds import Kind, kinds_of
from rematbench.graphs.plan import Plan
from rematbench.strategies.base import Problem, Solution, Traits, check_choice, fitted

CONVOLUTIONS = ("lean", "fast")
SPARSE = ("csr", "bitmap", "either")


@dataclass(frozen=True)
class Gist:
    """Encodings, each of which can be switched off.

    Attributes:
        binarize: one bit per entry of a ReLU, four (the offset) per window of a max-pool.
        sparse: ``csr``, ``bitmap``, ``either`` (the smaller one), or None for neither. They are
            offered where the sparsity was measured, which takes a forward pass on the device.
        half: half precision for the rest; makes the plan lossy.
        in_place: overwrite where possible.
        convolutions: ``lean``, the algorithms without workspace, or ``fast``, those of the least
            cost (appendix E's two policies).

    Raises:
        ConfigError: an option is unknown.
    """

    traits: ClassVar[Traits] = Traits("yes", "no", "yes")
    binarize: bool = True
    sparse: Literal["csr", "bitmap", "either"] | None = "csr"
    half: bool = True
    in_place: bool = True
    convolutions: Literal["lean", "fast"] = "lean"

    def __post_init__(self) -> None:
        check_choice("sparse", self.sparse, (None, *SPARSE))
        check_choice("convolutions", self.convolutions, CONVOLUTIONS)

    @property
    def kinds(self) -> frozenset[Kind]:
        """What it chooses from (:class:`~rematbench.strategies.base.ChoosesImplementations`)."""
        wanted = {
            Kind.SHAPE: True,
            Kind.INTERMEDIATE: self.binarize,
            Kind.ENCODED: self.sparse is not None,
            Kind.LOSSY: self.half,
            Kind.INPLACE: self.in_place,
            Kind.CONVOLUTION: self.convolutions == "fast",
        }
        return frozenset(kind for kind, is_wanted in wanted.items() if is_wanted)

    @property
    def wants_density(self) -> bool:
        """Sparse storage needs to know how much room to make."""
        return self.sparse is not None

    def plan(self, problem: Problem) -> Solution:
        """The plan.

        Raises:
            Infeasible: it is over the budget.
        """
        graph = problem.graph
        encoder = _Encoder(graph, self)
        encoder.run()
        implementations = encoder.implementation[encoder.implementation >= 0]  # in program order
        if self.convolutions == "fast":
            implementations = _fastest(graph, implementations)
        if self.in_place:
            implementations = _in_place(graph, implementations)
        plan = Plan.of_computes(graph, implementations)
        return fitted(problem, plan, details=_details(problem, encoder, implementations))


class _Encoder:
    """Chooses encodings, value by value.

    Attributes:
        implementation: per op, the number of its chosen implementation; -1 for optional ops not
            asked for.
        encoded: per encoded value, its encodings.
    """

    def __init__(self, graph: Graph, options: Gist) -> None:
        self.graph, self.options, self.tables = graph, options, graph.tables
        self.implementation = np.where(graph.needed_ops(), self.tables.op_first[:-1], -1)
        self.encoded: dict[int, frozenset[int]] = {}
        implementations = [
            implementation for op in graph.ops for implementation in op.implementations
        ]
        self._names = [implementation.name for implementation in implementations]
        self._kinds = [kinds_of(implementation.name) for implementation in implementations]
        self._overwrites = [bool(implementation.overwrites) for implementation in implementations]
        self._offered = options.kinds
        self._is_optional = np.append(~graph.needed_ops(), False)[self.tables.writer]
        self._is_optional &= self.tables.writer >= 0
        self._reads = [
            frozenset(self.tables.reads[implementation].tolist())
            for implementation in range(len(self.tables.op_of))
        ]

    def run(self) -> None:
        """First gradients that only need a shape; then whatever waits, largest first."""
        loss = self.graph.loss_index
        if loss is None:
            return
        for op in range(loss, len(self.graph.ops)):
            for implementation in self._implementations(op, frozenset({Kind.SHAPE})):
                if self._reads[implementation] <= self._reads[self.implementation[op]]:
                    self.implementation[op] = implementation
        waiting = [
            v
            for v in range(len(self.graph.values))
            if 0 <= self.tables.writer[v] < loss and v not in self.tables.outputs
        ]
        readers: dict[int, list[int]] = {}
        for op in range(loss, len(self.graph.ops)):
            if self.implementation[op] >= 0:
                for value in self._reads[self.implementation[op]]:
                    readers.setdefault(value, []).append(op)
        self._used = Counter(
            v
            for implementation in self.implementation[self.implementation >= 0].tolist()
            for v in self._reads[implementation]
        )
        for value in sorted(waiting, key=lambda v: -self.tables.value_bytes[v]):
            if value in readers:
                self._encode(value, readers[value])

    def _implementations(self, op: int, kinds: frozenset[Kind]) -> list[int]:
        return [
            implementation
            for implementation in range(
                int(self.tables.op_first[op]), int(self.tables.op_first[op + 1])
            )
            if self._kinds[implementation]
            and self._kinds[implementation] <= kinds
            and not self._overwrites[implementation]
        ]

    def _encode(self, value: int, readers: list[int]) -> None:
        """Switch all backward readers of a value, where that saves bytes; lossless comes first."""
        readers = [op for op in readers if value in self._reads[self.implementation[op]]]
        best: tuple[int, dict[int, int], frozenset[int]] | None = None
        for mode in ("exact", "csr", "bitmap", "fp16"):
            found = self._switched(value, readers, mode)
            if found is None or (mode == "fp16" and best is not None):
                continue
            new = frozenset().union(
                *(self._encodings(implementation) for implementation in found.values())
            )
            extra = int(sum(self.tables.value_bytes[v] for v in new if not self._used[v]))
            if extra < self.tables.value_bytes[value] and (best is None or extra < best[0]):
                best = extra, found, new
        if best is None:
            return
        for op, implementation in best[1].items():
            self._switch(op, implementation)
        self.encoded[value] = best[2]
        for encoding in best[2]:
            writer = int(self.tables.writer[encoding])
            self._switch(writer, int(self.tables.op_first[writer]))

    def _switch(self, op: int, implementation: int) -> None:
        """Compute an op in another way, and know how many read what."""
        if self.implementation[op] >= 0:
            self._used.subtract(self._reads[int(self.implementation[op])])
        self._used.update(self._reads[implementation])
        self.implementation[op] = implementation

    def _encodings(self, implementation: int) -> frozenset[int]:
        """What it reads that optional ops write."""
        return frozenset(v for v in self._reads[implementation] if self._is_optional[v])

    def _switched(self, value: int, readers: list[int], mode: str) -> dict[int, int] | None:
        """For each reader, an implementation that reads an encoding; None where one has none."""
        found = {}
        for op in readers:
            now = self._reads[self.implementation[op]]
            fitting = [
                implementation
                for implementation in self._implementations(op, self._offered)
                if value not in self._reads[implementation]
                and self._reads[implementation] - self._encodings(implementation) <= now
                and self._is_of(implementation, mode)
            ]
            if not fitting:
                return None
            size = self.tables.value_bytes
            found[op] = min(
                fitting,
                key=lambda implementation: sum(size[v] for v in self._encodings(implementation)),
            )
        return found

    def _is_of(self, implementation: int, mode: str) -> bool:
        """Masks are of every mode; a dense encoding of one."""
        name, kinds = self._names[implementation], self._kinds[implementation]
        if kinds <= {Kind.INTERMEDIATE, Kind.SHAPE}:
            return True
        if Kind.ENCODED in kinds and self.options.sparse not in (mode, "either"):
            return False
        return name.split(":")[1:2] == [mode] and bool(kinds & {Kind.ENCODED, Kind.LOSSY})


def _fastest(graph: Graph, implementations: IntArray) -> IntArray:
    """The cheapest of what reads the same, without regard to workspace."""
    tables, fast = graph.tables, implementations.copy()
    for position, implementation in enumerate(implementations.tolist()):
        op = int(tables.op_of[implementation])
        reads = set(tables.reads[implementation].tolist())
        rivals = [
            other
            for other in range(int(tables.op_first[op]), int(tables.op_first[op + 1]))
            if set(tables.reads[other].tolist()) <= reads
            and not (tables.overwritten_by[other] >= 0).any()
        ]
        fast[position] = min([implementation, *rivals], key=lambda other: tables.cost[other])
    return fast


def _in_place(graph: Graph, implementations: IntArray) -> IntArray:
    """Overwrite, where the value is not read again."""
    tables, found = graph.tables, implementations.copy()
    wanted = {int(v) for v in tables.outputs}
    for position in range(len(implementations) - 1, -1, -1):
        implementation = int(implementations[position])
        op, reads = int(tables.op_of[implementation]), set(tables.reads[implementation].tolist())
        for other in range(int(tables.op_first[op]), int(tables.op_first[op + 1])):
            taken = {v for v in tables.overwritten_by[other].tolist() if v >= 0}
            same = set(tables.reads[other].tolist()) == reads
            if taken and same and not taken & wanted:
                found[position] = other
                break
        wanted -= set(tables.writes[op].tolist())
        wanted |= reads
    return found


def _details(problem: Problem, encoder: _Encoder, implementations: IntArray) -> dict[str, Any]:
    """How often what was used, on how many bytes, and how sparse it was."""
    graph, tables = problem.graph, problem.graph.tables
    count: Counter[str] = Counter()
    for implementation in implementations.tolist():
        op = int(tables.op_of[implementation])
        name = graph.ops[op].implementations[implementation - int(tables.op_first[op])].name
        for kind in kinds_of(name) - {Kind.DEFAULT}:
            count[kind.value] += 1
    waiting = list(encoder.encoded)
    encodings = {v for found in encoder.encoded.values() for v in found}
    found = {
        "ways": dict(count),
        "lossy": count[Kind.LOSSY.value] > 0,
        "encoded_values": len(waiting),
        "encoded_from_bytes": int(tables.value_bytes[waiting].sum()),
        "encoded_to_bytes": int(tables.value_bytes[sorted(encodings)].sum()),
    }
    sparsity = _sparsity(problem, encoder)
    if sparsity:
        found["sparsity"] = sparsity
    return found


def _sparsity(problem: Problem, encoder: _Encoder) -> dict[str, float]:
    """Measured share of zeros, of each value that is stored sparsely."""
    if problem.captured is None:
        return {}
    graph, found = problem.graph, {}
    for value, encodings in encoder.encoded.items():
        for encoding in encodings:
            op = graph.ops[int(graph.tables.writer[encoding])].name
            traits = problem.captured.traits.get((op, "default"))
            if traits is not None and traits.density < 1:
                found[graph.values[value].name] = 1 - traits.density
    return found
