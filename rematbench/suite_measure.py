"""The suite's measuring: all plans of a model in turns, each distinct program once."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic

from costmodel.device import PeakReading, device_name, release
from graphs.files import read_plan
from rematbench.job import failure, record
from rematbench.row import Row, write_row
from rematbench.suite_plan import Entry, Prepared, settle
from rematbench.terminal import announce
from validator import Comparison, Program, generate
from validator.replay import replayed_seconds


@dataclass
class Distinct:
    """Statements that several plans may share.

    Attributes:
        seconds: of its timed runs.
        rows: of the plans that have them, by entry.
    """

    program: Program
    judged: tuple[Comparison, PeakReading]
    seconds: list[float] = field(default_factory=list)
    rows: dict[Entry, Row] = field(default_factory=dict)


def measure_together(prepared: Prepared, deadline: float, cuda_graphs: bool = False) -> None:
    """Judge each plan of a model as it comes, then time all in turns; write their rows.

    Args:
        deadline: on the clock of ``monotonic``; plans that come later are not run.
        cuda_graphs: replay each program as a CUDA graph, too.
    """
    found: dict[tuple[int, bytes], Distinct] = {}
    for entry, planned in prepared.planned.items():
        row = settle(entry, planned.result(), prepared.budget_base)
        if row["status"] == "ok":
            row["device"] = device_name(prepared.validator.device)
            if monotonic() < deadline:
                _judge(prepared, entry, row, found)
            else:
                reason = "planned; the suite's time was over before it was measured"
                row |= {"status": "time_limit", "reason": reason}
            write_row(entry.folder / "row.json", row)
        announce(row, None)
    _time(prepared, list(found.values()), cuda_graphs)


def _judge(
    prepared: Prepared, entry: Entry, row: Row, found: dict[tuple[int, bytes], Distinct]
) -> None:
    """Run a plan once for its gradients and once for its peak; what goes wrong is in the row."""
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
        row |= failure(error)
        release(prepared.validator.device)


def _time(prepared: Prepared, found: list[Distinct], cuda_graphs: bool) -> None:
    """Time programs in turns with eager training, and complete their rows."""
    if not found:
        return
    validator, settings = prepared.validator, prepared.model.base
    release(validator.device)
    try:
        seconds, eager = validator.times([each.program for each in found], settings.repeats)
    except Exception as error:
        for each in found:
            for entry, row in each.rows.items():
                write_row(entry.folder / "row.json", row | failure(error))
        release(validator.device)
        return
    first = prepared.model.entries[0]
    base = next((s for d, s in zip(found, seconds, strict=True) if first in d.rows), None)
    for each, times in zip(found, seconds, strict=True):
        measured = validator.measurement(each.program, each.judged, times, eager)
        for entry, row in each.rows.items():
            record(row, measured, settings.accounting)
            _compare(row, base)
            if cuda_graphs:
                row["extra"] |= replayed_seconds(validator, each.program, settings.repeats)
            row["extra"]["measured_in_turns_with"] = len(found)
            write_row(entry.folder / "row.json", row)


def _compare(row: Row, base: list[float] | None) -> None:
    """Against checkpoint-all, in the same turns."""
    if base is None:
        return
    from costmodel.device import spread

    seconds = spread(base)[0]
    row["extra"]["checkpoint_all_seconds"] = seconds
    row["extra"]["overhead_against_checkpoint_all"] = row["measured_seconds"] / seconds - 1
