"""What people do by hand: checkpoint the blocks that a model repeats, as a whole or selectively.

Every one is a fixed rule, and runs natively through ``torch.utils.checkpoint`` as well. Blocks are
found by the ops' scopes, see :func:`rematbench.graphs.blocks.repeated_blocks`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from rematbench.base.checks import check_choice, check_count
from rematbench.base.errors import ConfigError, NotApplicable
from rematbench.engines.plans.regions import plan_with_regions
from rematbench.engines.plans.stages import BoolArray
from rematbench.graphs.blocks import Block, blocks_named, repeated_blocks
from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.plan import Plan
from rematbench.graphs.structure import forward_ops
from rematbench.strategies.base import (
    CheckpointedRun,
    Problem,
    Solution,
    Traits,
    cheapest_within,
    fitted,
)
from rematbench.strategies.practice.attention import FUSED, attention_cores

# torchtitan's save list (distributed/activation_checkpoint.py): products of matrices, in PyTorch
# with and without a bias, of which every second is recomputed; attention and collectives.
PRODUCTS = ("mm", "addmm")
COLLECTIVES = (
    *("reduce_scatter_tensor", "all_gather_into_tensor", "all_reduce", "all_to_all_single"),
)
BATCHED = ("bmm", "baddbmm")
# jax.checkpoint_policies: dot_general and convolutions; dot_general without batch dimensions.
DOTS = {
    "dots_saveable": (*PRODUCTS, *BATCHED, "convolution"),
    "dots_with_no_batch_dims_saveable": PRODUCTS,
}
Release = Literal["late", "early"]
_RELEASES = ("late", "early")
_TRAITS = Traits("yes", "no", "no")
_PARTLY = Traits("yes", "partly", "no")


@dataclass(frozen=True)
class EveryLayer:
    """Full checkpointing of each repeated block, as ``gradient_checkpointing_enable`` does.

    A block keeps its inputs and runs forward again when its backward pass begins (torchtitan's
    mode ``full``, Megatron's ``full`` with ``recompute_num_layers=1``).

    Attributes:
        blocks: modules to take instead, by pattern: ``layers.*``; None finds the repeated ones.
        release: PyTorch's eager mode holds a block's inputs, and what a policy saved there that
            nothing reads again, until the block's backward pass has ended (``late``); a compiler
            frees them after their last use (``early``).
    """

    traits: ClassVar[Traits] = _TRAITS
    blocks: Sequence[str] | None = None
    release: Release = "late"

    def __post_init__(self) -> None:
        check_choice("release", self.release, _RELEASES)

    def plan(self, problem: Problem) -> Solution:
        """Its one plan.

        Raises:
            NotApplicable: no blocks are known.
            Infeasible: the plan is above the budget.
        """
        blocks = _blocks(problem.graph, self.blocks)
        plan = _plan(problem.graph, blocks, self.release)
        return fitted(problem, plan, details=_facts(blocks), native=_native(blocks))


@dataclass(frozen=True)
class EveryNLayers:
    """Full checkpointing of every n-th repeated block; the others keep everything.

    As torchtitan's ``selective`` with a number does: of blocks 1, 2, ... it takes n, 2n, ...

    Attributes:
        n: None tries all and takes the cheapest plan that fits: a large n.
        blocks, release: as of :class:`EveryLayer`.
    """

    traits: ClassVar[Traits] = Traits("yes", "no", "no", budgeted=True)
    n: int | None = None
    blocks: Sequence[str] | None = None
    release: Release = "late"

    def __post_init__(self) -> None:
        check_choice("release", self.release, _RELEASES)
        if self.n is not None and self.n < 1:
            raise ConfigError(f"strategy.n={self.n}: give a whole number, 1 or more, or null")

    def plan(self, problem: Problem) -> Solution:
        """The cheapest plan of the sweep that fits; ``details["curve"]`` has one point per n.

        Raises:
            NotApplicable: no blocks are known, or fewer than n.
            Infeasible: no n fits.
        """
        blocks = _blocks(problem.graph, self.blocks)
        if self.n is not None and self.n > len(blocks):
            raise NotApplicable(f"there are {len(blocks)} blocks; set strategy.n to no more")
        sizes = range(len(blocks), 0, -1) if self.n is None else [self.n]
        tried = ((n, _plan(problem.graph, blocks[n - 1 :: n], self.release)) for n in sizes)
        n, plan, _, curve = cheapest_within(problem, tried)
        chosen = blocks[n - 1 :: n]
        facts = {"n": n, "curve": curve, **_facts(chosen)}
        return Solution(plan, details=facts, native=_native(chosen))


@dataclass(frozen=True)
class SelectiveOps:
    """Selective checkpointing of each repeated block by torchtitan's policy per op.

    Saved is what products of matrices, attention and collectives make, but for every second
    product of matrices of a block; the rest runs again.

    Attributes:
        every: of a block's products of matrices the first of so many is saved and the others run
            again: 2, torchtitan's rule; 1 saves all.
        also: further ops whose results are saved: ``convolution``, say.
        blocks, release: as of :class:`EveryLayer`.
    """

    traits: ClassVar[Traits] = _PARTLY
    every: int = 2
    also: Sequence[str] = ()
    blocks: Sequence[str] | None = None
    release: Release = "late"

    def __post_init__(self) -> None:
        check_choice("release", self.release, _RELEASES)
        check_count("every", self.every)

    def plan(self, problem: Problem) -> Solution:
        """Its one plan.

        Raises:
            NotApplicable: no blocks are known.
            Infeasible: the plan is above the budget.
        """
        always = (*FUSED, *COLLECTIVES, *_words(self.also))
        blocks = _blocks(problem.graph, self.blocks)
        return _selective(problem, blocks, PRODUCTS, self.every, always, self.release)


@dataclass(frozen=True)
class SaveDots:
    """``jax.checkpoint`` around each repeated block, with a policy that saves products.

    Attributes:
        variant: ``dots_saveable`` saves what all products of matrices and convolutions make,
            ``dots_with_no_batch_dims_saveable`` those of two matrices alone: no attention scores.
        blocks, release: as of :class:`EveryLayer`; JAX compiles.
    """

    traits: ClassVar[Traits] = _PARTLY
    variant: Literal["dots_saveable", "dots_with_no_batch_dims_saveable"] = (
        "dots_with_no_batch_dims_saveable"
    )
    blocks: Sequence[str] | None = None
    release: Release = "early"

    def __post_init__(self) -> None:
        check_choice("variant", self.variant, tuple(DOTS))
        check_choice("release", self.release, _RELEASES)

    def plan(self, problem: Problem) -> Solution:
        """Its one plan.

        Raises:
            NotApplicable: no blocks are known.
            Infeasible: the plan is above the budget.
        """
        blocks, kept = _blocks(problem.graph, self.blocks), DOTS[self.variant]
        return _selective(problem, blocks, kept, 1, (), self.release, variant=self.variant)


@dataclass(frozen=True)
class SelectiveAttention:
    """Core attention runs again, from queries, keys and values (Megatron's ``core_attn``).

    Its ops are those from the product of queries and keys to the one with the values, and all of
    the module that holds these and no weights; or a fused attention op, which leaves little to
    drop.

    Attributes:
        release: as of :class:`EveryLayer`.
    """

    traits: ClassVar[Traits] = _PARTLY
    release: Release = "late"

    def __post_init__(self) -> None:
        check_choice("release", self.release, _RELEASES)

    def plan(self, problem: Problem) -> Solution:
        """Its one plan.

        Raises:
            NotApplicable: there is no attention.
            Infeasible: the plan is above the budget.
        """
        graph = problem.graph
        cores = attention_cores(graph)
        if not cores:
            raise NotApplicable(
                "there is no attention: no softmax between two batched products of matrices, and "
                "no fused attention op; use every_layer or selective_ops"
            )
        modules = tuple(core.block.name for core in cores if core.whole_module)
        fused = all(core.fused for core in cores)
        native = CheckpointedRun(modules=modules, attention=fused) if modules or fused else None
        if not fused and len(modules) < len(cores):
            native = None  # PyTorch checkpoints modules and functions, not parts of them
        plan = _plan(graph, [core.block for core in cores], self.release)
        return fitted(problem, plan, details={"attention_cores": len(cores)}, native=native)


def _selective(
    problem: Problem,
    blocks: Sequence[Block],
    kept: tuple[str, ...],
    every: int,
    always: tuple[str, ...],
    release: Release,
    **facts: Any,
) -> Solution:
    """Checkpointed blocks that save what some ops make, of ``kept`` each ``every``-th."""
    saved = _saved(problem.graph, blocks, kept, every, always)
    plan = _plan(problem.graph, blocks, release, saved)
    native = _native(blocks, kept=kept, every=every, always=always)
    return fitted(problem, plan, details=_facts(blocks), native=native, **facts)


def _plan(
    graph: Graph, blocks: Sequence[Block], release: Release, saved: BoolArray | None = None
) -> Plan:
    region = _regions(graph, blocks)
    return plan_with_regions(graph, region, saved, late=release == "late")


def _saved(
    graph: Graph,
    blocks: Sequence[Block],
    kept: Collection[str],
    every: int,
    always: Collection[str],
) -> BoolArray:
    saved = np.zeros(len(graph.ops), dtype=bool)
    for block in blocks:
        kinds = {op: graph.ops[op].operator for op in block.ops}
        counted = [op for op in block.ops if kinds[op] in kept]
        saved[counted[::every]] = True
        saved[[op for op in block.ops if kinds[op] in always]] = True
    return saved


def _blocks(graph: Graph, patterns: Sequence[str] | None) -> tuple[Block, ...]:
    """The blocks to checkpoint.

    Raises:
        NotApplicable: there are none; says what would work.
    """
    if graph.loss_index is None:
        raise NotApplicable("the graph has no loss op, so that there is no backward pass")
    if not any(op.scope for op in graph.ops):
        raise NotApplicable(
            "no op says which module it came from, so that there are no blocks to see: capture the "
            'model (model=python), give the ops of the graph file a "scope", or use ap_sqrt or '
            "linearized_sqrt"
        )
    if patterns is not None:
        found = blocks_named(graph, _words(patterns))
        if not found:
            scopes = sorted({op.scope for op in graph.ops if op.scope}, key=len)
            given = ", ".join(_words(patterns))
            raise NotApplicable(
                f"strategy.blocks={given}: no module of that name has an op of its own; there are "
                f"{', '.join(scopes[:3])}, ..."
            )
        return found
    found = repeated_blocks(graph)
    if not found:
        raise NotApplicable(
            "no module is repeated; name modules by strategy.blocks, or use ap_sqrt or "
            "linearized_sqrt"
        )
    return found


def _words(given: Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _regions(graph: Graph, blocks: Sequence[Block]) -> IntArray:
    """Per op, the number of its block; a block whose module is called again is another region."""
    region = np.full(len(graph.ops), -1, dtype=np.int64)
    ops = forward_ops(graph)
    for number, block in enumerate(blocks):
        region[list(block.ops)] = number
    runs = np.cumsum(np.diff(region[ops], prepend=-1) != 0)
    inside = region[ops] >= 0
    region[ops] = np.where(inside, runs, -1)
    return region


def _native(blocks: Sequence[Block], **policy: Any) -> CheckpointedRun:
    return CheckpointedRun(modules=tuple(block.name for block in blocks), **policy)


def _facts(blocks: Sequence[Block]) -> dict[str, Any]:
    kinds = Counter(re.sub(r"\d+", "*", block.name) for block in blocks)
    return {"checkpointed": dict(kinds)}
