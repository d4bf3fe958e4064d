"""One job: plan, simulate, execute where asked, and write its files. Runs in the worker."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from rematbench.base.clock import OutOfTime, cpu_seconds, stopped_after
from rematbench.base.errors import CaptureError, UnwritableError, is_out_of_memory
from rematbench.base.origin import accuse, own_place
from rematbench.engines.warm_up import warm_up
from rematbench.graphs.files import write_bytes
from rematbench.graphs.plan import Plan
from rematbench.graphs.planning import PlannedRun, Problem, Solution
from rematbench.graphs.simulate import Trace, check_draws, simulate
from rematbench.graphs.states import planned
from rematbench.jobs import columns, handed_over
from rematbench.jobs.first_row import first_row
from rematbench.jobs.handed_over import HandedOver
from rematbench.jobs.job_files import events_csv, write_plan_files
from rematbench.jobs.settings import Settings
from rematbench.jobs.sources import load
from rematbench.jobs.task import Task
from rematbench.rows.row import Columns, Row, finite, joined, write_row

Say = Callable[[str], None]
T = TypeVar("T")
Stage = Generator[Columns, None, T]
"""Columns as they become known, and what the next stage goes on with."""


@dataclass(frozen=True)
class Judged:
    """A plan that can run.

    Attributes:
        solution: which the plan is of.
        trace: the plan, as simulated.
        is_sound: does it keep to its budget, and its bound to its cost?
    """

    plan: Plan
    solution: Solution
    trace: Trace
    is_sound: bool


def run(
    settings: Settings,
    folder: Path,
    say: Say = lambda phase: None,
    stopped: Sequence[float] | None = None,
) -> Row:
    """Run a job and write ``plan.json``, ``trace.csv``, ``graph.json.gz`` and ``row.json``.

    Whatever a strategy or a device does ends as a status in the row.

    Args:
        stopped: (seconds, CPU seconds) of a planner whose process was killed at its time limit:
            nothing is planned, and what it had handed over in ``folder`` is its plan.

    Raises:
        RematbenchError: the input itself is bad (configuration, model, graph file).
    """
    known = first_row(settings)
    task = load(settings, say)
    row = finite(joined(known, *_stages(task, folder, say, stopped)))
    write_row(folder / "row.json", row)
    return row


def _stages(
    task: Task, folder: Path, say: Say, stopped: Sequence[float] | None
) -> Iterator[Columns]:
    """The columns of each stage that was reached, in order."""
    settings = task.settings
    yield columns.of_task(task)
    judged = yield from _reached(_plan(task, folder, say, stopped), task)
    if judged is None or task.captured is None:
        return
    if settings.execute and settings.device != "none":
        yield from _reached(_execute(task, judged, say), task, executed=settings.label)


def _reached(stage: Stage[T], task: Task, executed: str | None = None) -> Stage[T | None]:
    """A stage; whatever goes wrong in it is its last columns, and then nothing goes on.

    Args:
        executed: the model whose own code runs in it; else, what raises is the strategy.

    Raises:
        UnwritableError: a file could not be written: no strategy's fault.
        CaptureError: the model's own code raised.
    """
    try:
        return (yield from stage)
    except UnwritableError:
        raise
    except (Exception, OutOfTime) as error:
        if executed is not None and not is_out_of_memory(error) and own_place(error):
            raise CaptureError(f"model {executed!r} raised {accuse(error)}") from error
        yield columns.of_error(error, task)
        return None


def _solve(task: Task, folder: Path, say: Say) -> Stage[Solution]:
    """The planner's answer, or what it had handed over when its time was up.

    Raises:
        OutOfTime: it had handed over nothing.
    """
    settings, kept, stopped = task.settings, HandedOver(folder, task.link), False
    say("warm up: kernels compile once")
    warm_up(task.strategy)
    say("plan")
    limits = (task.budget, settings.time_limit, settings.seed)
    report = lambda words: say(f"plan: {words}")  # noqa: E731
    problem = Problem(task.graph, *limits, task.captured, task.stream, report, kept.take)
    problem = replace(problem, link=task.link, host=settings.host)
    began, busy = perf_counter(), cpu_seconds()
    try:
        with stopped_after(settings.time_limit):
            return planned(task.strategy, problem)
    except OutOfTime:
        stopped = True
        if kept.latest is None:
            raise
        return kept.latest
    finally:
        kept.remove()
        spent = perf_counter() - began, cpu_seconds() - busy
        found = kept.incumbents(task.graph, task.budget)
        yield columns.of_planning(*spent, settings.threads, stopped, found)


def _plan(
    task: Task, folder: Path, say: Say, stopped: Sequence[float] | None
) -> Stage[Judged | None]:
    """Plan, simulate and write files; ends with nothing where the strategy judges itself."""
    settings, graph = task.settings, task.graph
    if stopped is None:
        solution = yield from _solve(task, folder, say)
    else:
        seconds, busy = stopped
        yield columns.of_planning(seconds, busy, settings.threads, stopped=True)
        solution = handed_over.taken(folder)
    say("simulate")
    if solution.plan is None:
        assert solution.verdict is not None
        yield columns.of_verdict(solution, solution.verdict)
        write_bytes(folder / "trace.csv", events_csv(solution.verdict).encode())
        return None
    made = solution.plan.labelled(settings.strategy, task.budget)
    trace = simulate(graph, made, task.link)
    check_draws(graph, made)
    found = (
        columns.of_plan(task, made, solution, trace),
        columns.of_bound(graph, made, solution, trace, settings.target),
    )
    yield from found
    write_plan_files(folder, graph, made, trace)
    is_sound = all(each.get("status", "ok") == "ok" for each in found)
    return Judged(made, solution, trace, is_sound)


def _execute(task: Task, judged: Judged, say: Say) -> Stage[None]:
    """Run the plan, and by PyTorch's compilers where that is asked for."""
    from rematbench.costmodel.device import device_name, free_memory
    from rematbench.validator import measure
    from rematbench.validator.native import measure_native

    settings, captured = task.settings, task.captured
    native, peak, held = judged.solution.native, judged.trace.peak_bytes, task.held_bytes
    assert captured is not None
    say("execute")
    yield {"device": device_name(settings.device)}
    free = free_memory(settings.device)
    needed = peak + judged.trace.host_peak_bytes  # the CPU's memory is the host's, too
    if settings.device == "cpu" and free is not None and needed > free:
        reason = f"the plan peaks at {needed} bytes, {free} are available"
        yield {"status": "out_of_memory", "reason": reason}
        return
    measured = measure(
        captured,
        judged.plan,
        device=settings.device,
        seed=settings.seed,
        repeats=settings.repeats,
        within=settings.within,
        seconds=settings.timing_seconds,
        memory=settings.device_memory,
        held_bytes=held,
        link=task.link,
    )
    if native is not None and settings.device_memory is None:
        how = (settings.device, settings.seed, settings.repeats, held)
        yield columns.of_native(native, measure_native(captured, native, *how))
    budget = task.budget if judged.is_sound else None
    found = columns.of_measurement(measured, settings, peak, budget)
    yield found
    if settings.native is not None:
        say("execute by torch.compile")
        if judged.is_sound and found.get("status", "ok") == "ok":
            yield from _lower(task, judged)


def _lower(task: Task, judged: Judged) -> Iterator[Columns]:
    """Run the plan by PyTorch's compilers."""
    from rematbench.validator.lowerings import measure_lowered

    settings, captured, held = task.settings, task.captured, task.held_bytes
    if captured is None or settings.device_memory is not None:
        return
    if judged.trace.copies is not None:
        reason = "a plan that copies to the host runs by our own statements alone"
        one = {"status": "not_applicable", "reason": reason}
        yield {"extra": {"lowered": {"aot": one, "inductor": one}}}
        return
    budget = (task.budget or judged.trace.peak_bytes) - held
    asked = PlannedRun(task.strategy, "inductor", budget, settings.time_limit, settings.costmodel)
    how = (asked, settings.device, settings.seed, settings.repeats, held)
    found = measure_lowered(captured, judged.plan, judged.solution.native, *how)
    yield columns.of_lowered(**found)


def failed_with(error: BaseException, settings: Settings, folder: Path) -> Row:
    """Write the row of a job that an error of ours, or a lack of memory, has ended."""
    row = joined(first_row(settings), columns.failure(error))
    write_row(folder / "row.json", row)
    return row
