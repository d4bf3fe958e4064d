"""What ``torch.compile(model, backend="rematbench")`` made of a model, for people."""

from __future__ import annotations

import tempfile
import webbrowser
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rematbench.base.errors import ConfigError
from rematbench.graphs.copies import Copies
from rematbench.graphs.files import write_bytes, write_graph, write_plan
from rematbench.graphs.ir import Graph
from rematbench.graphs.link import NONE, Link
from rematbench.graphs.link_choice import chosen_link
from rematbench.graphs.plan import Plan
from rematbench.graphs.simulate import Trace
from rematbench.jobs.columns import facts_of_copies
from rematbench.jobs.job_files import trace_csv
from rematbench.report.collect import collect
from rematbench.report.pages.site import write_row_page
from rematbench.rows.provenance import commit, now, versions
from rematbench.rows.row import Row, make_row, write_row
from rematbench.training.compiled.backend import Region, regions
from rematbench.training.compiled.planning import Planned
from rematbench.training.compiled.together import Together
from rematbench.training.compiled.told import recomputed

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Compiled:
    """One compiled graph.

    Attributes:
        name: of the module that it came from.
        lower: ``eager`` or ``inductor``.
        graph, plan, trace: what runs, and as simulated.
        budget_bytes: the most that it may take alone; None: no limit.
        simulated_peak_bytes: residents included; without what other pending calls hold.
        measured_peak_bytes: of its first step; None before.
        ordinary_peak_bytes: of the same graph without recomputation, as simulated.
        overhead: simulated cost over that of ordinary training, minus 1.
        recomputed: computes beyond the first of each op and their share of ordinary training's
            cost, by the module that the ops came from.
        source: ``ordinary``, ``planned``, ``cache`` (the plan was known) or ``given``.
        seconds: profiling, and planning.
        link: to the host, by which it copies.
        measured_host_peak_bytes: of its latest step; None: it copies nothing, or has not run.
    """

    name: str
    lower: str
    graph: Graph
    plan: Plan
    trace: Trace
    budget_bytes: int | None
    simulated_peak_bytes: int
    measured_peak_bytes: int | None
    ordinary_peak_bytes: int
    overhead: float
    recomputed: Mapping[str, tuple[int, float]]
    source: str
    seconds: tuple[float, float]
    link: Link = NONE
    measured_host_peak_bytes: int | None = None

    def __str__(self) -> str:
        measured = (
            "not yet" if self.measured_peak_bytes is None else f"{self.measured_peak_bytes:,}"
        )
        budget = "none" if self.budget_bytes is None else f"{self.budget_bytes:,}"
        lines = [
            f"{self.name}: {self.plan.strategy or 'ordinary'}, lower={self.lower} ({self.source})",
            f"  peak, bytes: {self.simulated_peak_bytes:,} simulated, {measured} measured; budget "
            f"{budget}; ordinary training {self.ordinary_peak_bytes:,}",
            f"  overhead: {self.overhead:+.2%} simulated",
        ]
        if self.trace.copies is not None:
            lines.append(f"  {self._of_host(self.trace.copies)}")
        for scope, (count, share) in self.recomputed.items():
            lines.append(f"  recomputed in {scope or '(no module)'}: {count} ops, {share:.2%}")
        return "\n".join(lines)

    def _of_host(self, copies: Copies) -> str:
        measured = self.measured_host_peak_bytes
        return (
            f"host, bytes: {copies.out_bytes:,} copied out, {copies.in_bytes:,} back; peak "
            f"{copies.host_peak_bytes:,} simulated, "
            f"{'not yet' if measured is None else f'{measured:,}'} measured"
        )


@dataclass(frozen=True)
class Explanation:
    """Every graph of a model that trains by a plan, in the order in which they were compiled.

    Attributes:
        graphs: one for each plan that calls of a graph run by.
        steps: sequences of several calls that are planned as one.
    """

    graphs: tuple[Compiled, ...]
    steps: tuple[Together, ...] = ()

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.steps, *self.graphs)))

    def write(self, folder: str | Path) -> tuple[Path, ...]:
        """Write each graph's row, plan, trace and page below a folder; returns the pages."""
        pages = []
        for number, each in enumerate(self.graphs):
            run = Path(folder) / str(number)
            write_graph(run / "graph.json.gz", each.graph)
            write_plan(run / "plan.json", each.plan)
            write_bytes(run / "trace.csv", trace_csv(each.plan, each.trace).encode())
            write_row(run / "row.json", _row(each))
            (record,) = collect([run]).records
            pages.append(write_row_page(record, Path(folder)))
        return tuple(pages)

    def open(self) -> tuple[Path, ...]:
        """Write the pages to a temporary folder, and show them in the browser."""
        pages = self.write(tempfile.mkdtemp(prefix="rematbench-"))
        for page in pages:
            webbrowser.open(page.resolve().as_uri())
        return pages


def explain(model: nn.Module) -> Explanation:
    """What the backend did with a model: its plans, their peaks, what they compute again.

    Args:
        model: compiled, or what was compiled; it has to have run once.

    Raises:
        ConfigError: nothing of it was compiled with ``backend="rematbench"``, or it has not run.
    """
    own = {id(each) for each in (*model.parameters(), *model.modules())}
    found = sorted((each for each in regions if _reads(each, own)), key=lambda each: each.number)
    graphs = [_compiled(each, plan) for each in found for plan in each.plans]
    if not graphs:
        raise ConfigError(
            f"{type(model).__name__} has no graph that trains by a plan; compile it with "
            'torch.compile(model, backend="rematbench", options={"budget": "8GiB"}) and run a step'
        )
    return Explanation(tuple(graphs), tuple(plan for each in found for plan in each.steps))


def _reads(region: Region, own: Iterable[int]) -> bool:
    return any(id(each()) in own for each in (*region.parameters, *region.origin))


def _compiled(region: Region, planned: Planned) -> Compiled:
    graph, plan = planned.graph, planned.plan
    costs = {op.name: (op.scope, op.cost) for op in graph.ops}
    again: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for op, count in recomputed(graph, plan).items():
        scope, cost = costs[op]
        again[scope][0] += count
        again[scope][1] += count * cost / planned.base.cost
    ordered = sorted(again.items(), key=lambda item: -item[1][1])
    return Compiled(
        name=region.name,
        lower=region.options.lower,
        graph=graph,
        plan=plan,
        trace=planned.trace,
        budget_bytes=planned.limit,
        simulated_peak_bytes=planned.share.peak,
        measured_peak_bytes=region.meter.peak_bytes if planned is region.settled else None,
        ordinary_peak_bytes=planned.base.peak_bytes,
        overhead=planned.overhead,
        recomputed={scope: (int(count), share) for scope, (count, share) in ordered},
        source=planned.source,
        seconds=planned.seconds,
        link=planned.link,
        measured_host_peak_bytes=region.host_peak_of(planned),
    )


def _row(each: Compiled) -> Row:
    measured = each.measured_peak_bytes
    extra: dict[str, Any] = {
        "resident_bytes": each.graph.resident_bytes,
        "floor_bytes": each.graph.floor_bytes(),
    }
    if each.trace.copies is not None:
        extra |= facts_of_copies(each.trace.copies)
        extra["link"] = chosen_link(each.link).as_json()
        if each.measured_host_peak_bytes is not None:
            extra["measured_host_peak_bytes"] = each.measured_host_peak_bytes
    return make_row(
        model=each.name,
        strategy=each.plan.strategy,
        status="ok",
        budget_bytes=each.budget_bytes,
        peak_bytes=each.trace.peak_bytes,
        measured_peak_bytes=measured,
        checkpoint_all_peak_bytes=each.ordinary_peak_bytes,
        cost=each.trace.cost,
        overhead=each.overhead,
        recomputations=each.trace.recomputations,
        checkpoints=each.trace.checkpoints,
        extra=extra,
        versions=versions(),
        commit=commit(),
        utc=now(),
    )
