"""What people run today to offload: fixed rules, which no budget changes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rematbench.base.checks import check_count
from rematbench.base.errors import NotApplicable
from rematbench.engines.bridges.across import across_loss, copyable
from rematbench.engines.bridges.gaps import Sequence
from rematbench.engines.bridges.weave import plan_at
from rematbench.engines.plans.regions import plan_with_regions
from rematbench.engines.plans.stages import BoolArray
from rematbench.graphs.blocks import Block, repeated_blocks
from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.plan import program_order
from rematbench.strategies.base import Problem, Solution, Traits, fitted

_TRAITS = Traits("yes", "no", "partly", offloads=True)
PRODUCTS = ("mm", "addmm")
"""JAX's dots without batch dimensions, as PyTorch has them."""


@dataclass(frozen=True)
class OffloadAll:
    """Every saved value of at least so many bytes goes to the host, as in TRL and torchtune.

    A value leaves after its last use in the forward pass. The newest stay on the device until as
    many newer ones follow; compute then waits for the copy. It comes back at its use, which waits.
    What goes out and what comes in shares one stream there; here the link says whether it does.

    Attributes:
        least_bytes: smaller values stay.
        newest: so many stay on the device behind the one that leaves.
    """

    traits: ClassVar[Traits] = _TRAITS
    least_bytes: int = 1024
    newest: int = 5

    def __post_init__(self) -> None:
        check_count("least_bytes", self.least_bytes, 0)
        check_count("newest", self.newest, 0)

    def plan(self, problem: Problem) -> Solution:
        """Its one plan.

        Raises:
            NotApplicable: there is no link, or no backward pass.
            Infeasible: the plan is above the budget, or the host's limit.
        """
        graph = copyable(problem)
        codes = program_order(graph).codes(graph)
        sequence = Sequence.of(graph, codes[codes >= 0])
        wide = sequence.sizes >= max(1, self.least_bytes)
        gaps = np.flatnonzero(across_loss(sequence) & wide)
        return _solution(problem, sequence, gaps, self.newest)


@dataclass(frozen=True)
class OffloadHidden:
    """Each repeated block runs again in the backward pass; its input alone waits on the host.

    It comes back when the backward pass of the block after it begins, one block ahead.
    """

    traits: ClassVar[Traits] = _TRAITS

    def plan(self, problem: Problem) -> Solution:
        """Its one plan.

        Raises:
            NotApplicable: there is no link, or no repeated block.
            Infeasible: the plan is above the budget, or the host's limit.
        """
        graph = copyable(problem)
        blocks = blocks_of(graph)
        sequence = _regions(graph, blocks, np.zeros(len(graph.ops), dtype=bool))
        inputs = np.zeros(len(graph.values), dtype=bool)
        for block in blocks:
            inside = set(block.ops)
            for op in block.ops:
                reads = graph.tables.inputs[op]
                inputs[[v for v in reads.tolist() if graph.tables.writer[v] not in inside]] = True
        gaps = np.flatnonzero(across_loss(sequence) & inputs[sequence.value])
        return _solution(problem, sequence, gaps, 0, ahead=True)


@dataclass(frozen=True)
class OffloadDots:
    """Each repeated block runs again, but for products of matrices, which wait on the host.

    JAX's ``offload_dot_with_no_batch_dims``.
    """

    traits: ClassVar[Traits] = _TRAITS

    def plan(self, problem: Problem) -> Solution:
        """Its one plan.

        Raises:
            NotApplicable: there is no link, no repeated block, or no product of matrices there.
            Infeasible: the plan is above the budget, or the host's limit.
        """
        graph = copyable(problem)
        blocks = blocks_of(graph)
        dots = np.zeros(len(graph.ops), dtype=bool)
        inside = [op for block in blocks for op in block.ops]
        dots[[op for op in inside if graph.ops[op].operator in PRODUCTS]] = True
        if not dots.any():
            raise NotApplicable("no block has a product of matrices; use offload_hidden")
        sequence = _regions(graph, blocks, dots)
        away = across_loss(sequence) & dots[graph.tables.writer[sequence.value]]
        return _solution(problem, sequence, np.flatnonzero(away), 0, ahead=True)


def blocks_of(graph: Graph) -> tuple[Block, ...]:
    """Its repeated blocks.

    Raises:
        NotApplicable: there are none.
    """
    found = repeated_blocks(graph)
    if not found:
        raise NotApplicable("no module is repeated; use offload_all or hybrid")
    return found


def _regions(graph: Graph, blocks: tuple[Block, ...], saved: BoolArray) -> Sequence:
    """The computes of checkpointed blocks that save what some ops make."""
    region = np.full(len(graph.ops), -1, dtype=np.int64)
    for number, block in enumerate(blocks):
        region[list(block.ops)] = number
    return sequence_of_regions(graph, region, saved)


def sequence_of_regions(graph: Graph, region: IntArray, saved: BoolArray) -> Sequence:
    """The computes of :func:`~rematbench.engines.plans.regions.plan_with_regions`."""
    codes = plan_with_regions(graph, region, saved).codes(graph)
    return Sequence.of(graph, codes[codes >= 0])


def _solution(
    problem: Problem, sequence: Sequence, gaps: IntArray, newest: int, ahead: bool = False
) -> Solution:
    """Frees behind the newest, fetches at the use; or one offloaded value ahead."""
    begin, end = sequence.begin[gaps], sequence.end[gaps]
    frees, behind = begin + 1, deque[int]()
    for at, gap in enumerate(begin.tolist()):  # in this order values leave
        behind.append(at)
        if len(behind) > newest:
            frees[behind.popleft()] = gap + 1
    stay = np.array(behind, dtype=np.int64)  # the newest at the end of the forward pass
    frees[stay] = -1
    fetches = end.copy()
    if ahead:
        order = np.argsort(end, kind="stable")
        fetches[order[1:]] = end[order[:-1]]
        fetches = np.maximum(fetches, frees + 1)
    frees = np.where(frees < fetches, frees, -1)
    plan = plan_at(sequence, gaps, frees, fetches, None)
    assert plan is not None
    return fitted(problem, plan, details={"offloaded_values": int((frees >= 0).sum())})
