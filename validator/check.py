"""The verdict on a plan: eager training's loss, gradients and buffers? At which peak and time?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from costmodel.device import (
    PeakReading,
    device_name,
    peak_of,
    release,
    seconds_of,
    spread,
    steady_allocator,
)
from graphs.capture import Captured
from graphs.plan import Plan
from validator.codegen import Program, generate
from validator.execute import Bench, StepResult

# Relative to the largest entry of the tensor; used where a device is not deterministic.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a step's results differ from eager training's.

    Attributes:
        bitwise: every bit of loss, gradients and buffers is equal.
        max_error: largest difference, relative to the largest entry of the tensor or, if that is
            larger, of another gradient of its module: the gradient of a bias before a batch norm
            is 0 but for rounding, which says nothing relative to itself.
        worst: the tensor where it is.
        verdict: ``ok``, or what is wrong.
    """

    bitwise: bool
    max_error: float
    worst: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured when a plan ran.

    Attributes:
        measured_peak_bytes: most live bytes, residents included.
        measured_reserved_bytes: what the caching allocator held (CUDA), or None;
            ``fragmentation_bytes`` of it were not in use at the peak.
        measured_seconds: median of one step; ``measured_seconds_iqr`` its spread over
            ``measured_repeats`` runs, interleaved with as many eager steps.
        eager_seconds, eager_peak_bytes: the same of eager training.
        gradient_max_error, gradient_bitwise, verdict: see :class:`Comparison`.
        gradient_tolerance: what the plan's implementations allow; 0: they are all exact. Forward
            ones add what the model makes of them, see :meth:`Validator.noise_of`.
        device: name of the hardware.
        steady_allocator: were malloc's thresholds fixed (CPU)?
        measurement_reused: the same statements had been measured before, on the same bench.
    """

    measured_peak_bytes: int
    measured_reserved_bytes: int | None
    fragmentation_bytes: int | None
    measured_seconds: float
    measured_seconds_iqr: float
    measured_repeats: int
    eager_seconds: float
    eager_peak_bytes: int
    gradient_max_error: float
    gradient_bitwise: bool
    gradient_tolerance: float
    verdict: str
    device: str
    steady_allocator: bool
    measurement_reused: bool = False


def compare(
    found: StepResult,
    expected: StepResult,
    exact: bool,
    tolerance: float = 0.0,
    gradient_noise: float = 0.0,
) -> Comparison:
    """Compare loss, every gradient and every buffer.

    Args:
        exact: demand equal bits; otherwise :data:`TOLERANCE` by dtype.
        tolerance: added to what ``exact`` allows: that of the plan's implementations.
        gradient_noise: added for gradients alone; see :attr:`Validator.noise`.
    """
    pairs = [("loss", found.loss, expected.loss)]
    for what, ours, theirs in (
        ("gradient of", found.gradients, expected.gradients),
        ("buffer", found.buffers, expected.buffers),
    ):
        missing = theirs.keys() - ours.keys()
        if missing:
            name = min(missing)
            return Comparison(False, float("inf"), name, f"{what} {name} is missing")
        pairs += [(f"{what} {name}", ours[name], theirs[name]) for name in theirs]
    scale = _module_scales(pairs)
    errors = {name: _error(a, b, scale[_module(name)]) for name, a, b in pairs}
    worst = max(errors, key=lambda name: errors[name])
    bitwise = all(torch.equal(a, b) for _, a, b in pairs)
    allowed = {
        name: tolerance
        + (0.0 if exact else TOLERANCE.get(b.dtype, 0.0))
        + (gradient_noise if name.startswith("gradient") else 0.0)
        for name, _, b in pairs
    }
    wrong = [name for name in errors if not errors[name] <= allowed[name]]
    verdict = "ok"
    if wrong:
        name = max(wrong, key=lambda name: errors[name])
        verdict = (
            f"{name} differs from eager training by {errors[name]:.3g} of its largest entry "
            f"(allowed: {allowed[name]:g}); {len(wrong)} of {len(pairs)} tensors are wrong"
        )
    return Comparison(bitwise, errors[worst], worst, verdict)


def _module(name: str) -> str:
    """What a tensor belongs to; a name without a dot belongs to itself."""
    return name.rpartition(".")[0] or name


def _module_scales(pairs: list[tuple[str, Tensor, Tensor]]) -> dict[str, float]:
    scales: dict[str, float] = {}
    for name, _, expected in pairs:
        largest = torch.nan_to_num(expected.double()).abs().max().item() if expected.numel() else 0
        scales[_module(name)] = max(scales.get(_module(name), 0.0), largest)
    return scales


def _error(found: Tensor, expected: Tensor, scale: float) -> float:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return float("inf")
    if torch.equal(found, expected):
        return 0.0
    a, b = found.double(), expected.double()
    if not torch.equal(torch.isfinite(a), torch.isfinite(b)):
        return float("inf")
    return float(torch.nan_to_num(a - b).abs().max().item() / max(scale, 1e-30))


# What forward algorithms change, roughly; how far their effect may exceed one sample of it; and
# the most that is put down to it, so that a missing gradient is never taken for noise.
PERTURBATION, NOISE_MARGIN, MOST_NOISE = 1e-6, 2.0, 0.5


class Validator:
    """Measures any number of plans of one captured model against one eager reference."""

    def __init__(self, captured: Captured, device: str, seed: int) -> None:
        self.steady = device == "cpu" and steady_allocator()
        self.bench = Bench(captured, device, seed)
        self.device = device
        self._measured: dict[tuple[bytes, int], Measurement] = {}

    def use(self, captured: Captured) -> None:
        """Go on with the same model under other costs, or with other implementations."""
        if captured.code is not self.bench.captured.code:
            self._measured.clear()  # the same codes would be other statements
        self.bench.captured = captured

    @cached_property
    def reference(self) -> StepResult:
        """Eager training's results."""
        return self.bench.reference()

    @cached_property
    def deterministic(self) -> bool:
        """Does eager training reproduce its own bits on this device?"""
        return compare(self.bench.reference(), self.reference, exact=True).bitwise

    @cached_property
    def eager_peak_bytes(self) -> int:
        """Measured peak of an eager step, residents included."""
        before = self.bench.buffers()
        reading = peak_of(self.bench.eager, self.device)
        self.bench.clear(before)
        return reading.peak_bytes + self.bench.resident_bytes

    def check(self, program: Program) -> Comparison:
        """Run once and compare with eager training."""
        found = self.bench.result_of(self.bench.run(program))
        repeatable = self.device == "cpu" or torch.are_deterministic_algorithms_enabled()
        exact = repeatable and self.deterministic
        noise = self.noise_of(program)
        return compare(found, self.reference, exact, program.tolerance, noise)

    def noise_of(self, program: Program) -> float:
        """How far gradients may be off because of what the *model* makes of inexact forward ops.

        An inexact forward op moves activations across the kinks of ReLU and max-pool. ResNet-50
        at its initial weights changes gradients by a fifth of their largest entry when weights
        change in their last bit; no implementation is to blame for that.
        """
        return min(NOISE_MARGIN * self.noise, MOST_NOISE) if program.perturbs_forward else 0.0

    @cached_property
    def noise(self) -> float:
        """How far eager training's gradients move when parameters move by 1e-6 of themselves."""
        other = self.bench.perturbed_reference(PERTURBATION)
        return compare(other, self.reference, exact=False).max_error

    def times(
        self, programs: Sequence[Program], repeats: int
    ) -> tuple[list[list[float]], list[float]]:
        """Seconds of ``repeats`` steps of each program, and of eager steps, in turns."""
        before = self.bench.buffers()
        planned: list[list[float]] = [[] for _ in programs]
        eager = []
        for _ in range(repeats):
            for program, seconds in zip(programs, planned, strict=True):
                seconds.append(seconds_of(partial(self.bench.run, program), self.device))
            eager.append(seconds_of(self.bench.eager, self.device))
            self.bench.clear(before)
        return planned, eager

    def measure(self, plan: Plan, repeats: int = 5) -> Measurement:
        """Check, then measure peak and time in separate passes; the check is the warm-up.

        Different strategies and budgets often end in the same statements; those are measured once.
        """
        key = plan.codes(self.bench.captured.graph).tobytes(), repeats
        if key in self._measured:
            return replace(self._measured[key], measurement_reused=True)
        found = self._measured[key] = self._measure(plan, repeats)
        return found

    def _measure(self, plan: Plan, repeats: int) -> Measurement:
        program = generate(self.bench.captured, plan)
        judged = self.judge(program)
        (planned,), eager = self.times([program], repeats)
        return self.measurement(program, judged, planned, eager)

    def judge(self, program: Program) -> tuple[Comparison, PeakReading]:
        """What comes out of a program, and the memory that it takes."""
        comparison = self.check(program)
        release(self.device)  # so that what is reserved is this program's
        return comparison, peak_of(lambda: self.bench.run(program), self.device)

    def measurement(
        self,
        program: Program,
        judged: tuple[Comparison, PeakReading],
        planned: list[float],
        eager: list[float],
    ) -> Measurement:
        """All that was measured of a program.

        Args:
            judged: see :meth:`judge`.
            planned, eager: seconds, see :meth:`times`.
        """
        comparison, reading = judged
        seconds, iqr = spread(planned)
        return Measurement(
            measured_peak_bytes=reading.peak_bytes + self.bench.resident_bytes,
            measured_reserved_bytes=reading.reserved_bytes,
            fragmentation_bytes=reading.fragmentation_bytes,
            measured_seconds=seconds,
            measured_seconds_iqr=iqr,
            measured_repeats=len(planned),
            eager_seconds=spread(eager)[0],
            eager_peak_bytes=self.eager_peak_bytes,
            gradient_max_error=comparison.max_error,
            gradient_bitwise=comparison.bitwise,
            gradient_tolerance=program.tolerance + self.noise_of(program),
            verdict=comparison.verdict,
            device=device_name(self.device),
            steady_allocator=self.steady,
        )


_latest: list[tuple[object, int, Validator]] = []


def measure(
    captured: Captured, plan: Plan, *, device: str, seed: int = 0, repeats: int = 5
) -> Measurement:
    """Execute ``plan`` on ``device``: verdict on its gradients, measured peak and time.

    Raises:
        ConfigError: there is no such device.
        ExecutionError: the plan cannot be executed faithfully.
    """
    return validator_of(captured, device, seed).measure(plan, repeats)


def validator_of(captured: Captured, device: str, seed: int) -> Validator:
    """The latest model's validator is kept, since a sweep runs many plans of one model.

    Raises:
        ConfigError: there is no such device.
    """
    module = captured.workload.module
    if not _latest or _latest[0][:2] != (module, seed) or _latest[0][2].device != device:
        _latest[:] = [(module, seed, Validator(captured, device, seed))]
    validator = _latest[0][2]
    validator.use(captured)
    return validator
