"""The verdict on a plan: eager training's loss, gradients and buffers? At which peak and time?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, partial
from time import monotonic

import torch

from rematbench.base.errors import is_out_of_memory
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
from rematbench.graphs.link import NONE, Link
from rematbench.graphs.plan import Plan, Statement
from rematbench.tracing.captured import Captured
from rematbench.validator.codegen import Program, generate
from rematbench.validator.compare import Comparison, StepResult, compare
from rematbench.validator.copier import CopiesMeasured, copies_measured
from rematbench.validator.execute import Bench
from rematbench.validator.rounding import Rounding, RoundingJudge
from rematbench.validator.timing import FEWEST_TURNS, Ratio, Timing, quiet_turns


class GradientVerdict(StrEnum):
    """What became of a plan's loss, gradients and buffers.

    - ``exact``: it runs exact implementations alone, and every bit is eager training's; on a
      device that does not repeat its own bits: within
      :data:`~rematbench.validator.compare.TOLERANCE`;
    - ``rounding``: it runs implementations that round otherwise; in double precision it is eager
      training's step, and each of them alone is within what it states. Or the trace itself rounds
      otherwise than eager training, whose step it is in double precision, and the plan has every
      bit of the trace in program order;
    - ``lossy``: the same, but for encodings that lose information, by what the row says;
    - ``wrong``: it is another step;
    - ``unjudged``: eager training does not fit the device.
    """

    EXACT = "exact"
    ROUNDING = "rounding"
    LOSSY = "lossy"
    WRONG = "wrong"
    UNJUDGED = "unjudged"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on a plan, and what it rests on.

    Attributes:
        comparison: with eager training in the working precision; information only, where
            ``rounding`` is not None. None: unjudged.
        rounding: of a plan that runs inexact implementations, else None.
        reason: what is wrong; None: nothing.
    """

    verdict: GradientVerdict
    comparison: Comparison | None = None
    rounding: Rounding | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured when a plan ran.

    Attributes:
        measured_peak_bytes: most live bytes, residents included.
        measured_reserved_bytes: what the caching allocator held at most for this step (CUDA), or
            None; ``fragmentation_bytes`` of it were not in use at the peak.
        requested_bytes: the measured peak before the caching allocator rounds up (CUDA), or None.
        measured_seconds: median of one step; ``measured_seconds_iqr`` its spread over
            ``measured_repeats`` runs, interleaved with as many eager steps, without
            ``measured_spikes`` more, in turns that were disturbed.
        measured_overhead: median ratio of a step to the eager step beside it, less 1;
            ``measured_overhead_interval``: of 95 %, see
            :class:`~rematbench.validator.timing.Ratio`. None where eager training did not run.
        eager_seconds, eager_peak_bytes: the same of eager training, or None where it did not run.
        gradient_max_error, gradient_bitwise: see :class:`~rematbench.validator.compare.Comparison`;
            None where eager training does not fit the device.
        verdict: see :class:`GradientVerdict`; ``reason``: what is wrong, or None.
        rounding: what the verdict on a plan with inexact implementations rests on, else None.
        device: name of the hardware.
        steady_allocator: were malloc's thresholds fixed (CPU)?
        measurement_reused: the same statements had been measured before, on the same bench.
        copies: to the host and back; None: the plan copies nothing.
    """

    measured_peak_bytes: int
    measured_reserved_bytes: int | None
    fragmentation_bytes: int | None
    measured_seconds: float
    measured_seconds_iqr: float
    measured_repeats: int
    measured_spikes: int
    measured_overhead: float | None
    measured_overhead_interval: tuple[float, float] | None
    eager_seconds: float | None
    eager_peak_bytes: int | None
    gradient_max_error: float | None
    gradient_bitwise: bool | None
    verdict: GradientVerdict
    reason: str | None
    rounding: Rounding | None
    device: str
    steady_allocator: bool
    requested_bytes: int | None = None
    measurement_reused: bool = False
    copies: CopiesMeasured | None = None

    @property
    def remark(self) -> str | None:
        """What whoever takes the plan for eager training's step should know; None: nothing."""
        if self.rounding is None:
            return None
        if self.verdict is GradientVerdict.ROUNDING and not self.rounding.alone_count:
            return (
                f"the trace rounds otherwise than eager training: gradients are off by up to "
                f"{self.gradient_max_error or 0.0:.2g} of their largest entry, in float64 by "
                f"{self.rounding.float64_error or 0.0:.2g}; the plan has every bit of the trace"
            )
        if self.verdict is not GradientVerdict.LOSSY:
            return None
        return (
            f"lossy: encodings are off by up to {self.rounding.lossy_error or 0.0:.2g} of their "
            f"readers' largest entry, gradients by {self.gradient_max_error or 0.0:.2g}"
        )


class Validator:
    """Measures any number of plans of one captured model against one eager reference."""

    def __init__(self, captured: Captured, device: str, seed: int) -> None:
        self.steady = device == "cpu" and steady_allocator()
        self.bench = Bench(captured, device, seed)
        self.device = device
        self._measured: dict[tuple[tuple[Statement, ...], Timing, Link], Measurement] = {}

    def use(self, captured: Captured) -> None:
        """Go on with the same model under other costs, or with other implementations."""
        if captured.code is not self.bench.captured.code:
            self._measured.clear()  # the same statements would be other calls
            if "_rounding" in vars(self):
                self._rounding.use()
        self.bench.captured = captured

    def hold(self, held_bytes: int) -> None:
        """See :meth:`~rematbench.validator.execute.Bench.hold`."""
        if self.bench.hold(held_bytes):
            self._measured.clear()
            vars(self).pop("eager_peak_bytes", None)

    @cached_property
    def reference(self) -> StepResult:
        """Eager training's results."""
        return self.bench.reference()

    @cached_property
    def exact(self) -> bool:
        """Does eager training reproduce its own bits on this device?"""
        repeatable = self.device == "cpu" or torch.are_deterministic_algorithms_enabled()
        return repeatable and compare(self.bench.reference(), self.reference, exact=True).bitwise

    @cached_property
    def _rounding(self) -> RoundingJudge:
        return RoundingJudge(self.bench, self.exact, self._compared)

    @cached_property
    def eager_peak_bytes(self) -> int:
        """Measured peak of an eager step, residents included."""
        before = self.bench.buffers()
        try:
            reading = peak_of(self.bench.eager, self.device)
        finally:
            self.bench.clear(before)
        return reading.peak_bytes + self.bench.resident_bytes

    def check(self, program: Program) -> Judgement:
        """Run and compare with eager training."""
        judge = self._rounding
        if not judge.is_inexact(program):
            return self._check_exact(program)
        found = self._compared(program, tolerance=math.inf)
        rounding = judge.judge(program)
        reason = found.reason or rounding.reason
        verdict = GradientVerdict.LOSSY if judge.is_lossy(program) else GradientVerdict.ROUNDING
        return Judgement(GradientVerdict.WRONG if reason else verdict, found, rounding, reason)

    def _check_exact(self, program: Program) -> Judgement:
        result = self.bench.result_of(self.bench.run(program))
        found = compare(result, self.reference, exact=self.exact)
        if found.reason is None:
            return Judgement(GradientVerdict.EXACT, found)
        rounding = self._rounding.judge_trace(result) if self.exact else None
        if rounding is None:
            return Judgement(GradientVerdict.WRONG, found, reason=found.reason)
        return Judgement(GradientVerdict.ROUNDING, found, rounding)

    def _compared(self, program: Program, tolerance: float | None = None) -> Comparison:
        """In the working precision: bit by bit where the device repeats its bits."""
        found = self.bench.result_of(self.bench.run(program))
        exact = self.exact and tolerance is None
        return compare(found, self.reference, exact=exact, tolerance=tolerance)

    def times(
        self, programs: Sequence[Program], timing: Timing, deadline: float = math.inf
    ) -> tuple[list[list[float]], list[float]]:
        """Seconds of steps of each program, and of eager steps, in turns.

        Args:
            deadline: on the clock of ``time.monotonic``: past it, three turns are enough.
        """
        deadline = min(deadline, monotonic() + timing.seconds)
        before = self.bench.buffers()
        planned: list[list[float]] = [[] for _ in programs]
        eager: list[float] = []
        while not timing.enough(planned, eager) and (
            len(eager) < FEWEST_TURNS or monotonic() < deadline
        ):
            for program, seconds in zip(programs, planned, strict=True):
                seconds.append(self._seconds(program))
            try:
                eager.append(seconds_of(self.bench.eager, self.device))
            finally:
                self.bench.clear(before)
        return planned, eager

    def _seconds(self, program: Program) -> float:
        seconds = seconds_of(partial(self.bench.run, program), self.device)
        if program.copier is not None:
            program.copier.readings.append(program.copier.reading())
        return seconds

    def measure(self, plan: Plan, timing: Timing, link: Link = NONE) -> Measurement:
        """Check, then measure peak and time in separate passes; the check is the warm-up.

        Different strategies and budgets often end in the same statements; those are measured once.
        """
        key = plan.statements, timing, link
        if key in self._measured:
            return replace(self._measured[key], measurement_reused=True)
        found = self._measured[key] = self._measure(plan, timing, link)
        return found

    def _measure(self, plan: Plan, timing: Timing, link: Link) -> Measurement:
        program = generate(self.bench.captured, plan, link)
        judged = self.judge(program)
        (planned,), eager = self.times([program], timing)
        return self.measurement(program, judged, planned, eager)

    def measure_within(
        self, plan: Plan, memory: int, repeats: int, link: Link = NONE
    ) -> Measurement:
        """Measure in a process that may take ``memory`` bytes of the device.

        Eager training, which may need more, runs only afterwards, and without the limit: once, to
        compare gradients, where it fits the device.
        """
        program = generate(self.bench.captured, plan, link)
        vars(self).pop("reference", None)  # its gradients would count
        empty_cache(self.device)
        limit_memory(memory, self.device)
        try:
            self.bench.run(program)  # warms up
            empty_cache(self.device)
            reading = peak_of(lambda: self.bench.run(program), self.device)
            planned = [self._seconds(program) for _ in range(repeats)]
        finally:
            limit_memory(None, self.device)
        return self.measurement(program, (self._check_if_it_fits(program), reading), planned, [])

    def _check_if_it_fits(self, program: Program) -> Judgement:
        try:
            return self.check(program)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        release(self.device)
        return Judgement(GradientVerdict.UNJUDGED)

    def judge(self, program: Program) -> tuple[Judgement, PeakReading]:
        """What comes out of a program, and the memory that it takes."""
        judgement = self.check(program)
        empty_cache(self.device)  # so that what is reserved is this program's
        return judgement, peak_of(lambda: self.bench.run(program), self.device)

    def measurement(
        self,
        program: Program,
        judged: tuple[Judgement, PeakReading],
        planned: list[float],
        eager: list[float],
    ) -> Measurement:
        """All that was measured of a program.

        Args:
            judged: see :meth:`judge`; unjudged where eager training does not fit.
            planned, eager: seconds, see :meth:`times`; no eager ones where it did not run.
        """
        judgement, reading = judged[0], judged[1].above(self.bench.resident_bytes)
        compared = judgement.comparison
        ratio = Ratio.of(planned, eager) if eager else None
        quiet = quiet_turns(eager) if eager else range(len(planned))
        seconds, iqr = spread([planned[turn] for turn in quiet])
        return Measurement(
            measured_peak_bytes=reading.peak_bytes,
            measured_reserved_bytes=reading.reserved_bytes,
            requested_bytes=reading.requested_bytes,
            fragmentation_bytes=reading.fragmentation_bytes,
            measured_seconds=seconds,
            measured_seconds_iqr=iqr,
            measured_repeats=len(quiet),
            measured_spikes=len(planned) - len(quiet),
            measured_overhead=None if ratio is None else ratio.median - 1,
            measured_overhead_interval=None if ratio is None else ratio.overhead,
            eager_seconds=spread([eager[turn] for turn in quiet])[0] if eager else None,
            eager_peak_bytes=self.eager_peak_bytes if eager else None,
            gradient_max_error=None if compared is None else compared.max_error,
            gradient_bitwise=None if compared is None else compared.bitwise,
            verdict=judgement.verdict,
            reason=judgement.reason,
            rounding=judgement.rounding,
            device=device_name(self.device),
            steady_allocator=self.steady,
            copies=None if program.copier is None else copies_measured(program.copier.readings),
        )


_latest: list[tuple[object, int, Validator]] = []


def measure(
    captured: Captured,
    plan: Plan,
    *,
    device: str,
    seed: int = 0,
    repeats: int = 5,
    within: float | None = None,
    seconds: float = math.inf,
    memory: int | None = None,
    held_bytes: int = 0,
    link: Link = NONE,
) -> Measurement:
    """Execute ``plan`` on ``device``: verdict on its gradients, measured peak and time.

    Args:
        memory: see :meth:`Validator.measure_within`; None: the whole device, beside eager training.
        held_bytes: of memory that is taken besides, an optimizer's.
        link: to the host, for a plan that copies.

    Raises:
        ConfigError: there is no such device.
        ExecutionError: the plan cannot be executed faithfully.
    """
    validator = validator_of(captured, device, seed)
    validator.hold(held_bytes)
    if memory is not None:
        return validator.measure_within(plan, memory, repeats, link)
    return validator.measure(plan, Timing(repeats, within, seconds), link)


def set_aside(captured: Captured) -> None:
    """Take a model off its device, until there is a validator of it again."""
    module = captured.workload.module
    if _latest and _latest[0][0] is module:
        _latest.clear()
    module.to("cpu")


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
