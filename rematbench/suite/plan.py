"""The suite's planning: on the CPU, side by side, from graphs that the device has profiled."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from types import TracebackType
from typing import Any

from rematbench.base.errors import RematbenchError, is_out_of_memory
from rematbench.costmodel.device import device_name, release
from rematbench.graphs.files import write_graph
from rematbench.graphs.plan import program_order
from rematbench.jobs.columns import failure
from rematbench.jobs.first_row import first_row
from rematbench.jobs.job import run
from rematbench.jobs.settings import Settings
from rematbench.jobs.sources import Memo, load, recall, remembered
from rematbench.jobs.task import Task
from rematbench.rows.row import Columns, Outcome, Row, joined, read_row, write_row
from rematbench.rows.shown import announce
from rematbench.tracing.captured import Captured
from rematbench.validator import Validator, generate, set_aside, validator_of
from rematbench.worker.manifest import house_hash
from rematbench.worker.worker import Worker


@dataclass(frozen=True, eq=False)
class PlannedRow:
    """A row to be; equal to itself alone.

    Attributes:
        settings: of its job; the budget is a fraction of checkpoint-all's measured peak.
        folder: for its files.
    """

    settings: Settings
    folder: Path

    @cached_property
    def key(self) -> str:
        """What the row depends on, with all our code: nobody knows before what it will run."""
        return hashlib.sha256(f"{self.settings.key()} {house_hash()}".encode()).hexdigest()[:32]

    @property
    def mark(self) -> Columns:
        """What ``extra`` says of the suite."""
        extra: dict[str, Any] = {"suite": self.key}
        if self.settings.device != "cpu":
            extra["numerics"] = self.settings.numerics
        return {"extra": extra}

    def keep(self, row: Row) -> Row:
        """Write the row as one of the suite."""
        row = joined(row, self.mark)
        write_row(_made(self.folder) / "row.json", row)
        return row

    @property
    def finished(self) -> bool:
        """Is there a row, and would a second run give it again?"""
        path = self.folder / "row.json"
        if not path.exists():
            return False
        row = read_row(path)
        if row["extra"].get("suite") != self.key:
            return False
        if row["status"] == "ok":
            return row["measured_seconds"] is not None
        # Another run may find a wanting device less busy, but no other verdict of a planner.
        return row["device"] is None and row["status"] not in ("failed", "time_limit")

    @property
    def measured(self) -> Row | None:
        """The row, with its times; None: there is none that a second run would not make."""
        row = read_row(self.folder / "row.json") if self.finished else None
        return row if row is None or row["measured_seconds"] is not None else None


@dataclass(frozen=True)
class SuiteModel:
    """A model of the suite.

    Attributes:
        base: checkpoint-all's job.
        folder: of its rows.
        first: checkpoint-all's row: the budgets of all others are fractions of its peak.
        entries: measured in turns; checkpoint-all first, where it is one of them.
        alone: planned with the model in hand, and measured one by one.
    """

    base: Settings
    folder: Path
    first: PlannedRow
    entries: tuple[PlannedRow, ...]
    alone: tuple[PlannedRow, ...]


@dataclass
class Prepared:
    """A model on its device, with its plans under way.

    Attributes:
        validator: measures its plans.
        tasks: by entry: the model with the implementations that the strategy chooses among.
        planned: by entry: the row to come.
        peak_bytes: what fractions of the budget are of: checkpoint-all's, measured; None where it
            ran out of memory: then the simulated one.
        known: its code, graph and costs, as captured and profiled.
    """

    model: SuiteModel
    validator: Validator
    tasks: dict[PlannedRow, Task]
    planned: dict[PlannedRow, Future[Row]]
    peak_bytes: int | None
    known: Memo

    def settings(self, entry: PlannedRow) -> Settings:
        """An entry's job, with what its budget is of."""
        return replace(entry.settings, measured_peak=self.peak_bytes)


class Planners:
    """Worker processes that plan side by side; use it as a context manager.

    Args:
        count: of processes; None for one per core but two, which the device needs.
    """

    def __init__(self, count: int | None) -> None:
        count = max(1, (os.cpu_count() or 1) - 2) if count is None else count
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="planner")
        self._all = [Worker() for _ in range(count)]
        self._idle: SimpleQueue[Worker] = SimpleQueue()
        for worker in self._all:
            self._idle.put(worker)

    def __enter__(self) -> Planners:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._threads.shutdown(wait=error is None, cancel_futures=True)
        for worker in self._all:
            worker.stop()

    def submit(self, settings: Settings, folder: Path, deadline: float) -> Future[Row]:
        """Plan when a process is free; past the deadline (``monotonic``) there is a row at once."""
        return self._threads.submit(self._plan, settings, folder, deadline)

    def _plan(self, settings: Settings, folder: Path, deadline: float) -> Row:
        if monotonic() > deadline:
            reason = "the suite's time was over; run it again to go on"
            return joined(first_row(settings), {"status": "time_limit", "reason": reason})
        worker = self._idle.get()
        try:
            return worker.run(settings, folder, lambda phase: None)
        except RematbenchError as error:
            return joined(first_row(settings), failure(error))
        finally:
            self._idle.put(worker)


class Aside:
    """Models that a run has had on its device, and may want again.

    Attributes:
        failed: why a model cannot be had, by its folder.
    """

    def __init__(self) -> None:
        self.failed: dict[Path, Outcome] = {}
        self._known: dict[Path, Memo] = {}

    def __contains__(self, folder: Path) -> bool:
        return folder in self._known or folder in self.failed

    def put(self, prepared: Prepared) -> None:
        """Take a model off the device, and keep its code, graph and costs."""
        self._known[prepared.model.folder] = prepared.known
        set_aside(prepared.validator.bench.captured)

    def recall(self, folder: Path) -> None:
        """Go on with what is known of a model, if it was put aside."""
        if folder in self._known:
            recall(self._known[folder])


def prepare(
    model: SuiteModel, planners: Planners, deadline: float, aside: Aside
) -> Prepared | None:
    """Capture and profile a model, set its planners to work, run what plans alone.

    Args:
        aside: a model of it is not captured and profiled again.

    Returns:
        None where the model cannot be had on the device: then its rows say why.
    """
    prepared = None
    if model.folder not in aside.failed:
        try:
            prepared = _on_device(model, aside)
        except Exception as error:
            aside.failed[model.folder] = failure(error)
    if prepared is None:
        for entry in (*model.entries, *model.alone):
            device = {"device": device_name(model.base.device)}
            row = joined(first_row(entry.settings), aside.failed[model.folder], device)
            announce(entry.keep(row))
        release(model.base.device)
        return None
    for entry in model.entries:
        _start_or_say(prepared, entry, planners, deadline)
    for entry in model.alone:
        if monotonic() < deadline:
            announce(_alone(prepared, entry))
    return prepared


def _on_device(model: SuiteModel, aside: Aside) -> Prepared:
    aside.recall(model.folder)
    captured = load(model.base).captured
    assert captured is not None
    validator = validator_of(captured, model.base.device, model.base.seed)
    whole = model.first.measured
    peak = _peak(validator, captured) if whole is None else whole["measured_peak_bytes"]
    return Prepared(model, validator, {}, {}, peak, remembered())


def _peak(validator: Validator, captured: Captured) -> int | None:
    """Checkpoint-all's measured peak in bytes; None where the device has less."""
    try:
        program = generate(captured, program_order(captured.graph))
        return validator.judge(program)[1].peak_bytes + validator.bench.resident_bytes
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    release(validator.device)
    return None


def _start_or_say(
    prepared: Prepared, entry: PlannedRow, planners: Planners, deadline: float
) -> None:
    """What goes wrong with one strategy (its implementations, say) is in its row."""
    try:
        _start(prepared, entry, planners, deadline)
    except Exception as error:
        announce(entry.keep(joined(first_row(prepared.settings(entry)), failure(error))))


def _alone(prepared: Prepared, entry: PlannedRow) -> Row:
    """Plan and measure in this process, with the model in hand."""
    settings = prepared.settings(entry)
    try:
        row = run(settings, _made(entry.folder))
    except Exception as error:  # of its implementations, before there is a problem to plan for
        device = {"device": device_name(settings.device)}
        row = joined(first_row(settings), failure(error), device)
    if row["status"] in ("failed", "out_of_memory"):
        release(settings.device)
    return entry.keep(row)


def _start(prepared: Prepared, entry: PlannedRow, planners: Planners, deadline: float) -> None:
    task = load(prepared.settings(entry))
    path = prepared.model.folder / f"{task.graph.hash}.graph.json.gz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_graph(path, task.graph)
    prepared.tasks[entry] = task
    settings = replace(task.settings, graph_file=str(path.absolute()))
    prepared.planned[entry] = planners.submit(settings, _made(entry.folder), deadline)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
