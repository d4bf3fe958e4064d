"""What Beaumont et al.'s Table 2 counts (joins, 2019): weights and activations of ResNets.

``python -m benchmarks.joins_counts`` writes ``runs/benchmarks/joins_counts.json``, which
docs/claims.csv quotes. The paper does not say what it counts; its weights (Table 1) are four
copies of ours. Counted here, in the paper's megabytes of 2 ** 20 bytes: what convolutions, batch
normalizations and ReLUs write, twice, for values and their gradients, beside four copies of the
weights.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.figures import Figure, publish
from benchmarks.graphs import captured
from rematbench.graphs.ir import Graph

PRINTED = {
    ("resnet18", 224): 230.05,
    ("resnet34", 224): 413.00,
    ("resnet50", 224): 620.27,
    ("resnet101", 224): 1027.21,
    ("resnet152", 224): 1410.62,
    ("resnet18", 500): 449.21,
    ("resnet34", 500): 749.73,
    ("resnet50", 500): 1570.93,
    ("resnet101", 500): 2472.72,
    ("resnet152", 500): 3458.50,
}
"""Table 2's megabytes, by network and pixels, batch 1."""
COUNTED = ("convolution", "batch_norm", "relu")
"""Operators whose outputs count."""
COPIES, MEGABYTE = 4, 2**20


def layer_bytes(graph: Graph) -> int:
    """What forward ops of the operators that count write."""
    size, tables = graph.tables.value_bytes, graph.tables
    return sum(
        int(size[tables.writes[place]].sum())
        for place, op in enumerate(graph.ops)
        if tables.forward[place] and any(name in op.operator for name in COUNTED)
    )


def counted(name: str, pixels: int) -> Iterator[Figure]:
    """A network's memory, and the same over the printed one."""
    found = captured(name, batch_size=1, resolution=pixels)
    graph = found.graph
    weights = sum(v.bytes for v in graph.values if found.kinds.get(v.name) == "parameter")
    megabytes = (COPIES * weights + 2 * layer_bytes(graph)) / MEGABYTE
    title = f"{name}, {pixels} px: weights four times, what its layers write twice"
    yield Figure(title, megabytes, None, "MB")
    yield Figure(f"{title}, over the printed", megabytes / PRINTED[name, pixels], None, "")


def main() -> None:
    """Count, print, write."""
    publish("joins_counts", [figure for each in PRINTED for figure in counted(*each)])


if __name__ == "__main__":
    main()
