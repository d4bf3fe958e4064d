"""A chain of stages in numbers, as the dynamic program takes it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rematbench.base.errors import ConfigError
from rematbench.graphs.ir import IntArray

FloatArray = NDArray[np.float64]


class Stages(NamedTuple):
    """What :class:`Chain` says of its stages, for kernels."""

    output: IntArray
    kept: IntArray
    saved: IntArray
    gradient: IntArray
    kept_time: FloatArray
    kept_peak: IntArray
    plain_time: FloatArray
    plain_peak: IntArray
    moved_peak: IntArray
    base_time: FloatArray
    base_peak: IntArray
    back_time: FloatArray
    back_peak: IntArray


@dataclass(frozen=True)
class Chain:
    """Stages 0 to n - 1, of which the last is the loss; all sizes in bytes, all peaks relative.

    A peak counts what the stage itself adds, on top of what is held around it; none counts the
    input of the stage, but ``moved_peak``.

    Attributes:
        input_bytes: of the input of stage 0 (a_0), 0 where it is resident.
        output: bytes of each stage's output (a_l); 0 for the loss.
        kept: bytes that a stage leaves when its backward pass can follow (A_l), output included.
        saved: those of them that its backward pass reads.
        gradient: bytes of backward values that are live before going back over each stage (d_l,
            and the gradients of parameters that are there already).
        kept_time, kept_peak: of the forward pass that keeps these.
        plain_time, plain_peak: of the forward pass that leaves the output only.
        moved_peak: the same where the input is freed on the way; the input included.
        base_time, base_peak: of the forward pass right before going back, for what backward reads
            alone; both 0 where it reads nothing of the stage.
        back_time, back_peak: of the backward pass; all backward values included in the peak.
    """

    input_bytes: int
    output: IntArray
    kept: IntArray
    saved: IntArray
    gradient: IntArray
    kept_time: FloatArray
    kept_peak: IntArray
    plain_time: FloatArray
    plain_peak: IntArray
    moved_peak: IntArray
    base_time: FloatArray
    base_peak: IntArray
    back_time: FloatArray
    back_peak: IntArray

    def __len__(self) -> int:
        return len(self.output)

    def stages(self) -> Stages:
        """All but the input's bytes."""
        return Stages(*(getattr(self, name) for name in Stages._fields))

    @property
    def ample(self) -> int:
        """Bytes with which every stage is kept, so that more do not help."""
        worst = max(int(getattr(self, name).max()) for name in _PEAKS)
        return self.input_bytes + int(self.kept.sum()) + int(self.gradient.max()) + max(0, worst)

    def in_units(self, unit: int, up: bool = True) -> Chain:
        """Sizes in units, each rounded up, so that a schedule within m units is within m * unit.

        Args:
            up: False rounds down, for a lower bound of the time.
        """

        def rounded(sizes: IntArray) -> IntArray:
            return -(-sizes // unit) if up else sizes // unit

        sizes: dict[str, Any] = {
            f.name: rounded(getattr(self, f.name)) for f in fields(self)[1:] if _is_size(f)
        }
        return replace(self, input_bytes=int(rounded(np.array(self.input_bytes))), **sizes)


_PEAKS = ("kept_peak", "plain_peak", "moved_peak", "base_peak", "back_peak")


def _is_size(field: Any) -> bool:
    return not field.name.endswith("_time")


def chain_of(case: Mapping[str, Any]) -> tuple[Chain, int]:
    """The chain of a case of ``rotor-cases`` and its limit.

    Raises:
        ConfigError: a key is missing, or its value is no list of the right length or no number.
    """
    times = [_numbers(case, key) for key in ("u_f", "u_b")]
    count = len(times[0])
    if not count:
        raise ConfigError("case: u_f is empty; give one stage or more")
    sizes = {key: _numbers(case, key, whole=True) for key in ("a", "abar", "o_f", "o_b")}
    for key, values in {"u_b": times[1], **sizes}.items():
        expected = count + (key == "a")
        if len(values) != expected:
            raise ConfigError(f"case: {key} has {len(values)} entries; give {expected}")
    scalars = {key: [case.get(key, 0)] for key in ("loss_time", "loss_overhead")}
    (loss,) = _numbers(scalars, "loss_time")
    (overhead,) = _numbers(scalars, "loss_overhead", whole=True)
    (limit,) = _numbers({"limit": [case.get("limit")]}, "limit", whole=True)
    a = np.array(sizes["a"], dtype=np.int64)
    kept, forward, backward = (
        np.array([*sizes[key], 0], dtype=np.int64) for key in ("abar", "o_f", "o_b")
    )
    if (kept[:-1] < a[1:]).any():
        stage = int(np.flatnonzero(kept[:-1] < a[1:])[0])
        raise ConfigError(f"case: abar[{stage}] is below a[{stage + 1}]; it includes the output")
    before, output = a, np.append(a[1:], 0)
    backward[-1] = overhead
    # The loss makes no gradient of its own size: its backward pass adds that of its input.
    time = np.array([*times[0], 0.0])
    held = output + kept + before + backward
    peak, plain = kept + forward, output + forward
    peak[-1] = 0
    back_time = np.array([*times[1], loss], dtype=np.float64)
    chain = Chain(
        int(a[0]), output, kept, kept, output, time, peak, time, plain, before + plain, time, peak,
        back_time, held,
    )  # fmt: skip
    return chain, int(limit)


def _numbers(case: Mapping[str, Any], key: str, whole: bool = False) -> Sequence[float]:
    values = case.get(key)
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise ConfigError(f"case: {key} is {values!r}; give a list of numbers")
    for value in values:
        good = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        if not good or not math.isfinite(value) or (value < 0 and key != "o_b"):
            if key == "loss_overhead" and good and math.isfinite(value):
                continue
            kind = "whole number of bytes" if whole else "finite number"
            raise ConfigError(f"case: {key} has {value!r}; give a {kind}, 0 or more")
    return values
