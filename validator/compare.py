"""What a training step leaves behind, and how it differs from eager training's."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import torch
from torch import Tensor

# Relative to the largest entry of the tensor; used where a device is not deterministic.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


@dataclass(frozen=True)
class StepResult:
    """What a training step leaves behind.

    Attributes:
        loss: scalar.
        gradients: by qualified parameter name.
        buffers: new value of each mutated buffer, by qualified name.
    """

    loss: Tensor
    gradients: dict[str, Tensor]
    buffers: dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a step's results differ from eager training's.

    Attributes:
        bitwise: every bit of loss, gradients and buffers is equal; NaN equals NaN.
        max_error: largest difference, relative to the largest finite entry of the tensor or, if
            that is larger, of another gradient of its module: the gradient of a bias before a
            batch norm is 0 but for rounding, which says nothing relative to itself. None where no
            number tells it: a tensor is missing, has another shape or type, or has entries that
            are NaN or infinite in only one of the two.
        worst: the tensor where it is.
        reason: what is wrong; None: nothing.
    """

    bitwise: bool
    max_error: float | None
    worst: str
    reason: str | None = None


def compare(
    found: StepResult,
    expected: StepResult,
    *,
    exact: bool = False,
    tolerance: float | None = None,
    floor: float = 1.0,
) -> Comparison:
    """Compare loss, every gradient and every buffer.

    Args:
        exact: demand equal bits.
        tolerance: allowed otherwise, relative; None: :data:`TOLERANCE` by dtype.
        floor: a gradient much smaller than another one of its module is held against itself, and
            at least against this share of the other.
    """
    pairs = [("loss", found.loss, expected.loss)]
    for what, ours, theirs in (
        ("gradient of", found.gradients, expected.gradients),
        ("buffer", found.buffers, expected.buffers),
    ):
        missing = theirs.keys() - ours.keys()
        if missing:
            name = min(missing)
            return Comparison(False, None, name, f"{what} {name} is missing")
        pairs += [(f"{what} {name}", ours[name], theirs[name]) for name in theirs]
    scales = _scales(pairs, floor)
    errors = {name: difference(a, b, scales[name]) for name, a, b in pairs}
    wrong: dict[str, str] = {}
    for name, _, theirs in pairs:
        words = _wrong(errors[name], _allowed(theirs.dtype, exact, tolerance))
        if words is not None:
            wrong[name] = words
    worst = max(errors, key=lambda name: _rank(errors[name]))
    error = errors[worst]
    return Comparison(
        bitwise=all(errors[name] == 0.0 and same(a, b) for name, a, b in pairs),
        max_error=None if isinstance(error, str) else error,
        worst=worst,
        reason=_reason(wrong, errors),
    )


def _allowed(dtype: torch.dtype, exact: bool, tolerance: float | None) -> float:
    if exact:
        return 0.0
    return TOLERANCE.get(dtype, 0.0) if tolerance is None else tolerance


def _reason(wrong: dict[str, str], errors: dict[str, float | str]) -> str | None:
    """What to say of the tensors that are wrong: the worst, and how many."""
    if not wrong:
        return None
    name = max(wrong, key=lambda name: _rank(errors[name]))
    are = "is" if len(wrong) == 1 else "are"
    return f"{name} {wrong[name]}; {len(wrong)} of {len(errors)} tensors {are} wrong"


def _rank(error: float | str) -> float:
    return math.inf if isinstance(error, str) else error


def _wrong(error: float | str, allowed: float) -> str | None:
    """What is wrong with a tensor; None: nothing."""
    if isinstance(error, str):
        return f"differs from eager training: {error}"
    if error > allowed:
        return (
            f"differs from eager training by {error:.3g} of its largest entry "
            f"(allowed: {allowed:g})"
        )
    return None


def same(found: Tensor, expected: Tensor) -> bool:
    """Equal in every entry; NaN equals NaN."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    if torch.equal(found, expected):
        return True
    return bool(_agree(found, expected).all())


def difference(found: Tensor, expected: Tensor, scale: float) -> float | str:
    """The largest difference relative to ``scale``; in words where no number tells it."""
    if found.shape != expected.shape:
        return f"its shape is {tuple(found.shape)}, not {tuple(expected.shape)}"
    if found.dtype != expected.dtype:
        return f"its type is {found.dtype}, not {expected.dtype}"
    if torch.equal(found, expected):
        return 0.0
    if found.is_floating_point():  # mostly, all are finite
        quick = float((found - expected).abs().max())
        if math.isfinite(quick):
            return min(quick / max(scale, 1e-30), sys.float_info.max)
    a, b = _wide(found), _wide(expected)
    finite = a.isfinite() & b.isfinite()
    odd = ~(finite | _agree(a, b))
    if odd.any():
        return (
            f"{int(odd.sum())} of {odd.numel()} entries are NaN or infinite in only one of them, "
            "or differ in sign"
        )
    largest = float((a - b).abs().masked_fill_(~finite, 0.0).max())
    return min(largest / max(scale, 1e-30), sys.float_info.max)


def largest_entry(tensor: Tensor) -> float:
    """The largest absolute value of a finite entry; 0 where there is none."""
    if not tensor.numel():
        return 0.0
    if tensor.is_floating_point() and math.isfinite(quick := float(tensor.abs().max())):
        return quick
    size = _wide(tensor).abs()
    return float(size.masked_fill_(~size.isfinite(), 0.0).max())


def _agree(a: Tensor, b: Tensor) -> Tensor:
    return (a == b) | (a.isnan() & b.isnan())


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _module(name: str) -> str:
    """What a tensor belongs to; a name without a dot belongs to itself."""
    return name.rpartition(".")[0] or name


def _scales(pairs: list[tuple[str, Tensor, Tensor]], floor: float) -> dict[str, float]:
    own = {name: largest_entry(expected) for name, _, expected in pairs}
    modules: dict[str, float] = {}
    for name, largest in own.items():
        modules[_module(name)] = max(modules.get(_module(name), 0.0), largest)
    return {name: max(largest, floor * modules[_module(name)]) for name, largest in own.items()}
