"""One job: plan, simulate, execute where asked, and write its files. Runs in the worker."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from rematbench.base import imports
from rematbench.base.clock import OutOfTime, cpu_seconds, stopped_after
from rematbench.base.errors import (
    CaptureError,
    ConfigError,
    Infeasible,
    InvalidPlan,
    NotApplicable,
    RematbenchError,
    UnwritableError,
    is_out_of_memory,
)
from rematbench.base.origin import accuse, one_line, own_place, place
from rematbench.graphs.allocator import replay
from rematbench.graphs.files import write_bytes
from rematbench.graphs.floors import once_floor
from rematbench.graphs.ir import Graph, Phase
from rematbench.graphs.plan import Plan, in_program_order, program_order
from rematbench.graphs.planning import PlannedRun, planned
from rematbench.graphs.simulate import Trace, check_draws, simulate
from rematbench.jobs import handed_over
from rematbench.jobs.doubts import judge_bound, judge_peak, judge_threads
from rematbench.jobs.first_row import first_row
from rematbench.jobs.handed_over import HandedOver
from rematbench.jobs.job_files import events_csv, write_plan_files
from rematbench.jobs.settings import Settings
from rematbench.jobs.sources import banishing_peak, held_bytes, load, load_stream
from rematbench.rows.memory_parts import memory_parts
from rematbench.rows.row import Outcome, Row, add_facts, ended, finite, put, sure, write_row
from rematbench.strategies.base import (
    ChoosesImplementations,
    NativeRun,
    Problem,
    Solution,
    Strategy,
    SupportsWarmUp,
)

if TYPE_CHECKING:
    from rematbench.streams.events import EventStream
    from rematbench.tracing.captured import Captured
    from rematbench.validator import Measurement

Say = Callable[[str], None]


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
    row = first_row(settings)
    strategy = make_strategy(settings)
    row["variant"] = settings.options.get("variant")  # until a plan says which it is of
    if settings.device == "cuda":
        from rematbench.costmodel.device import require, use_numerics

        require("cuda")
        use_numerics(**settings.numerics)
    graph, captured = load(
        settings, say, strategy if isinstance(strategy, ChoosesImplementations) else None
    )
    stream = load_stream(settings)
    _describe(row, graph, settings, stream)
    solution = None
    with _outcome_in(row):
        report = lambda words: say(f"plan: {words}")  # noqa: E731
        limits = (row["budget_bytes"], settings.time_limit, settings.seed)
        problem = Problem(graph, *limits, captured, stream, report)
        if stopped is not None:
            found = _left_behind(row, folder, stopped)
        else:
            found = _plan(row, strategy, problem, folder, say)
        say("simulate")
        solution = _judged(row, settings, found, problem, folder)
    if solution is not None and settings.execute and settings.device != "none":
        with _outcome_in(row, executed=settings.label):
            _executed(row, settings, strategy, captured, solution, say)
    row["overhead"] = _ratio(row["cost"], row["checkpoint_all_cost"])
    row = finite(row)
    write_row(folder / "row.json", row)
    return row


@contextmanager
def _outcome_in(row: Row, executed: str | None = None) -> Iterator[None]:
    """Whatever goes wrong in the block ends as a status in the row.

    Args:
        executed: the model whose own code runs in the block; else, what raises is the strategy.

    Raises:
        UnwritableError: a file could not be written: no strategy's fault.
        CaptureError: the model's own code raised.
    """
    try:
        yield
    except NotApplicable as error:
        row |= {"status": "not_applicable", "reason": error.reason}
    except Infeasible as error:
        proof = "proven" if error.proven else "not proven" + _below_once(row)
        row |= {"status": error.status, "reason": f"{error.reason} ({proof})"}
        row["peak_bytes"] = error.smallest_peak_found
        add_facts(row, error.details)
    except InvalidPlan as error:
        row |= {"status": "failed", "reason": f"the simulator rejected the plan: {error}"}
    except OutOfTime:
        reason = "the planner overran its time limit without a plan; give more time or budget"
        row |= {"status": "time_limit", "reason": reason}
    except UnwritableError:
        raise
    except Exception as error:
        if executed is not None and not is_out_of_memory(error) and own_place(error):
            raise CaptureError(f"model {executed!r} raised {accuse(error)}") from error
        ended(row, failure(error))


def _below_once(row: Row) -> str:
    """A budget at which activations alone cannot be dropped any further says so."""
    floor, budget = row["extra"].get("once_floor_bytes"), row["budget_bytes"]
    if floor is None or budget is None or budget >= floor:
        return ""
    return (
        f"; every plan in program order below {floor} bytes computes some gradient twice: give a "
        "larger budget, or a larger batch, of which that is a smaller share"
    )


def make_strategy(settings: Settings) -> Strategy:
    """The strategy object of a job.

    Raises:
        ConfigError: its class does not exist, or has no such option.
    """
    where = f"strategy={settings.strategy}"
    kind = imports.find(settings.target, where)
    try:
        made = kind(**settings.options)
    except TypeError as error:
        accepted = ", ".join(inspect.signature(kind).parameters) or "none"
        raise ConfigError(f"{where}: {error}; its options are: {accepted}") from None
    if not isinstance(made, Strategy):
        raise ConfigError(f"strategy={settings.strategy}: {settings.target} is not a strategy")
    return made


def forward_cost(graph: Graph) -> float:
    """What checkpoint-all's forward pass costs, without the loss, in the graph's cost unit."""
    pairs = zip(graph.ops, graph.needed_ops(), strict=True)
    needed = [op.implementations[0] for op, is_ in pairs if is_ and op.phase is Phase.FORWARD]
    return float(sum(implementation.cost for implementation in needed))


def _describe(row: Row, graph: Graph, settings: Settings, stream: EventStream | None) -> None:
    base = simulate(graph, program_order(graph))
    budget = settings.parsed_budget()
    row["budget_bytes"] = budget.of(base.peak_bytes)
    row |= {
        "graph_hash": graph.hash,
        "ops": len(graph.ops),
        "values": len(graph.values),
        "cost_unit": graph.cost_unit,
        "checkpoint_all_cost": base.cost,
        "checkpoint_all_peak_bytes": base.peak_bytes,
    }
    row["extra"] |= {
        "floor_bytes": graph.floor_bytes(),
        "once_floor_bytes": once_floor(graph)[0],
        "resident_bytes": graph.resident_bytes,
        "forward_cost": forward_cost(graph),
        "budget_base": "checkpoint_all_peak_bytes",
    }
    if stream is not None:
        peak = banishing_peak(stream)
        row["budget_bytes"] = budget.of(peak)
        row["extra"] |= {"budget_base": "banishing_peak_bytes", "banishing_peak_bytes": peak}


def _plan(row: Row, strategy: Strategy, problem: Problem, folder: Path, say: Say) -> Solution:
    """Its answer, or what it had handed over when its time was up.

    Raises:
        OutOfTime: it had handed over nothing.
    """
    if isinstance(strategy, SupportsWarmUp):
        say("warm up: kernels compile once")
        strategy.warm_up()
    say("plan")
    kept = HandedOver(folder)
    problem = replace(problem, hand_over=kept.take)
    began, busy = perf_counter(), cpu_seconds()
    try:
        with stopped_after(problem.time_limit):
            return planned(strategy, problem)
    except OutOfTime:
        row["extra"]["stopped"] = True
        if kept.latest is None:
            raise
        return kept.latest
    finally:
        kept.remove()
        row["plan_seconds"] = perf_counter() - began
        row["extra"]["plan_cpu_seconds"] = cpu_seconds() - busy
        judge_threads(row)
        if found := kept.incumbents(problem.graph):
            row["extra"]["incumbents"] = found


def _left_behind(row: Row, folder: Path, stopped: Sequence[float]) -> Solution:
    """What a planner had handed over before its process was killed."""
    row["plan_seconds"], row["extra"]["plan_cpu_seconds"] = stopped
    row["extra"]["stopped"] = True
    found = handed_over.read(folder)
    HandedOver(folder).remove()
    return found


def _judged(
    row: Row, settings: Settings, solution: Solution, problem: Problem, folder: Path
) -> Solution | None:
    """Simulate and write; the solution where it has a plan."""
    if solution.plan is None:
        _accept(row, solution, folder)
        return None
    graph, captured = problem.graph, problem.captured
    plan = solution.plan.labelled(settings.strategy, row["budget_bytes"])
    trace = simulate(graph, plan)
    check_draws(graph, plan)
    _judge(row, solution, trace)
    judge_bound(row, graph, replace(solution, plan=plan), trace, settings.target)
    row["extra"]["plan_hash"] = plan.hash(graph)
    row["extra"]["in_program_order"] = in_program_order(graph, plan)
    known = (None, ()) if captured is None else (captured.kinds, captured.gradient_values)
    row["extra"]["memory"] = memory_parts(graph, trace, *known)
    if settings.allocator == "cuda":
        add_facts(row, allocation_facts(graph, plan))
    write_plan_files(folder, graph, plan, trace)
    return replace(solution, plan=plan)


def _executed(
    row: Row,
    settings: Settings,
    strategy: Strategy,
    captured: Captured | None,
    solution: Solution,
    say: Say,
) -> None:
    """Run the plan, and by PyTorch's compilers where that is asked for."""
    if captured is None or solution.plan is None:
        return
    say("execute")
    _execute(row, settings, captured, solution.plan, solution.native)
    if settings.native is not None:
        say("execute by torch.compile")
        _lower(row, settings, captured, solution.plan, strategy, solution.native)


def _accept(row: Row, solution: Solution, folder: Path) -> None:
    """The row of a strategy that is its own judge: no plan, and its trace is of events."""
    verdict = solution.verdict
    assert verdict is not None
    row |= {
        "status": verdict.status,
        "reason": verdict.reason,
        "variant": solution.variant,
        "cost": verdict.cost if verdict.status == "ok" else None,  # of the whole log
        "checkpoint_all_cost": verdict.base_cost,
        "recomputations": verdict.recomputations,
        "peak_bytes": verdict.peak_bytes,
        "checkpoint_all_peak_bytes": verdict.base_peak_bytes,
    }
    add_facts(row, solution.details)
    write_bytes(folder / "trace.csv", events_csv(verdict).encode())


def _judge(row: Row, solution: Solution, trace: Trace) -> None:
    row |= {
        "status": "ok",
        "variant": solution.variant,
        "cost": trace.cost,
        "objective": solution.objective,
        "recomputations": trace.recomputations,
        "checkpoints": trace.checkpoints,
        "peak_bytes": trace.peak_bytes,
        "solver": solution.solver,
    }
    add_facts(row, solution.details)
    if solution.native is not None:
        row["extra"]["native"] = solution.native.as_json()
    limit = row["budget_bytes"]
    if limit is not None and trace.peak_bytes > limit:
        reason = f"the plan peaks at {trace.peak_bytes} bytes, the budget is {limit} "
        reason += f"(not proven{_below_once(row)})"
        row |= {"status": "infeasible", "reason": reason}


def allocation_facts(graph: Graph, plan: Plan) -> dict[str, int]:
    """What CUDA's caching allocator would reserve for a plan, as the row has it."""
    found = replay(graph, plan)
    return {
        "modelled_reserved_bytes": found.reserved,
        "modelled_fragmentation_bytes": found.fragmentation,
        "modelled_segments": found.segments,
    }


def _execute(
    row: Row, settings: Settings, captured: Captured, plan: Plan, native: NativeRun | None
) -> None:
    from rematbench.costmodel.device import device_name, free_memory
    from rematbench.validator import measure

    row["device"] = device_name(settings.device)
    free, peak = free_memory(settings.device), sure(row["peak_bytes"])
    if settings.device == "cpu" and free is not None and peak > free:
        reason = f"the plan peaks at {peak} bytes, {free} are available"
        row |= {"status": "out_of_memory", "reason": reason}
        return
    held = held_bytes(settings, captured)
    how = (settings.device, settings.seed, settings.repeats, held)
    measured = measure(
        captured,
        plan,
        device=settings.device,
        seed=settings.seed,
        repeats=settings.repeats,
        within=settings.within,
        seconds=settings.timing_seconds,
        memory=settings.device_memory,
        held_bytes=held,
    )
    if native is not None and settings.device_memory is None:
        from rematbench.validator.native import measure_native

        found = measure_native(captured, native, *how)
        row["extra"]["native"] = {**native.as_json(), **asdict(found)}
    record(row, measured, settings.accounting)


def _lower(
    row: Row,
    settings: Settings,
    captured: Captured,
    plan: Plan,
    strategy: Strategy,
    native: NativeRun | None,
) -> None:
    from rematbench.validator.lowerings import measure_lowered

    if row["status"] != "ok" or settings.device_memory is not None:
        return
    held = held_bytes(settings, captured)
    budget = sure(row["budget_bytes"] or row["peak_bytes"]) - held
    asked = PlannedRun(strategy, "inductor", budget, settings.time_limit, settings.costmodel)
    how = (asked, settings.device, settings.seed, settings.repeats, held)
    row["extra"]["lowered"] = measure_lowered(captured, plan, native, *how)


def record(row: Row, measurement: Measurement, accounting: str) -> None:
    """Put a measurement into its row; a plan with wrong gradients has failed."""
    measured = asdict(measurement)
    reason = measured.pop("reason")
    measured["verdict"] = str(measurement.verdict)
    put(row, {name: measured.pop(name) for name in list(measured) if name in row})
    add_facts(row, measured)
    if accounting == "full":
        row["peak_error"] = _ratio(row["peak_bytes"], row["measured_peak_bytes"])
    if reason is not None:
        row |= {"status": "failed", "reason": reason}
    else:
        row["reason"] = measurement.remark or row["reason"]
    if accounting == "full":
        judge_peak(row)


def failure(error: BaseException) -> Outcome:
    """Status and reason of whatever a strategy or a device raised."""
    text = one_line(error)
    if is_out_of_memory(error):
        return {"status": "out_of_memory", "reason": text}
    if isinstance(error, RematbenchError):
        return {"status": "failed", "reason": text}
    if place(error) is not None:
        return {"status": "failed", "reason": accuse(error)}
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(frame.filename).name}:{frame.lineno}"
    return {"status": "failed", "reason": f"{type(error).__name__} at {where}: {text}"}


def failed_with(error: BaseException, settings: Settings, folder: Path) -> Row:
    """Write the row of a job that an error of ours, or a lack of memory, has ended."""
    row = ended(first_row(settings), failure(error))
    write_row(folder / "row.json", row)
    return row


def _ratio(number: float | None, base: float | None) -> float | None:
    if number is None or not base:
        return None
    return number / base - 1
