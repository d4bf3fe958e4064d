"""The roofline model: an op takes as long as the longer of its arithmetic and its traffic."""

from __future__ import annotations

from dataclasses import dataclass

from rematbench.costmodel.costs import with_costs
from rematbench.costmodel.flops import arithmetic, bytes_moved, estimated_workspace
from rematbench.graphs.errors import ConfigError
from rematbench.graphs.ir import Graph
from rematbench.tracing.captured import Captured


@dataclass(frozen=True, slots=True)
class Machine:
    """A device by its data sheet.

    Attributes:
        name: as sold.
        flops: peak single-precision floating-point operations per second, no tensor cores.
        bandwidth: memory bandwidth in bytes per second.
        memory_bytes: of the card.
    """

    name: str
    flops: float
    bandwidth: float
    memory_bytes: int


MACHINES = {
    "v100": Machine("NVIDIA V100 SXM2 16GB", 15.7e12, 900e9, 16 * 2**30),
    "p100": Machine("NVIDIA P100 SXM2 16GB", 10.6e12, 732e9, 16 * 2**30),
    "titan_v": Machine("NVIDIA Titan V", 14.9e12, 653e9, 12 * 2**30),
    "rtx_2080_ti": Machine("NVIDIA RTX 2080 Ti", 13.4e12, 616e9, 11 * 2**30),
    "a100": Machine("NVIDIA A100 SXM 80GB", 19.5e12, 2039e9, 80 * 2**30),
    "h100": Machine("NVIDIA H100 SXM 80GB", 67e12, 3350e9, 80 * 2**30),
}


def roofline(captured: Captured, preset: str) -> Graph:
    """The captured graph with modelled seconds on the machine called ``preset``.

    Alternatives have estimated workspaces, which count as traffic; defaults have none.

    Raises:
        ConfigError: an unknown machine.
    """
    machine = MACHINES.get(preset)
    if machine is None:
        known = ", ".join(MACHINES)
        raise ConfigError(f"costmodel.preset={preset}: unknown machine; use one of {known}")
    costs = {}
    for op in captured.graph.ops:
        for way in op.implementations:
            workspace = estimated_workspace(op, way)
            computing = (arithmetic(captured, op.name, way.name) or 0.0) / machine.flops
            # A workspace is written and read once.
            moved = bytes_moved(captured, captured.code[op.name][way.name][0]) + 2 * workspace
            costs[op.name, way.name] = (max(computing, moved / machine.bandwidth), workspace)
    return with_costs(captured.graph, costs, "second")
