"""The verdict on plans that run inexact implementations.

Such a plan is a step from slightly other activations, some of which end on the other side of a
ReLU or at another place of a max-pool. What a deep network makes of that is no fault of the plan:
ResNet-50 at its initial weights changes gradients by a fifth of their largest entry when weights
change in their last bit. So it is judged where rounding does not reach the kinks:

- the same statements in double precision against eager training in double precision, to
  :data:`FLOAT64_TOLERANCE` of the largest entry of each tensor. A lossy encoding loses nothing
  there, so that everything but its loss is compared;
- each implementation that it runs, alone and in the working precision, on the inputs that its op
  gets in the real step, against the default implementation's results, within what it states: the
  exact ones bit by bit, lossy encodings within their loss.

What the working precision makes of the gradients is given beside, as information.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from rematbench.base.errors import is_out_of_memory
from rematbench.costmodel.device import free_memory, release
from rematbench.graphs.kinds import ImplementationName, ImplementationTraits, Kind, kinds_of
from rematbench.graphs.plan import program_order
from rematbench.validator.alone import Alone, compare_alone
from rematbench.validator.codegen import Program, generate
from rematbench.validator.compare import Comparison, StepResult, compare
from rematbench.validator.double import double_reference, double_result
from rematbench.validator.execute import Bench

FLOAT64_TOLERANCE = 1e-8
# Gradients that are 0 but for rounding are held against this share of their module's largest.
FLOAT64_FLOOR = 1e-3
# Of float64 for each of the plan's: twice as many, and another set of gradients.
DOUBLE_BYTES = 2.5


@dataclass(frozen=True, slots=True)
class Rounding:
    """How a plan with inexact implementations compares where rounding is no excuse.

    Attributes:
        float64_error: largest difference of loss, gradients and buffers in double precision,
            relative to the largest entry of each; None where there is none, see the reason.
        float64_reason: why there is none, or what else than the plan's own statements ran.
        float64_reference: ``eager``, or ``captured``: the captured step by its default
            implementations, where the model itself computes something else in double precision.
        alone_count: implementations that were compared alone.
        alone_error, alone_tolerance, alone_worst: of the one that comes closest to what is
            allowed, or exceeds it: its error, what is allowed, and its op and name.
        lossy_error: largest error of a lossy implementation alone; None: the plan has none.
        reason: what is wrong; None: nothing.
    """

    float64_error: float | None
    float64_reason: str | None
    float64_reference: str | None
    alone_count: int
    alone_error: float | None
    alone_tolerance: float | None
    alone_worst: str | None
    lossy_error: float | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class _DoubleStep:
    """The verdict in double precision: a comparison with its reference, or why there is none."""

    comparison: Comparison | None = None
    reference: str | None = None
    reason: str | None = None


class RoundingJudge:
    """Judges plans of one bench; remembers what they share.

    Args:
        exact: the device repeats its bits.
        working: compares a program's results with eager training's in the working precision.
    """

    def __init__(self, bench: Bench, exact: bool, working: Callable[[Program], Comparison]) -> None:
        self.bench, self.exact, self.working = bench, exact, working
        self._alone: dict[ImplementationName, Alone] = {}

    def is_inexact(self, program: Program) -> bool:
        """Does it run an implementation that states a tolerance?"""
        return any(
            self._traits(implementation).tolerance > 0 for implementation in program.implementations
        )

    def is_lossy(self, program: Program) -> bool:
        """Does it run an implementation that reads a lossy encoding?"""
        return any(Kind.LOSSY in kinds_of(name) for _, name in program.implementations)

    def use(self) -> None:
        """The bench's model has other implementations now."""
        self._alone.clear()
        for name in ("_checkpoint_all", "_trace_in_double"):
            vars(self).pop(name, None)

    def judge(self, program: Program) -> Rounding:
        """The verdict on a program that runs inexact implementations."""
        alone = self._compared_alone(program)
        double = self._in_double(program)
        worst = max(alone, key=_closeness)
        compared = double.comparison
        lossy = [
            a.error
            for a in alone
            if a.error is not None and Kind.LOSSY in kinds_of(a.implementation)
        ]
        wrong = [f"{_name(a)} alone: {a.reason}" for a in alone if a.reason is not None]
        if compared is None:  # then the default implementations are all there is
            wrong += filter(None, [self._wrong_default])
        elif compared.reason is not None:
            wrong.append(f"in float64, {compared.reason}")
        return Rounding(
            float64_error=None if compared is None else compared.max_error,
            float64_reason=double.reason,
            float64_reference=double.reference,
            alone_count=len(alone),
            alone_error=worst.error,
            alone_tolerance=worst.tolerance,
            alone_worst=_name(worst),
            lossy_error=max(lossy, default=None),
            reason="; ".join(wrong[:2]) or None,
        )

    def judge_trace(self, found: StepResult) -> Rounding | None:
        """The verdict on exact implementations that differ from eager training in their last bits.

        A trace may take an op apart that eager training calls whole (an LSTM's). Then a plan must
        have every bit of the trace's own program order, and the trace must be eager training's step
        in double precision.

        Returns:
            None: that is not what the difference comes from.
        """
        own = self.bench.result_of(self.bench.run(self._checkpoint_all))
        if not compare(found, own, exact=True).bitwise:
            return None
        double = self._trace_in_double
        if double.reference != "eager" or double.comparison is None or double.comparison.reason:
            return None
        error = double.comparison.max_error
        return Rounding(error, double.reason, double.reference, 0, None, None, None, None)

    @cached_property
    def _trace_in_double(self) -> _DoubleStep:
        return self._in_double(self._checkpoint_all)

    def _traits(self, implementation: ImplementationName) -> ImplementationTraits:
        return self.bench.captured.traits.get(implementation, ImplementationTraits())

    def _compared_alone(self, program: Program) -> list[Alone]:
        new = [
            implementation
            for implementation in program.implementations
            if implementation not in self._alone
        ]
        if new:
            self._alone |= compare_alone(self.bench, new, self.exact)
        return [self._alone[implementation] for implementation in program.implementations]

    def _in_double(self, program: Program) -> _DoubleStep:
        short = self._too_large(program)
        if short is not None:
            return _DoubleStep(reason=short)
        found = self._attempt(lambda: double_result(self.bench, program))
        if isinstance(found, str):
            return _DoubleStep(reason=found)
        eager, others = self._eager, self._others(program)
        against = None if isinstance(eager, str) else _compared(found, eager)
        if against is not None and against.reason is None:
            return _DoubleStep(against, "eager", others)
        default = self._default
        if isinstance(default, str):
            return _DoubleStep(against, reason=default)
        # A model may add torch.finfo(x.dtype).eps, say, which a trace holds as a number.
        if isinstance(eager, StepResult) and _compared(default, eager).reason is None:
            return _DoubleStep(against, "eager", others)
        return _DoubleStep(_compared(found, default), "captured", others)

    def _others(self, program: Program) -> str | None:
        """What has no double precision, where something else ran in its place."""
        names = [
            _named(implementation)
            for implementation in program.implementations
            if not self._traits(implementation).float64
        ]
        if not names:
            return None
        return f"{names[0]} has no float64; PyTorch's own ran instead ({len(names)} such)"

    @cached_property
    def _eager(self) -> StepResult | str:
        return self._attempt(lambda: double_reference(self.bench))

    @cached_property
    def _default(self) -> StepResult | str:
        """The captured step by its default implementations, if it is eager training's."""
        if self._wrong_default is not None:
            return self._wrong_default
        return self._attempt(lambda: double_result(self.bench, self._checkpoint_all))

    @cached_property
    def _wrong_default(self) -> str | None:
        """What is wrong with the default implementations in the working precision."""
        reason = self.working(self._checkpoint_all).reason
        return reason and f"the captured step itself is not eager training's: {reason}"

    @cached_property
    def _checkpoint_all(self) -> Program:
        captured = self.bench.captured
        return generate(captured, program_order(captured.graph))

    def _attempt(self, run: Callable[[], StepResult]) -> StepResult | str:
        """What a run gives, on the CPU; or, in words, why it has no double precision."""
        try:
            return _on_cpu(run())
        except Exception as error:  # whatever a model's or an implementation's code raises
            words = "the device has too little memory for it" if is_out_of_memory(error) else ""
            reason = words or f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        release(self.bench.device)
        return reason

    def _too_large(self, program: Program) -> str | None:
        """Why neither the plan nor eager training in double precision fits; None: they do."""
        free = free_memory(self.bench.device)
        needed = int(DOUBLE_BYTES * max(program.peak_bytes, self._checkpoint_all.peak_bytes))
        if free is None or needed <= free:
            return None
        return f"it needs about {needed} bytes of the device, {free} are free"


def _compared(found: StepResult, expected: StepResult) -> Comparison:
    return compare(found, expected, tolerance=FLOAT64_TOLERANCE, floor=FLOAT64_FLOOR)


def _on_cpu(result: StepResult) -> StepResult:
    return StepResult(
        result.loss.cpu(),
        {name: gradient.cpu() for name, gradient in result.gradients.items()},
        {name: buffer.cpu() for name, buffer in result.buffers.items()},
    )


def _closeness(alone: Alone) -> float:
    """How much of what is allowed an implementation's error takes up."""
    if alone.reason is not None:
        return float("inf")
    return (alone.error or 0.0) / alone.tolerance if alone.tolerance else -1.0


def _named(implementation: ImplementationName) -> str:
    return " ".join(implementation)


def _name(alone: Alone) -> str:
    return _named((alone.op, alone.implementation))
