"""The process that solves the constraint program, and says what it finds line by line.

``python -m rematbench.strategies.moccasin.worker`` reads one line of JSON, ``{instance, until,
threads, seed, gap, start}``, and writes lines of JSON: ``{peak, order}`` while the peak comes down,
``{order, bound}`` once it fits, ``{bound}``, and last ``{end}``. It ends by itself when its
standard input is closed: when whoever asked is gone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from time import time
from typing import Any

from ortools.sat.python import cp_model

from rematbench.strategies.moccasin.instance import Instance, peak_of
from rematbench.strategies.moccasin.model import IntervalProgram

_lock = threading.Lock()


def main() -> None:
    """Read, solve, say."""
    asked = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_when_closed, daemon=True).start()
    instance = Instance.of_json(asked.pop("instance"))
    solve(instance, **asked)


def solve(
    instance: Instance,
    until: float,
    threads: int,
    seed: int,
    gap: float,
    start: list[int] | None = None,
) -> None:
    """Both phases: first the peak, then the cost.

    Args:
        start: computes within the budget, if any are known: the first phase is done with them.
    """
    known = None if start is None else _completed(instance, start, until)
    if known is None:
        known = _fitted(instance, until, threads, seed)
    if known is None:
        return
    second = IntervalProgram(instance, to_fit=False)
    second.hint(known)
    solver = _solver(until, threads, seed)
    solver.parameters.relative_gap_limit = gap
    solver.best_bound_callback = lambda bound: _say(bound=bound)
    status = solver.solve(second.program, _Incumbents(second, fits=True))
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        _say(bound=solver.best_objective_bound)
    _say(end={cp_model.OPTIMAL: "optimal"}.get(status, "time_limit"))


def _completed(instance: Instance, start: list[int], until: float) -> dict[int, int] | None:
    """All columns of the solution with these computes."""
    model = IntervalProgram(instance, to_fit=False)
    if not model.fix(start):
        return None
    solver = _solver(until, 1, 0)
    if solver.solve(model.program) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return dict(enumerate(solver.response_proto.solution))


def _fitted(instance: Instance, until: float, threads: int, seed: int) -> dict[int, int] | None:
    """All columns of a solution of the first phase; None where none is within the budget."""
    first = IntervalProgram(instance, to_fit=True)
    first.hint_once()
    solver = _solver(until, threads, seed)
    status = solver.solve(first.program, _Incumbents(first, fits=False))
    name = solver.status_name(status)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        _say(end="time_limit" if status == cp_model.UNKNOWN else name)
        return None
    known = dict(enumerate(solver.response_proto.solution))
    if peak_of(instance, first.order(known)) > instance.budget:
        _say(end="infeasible" if status == cp_model.OPTIMAL else "time_limit")
        return None
    return known


class _Incumbents(cp_model.CpSolverSolutionCallback):
    """Says each solution."""

    def __init__(self, model: IntervalProgram, fits: bool) -> None:
        super().__init__()
        self._model, self._fits = model, fits

    def on_solution_callback(self) -> None:
        known = {column.index: self.value(column) for column in self._model.columns()}
        order = self._model.order(known)
        if self._fits:
            _say(order=order, bound=self.best_objective_bound)
        else:
            _say(order=order, peak=peak_of(self._model.instance, order))


def _solver(until: float, threads: int, seed: int) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = threads
    solver.parameters.random_seed = seed % 2**31
    solver.parameters.max_time_in_seconds = max(0.01, until - time())
    return solver


def _say(**message: Any) -> None:
    with _lock:
        print(json.dumps(message), flush=True)


def _end_when_closed() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
