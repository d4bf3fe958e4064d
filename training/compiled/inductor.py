"""``lower="inductor"``: a plan's two halves through Inductor's own pipeline, as its partitioner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch._inductor import config as inductor_config
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.custom_graph_pass import CustomPartitionerFn
from torch.fx import GraphModule

Partition = Callable[..., tuple[GraphModule, GraphModule]]
Wrap = Callable[[Any, bool], Any]

ORDERED: dict[str, Any] = {
    # Inductor would choose among four orders by estimates that know no plan.
    "reorder_for_peak_memory": False,
    "reorder_for_compute_comm_overlap": False,
}
"""Settings of Inductor under which it keeps the order that it is given, fusion apart."""


class PlanPartitioner(CustomPartitionerFn):
    """Our partition of a joint graph, once Inductor's passes have changed it."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.hash: str | None = None

    def __call__(
        self, gm: GraphModule, joint_inputs: Sequence[object], **facts: Any
    ) -> tuple[GraphModule, GraphModule]:
        return self._partition(gm, joint_inputs, **facts)

    def __deepcopy__(self, memo: dict[int, Any]) -> PlanPartitioner:
        return self  # Inductor copies its settings, and what they hold

    def uuid(self) -> str | None:
        """The plan's hash: what is compiled for one plan is not taken for another's."""
        return self.hash


def compile_by_inductor(
    module: GraphModule, inputs: Sequence[Any], partitioner: PlanPartitioner, wrap: Wrap
) -> Any:
    """A function of the graph's inputs.

    Args:
        wrap: is given each compiled half (and whether it is the backward one), and returns what
            runs in its place.
    """

    def inner(graph: GraphModule, examples: Sequence[Any], **facts: Any) -> Any:
        made = compile_fx_inner(graph, examples, **facts)
        if facts.get("is_inference"):
            return made
        return wrap(made, bool(facts.get("is_backward")))

    patches = {**ORDERED, "custom_partitioner_fn": partitioner}
    known = {name: value for name, value in patches.items() if hasattr(inductor_config, name)}
    return compile_fx(module, list(inputs), inner_compile=inner, config_patches=known)
