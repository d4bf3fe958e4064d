"""What people do by hand."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card, Paper

MEGATRON = Paper(
    authors="Korthikanti et al.",
    year=2022,
    title="Reducing Activation Recomputation in Large Transformer Models",
    url="https://arxiv.org/abs/2205.05198",
)


class Facts(TypedDict, total=False):
    """every_layer, every_n_layers, selective_ops, selective_attention, save_dots."""

    checkpointed: Annotated[
        dict[str, int], Means("how many modules of each list run forward again; * is a number")
    ]
    n: Annotated[int, Means("every_n_layers: of the blocks, every n-th runs again")]
    attention_cores: Annotated[int, Means("selective_attention: attentions that run again")]


CARDS = (
    Card(
        name="every_layer",
        planner="planner.EveryLayer",
        problem="checkpoint every block: `gradient_checkpointing_enable`, torchtitan's `full`",
        guarantee="none; one plan",
        scope="models with repeated blocks",
        page="practice.md",
        golden="PyTorch's own run",
        place=29,
        facts=Facts,
    ),
    Card(
        name="every_n_layers",
        planner="planner.EveryNLayers",
        problem="checkpoint every n-th block",
        scope="models with repeated blocks",
        page="practice.md",
        golden="PyTorch's own run",
        knobs="`n`, swept unless given",
        place=30,
        facts=Facts,
    ),
    Card(
        name="selective_ops",
        planner="planner.SelectiveOps",
        problem="save what products of matrices (every second one aside), attention and "
        "collectives make (torchtitan)",
        guarantee="none; one plan",
        scope="models with repeated blocks",
        page="practice.md",
        golden="PyTorch's own run",
        place=31,
        facts=Facts,
    ),
    Card(
        name="selective_attention",
        planner="planner.SelectiveAttention",
        paper=MEGATRON,
        problem="recompute core attention (Megatron)",
        guarantee="none; one plan",
        scope="models with attention",
        page="practice.md",
        golden="PyTorch's own run",
        place=32,
        facts=Facts,
    ),
    Card(
        name="save_dots",
        planner="planner.SaveDots",
        problem="JAX's policies per block",
        guarantee="none; one plan",
        scope="models with repeated blocks",
        page="practice.md",
        golden="JAX's rule",
        knobs="`variant`: which of JAX's two policies",
        place=33,
        facts=Facts,
    ),
)
