"""Columns of a row: how it says that nothing fits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from helpers import weights
from job_settings import settings_of

from rematbench.base.errors import Infeasible
from rematbench.cli.closing import closing_line
from rematbench.graphs.budget import parse_budget
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.jobs.columns import of_error, of_verdict
from rematbench.jobs.task import Task, banishing_peak
from rematbench.rows.row import joined, make_row
from rematbench.strategies.base import Problem
from rematbench.strategies.chen import ChenSqrt
from rematbench.strategies.dtr import Dtr
from rematbench.streams.convert import graph_of_stream, stream_of_graph

JOB = settings_of(
    {"kind": "zoo", "name": "net", "batch_size": None, "options": {}},
    *("chen_sqrt", "strategies.chen.ChenSqrt"),
)


@pytest.mark.parametrize(
    ("budget", "batch", "helps"),
    [(0.5, 1, True), (0.5, None, False), ("50B", 1, False), ("50B", None, False)],
)
def test_a_larger_batch_helps_where_the_budget_grows_with_it(
    budget: float | str, batch: int | None, helps: bool
) -> None:
    """A fraction of a larger peak is more bytes; a number of bytes stays what it is."""
    job = replace(JOB, budget=parse_budget(budget), model=JOB.model | {"batch_size": batch})
    task = Task(job, ChenSqrt(), weights(8))
    assert task.budget is not None
    assert task.budget < task.once_floor
    reason = of_error(Infeasible("no"), task)["reason"]
    assert reason is not None
    assert "computes some gradient twice: give a larger budget" in reason
    assert ("larger batch" in reason) == helps


def test_a_run_on_a_log_that_was_cut_short_found_no_peak() -> None:
    """What it held until then is below its budget, and no budget that would do."""
    stream = stream_of_graph(unit_chain(16)).stream
    graph, whole = graph_of_stream(stream), banishing_peak(stream)
    for budget, status in ((whole, "ok"), (2, "infeasible")):
        solution = Dtr().plan(Problem(graph, budget, stream=stream))
        verdict = solution.verdict
        assert verdict is not None
        assert verdict.status == status
        assert verdict.peak_bytes <= budget
        row = joined(make_row(budget_bytes=budget), of_verdict(solution, verdict))
        assert row["peak_bytes"] == (verdict.peak_bytes if status == "ok" else None)
        assert ("peak" in closing_line(row, Path("out"))) == (status == "ok")
