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

from rematbench.base.errors import RematbenchError, is_out_of_memory
from rematbench.costmodel.device import device_name, release
from rematbench.graphs.files import write_graph
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.jobs.first_row import first_row
from rematbench.jobs.job import failure, make_strategy, run
from rematbench.jobs.settings import Settings
from rematbench.jobs.sources import load
from rematbench.rows.row import Row, cells, ended, put, read_row, write_row
from rematbench.rows.shown import announce
from rematbench.strategies.base import ChoosesImplementations
from rematbench.tracing.captured import Captured
from rematbench.validator import Validator, generate, validator_of
from rematbench.worker.manifest import house_hash
from rematbench.worker.worker import Worker


@dataclass(frozen=True, eq=False)
class Entry:
    """A row to be; equal to itself alone.

    Attributes:
        settings: of its job; the budget is a fraction of checkpoint-all's measured peak.
        folder: for its files.
        fraction: that budget, or None.
    """

    settings: Settings
    folder: Path
    fraction: float | None

    @cached_property
    def key(self) -> str:
        """What the row depends on, with all our code: nobody knows before what it will run."""
        return hashlib.sha256(f"{self.settings.key()} {house_hash()}".encode()).hexdigest()[:32]

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


@dataclass(frozen=True)
class Model:
    """A model of the suite.

    Attributes:
        base: checkpoint-all's job.
        folder: of its rows.
        entries: measured in turns; checkpoint-all first.
        alone: planned with the model in hand, and measured one by one.
    """

    base: Settings
    folder: Path
    entries: tuple[Entry, ...]
    alone: tuple[Entry, ...]


@dataclass
class Prepared:
    """A model on its device, with its plans under way.

    Attributes:
        validator: measures its plans.
        captured: by entry: the model with the implementations that the strategy chooses among.
        planned: by entry: the row to come.
        peak_bytes: what fractions of the budget are of: checkpoint-all's, measured; the
            simulated one where it ran out of memory; ``budget_base`` says which.
    """

    model: Model
    validator: Validator
    captured: dict[Entry, Captured]
    planned: dict[Entry, Future[Row]]
    peak_bytes: int
    budget_base: str


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
            return first_row(settings) | {"status": "time_limit", "reason": reason}
        worker = self._idle.get()
        try:
            return worker.run(settings, folder, lambda phase: None)
        except RematbenchError as error:
            return ended(first_row(settings), failure(error))
        finally:
            self._idle.put(worker)


def prepare(model: Model, planners: Planners, deadline: float) -> Prepared | None:
    """Capture and profile a model, set its planners to work, run what plans alone.

    Returns:
        None where the model cannot be had on the device: then its rows say why.
    """
    try:
        prepared = _on_device(model)
    except Exception as error:
        failed = failure(error)
        prepared = None
    if prepared is None:
        for entry in (*model.entries, *model.alone):
            row = ended(first_row(entry.settings), failed)
            announce(settle(entry, row | {"device": device_name(model.base.device)}))
        release(model.base.device)
        return None
    for entry in model.entries:
        _start_or_say(prepared, entry, planners, deadline)
    for entry in model.alone:
        if monotonic() < deadline:
            announce(_alone(prepared, entry))
    return prepared


def _on_device(model: Model) -> Prepared:
    graph, captured = load(model.base)
    assert captured is not None
    validator = validator_of(captured, model.base.device, model.base.seed)
    peak = _peak(validator, captured)
    if peak is not None:
        return Prepared(model, validator, {}, {}, peak, "measured_checkpoint_all_peak_bytes")
    peak = simulate(graph, program_order(graph)).peak_bytes
    return Prepared(model, validator, {}, {}, peak, "checkpoint_all_peak_bytes")


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


def _start_or_say(prepared: Prepared, entry: Entry, planners: Planners, deadline: float) -> None:
    """What goes wrong with one strategy (its implementations, say) is in its row."""
    try:
        _start(prepared, entry, planners, deadline)
    except Exception as error:
        row = ended(first_row(entry.settings), failure(error))
        announce(settle(entry, row, prepared.budget_base))


def _alone(prepared: Prepared, entry: Entry) -> Row:
    """Plan and measure in this process, with the model in hand."""
    settings = _in_bytes(entry, prepared.peak_bytes)
    try:
        row = run(settings, _made(entry.folder))
    except Exception as error:  # of its implementations, before there is a problem to plan for
        row = ended(first_row(settings), failure(error))
        row["device"] = device_name(settings.device)
    if row["status"] in ("failed", "out_of_memory"):
        release(settings.device)
    return settle(entry, row, prepared.budget_base)


def _start(prepared: Prepared, entry: Entry, planners: Planners, deadline: float) -> None:
    strategy = make_strategy(entry.settings)
    chooser = strategy if isinstance(strategy, ChoosesImplementations) else None
    graph, captured = load(entry.settings, chooser=chooser)
    assert captured is not None
    path = prepared.model.folder / f"{graph.hash}.graph.json.gz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_graph(path, graph)
    prepared.captured[entry] = captured
    source = {"kind": "graph_file", "name": entry.settings.label, "backward": False}
    settings = replace(
        _in_bytes(entry, prepared.peak_bytes),
        model={**source, "path": str(path.absolute())},
        costmodel="given",
        device="none",
    )
    prepared.planned[entry] = planners.submit(settings, _made(entry.folder), deadline)


def _in_bytes(entry: Entry, peak: int) -> Settings:
    budget = None if entry.fraction is None else int(entry.fraction * peak)
    return replace(entry.settings, budget=budget)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def settle(entry: Entry, row: Row, base: str | None = None) -> Row:
    """Write a row of a planning process as that of the suite's job."""
    known = first_row(entry.settings)
    own = ("model", "batch_size", "resolution", "budget_fraction", "costmodel", "versions")
    put(row, {column: cells(known)[column] for column in own})
    row["extra"] |= {"suite": entry.key, "budget_base": base}
    if entry.settings.device == "cuda":
        row["extra"]["numerics"] = entry.settings.numerics
    write_row(_made(entry.folder) / "row.json", row)
    return row
