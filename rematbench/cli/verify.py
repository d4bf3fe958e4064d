"""``rematbench-verify GRAPH PLAN``: replay a plan file in the reference simulator."""

from __future__ import annotations

import sys

from rematbench.base.errors import InvalidPlan, PlanError, RematbenchError
from rematbench.base.origin import one_line, printable
from rematbench.cli.arguments import Arguments
from rematbench.graphs.builders.synthetic import with_backward
from rematbench.graphs.files import read_graph, read_plan
from rematbench.graphs.ir import Graph
from rematbench.graphs.link_choice import LinkChoice
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import Trace, check_draws, simulate
from rematbench.jobs.columns import facts_of_copies
from rematbench.jobs.links import read_words
from rematbench.rows.memory_parts import memory_parts
from rematbench.rows.provenance import commit, now, versions
from rematbench.rows.row import Row, format_row, make_row

UNLINKED = LinkChoice()


def verify(graph: Graph, plan: Plan, choice: LinkChoice = UNLINKED, host: int | None = None) -> Row:
    """The row of a plan as simulated; ``failed`` with the reason where it is invalid.

    A plan for a forward-only graph may be for the graph itself, or for ``with_backward`` of it.

    Args:
        choice: the link to the host.
        host: the most bytes there, or None.

    Raises:
        PlanError: the plan is for another graph.
        ConfigError: the link is per second, and costs are no seconds.
    """
    if plan.graph != graph.name:
        raise PlanError(
            f"the plan is for graph {plan.graph!r}, not for {graph.name!r}; give the graph that "
            "it was made for"
        )
    if any(s.op not in graph.op_index for s in plan.statements if hasattr(s, "op")):
        graph = with_backward(graph)
    link, base = choice.of(graph.cost_unit), simulate(graph, program_order(graph))
    row = _known(graph, plan, base)
    try:
        trace = simulate(graph, plan, link)
        check_draws(graph, plan)
    except InvalidPlan as error:
        return row | {"status": "failed", "reason": one_line(error)}
    row["extra"]["memory"] = memory_parts(graph, trace, None)
    if link.both:
        row["extra"]["link"] = choice.as_json()
    if trace.copies is not None:
        # Other keys than mypy can see: all of them are of TwoMemories.
        row["extra"].update(facts_of_copies(trace.copies))  # type: ignore[typeddict-item]
    reason = _excess(plan, trace, host)
    return row | {
        "status": "ok" if reason is None else "infeasible",
        "reason": reason,
        "cost": trace.cost,
        "overhead": trace.cost / base.cost - 1 if base.cost else None,
        "recomputations": trace.recomputations,
        "checkpoints": trace.checkpoints,
        "peak_bytes": trace.peak_bytes,
    }


def _excess(plan: Plan, trace: Trace, host: int | None) -> str | None:
    """Which limit a plan does not keep to."""
    if plan.budget_bytes is not None and trace.peak_bytes > plan.budget_bytes:
        return f"the plan peaks at {trace.peak_bytes} bytes, over its budget"
    if host is not None and trace.host_peak_bytes > host:
        return f"the plan peaks at {trace.host_peak_bytes} bytes on the host, over host={host}"
    return None


def _known(graph: Graph, plan: Plan, base: Trace) -> Row:
    """What a row says whatever comes of the plan."""
    return make_row(
        model=graph.name,
        graph_hash=graph.hash,
        ops=len(graph.ops),
        values=len(graph.values),
        strategy=plan.strategy or None,
        budget_bytes=plan.budget_bytes,
        cost_unit=graph.cost_unit,
        checkpoint_all_cost=base.cost,
        checkpoint_all_peak_bytes=base.peak_bytes,
        costmodel="given",
        versions=versions(),
        commit=commit(),
        utc=now(),
        extra={"floor_bytes": graph.floor_bytes(), "resident_bytes": graph.resident_bytes},
    )


def main() -> None:
    """The command. Exits 1 for an invalid plan, an exceeded limit or an unreadable file."""
    parser = Arguments(prog="rematbench-verify", description=__doc__)
    parser.add_argument("graph", help="*.graph.json or *.graph.json.gz")
    parser.add_argument("plan", help="*.plan.json or *.plan.json.gz")
    words = "of a plan for two memories: link=pcie4, link.out=25GB/s, host=64GiB"
    parser.add_argument("keys", nargs="*", metavar="KEY=VALUE", help=words)
    given = parser.parse_args()
    try:
        row = verify(read_graph(given.graph), read_plan(given.plan), *read_words(given.keys))
    except RematbenchError as error:
        sys.exit(f"rematbench-verify: {one_line(error)}")
    print(format_row(row))
    if row["status"] != "ok":
        sys.exit(f"rematbench-verify: {printable(given.plan)}: {row['reason']}")


if __name__ == "__main__":
    main()
