"""What planners of schedules share: programs, their solver, and the state of an anytime loop."""

from __future__ import annotations

import signal
from math import inf

import numpy as np
import pytest

from rematbench.base.clock import planning_seconds
from rematbench.engines.anytime import Progress
from rematbench.engines.lp.program import LinearProgram
from rematbench.engines.lp.solver import Solver, presolved
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.plan import program_order


def dense(program: LinearProgram) -> np.ndarray:
    rows = program.matrix
    found = np.zeros((len(rows.upper), program.size["columns"]))
    for i, (start, end) in enumerate(zip(rows.start[:-1], rows.start[1:], strict=True)):
        found[i, rows.column[start:end]] = rows.value[start:end]
    return found


def knapsack() -> LinearProgram:
    """-3a - 2b, where 2a + 2b <= 3."""
    program = LinearProgram(offset=10.0)
    a, b = (program.column(cost, integral=True) for cost in (-3.0, -2.0))
    program.row([(a, 1.0), (b, 2.0), (a, 1.0), (-1, 5.0)], 3.0)
    return program


def test_every_way_to_add_rows() -> None:
    program = knapsack()
    assert program.at_most([0, -1], [1], 0.5) == 1
    program.rows(0.0, 1.0, [np.array([0, 1]), np.array([1, -1])], [1.0, 4.0])
    rows, columns, values = np.array([1, 0]), np.array([0, 1]), np.array([7.0, 8.0])
    program.triples(np.zeros(2), np.ones(2), rows, columns, values)
    expected = [[2, 2], [1, -1], [1, 4], [0, 1], [0, 8], [7, 0]]
    assert dense(program).tolist() == expected
    assert program.matrix.lower.tolist() == [-inf, -inf, 0, 0, 0, 0]
    assert program.upper.tolist() == [3, 0.5, 1, 1, 1, 1]
    assert program.size == {"rows": 6, "columns": 2, "nonzeros": 9}


def test_solver() -> None:
    linear, integral = Solver(knapsack()), Solver(knapsack(), integral=True)
    relaxed = linear.run(inf)
    assert relaxed is not None
    assert relaxed.status == "optimal"
    assert relaxed.bound == pytest.approx(6.0)
    found = integral.run(planning_seconds() + 60, lambda: False)
    assert found is not None
    assert found.bound == pytest.approx(7.0)
    assert found.x is not None
    assert found.x.tolist() == [1.0, 0.0]
    linear.make_integral()
    again = linear.run(inf)
    assert again is not None
    assert again.bound == pytest.approx(7.0)


def test_a_bound_whatever_the_tolerances() -> None:
    """Weak duality: below the optimum where the objective is above it by HiGHS's tolerance."""
    program = knapsack()
    program.rows(1.0, inf, [np.array([0]), np.array([1])], [1.0, 1.0])  # a + b >= 1
    solver = Solver(program)
    outcome = solver.run(inf)
    assert outcome is not None
    assert solver.proven() == pytest.approx(outcome.bound)
    count, step = 1000, 0.9e-7  # every column is worth so much less at its upper limit
    flat = LinearProgram()
    for _ in range(count):
        flat.column(-step)
    flat.row([(column, 1.0) for column in range(count)], float(count))
    solver = Solver(flat)
    solver.run(inf)
    assert solver.proven() <= -step * count * (1 - 1e-9)


def test_nothing_is_proven_before_a_run() -> None:
    assert Solver(knapsack()).proven() == -inf


def test_limits_move_and_rows_go() -> None:
    program = knapsack()
    solver = Solver(program)
    row, columns = np.array([0]), np.array([0, 1])
    solver.limit_rows(row, program.raise_rows(row, -3.0))
    assert solver.run(inf).objective == pytest.approx(10.0)  # neither
    assert solver.proven() == pytest.approx(10.0)
    solver.drop_rows(0)
    assert solver.rows == 0
    assert solver.run(inf).objective == pytest.approx(5.0)
    assert solver.proven() == pytest.approx(5.0)
    solver.limit_columns(columns, program.raise_columns(columns, 1.0))
    assert solver.run(inf).objective == pytest.approx(0.0)
    assert solver.proven() == pytest.approx(0.0)
    solver.add_rows(program.matrix._replace(upper=np.array([4.0])))
    assert solver.run(inf).objective == pytest.approx(4.0)
    assert solver.proven() == pytest.approx(4.0)


def test_no_solution() -> None:
    program = knapsack()
    program.at_most([], [0, 1], -2.0)  # a + b >= 2
    outcome = Solver(program).run(inf)
    assert outcome is not None
    assert (outcome.status, outcome.bound, outcome.x) == ("infeasible", inf, None)
    assert presolved(program) == ("infeasible", {"rows": 0, "columns": 0, "nonzeros": 0})


def test_progress_records_improvements_only() -> None:
    words: list[str] = []
    progress = Progress(planning_seconds(), 0.01, words.append)
    plan = program_order(unit_chain(2))
    progress.raise_bound(90.0)
    assert not progress.closed()
    assert progress.offer(100.0, plan)
    assert not progress.offer(100.0, plan)
    progress.raise_bound(80.0)
    progress.raise_bound(90.01, by=0.001)  # hardly more
    progress.raise_bound(98.5)
    assert [(cost, bound) for _, cost, bound in progress.incumbents] == [
        (None, 90.0),
        (100.0, 90.0),
        (100.0, 98.5),
    ]
    details = progress.details()
    assert details["seconds_to_gap_5"] == details["seconds_to_gap_2"] is not None
    assert words[-1] == "cost 100, gap 1.50%"
    assert progress.closed(99.0)
    assert not progress.closed()


def interrupted(progress: Progress) -> None:
    with progress.interruptible():
        signal.raise_signal(signal.SIGINT)
        progress.rest()


def test_an_interrupt_ends_the_search_where_there_is_an_incumbent() -> None:
    progress = Progress(planning_seconds(), 0.0, lambda words: None)
    with pytest.raises(KeyboardInterrupt):
        interrupted(progress)
    progress = Progress(planning_seconds(), 0.0, lambda words: None)
    progress.offer(1.0, program_order(unit_chain(2)))
    interrupted(progress)
    assert progress.interrupted
