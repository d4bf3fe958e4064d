"""What people run today to offload activations."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card


class Facts(TypedDict, total=False):
    """offload_all, offload_hidden, offload_dots, auto_perf."""

    offloaded_values: Annotated[int, Means("that go to the host; auto_perf: ops whose values do")]
    layers: Annotated[int, Means("repeated blocks")]
    shares: Annotated[
        list[float],
        Means("of layers' activations that are kept, recomputed, offloaded", "ratio", length=3),
    ]


CARDS = (
    Card(
        name="offload_all",
        planner="planner.OffloadAll",
        problem="offload every saved value above a size (TRL, torchtune)",
        guarantee="none; one plan",
        scope="graphs with a backward pass",
        page="offload.md",
        golden="its rules, statement by statement",
        knobs="`least_bytes`, `newest`",
        place=40,
        facts=Facts,
    ),
    Card(
        name="offload_hidden",
        planner="planner.OffloadHidden",
        problem="checkpoint every block, and offload its input (transformers, DeepSpeed)",
        guarantee="none; one plan",
        scope="models with repeated blocks",
        page="offload.md",
        golden="its rules, statement by statement",
        place=41,
        facts=Facts,
    ),
    Card(
        name="offload_dots",
        planner="planner.OffloadDots",
        problem="offload products of matrices, recompute the rest of each block (JAX)",
        guarantee="none; one plan",
        scope="models with repeated blocks",
        page="offload.md",
        golden="its rules, statement by statement",
        place=42,
        facts=Facts,
    ),
    Card(
        name="auto_perf",
        planner="layers.AutoPerf",
        problem="split each layer's activations by a linear program (torchtitan#4636)",
        guarantee="none; its peak is an estimate",
        scope="models with repeated blocks",
        page="offload.md",
        golden="its program by hand, statement by statement",
        knobs="`solver`",
        place=45,
        facts=Facts,
    ),
)
