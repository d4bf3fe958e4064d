"""``rematbench-instances submit``: a better plan or a better bound becomes the record.

A plan is judged by the simulator, whatever its sender says of it. A bound is taken from a run's
row or from a bound file; what it rests on is kept (:mod:`rematbench.instances.evidence`), so that
it can be proven again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path

from rematbench.base.errors import ConfigError, RematbenchError
from rematbench.base.json_files import read_json, write_json as write_document
from rematbench.base.origin import one_line
from rematbench.graphs.files import plan_document, read_plan, write_json
from rematbench.graphs.ir import Graph
from rematbench.graphs.link import Link
from rematbench.graphs.plan import Plan
from rematbench.graphs.simulate import Trace
from rematbench.instances.evidence import NEEDED, SPACES, Evidence, needed_once, proven
from rematbench.instances.news import RecordStep, add_news
from rematbench.instances.offers import Submission, files_of, judged, problems_of, read_offer
from rematbench.instances.records import (
    CLOSED,
    QUICK,
    BestKnown,
    Library,
    LibraryProblem,
    gap_of,
    is_empty,
    is_without_plan,
    settled,
    whole_bound,
    whole_cost,
)
from rematbench.instances.spaces import why_outside
from rematbench.report.pages.lanes import link_of
from rematbench.rows.row import Row
from rematbench.strategies.registry import class_of


class RecordJudge:
    """Judges offers for a library, and keeps the records that come of them.

    Args:
        library: as its tables are.

    Attributes:
        records: as they are after the offers so far.
        plans: the new values' plans, by instance.
        evidence: of the new bounds, by instance.
        first: records as they were, of the instances that changed.
    """

    def __init__(self, library: Library) -> None:
        self.library = library
        self.records = {name: library.record(name) for name in library.instances}
        self.plans: dict[str, Plan] = {}
        self.evidence: dict[str, Evidence] = {}
        self.first: dict[str, BestKnown] = {}
        self._graph = cache(library.graph)

    def take(self, offer: Submission) -> list[RecordStep]:
        """What an offer improves; each is kept.

        Raises:
            RematbenchError: it is not valid, or improves nothing; one line that says why. Then
                nothing is kept.
        """
        before = self.records, self.plans, self.evidence, self.first
        self.records, self.plans = self.records.copy(), self.plans.copy()
        self.evidence, self.first = self.evidence.copy(), self.first.copy()
        try:
            return self._taken(offer)
        except RematbenchError:
            self.records, self.plans, self.evidence, self.first = before
            raise

    def _taken(self, offer: Submission) -> list[RecordStep]:
        problems = problems_of(offer, self.library)
        graph = self._graph(problems[0].graph)
        if offer.row is not None and offer.is_run:
            _check_hashes(offer, graph)
        links = {each.host_link for each in problems if offer.plan is not None}
        most = max(each.budget_bytes for each in problems) if offer.budget is None else offer.budget
        traces = {link: judged(offer, graph, link, most) for link in links}
        steps = self._plans(offer, problems, traces) if traces else []
        steps += self._bounds(offer, problems, traces)
        if not steps:
            raise ConfigError(f"{offer.where}: not better; {self._best(offer, problems)}")
        return steps

    def _keep(self, new: BestKnown, plan: Plan | None) -> list[RecordStep]:
        """The step to ``new``, with its gap and status; none where that is what there was."""
        old, new = self.records[new.instance], settled(new)
        if new == old:
            return []
        self.first.setdefault(old.instance, old)
        self.records[old.instance] = new
        if plan is not None:
            self.plans[old.instance] = plan
        return [RecordStep(old, new)]

    def _plans(
        self, offer: Submission, problems: Sequence[LibraryProblem], traces: Mapping[Link, Trace]
    ) -> list[RecordStep]:
        """A plan is one for every budget that holds its peak, and for every link."""
        steps = list[RecordStep]()
        for problem in problems:
            old, trace = self.records[problem.instance], traces[problem.host_link]
            cost = whole_cost(trace.cost)
            if problem.budget_bytes < trace.peak_bytes or _is_no_dearer(old, cost):
                continue
            if is_without_plan(old) or (old.bound is not None and cost < old.bound):
                old = self._without_bound(problem, offer, cost)
            new = replace(old, value=cost, plan=problem.plan, by=offer.by, date=offer.date)
            steps += self._keep(new, offer.plan)
        return steps

    def _without_bound(self, problem: LibraryProblem, offer: Submission, cost: int) -> BestKnown:
        """A record whose bound is of other plans than one that costs less."""
        old, space = self.records[problem.instance], str(self.records[problem.instance].bound_of)
        known: Evidence = {}
        if problem.instance in self.evidence:
            known = self.evidence[problem.instance]
        elif (place := self.library.folder / problem.evidence).is_file():
            known = read_json(place, ConfigError)
        assert offer.plan is not None
        graph = self._graph(problem.graph)
        if why_outside(graph, offer.plan, space, known.get("computes")) is None:
            said = f"below the bound {old.bound}" if old.bound else "and no plan is possible"
            raise ConfigError(
                f"{offer.where}: costs {cost}, {said} by {old.bound_by} for {old.instance}, which "
                f"holds for any plan of space {space}, as this one is: one of the two is wrong"
            )
        return replace(old, bound=None, bound_of=None, bound_by=None, bound_date=None)

    def _contradicts(self, offer: Submission, problem: LibraryProblem, space: str) -> bool:
        """Is the known plan one of the space that an offer's bound or proof is of?"""
        kept = self.plans.get(problem.instance)
        plan = read_plan(self.library.folder / problem.plan) if kept is None else kept
        graph = self._graph(problem.graph)
        return why_outside(graph, plan, space, offer.evidence.get("computes")) is None

    def _bounds(
        self, offer: Submission, problems: Sequence[LibraryProblem], traces: Mapping[Link, Trace]
    ) -> list[RecordStep]:
        """A bound holds for every smaller budget, too."""
        row = offer.row
        if row is None or not _proves(offer, row):
            return []
        if row["status"] == "infeasible":
            return self._proofs(offer, row, problems)
        if row["bound"] is None or row["bound_of"] not in SPACES:
            return []
        bound, space, budget = whole_bound(row["bound"]), str(row["bound_of"]), row["budget_bytes"]
        steps = []
        for problem in problems:
            if budget is None or problem.budget_bytes <= budget:
                quick = _quick(offer, problem, traces.get(problem.host_link), bound)
                steps += self._bound(offer, problem, bound, space, quick)
        return steps

    def _proofs(
        self, offer: Submission, row: Row, problems: Sequence[LibraryProblem]
    ) -> list[RecordStep]:
        """That a space has no plan, where none is known; it has none for smaller budgets either."""
        spaces = [space for space in SPACES if space in row["extra"].get("no_plan_in", ())]
        steps = []
        for problem in problems:
            if spaces and problem.budget_bytes <= (offer.budget or 0):
                quick = _took_little(row) and problem.budget_bytes == offer.budget
                steps += self._proof(offer, problem, spaces[0], quick)
        return steps

    def _proof(
        self, offer: Submission, problem: LibraryProblem, space: str, quick: bool
    ) -> list[RecordStep]:
        old = self.records[problem.instance]
        if old.value is not None and self._contradicts(offer, problem, space):
            raise ConfigError(
                f"{offer.where}: no plan ({space}) by {offer.by}, but there is the known plan of "
                f"{old.value} by {old.by} for {problem.instance}; drop it"
            )
        if _is_settled(old, space):
            return []
        old = replace(old, status="easy") if quick else old
        self.evidence[problem.instance] = offer.evidence
        return self._keep(proven(old, None, space, offer.by, offer.date), None)

    def _bound(
        self, offer: Submission, problem: LibraryProblem, bound: int, space: str, quick: bool
    ) -> list[RecordStep]:
        old = self.records[problem.instance]
        if is_without_plan(old) or is_empty(problem, space):
            return []
        if old.value is not None and bound > old.value:
            if self._contradicts(offer, problem, space):
                raise ConfigError(
                    f"{offer.where}: the bound {bound} ({space}) by {offer.by} is above the "
                    f"known plan of {old.value} by {old.by} for {problem.instance}; drop it"
                )
            return []
        if not is_better_bound(bound, space, old, quick):
            return []
        self.evidence[problem.instance] = offer.evidence
        new = replace(old, status="easy" if quick else "open")  # unless the gap says closed
        return self._keep(proven(new, bound, space, offer.by, offer.date), None)

    def _best(self, offer: Submission, problems: Sequence[LibraryProblem]) -> str:
        asked = [p for p in problems if offer.budget in (None, p.budget_bytes)]
        best = [self.records[each.instance] for each in asked]
        return "; ".join(map(_state, best))

    def add_least(self, today: str) -> None:
        """The least bound, for changed records that have none or whose plan has outlived it.

        Args:
            today: ISO date.
        """
        for name in self.first:
            problem, record = self.library.instances[name], self.records[name]
            if record.bound_of is None and problem.link is None:
                least = needed_once(self._graph(problem.graph))
                self.records[name] = settled(proven(record, least, "any", NEEDED, today))

    def write(self) -> None:
        """Plan files and evidence, then ``records.csv``."""
        for name, plan in self.plans.items():
            problem = self.library.instances[name]
            kept = plan.labelled(plan.strategy, problem.budget_bytes)
            write_json(self.library.folder / problem.plan, plan_document(kept))
        for name in self.first:
            place = self.library.folder / self.library.instances[name].evidence
            by = self.records[name].bound_by
            if by in (None, NEEDED):  # a better plan has outlived its bound
                place.unlink(missing_ok=True)
            elif name in self.evidence:
                write_document(place, self.evidence[name], indent=1)
        self.library.write(self.records)


def _state(record: BestKnown) -> str:
    if is_without_plan(record):
        return f"{record.instance} has no plan ({record.bound_of}) by {record.bound_by}"
    return f"{record.instance} has {record.value} by {record.by}, bound {record.bound}"


def _proves(offer: Submission, row: Row) -> bool:
    """Is what it proves true of plans that copy, too, where a plan may? Others say so."""
    copies = offer.is_run and link_of(row) is not None
    return not copies or class_of(str(row["strategy"])).traits.offloads


def is_better_bound(bound: int, space: str, old: BestKnown, quick: bool) -> bool:
    """Does it close the problem, or do so in a wider space; or else, is it higher?"""
    if old.bound is None or old.bound_of is None:
        return True
    closes, closed = _closes(bound, old.value), _closes(old.bound, old.value)
    if closes != closed:
        return closes
    if space == old.bound_of:
        return _better_there(bound, old.bound, old, quick)
    wider = SPACES.index(space) < SPACES.index(old.bound_of)
    return wider if closes else bound > old.bound or (bound == old.bound and wider)


def _better_there(bound: int, known: int, old: BestKnown, quick: bool) -> bool:
    """In the same space: so is one with the first evidence that is as high or closes the problem,
    and any that closes it by one quick run, whose place no slower one takes."""
    if old.bound_date is None:
        return bound >= known or _closes(bound, old.value)
    if old.status == "easy":
        return quick and bound > known
    return quick or bound > known


def _closes(bound: int, value: int | None) -> bool:
    gap = gap_of(value, bound)
    return gap is not None and gap <= CLOSED


def _quick(offer: Submission, problem: LibraryProblem, trace: Trace | None, bound: int) -> bool:
    """Has this run alone closed its problem, and soon? Its plan is judged, not believed."""
    if trace is None or offer.row is None or problem.budget_bytes != offer.budget:
        return False
    return _closes(bound, whole_cost(trace.cost)) and _took_little(offer.row)


def _took_little(row: Row) -> bool:
    """Did a planner take a quick run's seconds at most?"""
    seconds = row["extra"].get("plan_cpu_seconds")
    return seconds is not None and seconds <= QUICK


def _check_hashes(offer: Submission, graph: Graph) -> None:
    assert offer.row is not None
    claimed = offer.row["graph_hash"]
    if claimed is None:
        raise ConfigError(
            f"{offer.where}: the run ended before it said anything of its graph "
            f"({offer.row['status']}); give it more time"
        )
    if claimed != graph.hash:
        raise ConfigError(
            f"{offer.where}: graph_hash is {claimed}, and that of the library's {graph.name} "
            f"{graph.hash}; plan on the library's file"
        )
    stated = offer.row["extra"].get("plan_hash")
    if offer.plan is not None and stated is not None and stated != offer.plan.hash(graph):
        raise ConfigError(
            f"{offer.where}: plan_hash is not that of the plan beside it; run the job again"
        )


def submit(
    library: Library, places: Sequence[Path], by: str | None, today: str
) -> tuple[Mapping[str, RecordStep], list[str]]:
    """Judge all offers, and write what they improve: plans, records and news.

    Args:
        places: plan files, bound files, runs, or folders of any of these.
        by: who sends them; None: who made them, as the files say.
        today: ISO date, of news and of plans that tell none.

    Returns:
        What changed, by instance, and why other offers were refused.

    Raises:
        RematbenchError: a place has nothing, or the library cannot be written.
    """
    judge, refused = RecordJudge(library), list[str]()
    for path in chain.from_iterable(map(files_of, places)):
        try:
            judge.take(read_offer(path, by, today))
        except RematbenchError as error:
            refused.append(one_line(error))
    if not judge.first:
        return {}, refused
    judge.add_least(today)
    steps = {name: RecordStep(old, judge.records[name]) for name, old in judge.first.items()}
    judge.write()
    add_news(library.folder / "NEWS.md", [*steps.values()], today)
    return steps, refused


def _is_settled(record: BestKnown, space: str) -> bool:
    """Is a plan known, or that a space as wide has none, with evidence of it?"""
    if record.value is not None or not is_without_plan(record):
        return record.value is not None
    known, offered = SPACES.index(str(record.bound_of)), SPACES.index(space)
    return known < offered or (known == offered and record.bound_date is not None)


def _is_no_dearer(record: BestKnown, cost: int) -> bool:
    """Is the plan that is known as cheap?"""
    return record.value is not None and cost >= record.value
