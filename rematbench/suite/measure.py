"""The suite's measuring: all plans of a model in turns, each distinct program once."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic

from rematbench.costmodel.device import PeakReading, device_name, empty_cache, release, spread
from rematbench.graphs.files import read_plan
from rematbench.graphs.simulate import simulate
from rematbench.jobs.job import failure, record
from rematbench.rows.memory_parts import memory_parts
from rematbench.rows.row import Outcome, Row, add_facts, ended, write_row
from rematbench.rows.shown import announce
from rematbench.suite.plan import Entry, Prepared, settle
from rematbench.tracing.captured import Captured
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
    rows: dict[Entry, Row] = field(default_factory=dict)


def measure_together(prepared: Prepared, deadline: float, cuda_graphs: bool = False) -> None:
    """Judge each plan of a model as it comes, then time all in turns; write their rows.

    Args:
        deadline: on the clock of ``monotonic``; what does not fit until then is left for another
            run, but for checkpoint-all, without which the others say little.
        cuda_graphs: replay each program as a CUDA graph, too.
    """
    found: dict[tuple[int, bytes], Distinct] = {}
    first, began = prepared.model.entries[0], monotonic()
    enough = began + JUDGING * (deadline - began)
    ready_first = sorted(prepared.planned.items(), key=lambda item: not item[1].done())
    for entry, planned in ready_first:
        row = settle(entry, planned.result(), prepared.budget_base)
        _name_parts(row, entry, prepared.captured[entry])
        if row["status"] == "ok":
            row["device"] = device_name(prepared.validator.device)
            if monotonic() < (deadline if entry is first else enough):
                if not _judge(prepared, entry, row, found):
                    release(prepared.validator.device)
            else:
                ended(row, TOO_LATE)
            write_row(entry.folder / "row.json", row)
        announce(row)
    _time(prepared, list(found.values()), deadline, cuda_graphs)


def _name_parts(row: Row, entry: Entry, captured: Captured) -> None:
    """The parts of the peak by name: the planner's process knew the graph's file alone."""
    if "memory" in row["extra"]:
        graph = captured.graph
        trace = simulate(graph, read_plan(entry.folder / "plan.json"))
        parts = memory_parts(graph, trace, captured.kinds, captured.gradient_values)
        row["extra"]["memory"] = parts
        write_row(entry.folder / "row.json", row)


def _judge(
    prepared: Prepared, entry: Entry, row: Row, found: dict[tuple[int, bytes], Distinct]
) -> bool:
    """Run a plan once for its gradients and once for its peak; what goes wrong is in the row.

    Returns:
        Did nothing go wrong?
    """
    captured = prepared.captured[entry]
    try:
        plan = read_plan(entry.folder / "plan.json")
        key = id(captured), plan.codes(captured.graph).tobytes()
        if key not in found:
            prepared.validator.use(captured)
            program = generate(captured, plan)
            found[key] = Distinct(program, prepared.validator.judge(program))
        found[key].rows[entry] = row
        _, reading = found[key].judged
        row["measured_peak_bytes"] = reading.peak_bytes + prepared.validator.bench.resident_bytes
    except Exception as error:
        ended(row, failure(error))
        return False
    return True


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
            for row in each.rows.values():
                add_facts(row, replayed)
            _write(each)
        return
    release(validator.device)
    half = len(found) // 2
    if half and monotonic() < deadline:
        _time(prepared, found[:half], deadline, cuda_graphs)
        _time(prepared, found[half:], deadline, cuda_graphs)
        return
    for each in found:
        _write(each, TOO_LATE if half else failed)


def _in_turns(prepared: Prepared, found: list[Distinct], deadline: float) -> Outcome | None:
    """Rows with times; or, where something goes wrong, what to say of it."""
    validator, settings = prepared.validator, prepared.model.base
    try:
        programs = [each.program for each in found]
        timing = Timing(settings.repeats, settings.within, settings.timing_seconds * len(found))
        seconds, eager = validator.times(programs, timing, deadline)
        base = seconds[0] if prepared.model.entries[0] in found[0].rows else None
        for each, times in zip(found, seconds, strict=True):
            measured = validator.measurement(each.program, each.judged, times, eager)
            for row in each.rows.values():
                record(row, measured, settings.accounting)
                row["extra"]["measured_in_turns_with"] = len(found)
                _compare(row, times, base)
            _write(each)
    except Exception as error:
        return failure(error)
    return None


def _write(distinct: Distinct, more: Outcome | None = None) -> None:
    for entry, row in distinct.rows.items():
        if more is not None:
            ended(row, more)
        write_row(entry.folder / "row.json", row)


def _compare(row: Row, mine: list[float], base: list[float] | None) -> None:
    """Against checkpoint-all, in the same turns."""
    if base is None:
        return
    ratio = Ratio.of(mine, base)
    row["extra"]["checkpoint_all_seconds"] = spread(base)[0]
    row["extra"]["overhead_against_checkpoint_all"] = ratio.median - 1
    row["extra"]["overhead_against_checkpoint_all_interval"] = list(ratio.overhead)
