"""``torch.utils.checkpoint``: segments that run forward again, as a whole or selectively.

A segment of ``checkpoint_sequential`` keeps its input only. Selective activation checkpointing
(``create_selective_checkpoint_contexts``) keeps, besides, what the ops of its policy make.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from rematbench.base.errors import ConfigError, NotApplicable
from rematbench.engines.plans.regions import plan_with_regions
from rematbench.engines.plans.stages import BoolArray
from rematbench.graphs.ir import Graph, IntArray
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
        plan = plan_with_regions(graph, _segments(graph, ends), kept)
        native = CheckpointedRun(self.segments)
        if self.policy is not None:
            native = CheckpointedRun(self.segments, CONTRACTIONS, POLICIES[self.policy])
        facts = {"segments": count}
        return fitted(problem, plan, variant=self.policy, details=facts, native=native)

    def _kept(self, graph: Graph, captured: Captured | None) -> BoolArray:
        """Per op: does the policy keep what it makes?"""
        kept = np.zeros(len(graph.ops), dtype=bool)
        if self.policy is None:
            return kept
        if captured is None:
            raise NotApplicable("a policy chooses PyTorch's ops, which a graph file does not have")
        chosen = []
        for op in forward_ops(graph).tolist():
            target = captured.code[graph.ops[op].name]["default"][0].target
            if getattr(target, "overloadpacket", target).__name__ in CONTRACTIONS:
                chosen.append(op)
        kept[chosen[:: POLICIES[self.policy]]] = True
        return kept


def _segments(graph: Graph, ends: IntArray) -> IntArray:
    """Per op: its segment; -1 in the last one, which is not run again, and after it.

    Args:
        ends: last op of each segment but the last, in program order.
    """
    ops = forward_ops(graph)
    number = np.searchsorted(ends, ops)
    segment = np.full(len(graph.ops), -1, dtype=np.int64)
    segment[ops] = np.where(number < len(ends), number, -1)
    return segment
