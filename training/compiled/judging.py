"""What a plan of a compiled graph takes of the budget, as its two halves can run it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from rematbench.base.errors import NotApplicable
from rematbench.costmodel.device import random_state_bytes
from rematbench.graphs.ir import Graph, Op, Phase
from rematbench.graphs.link import NONE
from rematbench.graphs.plan import Plan, has_copies, move_of, program_order
from rematbench.graphs.planning import Problem, Strategy
from rematbench.graphs.simulate import Trace, check_draws, simulate
from rematbench.tracing.halves import BORDER, Halves
from rematbench.tracing.releases import RELEASE
from rematbench.training.compiled.around import Around
from rematbench.training.compiled.beyond import beyond_of
from rematbench.training.compiled.mended import mended
from rematbench.training.compiled.options import Options
from rematbench.training.compiled.patience import patiently
from rematbench.training.compiled.sharing import share_of
from rematbench.training.host import check_copies

TRIES = 4
"""How often a strategy is asked for leaner plans."""
Asks = Callable[[int], "Made"]


@dataclass(frozen=True)
class Made:
    """A plan that two halves, or those of several calls, can run.

    Attributes:
        trace: as simulated.
        parts: the plans of the calls.
        late: bytes of tangents that PyTorch holds when the plan has let them go, at the peak.
    """

    plan: Plan
    trace: Trace
    parts: tuple[Plan, ...]
    late: int = 0

    @property
    def peak(self) -> int:
        """Of all calls, in bytes; residents included."""
        return self.trace.peak_bytes + self.late


class Judge:
    """Says what a plan of one call takes of the budget, and whether it fits; all in bytes.

    Args:
        around: what lies outside of a graph of many sizes.

    Attributes:
        graph: what strategies plan.
        base: ordinary training.
        budget: of all that runs; None: no limit.
        extras: what halves may hand over besides values.
        reserve: as the options say, less what is known of it.
        link, host: for copies of a step of one call, as in a problem; else there is no link.
        beyond: what Inductor is known to allocate above a plan.
        taken: not for a plan: reserve, extras, what is beyond it, or held around.
        allowed: what is left for a plan, residents included; None: no limit.
        ending: of the optimizer's step, whatever the plan; 0: it is looked at elsewhere.
    """

    ending = 0

    def __init__(self, halves: Halves, options: Options, around: Around | None = None) -> None:
        self.halves: tuple[Halves, ...] = (halves,)
        held = 0 if around is None else around.of(halves.captured.graph)
        self.ending = 0 if around is None else around.ending
        self._begin(halves.captured.graph, options, held=held)

    def _begin(
        self, graph: Graph, options: Options, known: int = 0, held: int = 0, beyond: int = 0
    ) -> None:
        self.graph, self.options = graph, options
        self.link, self.host = NONE, None
        if options.offload is not None and len(self.halves) == 1:
            device = self.halves[0].captured.device
            self.link = options.offload.link(graph, device, options.cache)
            self.host = options.offload.most
        self.base = self.judged(program_order(self.graph))
        self.extras = sum(map(_extras, self.halves))
        self._states = self.extras if self.base.trace.recomputations else 0
        self.reserve = max(0, options.reserve - known)
        self._allow(held, max(beyond, *(beyond_of(each, options) for each in self.halves)))

    def _allow(self, held: int, beyond: int) -> None:
        self._held, self.beyond = held, beyond
        whole = max(self.base.peak + self._states + held, self.ending)
        self.budget = self.options.budget.of(whole)
        self.taken = self.reserve + self.extras + beyond + held
        self.allowed = None if self.budget is None else self.budget - self.taken

    def forgoes(self) -> bool:
        """Leave no room any more for what was only told by other plans and sizes.

        That is what Inductor took, and what a fraction is to leave around a graph of many sizes.

        Returns:
            False: there was none.
        """
        told = self._held, self.ending
        held, ending = told if self.options.budget.fraction is None else (0, 0)
        if not self.beyond and told == (held, ending):
            return False
        self.ending = ending
        self._allow(held, 0)
        return True

    @property
    def ends_above(self) -> bool:
        """Does the optimizer's step alone take more than the budget?"""
        return self.budget is not None and self.ending + self.reserve > self.budget

    @property
    def ordinary_fits(self) -> bool:
        """Is ordinary training within the budget? Where it computes nothing again, it needs no
        more than values.
        """
        return self.fits(self.base, self.extras - self._states) and not self.ends_above

    def judged(self, plan: Plan) -> Made:
        """Any plan of the graph, as halves can run it."""
        (halves,) = self.halves
        check_copies(self.graph, plan, self.link, 'give options={"offload": "64GiB"}, say')
        plan = settled(halves, plan)
        check_draws(self.graph, plan)
        trace = simulate(self.graph, plan, self.link)
        held = RELEASE.holds_tangents
        late = share_of(halves, plan, trace).peak - trace.peak_bytes if held else 0
        return Made(plan, trace, (plan,), late)

    def others(self) -> Iterable[Made]:
        """Plans that are known to run, and may fit where no strategy's does."""
        return ()

    def asked(
        self,
        strategy: Strategy,
        budget: int,
        seconds: float,
        patient: bool = False,
        starts: tuple[Plan, ...] = (),
    ) -> Made:
        """A strategy's plan within ``budget`` bytes.

        Args:
            patient: stop when more time cannot pay.
            starts: plans to begin from.

        Raises:
            Infeasible, NotApplicable: as the strategy does; it makes no plan.
        """
        captured = self.halves[0].captured if len(self.halves) == 1 else None
        limits = (budget, seconds, self.options.seed)
        problem = Problem(self.graph, *limits, captured, warm_starts=starts)
        problem = replace(problem, link=self.link, host=self.host)
        found = (patiently(strategy, problem) if patient else strategy.plan(problem)).plan
        if found is None:
            raise NotApplicable(f"{type(strategy).__name__} judges itself and makes no plan to run")
        return self.judged(found)

    def overhead(self, made: Made) -> float:
        """A plan's cost over that of ordinary training, minus 1."""
        base = self.base.trace.cost
        return made.trace.cost / base - 1 if base else 0.0

    def fits(self, made: Made, spare: int = 0) -> bool:
        """Is a plan within what is allowed, and ``spare`` bytes more? On the host, too."""
        fits = self.allowed is None or made.peak <= self.allowed + spare
        return fits and (self.host is None or made.trace.host_peak_bytes <= self.host)


def leaner(ask: Asks, allowed: int) -> Iterator[Made]:
    """Plans for less and less, until one fits as it can run."""
    asked, excess = allowed, 1
    while excess > 0:
        found = ask(asked)
        excess = found.peak - allowed
        asked -= max(excess, 1)
        yield found


def settled(halves: Halves, plan: Plan) -> Plan:
    """A plan as two halves can run it: one border, results made once, regions made again.

    What the caller holds cannot be let go and made again, nor do other ranks run a collective
    again; a plan that does so keeps it instead. What regions of ``torch.utils.checkpoint`` make is
    not kept for the backward half: it is computed again, once, right before it is missed. None of
    these goes to the host.

    Raises:
        InvalidPlan: a statement names what the graph does not have.
    """
    graph, tables = halves.captured.graph, halves.captured.graph.tables
    codes = plan.codes(graph)
    once = {graph.op_index[BORDER]}
    once.update(i for i, op in enumerate(graph.ops) if _stays(op))
    writers = [graph.value_index[value] for value in halves.held]
    once.update(int(tables.writer[value]) for value in writers)
    if has_copies(graph, codes):
        kept = _without_repeats(graph, _movable(halves, codes.tolist()), once)
        kept = _with_regions(halves, kept) if halves.dropped else kept
        return Plan.from_codes(graph, mended(graph, kept), plan.strategy, plan.budget_bytes)
    asked = codes[codes >= 0].tolist()
    computes = _without_repeats(graph, asked, once)
    if len(computes) < len(asked):
        computes = _read(graph, computes)
    return Plan.of_computes(graph, _with_regions(halves, computes) if halves.dropped else computes)


def _without_repeats(graph: Graph, codes: Iterable[int], once: Collection[int]) -> list[int]:
    """The statements without further computes of ops that run once."""
    seen: set[int] = set()
    found = []
    for code in codes:
        op = int(graph.tables.op_of[code]) if code >= 0 else -1
        if op in once and op in seen:
            continue
        seen.add(op)
        found.append(code)
    return found


def _movable(halves: Halves, codes: Iterable[int]) -> Iterator[int]:
    """The statements without frees and copies of what the caller holds, gives, or has dropped."""
    captured, graph = halves.captured, halves.captured.graph
    tangents = {captured.value_of[name] for name in halves.tangents}
    stays = {graph.value_index[name] for name in halves.held | halves.dropped | tangents}
    for code in codes:
        if code >= 0 or move_of(code, len(graph.values))[1] not in stays:
            yield code


def _read(graph: Graph, computes: list[int]) -> list[int]:
    """The computes without those again of which nothing is read: for what is not made again."""
    op_of, index = graph.tables.op_of, graph.value_index
    wanted = set(graph.tables.outputs.tolist())
    first = {int(op_of[code]): place for place, code in reversed([*enumerate(computes)])}
    kept = []
    for place, code in reversed([*enumerate(computes)]):
        number = int(op_of[code])
        op = graph.ops[number]
        writes = {index[name] for name in op.writes}
        if place != first[number] and wanted.isdisjoint(writes):
            continue
        kept.append(code)
        reads = op.implementations[code - int(graph.tables.op_first[number])].reads
        wanted = (wanted - writes) | {index[name] for name in reads}
    return kept[::-1]


def _with_regions(halves: Halves, computes: list[int]) -> list[int]:
    """Statements, and of regions in the backward half the computes that it misses."""
    graph, tables = halves.captured.graph, halves.captured.graph.tables
    border = computes.index(int(tables.op_first[graph.op_index[BORDER]])) + 1
    dropped = (graph.value_index[value] for value in halves.dropped)
    missing = {each for each in dropped if not _stays(graph.ops[int(tables.writer[each])])}
    found = computes[:border]
    for code in computes[border:]:
        if code < 0:
            found.append(code)
            continue
        again: set[int] = set()
        pending = [int(tables.op_of[code])]
        while pending:
            lacking = missing.intersection(tables.inputs[pending.pop()].tolist())
            missing -= lacking
            pending += {int(tables.writer[value]) for value in lacking} - again
            again.update(int(tables.writer[value]) for value in lacking)
        found += tables.op_first[sorted(again)].tolist()
        found.append(code)
        missing.difference_update(tables.writes[int(tables.op_of[code])].tolist())
    return found


def all_again(halves: Halves) -> Plan:
    """Nothing but results is kept: the backward half first runs the forward half again."""
    graph = halves.captured.graph
    forward = [i for i, op in enumerate(graph.ops) if op.phase is Phase.FORWARD]
    rest = [i for i, op in enumerate(graph.ops) if op.phase is Phase.BACKWARD]
    needed = graph.needed_ops()
    order = [i for i in forward if needed[i]] + [graph.op_index[BORDER]]
    order += [*_read_again(halves, forward, rest), *rest]
    return settled(halves, Plan.of_computes(graph, graph.tables.op_first[order]))


def _read_again(halves: Halves, forward: list[int], rest: list[int]) -> list[int]:
    """The forward ops that must run again, in order, for ``rest`` to have what they read."""
    ops = halves.captured.graph.ops
    wanted = {value for i in rest for value in ops[i].reads}
    again: list[int] = []
    for i in reversed(forward):
        if wanted.intersection(ops[i].writes) and halves.held.isdisjoint(ops[i].writes):
            again.insert(0, i)
            wanted.update(ops[i].reads)
    return again


def _stays(op: Op) -> bool:
    """Is it no op to compute again?"""
    return op.collective or _is_seed(op)


def _is_seed(op: Op) -> bool:
    """Inductor's seeds are drawn once for all its random numbers, which are made of them again."""
    return op.random and op.operator.startswith("inductor_seed")


def _extras(halves: Halves) -> int:
    """Bytes that halves may hand over besides values: random states, copies of inputs."""
    captured = halves.captured
    copies = sum(
        value.bytes
        for value in captured.graph.values
        if value.name in {captured.value_of[name] for name in halves.changed}
    )
    return copies + random_state_bytes(captured.device) * len(captured.random_ops)
