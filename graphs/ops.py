"""What a graph is made of: values, ops, and the alternative ways to run each op."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

_NUMBER = re.compile(r"_\d+$")
_OF_ALL_RANKS = ("_c10d_functional", "_c10d_functional_autograd", "c10d", "_dtensor")
"""Namespaces of operators that the ranks of a group run together."""


class Phase(StrEnum):
    """The part of a training step that an op belongs to."""

    FORWARD = "forward"
    LOSS = "loss"
    BACKWARD = "backward"


@dataclass(frozen=True, slots=True)
class Value:
    """One storage, the unit that is allocated and freed.

    Attributes:
        name: unique among the values of a graph.
        bytes: size of the storage.
        resident: an input, parameter or buffer, live from start to end.
    """

    name: str
    bytes: int
    resident: bool = False


@dataclass(frozen=True, slots=True)
class Implementation:
    """One way to run an op; most ops have one.

    Attributes:
        name: unique within its op.
        reads: names of the values that it reads. All but an op's default may read what the op
            itself writes: such an implementation can only recompute (batch norm by its saved
            statistics), while these values live.
        cost: in the graph's cost unit.
        workspace_bytes: bytes needed only while it runs.
        overwrites: reads whose storages the op's outputs take over (in-place).
        replays: the random op whose draws it repeats, from a state of the generator that is saved
            for it; None: of no other op. Not hashed.
    """

    name: str
    reads: tuple[str, ...]
    cost: float
    workspace_bytes: int = 0
    overwrites: tuple[str, ...] = ()
    replays: str | None = None


@dataclass(frozen=True, slots=True)
class Op:
    """One computation, which reads values and writes new ones.

    ``implementations[0]`` is the default.

    Attributes:
        scope: qualified name of the module that it came from; "" where none is known. No planner's
            answer depends on it but those of strategies by blocks, so that it is not hashed.
        autograd_node: equal of backward ops that PyTorch's autograd runs as one node of its graph,
            which lets go of nothing before it is done (both products that a product of two tensors
            becomes); None of an op that is one alone. Not hashed, for the same reason.
        random: it draws random numbers, so that its first compute must follow program order among
            such ops (:func:`rematbench.graphs.simulate.check_draws`). Not hashed.
        target: the operator that it calls, as PyTorch spells it: ``aten.convolution.default``; None
            where that is not known. Not hashed.
    """

    name: str
    phase: Phase
    writes: tuple[str, ...]
    implementations: tuple[Implementation, ...]
    scope: str = ""
    autograd_node: int | None = None
    random: bool = False
    target: str | None = None

    @property
    def collective(self) -> bool:
        """Do several ranks run it together?

        Then they wait for each other: it is computed once, and in program order among its kind.
        """
        return is_collective(self.target)

    @property
    def operator(self) -> str:
        """What it computes, without namespace, overload and number: ``convolution``.

        An op without a target is named after its operator, as fx names nodes: ``convolution_3``.

        >>> simple_op("add_3", Phase.FORWARD, ["x"], ["y"], 1.0).operator
        'add'
        """
        if self.target is None:
            return _NUMBER.sub("", self.name)
        return self.target.split(".")[1] if "." in self.target else self.target

    @property
    def label(self) -> str:
        """Its name as messages say it, with the module that it came from: ``'mm_3' (layers.1)``."""
        return f"{self.name!r} ({self.scope})" if self.scope else repr(self.name)

    @property
    def reads(self) -> tuple[str, ...]:
        """What the default implementation reads."""
        return self.implementations[0].reads

    @property
    def cost(self) -> float:
        """Cost of the default implementation."""
        return self.implementations[0].cost


def is_collective(target: str | None) -> bool:
    """Do several ranks run an operator together?"""
    return target is not None and target.partition(".")[0] in _OF_ALL_RANKS


def simple_op(
    name: str,
    phase: Phase,
    reads: Iterable[str],
    writes: Iterable[str],
    cost: float,
    workspace_bytes: int = 0,
    target: str | None = None,
) -> Op:
    """An op with a single implementation, called ``default``."""
    implementation = Implementation("default", tuple(reads), cost, workspace_bytes)
    return Op(name, phase, tuple(writes), (implementation,), target=target)
