"""What a planner is asked and what it answers: :class:`Problem`, :class:`Solution`.

Here, below both planners and executor, so that neither needs to know the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from rematbench.base.errors import ConfigError
from rematbench.graphs.budget import plain_number
from rematbench.graphs.ir import Graph
from rematbench.graphs.link import NONE, Link
from rematbench.graphs.plan import Plan

if TYPE_CHECKING:
    from rematbench.graphs.kinds import Kind

Degree = Literal["yes", "partly", "no"]
BoundOf = Literal["any", "9", "F", "C"]


@dataclass(frozen=True, slots=True)
class Traits:
    """What a strategy takes into account (Checkmate's Table 1 is made from these).

    Attributes:
        general_graphs: does it handle non-linear forward graphs?
        cost_aware: does it know that ops differ in cost?
        memory_aware: does it know that values differ in size?
        online: does it decide while the step runs?
        budgeted: does it look at the budget?
        offloads: can its plans copy values to the host and back?
    """

    general_graphs: Degree
    cost_aware: Degree
    memory_aware: Degree
    online: bool = False
    budgeted: bool = False
    offloads: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """What a planner is asked.

    Attributes:
        graph: one training step.
        budget: the allowed peak in bytes, or None for no limit.
        time_limit: seconds that the planner may take.
        seed: of every random choice.
        captured: the graph's :class:`~rematbench.tracing.captured.Captured`, at which PyTorch's own
            planners look; None: it has no torch side.
        stream: an :class:`~rematbench.streams.events.EventStream`, at which DTR looks; or None.
        report: called with a few words on progress.
        hand_over: called with a solution to fall back on: a planner that goes on improving hands
            over what it has, and if it overruns its time, the last of them is its answer.
        warm_starts: plans for this graph, of smaller budgets or of a strategy's ablations, say.
            A strategy that takes them never returns a dearer plan than one of them that fits.
        starts: strategies that plan in no time; a search that finds no plan begins from theirs.
        link: to the host, for strategies that can offload; the others pay no heed to it.
        host: the most bytes on the host, or None for no limit.

    Raises:
        ConfigError: the budget is neither None nor a whole number (Python's, or NumPy's).
    """

    graph: Graph
    budget: int | None = None
    time_limit: float = 60.0
    seed: int = 0
    captured: Any = None
    stream: Any = None
    report: Callable[[str], None] = field(default=lambda words: None, repr=False)
    hand_over: Callable[[Solution], None] = field(default=lambda solution: None, repr=False)
    warm_starts: tuple[Plan, ...] = ()
    starts: tuple[Strategy, ...] = ()
    link: Link = NONE
    host: int | None = None

    def __post_init__(self) -> None:
        given = plain_number(self.budget)
        if isinstance(given, float) and given.is_integer():
            given = int(given)
        if given is not None and type(given) is not int:
            raise ConfigError(f"Problem.budget is {self.budget!r}; give whole bytes, or None")
        object.__setattr__(self, "budget", given)

    def holds(self, peak: int, host: int = 0) -> bool:
        """Do a plan's peaks, in bytes on the device and on the host, keep to the limits?"""
        fits = self.budget is None or peak <= self.budget
        return fits and (self.host is None or host <= self.host)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a strategy says that is its own judge (DTR on a log).

    Attributes:
        status, reason, cost, peak_bytes, recomputations: columns of the row.
        base_cost, base_peak_bytes: of the log without a budget.
        trace: (what happened, to which tensor, when).
    """

    status: str
    reason: str | None
    cost: float
    peak_bytes: int
    recomputations: int
    base_cost: float
    base_peak_bytes: int
    trace: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class CompiledRun:
    """A plan as ``torch.compile`` runs it, by the partitioner's activation budget.

    Attributes:
        ratio: the budget, from 0 to 1; None: the smallest.
        solver: of the partitioner's knapsack, by name.
        recomputed: ops that the plan computes again, by name, in place of a solver.
        backend: which then makes code of forward and backward pass.
    """

    ratio: float | None = None
    solver: str | None = None
    recomputed: tuple[str, ...] | None = None
    backend: Literal["aot_eager", "inductor"] = "aot_eager"

    def as_json(self) -> dict[str, Any]:
        """As it stands in a row's ``extra.native``."""
        if self.recomputed is not None:
            return {"how": "torch.compile", "recomputed": list(self.recomputed)}
        return {"how": "torch.compile", "ratio": self.ratio, "solver": self.solver}


@dataclass(frozen=True, slots=True)
class CheckpointedRun:
    """A plan as ``torch.utils.checkpoint`` runs it.

    Sequences of modules are cut; of a list of modules each member is checkpointed, of a model
    without either each child. Or else just what ``modules`` and ``attention`` say.

    Attributes:
        segments: of a sequence; None: sqrt of its length.
        kept: names of ops (convolution, mm, ..) that are not recomputed; none: every op is.
        every: every n-th of them is kept.
        always: names of further ones, of which each is kept.
        modules: qualified names of the modules that are checkpointed, each as a whole.
        attention: is each call of ``scaled_dot_product_attention`` checkpointed?
    """

    segments: int | None = None
    kept: tuple[str, ...] = ()
    every: int = 1
    always: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    attention: bool = False

    def as_json(self) -> dict[str, Any]:
        """As it stands in a row's ``extra.native``."""
        found: dict[str, Any] = {"how": "checkpoint"}
        if not self.modules and not self.attention:
            found["segments"] = self.segments
        if self.attention:
            found["attention"] = True
        if self.kept:
            found |= {"kept": list(self.kept), "every": self.every}
        return found | ({"always": list(self.always)} if self.always else {})


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A plan as ``torch.compile(backend="rematbench")`` runs it.

    Attributes:
        plan: for the compiled graph: its computes; or the strategy that plans for that graph.
        lower: ``eager``: our statements; ``inductor``: Inductor's kernels.
        budget: bytes, for a strategy.
        time_limit, costmodel: the same; see :class:`Problem`.
    """

    plan: Plan | Strategy
    lower: Literal["eager", "inductor"]
    budget: int | None = None
    time_limit: float = 60.0
    costmodel: str = "flops"


NativeRun = CompiledRun | CheckpointedRun
"""How PyTorch runs what a plan of its own planners says; it is measured beside the plan."""


@dataclass(frozen=True, slots=True)
class Solution:
    """What a planner answers.

    Attributes:
        plan: for ``problem.graph``, within the budget as simulated; None with a verdict.
        bound: a proven lower bound of the cost at that budget, or None.
        bound_of: the space of plans that the bound holds for: ``any``, ``9`` (Checkmate's
            problem 9), ``F`` (the reduced problem) or ``C`` (at most C computes of an op).
        objective: the planner's own objective, where it is not the cost.
        variant: which form of the strategy produced the plan.
        solver: name and version of the solver, if one was used.
        details: JSON-ready facts that only this strategy has; they go into the row's ``extra``.
        verdict: of a strategy that is its own judge.
        native: how PyTorch itself runs the plan, of PyTorch's own planners.
    """

    plan: Plan | None
    bound: float | None = None
    bound_of: BoundOf | None = None
    objective: float | None = None
    variant: str | None = None
    solver: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    verdict: Verdict | None = None
    native: NativeRun | None = None


@runtime_checkable
class Strategy(Protocol):
    """A planner. Implementations are frozen dataclasses whose fields are the options.

    ``plan`` raises :class:`~rematbench.base.errors.NotApplicable` or
    :class:`~rematbench.base.errors.Infeasible`; both become rows.
    """

    traits: Traits

    def plan(self, problem: Problem) -> Solution: ...


@runtime_checkable
class SupportsWarmUp(Protocol):
    """A strategy with something to do before planning time counts: compiling, say."""

    def warm_up(self) -> None: ...


@runtime_checkable
class SupportsWarmUpInParts(SupportsWarmUp, Protocol):
    """One whose warming up has parts, which processes of their own can do side by side."""

    def warm_ups(self) -> Sequence[Callable[[], None]]: ...


@runtime_checkable
class ChoosesImplementations(Protocol):
    """A strategy that chooses among implementations: it plans for a graph that has them.

    Attributes:
        kinds: which ones it wants, see :class:`rematbench.graphs.kinds.Kind`.
        wants_density: of sparse encodings, too, which needs a forward pass on the device.
    """

    @property
    def kinds(self) -> Collection[Kind]: ...

    @property
    def wants_density(self) -> bool: ...


@runtime_checkable
class SupportsWarmStart(Protocol):
    """A strategy that takes known plans, its own and its variants', as warm starts.

    Attributes:
        contained: variants whose every plan it may return, its own among them.
    """

    @property
    def contained(self) -> Collection[str]: ...
