"""Each implementation beside its op's default, on the inputs that the op gets in a real step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from rematbench.graphs.ir import Graph, Implementation, Op
from rematbench.graphs.kinds import ImplementationName, ImplementationTraits
from rematbench.validator.compare import TOLERANCE, difference, largest_entry
from rematbench.validator.double import doubled, in_double
from rematbench.validator.execute import Bench, RandomReplay
from rematbench.validator.interpret import run_call, run_calls

# TF32 rounds each factor of a product to ten bits.
TF32_EPSILON, TF32_TOLERANCE = 2.0**-10, 2e-3

Tensors = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Alone:
    """How an implementation's results differ from the default one's.

    Attributes:
        op, implementation: its names.
        error: relative, as :class:`~rematbench.graphs.kinds.ImplementationTraits` defines; None
            where no number tells it, see ``reason``.
        tolerance: what is allowed: what it states, or more where a device rounds more.
        reason: what is wrong; None: it is within its tolerance.
    """

    op: str
    implementation: str
    error: float | None
    tolerance: float
    reason: str | None = None


def compare_alone(
    bench: Bench, implementations: Collection[ImplementationName], exact: bool
) -> dict[ImplementationName, Alone]:
    """Run one step by default implementations, and each of ``implementations`` beside them.

    Args:
        exact: the device repeats its bits, so that an implementation without tolerance must give
            the default one's.
    """
    return {
        (found.op, found.implementation): found
        for found in _Walk(bench, implementations, exact).found()
    }


class _Walk:
    """One step by default implementations, as far as the last op that is looked at."""

    def __init__(
        self, bench: Bench, implementations: Collection[ImplementationName], exact: bool
    ) -> None:
        self.bench, self.captured, self.exact = bench, bench.captured, exact
        self.graph: Graph = bench.captured.graph
        self.implementations: dict[str, list[Implementation]] = defaultdict(list)
        for op, name in implementations:
            choices = self.graph.ops[self.graph.op_index[op]].implementations
            self.implementations[op] += [choice for choice in choices if choice.name == name]
        self.tensors: Tensors = {}
        self.rng = RandomReplay(bench.device)

    def found(self) -> Iterator[Alone]:
        """All that are looked at, in program order."""
        captured = self.captured
        names = [resident.tensor for resident in captured.residents]
        self.tensors = dict(zip(names, self.bench.residents, strict=True))
        torch.manual_seed(self.bench.seed + 1)
        with torch.no_grad():
            run_calls(captured.prologue, self.tensors)
            for number, unread in self._schedule():
                op = self.graph.ops[number]
                before = dict(self.tensors)
                if op.name in captured.random_ops:
                    self.rng.record(number)
                self.tensors |= self.run(op, "default", before)
                if op.name in self.implementations:
                    yield from self._compared(op, before)
                for name in [n for n in self.tensors if captured.value_of[n] in unread]:
                    del self.tensors[name]

    def _schedule(self) -> list[tuple[int, frozenset[str]]]:
        """The ops to run, by number, and the values that nobody reads after each."""
        resident = {value.name for value in self.graph.values if value.resident}
        needed: set[str] = set()
        order: list[tuple[int, frozenset[str]]] = []
        for number in range(len(self.graph.ops) - 1, -1, -1):
            op = self.graph.ops[number]
            implementations = self.implementations.get(op.name, [])
            drawn = op.name in self.captured.random_ops and order
            if not (implementations or drawn or needed.intersection(op.writes)):
                continue
            reads = {
                v
                for implementation in (op.implementations[0], *implementations)
                for v in implementation.reads
            } - resident
            order.append((number, frozenset((reads | {*op.writes}) - needed)))
            needed |= reads
            needed -= {*op.writes}
        return order[::-1]

    def run(
        self, op: Op, implementation: str, given: Tensors, source: str | None = None
    ) -> Tensors:
        """What an implementation makes.

        Args:
            source: the random op whose draws it repeats.
        """
        made: Tensors = {}
        if source is not None:
            self.rng.replay(self.graph.op_index[source])
        for call in self.captured.code[op.name][implementation]:
            made |= run_call(call, given | made)
        if source is not None:
            self.rng.resume()
        return made

    def _compared(self, op: Op, before: Tensors) -> Iterator[Alone]:
        root = self.captured.code[op.name]["default"][0]
        outs = {out for out in root.outs if out is not None}
        rounding = _Rounding(self, op, before)
        for implementation in self.implementations[op.name]:
            traits = self.captured.traits.get(
                (op.name, implementation.name), ImplementationTraits()
            )
            made = self._made(op, implementation, traits, before)
            yield self._judged(
                op, implementation, traits.tolerance, made, outs & made.keys(), rounding
            )

    def _made(
        self, op: Op, implementation: Implementation, traits: ImplementationTraits, before: Tensors
    ) -> Tensors:
        """An implementation's results; what it overwrites is a copy."""
        value_of = self.captured.value_of
        # One that reads its op's own results can only recompute them.
        given = self.tensors if {*implementation.reads} & {*op.writes} else before
        given = {
            n: t.clone() if value_of[n] in implementation.overwrites else t
            for n, t in given.items()
            if value_of[n] in implementation.reads
        }
        source = traits.replays or (op.name if op.name in self.captured.random_ops else None)
        return self.run(op, implementation.name, given, source)

    def _judged(
        self,
        op: Op,
        implementation: Implementation,
        tolerance: float,
        made: Tensors,
        outs: Collection[str],
        rounding: _Rounding,
    ) -> Alone:
        worst, most = 0.0, tolerance
        for name in outs:
            expected = self.tensors[name]
            allowed = self._allowed(tolerance, expected)
            largest = largest_entry(expected)
            error = difference(made[name], expected, largest)
            if isinstance(error, str):
                return Alone(op.name, implementation.name, None, allowed, f"{name}: {error}")
            if error > allowed > 0.0:
                found = difference(made[name], expected, max(largest, rounding.terms(name)))
                error = error if isinstance(found, str) else found
            if error > allowed:
                reason = f"{name} is off by {error:.3g} of its largest entry (allowed: {allowed:g})"
                return Alone(op.name, implementation.name, error, allowed, reason)
            worst, most = max((worst, most), (error, allowed))
        return Alone(op.name, implementation.name, worst, most)

    def _allowed(self, tolerance: float, expected: Tensor) -> float:
        usual = 0.0 if self.exact else TOLERANCE.get(expected.dtype, 0.0)
        if self.tf32 and expected.dtype is torch.float32 and tolerance:
            usual = max(usual, TF32_TOLERANCE)
        return max(tolerance, usual)

    @property
    def tf32(self) -> bool:
        """Does the device round products of single precision to TF32?"""
        return self.bench.device == "cuda" and torch.backends.cuda.matmul.allow_tf32


class _Rounding:
    """How large the terms are that a default implementation's results are made of.

    Where large terms leave little of each other, rounding tells: single and double precision
    differ by a unit in the last place of the terms.
    """

    def __init__(self, walk: _Walk, op: Op, before: Tensors) -> None:
        self.walk, self.op, self.before = walk, op, before

    @cached_property
    def _other(self) -> Tensors:
        """The results in double precision; of a step in double precision, those in single."""
        op, captured = self.op, self.walk.captured
        reads = op.implementations[0].reads
        given = {n: t for n, t in self.before.items() if captured.value_of[n] in reads}
        is_double = any(t.dtype is torch.float64 for t in given.values())
        source = op.name if op.name in captured.random_ops else None
        try:
            if is_double:
                single = {n: t.float() if t.dtype is torch.float64 else t for n, t in given.items()}
                return self.walk.run(op, "default", single, source)
            with in_double():
                return self.walk.run(op, "default", doubled(given), source)
        except (RuntimeError, NotImplementedError):  # it has no such precision
            return {}

    def terms(self, name: str) -> float:
        """About the largest of them, 0 where nothing is known."""
        ours = self.walk.tensors[name]
        other = self._other.get(name)
        if other is None or not ours.is_floating_point():
            return 0.0
        error = difference(ours.double(), other.double(), 1.0)
        coarser = max((ours.dtype, other.dtype), key=lambda dtype: torch.finfo(dtype).eps)
        epsilon = TF32_EPSILON if self.walk.tf32 else torch.finfo(coarser).eps
        return 0.0 if isinstance(error, str) else error / epsilon
