"""The verdict on a plan: eager training's loss, gradients and buffers? At which peak and time?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from time import monotonic

import torch
from torch import Tensor

from rematbench.costmodel.device import (
    PeakReading,
    device_name,
    empty_cache,
    limit_memory,
    peak_of,
    release,
    seconds_of,
    spread,
    steady_allocator,
)
from rematbench.graphs.errors import is_out_of_memory
from rematbench.graphs.plan import Plan
from rematbench.tracing.captured import Captured
from rematbench.validator.codegen import Program, generate
from rematbench.validator.execute import Bench, StepResult

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
        measured_reserved_bytes: what the caching allocator held at most for this step (CUDA), or
            None; ``fragmentation_bytes`` of it were not in use at the peak.
        requested_bytes: the measured peak before the caching allocator rounds up (CUDA), or None.
        measured_seconds: median of one step; ``measured_seconds_iqr`` its spread over
            ``measured_repeats`` runs, interleaved with as many eager steps.
        eager_seconds, eager_peak_bytes: the same of eager training, or None where it did not run.
        gradient_max_error, gradient_bitwise, verdict: see :class:`Comparison`; None, None and
            ``ok`` where eager training does not fit the device.
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
    eager_seconds: float | None
    eager_peak_bytes: int | None
    gradient_max_error: float | None
    gradient_bitwise: bool | None
    gradient_tolerance: float
    verdict: str
    device: str
    steady_allocator: bool
    requested_bytes: int | None = None
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
FEWEST_TURNS = 3  # of timed runs, where time is short


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
        try:
            reading = peak_of(self.bench.eager, self.device)
        finally:
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
        self, programs: Sequence[Program], repeats: int, deadline: float = math.inf
    ) -> tuple[list[list[float]], list[float]]:
        """Seconds of ``repeats`` steps of each program, and of eager steps, in turns.

        Args:
            deadline: on the clock of ``time.monotonic``: past it, three turns are enough.
        """
        before = self.bench.buffers()
        planned: list[list[float]] = [[] for _ in programs]
        eager: list[float] = []
        while len(eager) < repeats and (len(eager) < FEWEST_TURNS or monotonic() < deadline):
            for program, seconds in zip(programs, planned, strict=True):
                seconds.append(seconds_of(partial(self.bench.run, program), self.device))
            try:
                eager.append(seconds_of(self.bench.eager, self.device))
            finally:
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

    def measure_within(self, plan: Plan, memory: int, repeats: int) -> Measurement:
        """Measure in a process that may take ``memory`` bytes of the device.

        Eager training, which may need more, runs only afterwards, and without the limit: once, to
        compare gradients, where it fits the device.
        """
        program = generate(self.bench.captured, plan)
        vars(self).pop("reference", None)  # its gradients would count
        empty_cache(self.device)
        limit_memory(memory, self.device)
        try:
            self.bench.run(program)  # warms up
            empty_cache(self.device)
            reading = peak_of(lambda: self.bench.run(program), self.device)
            run = partial(self.bench.run, program)
            planned = [seconds_of(run, self.device) for _ in range(repeats)]
        finally:
            limit_memory(None, self.device)
        return self.measurement(program, (self._check_if_it_fits(program), reading), planned, [])

    def _check_if_it_fits(self, program: Program) -> Comparison | None:
        try:
            return self.check(program)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        release(self.device)
        return None

    def judge(self, program: Program) -> tuple[Comparison, PeakReading]:
        """What comes out of a program, and the memory that it takes."""
        comparison = self.check(program)
        empty_cache(self.device)  # so that what is reserved is this program's
        return comparison, peak_of(lambda: self.bench.run(program), self.device)

    def measurement(
        self,
        program: Program,
        judged: tuple[Comparison | None, PeakReading],
        planned: list[float],
        eager: list[float],
    ) -> Measurement:
        """All that was measured of a program.

        Args:
            judged: see :meth:`judge`; no comparison where eager training does not fit.
            planned, eager: seconds, see :meth:`times`; no eager ones where it did not run.
        """
        comparison, reading = judged
        seconds, iqr = spread(planned)
        resident, reserved = self.bench.resident_bytes, reading.reserved_bytes
        requested = reading.requested_bytes
        return Measurement(
            measured_peak_bytes=reading.peak_bytes + resident,
            measured_reserved_bytes=None if reserved is None else reserved + resident,
            requested_bytes=None if requested is None else requested + resident,
            fragmentation_bytes=reading.fragmentation_bytes,
            measured_seconds=seconds,
            measured_seconds_iqr=iqr,
            measured_repeats=len(planned),
            eager_seconds=spread(eager)[0] if eager else None,
            eager_peak_bytes=self.eager_peak_bytes if eager else None,
            gradient_max_error=comparison and comparison.max_error,
            gradient_bitwise=comparison and comparison.bitwise,
            gradient_tolerance=program.tolerance + (self.noise_of(program) if comparison else 0.0),
            verdict=comparison.verdict if comparison else "ok",
            device=device_name(self.device),
            steady_allocator=self.steady,
        )


_latest: list[tuple[object, int, Validator]] = []


def measure(
    captured: Captured,
    plan: Plan,
    *,
    device: str,
    seed: int = 0,
    repeats: int = 5,
    memory: int | None = None,
) -> Measurement:
    """Execute ``plan`` on ``device``: verdict on its gradients, measured peak and time.

    Args:
        memory: see :meth:`Validator.measure_within`; None: the whole device, beside eager training.

    Raises:
        ConfigError: there is no such device.
        ExecutionError: the plan cannot be executed faithfully.
    """
    validator = validator_of(captured, device, seed)
    if memory is not None:
        return validator.measure_within(plan, memory, repeats)
    return validator.measure(plan, repeats)


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
