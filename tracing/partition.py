"""PyTorch's min-cut partitioner on a captured model: its decisions as a plan, with any solver.

With :mod:`rematbench.tracing.trace` the only place that knows PyTorch's private APIs.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule

from rematbench.base.errors import ExecutionError, NotApplicable
from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.plan import with_frees
from rematbench.tracing.halves import JointWorkload
from rematbench.tracing.trace import trace_joint
from rematbench.tracing.workload import Workload

# Above 0, where no solver is asked, and below every ratio at which the partitioner is content.
SMALLEST_RATIO = 1e-9
_OUTPUTS = ("InputMutationAOTOutput", "PlainAOTOutput")  # of the forward pass


def knapsack_solver(recomputed: Collection[str], known: Collection[str]) -> Any:
    """A plan's decisions as a solver of the partitioner's knapsack.

    The partitioner asks it about the forward ops that it would not compute again by itself
    (convolutions, matrix products, attention, reductions): which to save, which to leave to its
    minimum cut. It looks at no sizes; the plan did.

    Args:
        recomputed: names of the ops that the plan computes again.
        known: names of all ops of the graph that the plan is for.

    Raises:
        NotApplicable: this PyTorch has no such hook.
    """
    try:
        from torch._inductor.custom_graph_pass import CustomKnapsackSolver
    except ImportError:
        raise NotApplicable(
            f"PyTorch {torch.__version__} has no CustomKnapsackSolver; 2.11 to 2.15 have"
        ) from None
    again, names = frozenset(recomputed), frozenset(known)

    class PlanKnapsack(CustomKnapsackSolver):
        def __call__(
            self, memory: Any, joint_graph: Any, max_memory: Any, node_info: Any, asked: Any
        ) -> tuple[list[int], list[int]]:
            foreign = [node for node in asked if node.name not in names]
            for node in foreign:
                if not getattr(node.target, "is_view", False):  # which costs nothing again
                    raise ExecutionError(
                        f"the partitioner asks about {node.name}, which the captured graph does "
                        "not have: torch.compile traced another model, batch or mode"
                    )
            free = again | {node.name for node in foreign}
            recompute = [i for i, node in enumerate(asked) if node.name in free]
            return [i for i in range(len(asked)) if i not in set(recompute)], recompute

        def uuid(self) -> None:
            """None: what depends on a plan is compiled anew."""

    return PlanKnapsack()


class Partitioner:
    """PyTorch's partitioner on a model; traces it once."""

    def __init__(self, workload: Workload, device: str) -> None:
        self._known: dict[tuple[float, str], list[str]] = {}
        if isinstance(workload, JointWorkload):
            self._joint, self._forward_outputs = workload.joint, workload.returned
            return
        self._joint = trace_joint(workload, device)
        kinds = [type(d).__name__ for d in self._joint.graph.output_node().meta["desc"]]
        self._forward_outputs = sum(kind in _OUTPUTS for kind in kinds)

    def codes(self, graph: Graph, ratio: float, solver: str) -> IntArray:
        """Statement codes of its forward and backward modules, run one after the other.

        Args:
            graph: as captured; other costs are fine.
            ratio: its ``activation_memory_budget``.
        """
        if (ratio, solver) not in self._known:
            self._known[ratio, solver] = self._nodes(ratio, solver)
        return with_frees(graph, _computes(graph, self._known[ratio, solver]))

    def codes_by(self, graph: Graph, recomputed: Collection[str]) -> IntArray:
        """The same, where a plan chose what may be computed again; see :func:`knapsack_solver`."""
        solver = knapsack_solver(recomputed, graph.op_index)
        return with_frees(graph, _computes(graph, self._nodes(SMALLEST_RATIO, solver)))

    def _nodes(self, ratio: float, solver: Any) -> list[str]:
        from torch._functorch import config
        from torch._functorch.partitioners import min_cut_rematerialization_partition

        module = GraphModule(self._joint, copy.deepcopy(self._joint.graph))
        # Merging common subexpressions would lose the names of ops.
        with config.patch(
            activation_memory_budget=ratio, activation_memory_budget_solver=solver, cse=False
        ):
            parts = min_cut_rematerialization_partition(
                module, (), num_fwd_outputs=self._forward_outputs
            )
        return [n.name for part in parts for n in part.graph.nodes if n.op == "call_function"]


@functools.lru_cache(maxsize=1)
def partitioner(workload: Workload, device: str) -> Partitioner:
    """The latest model's is kept: a sweep of budgets asks it for the same ratios."""
    return Partitioner(workload, device)


def _computes(graph: Graph, nodes: list[str]) -> IntArray:
    """Computes of the ops that these nodes became; ops that are ours alone as soon as possible."""
    tables, index = graph.tables, graph.op_index
    needed = graph.needed_ops()
    sequence = []
    for node in nodes:
        parts = (node, f"{node}_input", f"{node}_weight")
        sequence += [index[p] for p in parts if p in index and needed[index[p]]]
    missing = set(np.flatnonzero(needed).tolist()) - set(sequence)
    for op in sorted(missing):
        reads = tables.inputs[op]
        writers = {w for w in tables.writer[reads].tolist() if w >= 0}
        first = {w: sequence.index(w) for w in writers}
        sequence.insert(1 + max(first.values(), default=-1), op)
    return np.array([tables.op_first[op] for op in sequence], dtype=np.int64)
