"""The suite's measuring: all plans of a model in turns, each distinct program once."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic

from rematbench.costmodel.device import PeakReading, device_name, empty_cache, release, spread
from rematbench.graphs.files import read_plan
from rematbench.graphs.simulate import simulate
from rematbench.jobs.columns import failure, of_measurement
from rematbench.jobs.task import Task
from rematbench.rows.memory_parts import memory_parts
from rematbench.rows.row import Columns, Outcome, Row, joined, known
from rematbench.rows.shown import announce
from rematbench.suite.plan import PlannedRow, Prepared
from rematbench.validator import Judgement, Program, generate
from rematbench.validator.replay import replayed_seconds
from rematbench.validator.timing import Ratio, Timing

# Of the time for a model: a plan runs twice to be judged (one with inexact implementations also in
# float64, and they one by one), and a few times to be timed.
JUDGING = 0.4
TOO_LATE: Outcome = {
    "status": "time_limit",
    "reason": "planned; the suite's time was over before it was measured",
}


@dataclass
class Distinct:
    """Statements that several plans may share.

    Attributes:
        rows: of the plans that have them, by entry.
    """

    program: Program
    judged: tuple[Judgement, PeakReading]
    rows: dict[PlannedRow, Row] = field(default_factory=dict)

    def keep(self, entry: PlannedRow, *parts: Columns) -> None:
        """Write an entry's row, with more columns."""
        self.rows[entry] = entry.keep(joined(self.rows[entry], *parts))

    def keep_all(self, *parts: Columns) -> None:
        """Write the rows of all entries, with more columns."""
        for entry in self.rows:
            self.keep(entry, *parts)


def measure_together(prepared: Prepared, deadline: float, cuda_graphs: bool = False) -> None:
    """Judge each plan of a model as it comes, then time all in turns; write their rows.

    Args:
        deadline: on the clock of ``monotonic``; what does not fit until then is left for another
            run, but for checkpoint-all, without which the others say little.
        cuda_graphs: replay each program as a CUDA graph, too.
    """
    found: dict[tuple[int, bytes], Distinct] = {}
    first, began = prepared.model.first, monotonic()
    enough = began + JUDGING * (deadline - began)
    ready_first = sorted(prepared.planned.items(), key=lambda item: not item[1].done())
    for entry, planned in ready_first:
        row = planned.result()
        row = joined(row, _by_name(row, entry, prepared.tasks[entry]))
        if row["status"] == "ok":
            row = joined(row, {"device": device_name(prepared.validator.device)})
            if monotonic() < (deadline if entry is first else enough):
                row = joined(row, _judge(prepared, entry, row, found))
            else:
                row = joined(row, TOO_LATE)
            if row["status"] not in ("ok", "time_limit"):
                release(prepared.validator.device)
        announce(entry.keep(row))
    _time(prepared, list(found.values()), deadline, cuda_graphs)


def _by_name(row: Row, entry: PlannedRow, task: Task) -> Columns:
    """The parts of the peak by name: the planner's process knew the graph's file alone."""
    captured = task.captured
    if captured is None or "memory" not in row["extra"]:
        return {}
    trace = simulate(captured.graph, read_plan(entry.folder / "plan.json"))
    parts = memory_parts(captured.graph, trace, captured.kinds, captured.gradient_values)
    return {"extra": {"memory": parts}}


def _judge(
    prepared: Prepared, entry: PlannedRow, row: Row, found: dict[tuple[int, bytes], Distinct]
) -> Columns:
    """Run a plan once for its gradients and once for its peak, or say what goes wrong."""
    captured = prepared.tasks[entry].captured
    assert captured is not None
    try:
        plan = read_plan(entry.folder / "plan.json")
        key = id(captured.code), plan.codes(captured.graph).tobytes()
        if key not in found:
            prepared.validator.use(captured)
            program = generate(captured, plan)
            found[key] = Distinct(program, prepared.validator.judge(program))
        _, reading = found[key].judged
    except Exception as error:
        return failure(error)
    peak = {"measured_peak_bytes": reading.peak_bytes + prepared.validator.bench.resident_bytes}
    found[key].rows[entry] = joined(row, peak)
    return peak


def _time(prepared: Prepared, found: list[Distinct], deadline: float, cuda_graphs: bool) -> None:
    """Time programs in turns with eager training, and complete their rows.

    Where that fails, halves of them are tried, so that a program which cannot run fails alone.
    """
    if not found:
        return
    validator, repeats = prepared.validator, prepared.model.base.repeats
    empty_cache(validator.device)
    failed = _in_turns(prepared, found, deadline)
    if failed is None:
        for each in found if cuda_graphs else ():
            replayed = replayed_seconds(validator, each.program, repeats)
            each.keep_all({"extra": replayed})
        return
    release(validator.device)
    half = len(found) // 2
    if half and monotonic() < deadline:
        _time(prepared, found[:half], deadline, cuda_graphs)
        _time(prepared, found[half:], deadline, cuda_graphs)
        return
    for each in found:
        each.keep_all(TOO_LATE if half else failed)


def _in_turns(prepared: Prepared, found: list[Distinct], deadline: float) -> Outcome | None:
    """Rows with times; or, where something goes wrong, what to say of it."""
    validator, settings = prepared.validator, prepared.model.base
    in_turns: Columns = {"extra": {"measured_in_turns_with": len(found)}}
    try:
        programs = [each.program for each in found]
        timing = Timing(settings.repeats, settings.within, settings.timing_seconds * len(found))
        seconds, eager = validator.times(programs, timing, deadline)
        first = prepared.model.first
        beside = [times for each, times in zip(found, seconds, strict=True) if first in each.rows]
        whole = None if beside else first.measured
        for each, times in zip(found, seconds, strict=True):
            measured = validator.measurement(each.program, each.judged, times, eager)
            for entry in each.rows:
                task, peak = prepared.tasks[entry], each.program.peak_bytes
                columns = of_measurement(measured, task.settings, peak, task.budget)
                against = _against_earlier(times, eager, whole) if whole else {}
                against = _against(times, beside[0]) if beside else against
                each.keep(entry, columns, in_turns, against)
    except Exception as error:
        return failure(error)
    return None


def _against(mine: list[float], base: list[float]) -> Columns:
    """Times beside checkpoint-all's, in the same turns."""
    ratio = Ratio.of(mine, base)
    extra = {
        "checkpoint_all_seconds": spread(base)[0],
        "overhead_against_checkpoint_all": ratio.median - 1,
        "overhead_against_checkpoint_all_interval": list(ratio.overhead),
    }
    return {"extra": extra}


def _against_earlier(mine: list[float], eager: list[float], whole: Row) -> Columns:
    """Times beside checkpoint-all's of earlier turns, by the eager steps beside both.

    Args:
        whole: checkpoint-all's row.
    """
    ratio, over = Ratio.of(mine, eager), 1 + known(whole["measured_overhead"])
    low, high = known(whole["extra"]["measured_overhead_interval"])
    extra = {
        "checkpoint_all_seconds": whole["measured_seconds"],
        "overhead_against_checkpoint_all": ratio.median / over - 1,
        "overhead_against_checkpoint_all_interval": [
            ratio.low / (1 + high) - 1,
            ratio.high / (1 + low) - 1,
        ],
    }
    return {"extra": extra}
