"""What an optimizer holds beside the training step: its state, and master weights.

Bytes per parameter of n elements (counters of steps aside):

- ``sgd`` nothing; ``momentum`` one copy, ``adamw`` two, in the parameter's own type, as
  ``torch.optim`` makes them.
- ``adamw8bit`` two of one byte per element, with a scale of four bytes per block of 256 for each;
  a parameter of fewer than 4,096 elements has two in float32 (bitsandbytes, ``AdamW8bit``:
  ``min_8bit_size=4096``, blocks of 256 since version 0.45).
- master weights, of parameters in bfloat16 or float16: a copy in float32 that the optimizer steps
  on, so that its unquantized state is in float32, too (Micikevicius et al., "Mixed Precision
  Training", 2018, section 3.1). They come with ``adamw``, with the others where asked for.

A parameter without a gradient (frozen under LoRA) has nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rematbench.base.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from rematbench.graphs.ir import Graph
    from rematbench.tracing.captured import Captured

NAMES = ("none", "sgd", "momentum", "adamw", "adamw8bit")
_COPIES = {"none": 0, "sgd": 0, "momentum": 1, "adamw": 2}
_WITH_MASTER = ("adamw",)
_FULL = 4  # bytes of float32
_BLOCK, _SMALLEST = 256, 4096  # elements


def check_optimizer(
    name: str, master_weights: bool | None, *, captured: bool, accounting: str
) -> None:
    """Refuse what cannot be counted.

    Args:
        captured: does the graph come from a PyTorch model?

    Raises:
        ConfigError: says what would do.
    """
    if name == "none":
        if master_weights:
            raise ConfigError(
                "master_weights=true: no optimizer steps on them; give optimizer=adamw"
            )
        return
    if not captured:
        raise ConfigError(
            f"optimizer={name}: the graph of no PyTorch model does not say what its parameters "
            "are; use optimizer=none"
        )
    if accounting == "activations":
        raise ConfigError(
            f"optimizer={name}: accounting=activations counts nothing that is resident; use "
            "accounting=full, or optimizer=none"
        )


def parameter_bytes(
    name: str, elements: int, dtype: torch.dtype, master_weights: bool | None = None
) -> int:
    """What an optimizer holds of one parameter.

    Args:
        name: one of :data:`NAMES`.
        master_weights: None: as is usual with this optimizer.
    """
    master = name in _WITH_MASTER if master_weights is None else master_weights
    master = master and name != "none" and dtype.itemsize < _FULL
    copy = _FULL * elements if master else 0
    if name == "adamw8bit":
        if elements < _SMALLEST:
            return copy + 2 * _FULL * elements
        return copy + 2 * (elements + _FULL * -(-elements // _BLOCK))
    return copy + _COPIES[name] * elements * (_FULL if master else dtype.itemsize)


def optimizer_bytes(captured: Captured, name: str, master_weights: bool | None = None) -> int:
    """What an optimizer holds of all parameters that have a gradient."""
    total = 0
    for resident in captured.residents:
        if resident.kind == "parameter" and resident.target in captured.gradients:
            tensor = captured.tensors[resident.tensor]
            elements = 1
            for size in tensor.shape:
                elements *= size
            total += parameter_bytes(name, elements, tensor.dtype, master_weights)
    return total


def with_optimizer(graph: Graph, held_bytes: int) -> Graph:
    """``graph`` with what an optimizer holds, as one more resident value.

    It is the last value, so that all others keep their numbers.
    """
    if not held_bytes:
        return graph
    # Not before: settings are checked in a process that needs no NumPy.
    from rematbench.graphs.ir import Value
    from rematbench.rows.memory_parts import STATE

    return replace(graph, values=(*graph.values, Value(STATE, held_bytes, resident=True)))
