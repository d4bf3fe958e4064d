"""``lower="inductor"``: a plan's two halves through Inductor's own pipeline, as its partitioner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch._inductor import config as inductor_config
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.custom_graph_pass import CustomPartitionerFn
from torch.fx import GraphModule

from rematbench.tracing.releases import RELEASE

Partition = Callable[..., tuple[GraphModule, GraphModule]]
Wrap = Callable[[Any, bool], Any]

ORDERED: dict[str, Any] = {
    # Inductor would choose among four orders by estimates that know no plan.
    "reorder_for_peak_memory": False,
    "reorder_for_compute_comm_overlap": False,
}
"""Settings of Inductor under which it keeps the order that it is given, fusion apart."""

LEAN: dict[str, Any] = {
    # A buffer goes where the plan lets it go, and does not wait for one of its size.
    "allow_buffer_reuse": False,
    # A value that is read twice is written once; else all that it is made of stays for it.
    "realize_reads_threshold": 1,
}
"""Settings under which what lives is what the plan keeps; for plans that compute again."""
if RELEASE.keeps_layouts:
    # Copies of weights and images in another layout would be saved for the backward pass.
    LEAN["layout_optimization"] = False


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
    module: GraphModule,
    inputs: Sequence[Any],
    partitioner: PlanPartitioner,
    lean: Callable[[], bool],
    wrap: Wrap,
) -> Any:
    """A function of the graph's inputs.

    Args:
        lean: does the plan, which the partitioner made, compute anything again?
        wrap: is given each compiled half (and whether it is the backward one), and returns what
            runs in its place.
    """

    def inner(graph: GraphModule, examples: Sequence[Any], **facts: Any) -> Any:
        with inductor_config.patch(_known(LEAN) if lean() else {}):
            made = compile_fx_inner(graph, examples, **facts)
        if facts.get("is_inference"):
            return made
        return wrap(made, bool(facts.get("is_backward")))

    patches = _known({**ORDERED, "custom_partitioner_fn": partitioner})
    return compile_fx(module, list(inputs), inner_compile=inner, config_patches=patches)


def _known(settings: dict[str, Any]) -> dict[str, Any]:
    """Those that this version of PyTorch has."""
    return {name: value for name, value in settings.items() if hasattr(inductor_config, name)}
