"""``torch.utils.checkpoint``: segments that run forward again, as a whole or selectively.

A segment of ``checkpoint_sequential`` keeps its input only. Selective activation checkpointing
(``create_selective_checkpoint_contexts``) keeps, besides, what the ops of its policy make.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from rematbench.graphs.errors import ConfigError, NotApplicable
from rematbench.graphs.ir import Graph, IntArray, Phase
from rematbench.graphs.plan import Plan, with_frees
from rematbench.graphs.structure import articulation_points, forward_ops
from rematbench.strategies.base import (
    CheckpointedRun,
    Problem,
    Solution,
    Traits,
    fitted,
)

if TYPE_CHECKING:
    from rematbench.tracing.captured import Captured

# What PyTorch calls compute-intensive, and dropout: what is kept draws nothing when run again.
CONTRACTIONS = (
    *("convolution", "mm", "addmm", "bmm", "baddbmm"),
    *("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu"),
    *("_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention"),
    "native_dropout",
)
# Of the contractions, every n-th is kept: all of them, or every second as torchtitan does.
POLICIES = {"contractions": 1, "alternate": 2}


@dataclass(frozen=True)
class TorchCheckpoint:
    """``checkpoint_sequential``: sqrt(n) segments of the network, with or without a policy.

    All segments but the last drop what they make, but for their outputs and what the policy
    keeps, and run forward again before their backward pass. Segments may end at articulation
    points of the forward graph.

    Attributes:
        segments: how many; None = floor(sqrt n) of n articulation points.
        policy: None keeps nothing in a segment; ``contractions`` what convolutions, matrix
            products, attention and random draws make; ``alternate`` every second of these.
    """

    traits: ClassVar[Traits] = Traits("partly", "no", "no")
    segments: int | None = None
    policy: Literal["contractions", "alternate"] | None = None

    def __post_init__(self) -> None:
        if self.policy not in (None, *POLICIES):
            raise ConfigError(f"strategy.policy={self.policy}: use null, {', '.join(POLICIES)}")

    def plan(self, problem: Problem) -> Solution:
        """Its one plan.

        Raises:
            NotApplicable: there is no loss, or nowhere to cut; a policy needs a PyTorch model.
            Infeasible: the plan is above the budget.
        """
        graph = problem.graph
        if graph.loss_index is None:
            raise NotApplicable("the graph has no loss op, so that there is no backward pass")
        points = articulation_points(graph)
        count = isqrt(len(points)) if self.segments is None else self.segments
        if not 1 < count <= len(points):
            raise NotApplicable(
                f"{len(points)} articulation points cannot make {count} segments; "
                "set strategy.segments"
            )
        size = len(points) // count
        ends = points[size - 1 :: size][: count - 1]
        kept = self._kept(graph, problem.captured)
        plan = Plan.from_codes(graph, with_frees(graph, _in_segments(graph, ends, kept)))
        native = CheckpointedRun(self.segments)
        if self.policy is not None:
            native = CheckpointedRun(self.segments, CONTRACTIONS, POLICIES[self.policy])
        facts = {"segments": count}
        return fitted(problem, plan, variant=self.policy, details=facts, native=native)

    def _kept(self, graph: Graph, captured: Captured | None) -> frozenset[int]:
        """Forward ops whose outputs the policy keeps."""
        if self.policy is None:
            return frozenset()
        if captured is None:
            raise NotApplicable("a policy chooses PyTorch's ops, which a graph file does not have")
        chosen = []
        for op in forward_ops(graph).tolist():
            target = captured.code[graph.ops[op].name]["default"][0].target
            if getattr(target, "overloadpacket", target).__name__ in CONTRACTIONS:
                chosen.append(op)
        return frozenset(chosen[:: POLICIES[self.policy]])


def _in_segments(graph: Graph, ends: IntArray, kept: frozenset[int]) -> IntArray:
    """Each op once, and each segment again before the first backward op that misses part of it.

    Args:
        ends: last op of each segment that is run again, in program order.
        kept: ops whose values stay.
    """
    tables = graph.tables
    ops = forward_ops(graph)
    segment = {op: int(np.searchsorted(ends, op)) for op in ops.tolist()}
    stay = kept.union(ends.tolist())
    dropped = {op for op, s in segment.items() if s < len(ends) and op not in stay}
    sequence: list[int] = []
    again: set[int] = set()
    for op in np.flatnonzero(graph.needed_ops()).tolist():
        if graph.ops[op].phase is Phase.BACKWARD:
            reads = tables.writer[tables.reads[int(tables.op_first[op])]].tolist()
            for s in sorted({segment[w] for w in reads if w in dropped} - again):
                again.add(s)
                sequence += [o for o in ops.tolist() if segment[o] == s and o in dropped]
        sequence.append(op)
    return np.asarray(tables.op_first[np.array(sequence)], dtype=np.int64)
