"""What any row's ``extra`` may hold: each key, its type, its unit and what it means.

``docs/rows.md`` is made from it, type checkers know it. The keys that one strategy alone writes
(``Solution.details``) stand on its card.
"""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from rematbench.base.meanings import Means
from rematbench.rows.measured import InexactFacts, LoweredFacts, NativeFacts


class Asked(TypedDict, total=False):
    """Who asked for the row."""

    experiment: Annotated[str, Means("the chosen experiment=, or suite; missing: a person asked")]
    group: Annotated[
        str, Means("which of the experiment's groups of sweeps (group=); of the suite, its cases")
    ]
    shared_with: Annotated[
        list[dict[str, str]],
        Means("in a report: other experiments (and groups) of which the row is a copy"),
    ]
    cached: Annotated[bool, Means("the row and its files are from the cache")]
    uncached: Annotated[
        str, Means("what the model's code looked at that nobody can look up again: not kept")
    ]
    suite: Annotated[
        str, Means("rematbench-suite: hash of what the row depends on, by which a run goes on")
    ]
    numerics: Annotated[
        dict[str, bool], Means("rematbench-suite on CUDA: how kernels compute (TF32, ...)")
    ]


class Ended(TypedDict, total=False):
    """How a job ended."""

    bad_config: Annotated[bool, Means("the configuration was bad: the job never ran")]
    not_finite: Annotated[
        list[str], Means("columns and keys that were NaN or infinite; they are null")
    ]
    job_limit: Annotated[float, Means("job_time_limit, which ended the job", "seconds")]


class Job(TypedDict, total=False):
    """Every job."""

    accounting: Annotated[str, Means("what is resident: full, activations or checkmate")]
    time_limit: Annotated[float, Means("that the planner had", "seconds")]
    plan_cpu_seconds: Annotated[
        float, Means("that the planner took of the processor, in all threads", "seconds", "run")
    ]
    stopped: Annotated[
        bool, Means("it overran its limit: what it had handed over counts", "", "run")
    ]
    threads_used: Annotated[
        float, Means("in which the planner was busy, where they are more than `threads`", "", "run")
    ]
    machine: Annotated[str, Means("that planned: its processor, and the cores that it might use")]
    preset: Annotated[str, Means("the machine that costmodel=roofline modelled")]
    length: Annotated[int, Means("layers of a chain")]
    lengths: Annotated[list[int], Means("of the branches of a join")]
    options: Annotated[
        dict[str, Any], Means("of the model, where they were given; of a random graph")
    ]
    strategy_options: Annotated[dict[str, Any], Means("of the strategy, where not its defaults")]
    floor_bytes: Annotated[
        int, Means("residents, outputs and the largest op: no budget below can be met", "bytes")
    ]
    once_floor_bytes: Annotated[
        int, Means("no plan below it computes each backward op once (in program order)", "bytes")
    ]
    resident_bytes: Annotated[int, Means("live from start to end", "bytes")]
    optimizer: Annotated[str, Means("whose state is resident, where one was asked for")]
    master_weights: Annotated[bool, Means("were they asked for (or not)?")]
    in_program_order: Annotated[
        bool, Means("do the plan's first computes follow it? Bounds of `any` are of such plans")
    ]
    plan_hash: Annotated[
        str, Means("of the plan's statements and its graph: equal where both are", source="planned")
    ]
    memory: Annotated[
        dict[str, int],
        Means(
            "what the simulated peak consists of: parameters, gradients, optimizer, batch, "
            "buffers, activations, workspace, random_states (of the generator, for draws that "
            "are repeated); residents, where nobody knows what they are",
            "bytes",
        ),
    ]
    forward_cost: Annotated[float, Means("of the forward pass, without the loss", "cost_unit")]
    budget_base: Annotated[
        str | None, Means("what a fraction of the budget is of: a column, or a key")
    ]
    banishing_peak_bytes: Annotated[int, Means("of a log, played without a limit", "bytes")]


class TwoMemories(TypedDict, total=False):
    """A link to the host (link=)."""

    link: Annotated[
        dict[str, Any], Means("name; out, in: bytes per cost_unit; latency per copy; shared")
    ]
    host_bytes: Annotated[int, Means("the most that host= allows there", "bytes")]
    host_peak_bytes: Annotated[
        int, Means("the most on the host at any statement", "bytes", "simulated")
    ]
    offloaded_bytes: Annotated[int, Means("copied to the host", "bytes", "simulated")]
    fetched_bytes: Annotated[int, Means("copied back", "bytes", "simulated")]
    waiting: Annotated[
        dict[str, float],
        Means("how long compute, out and in stood still for another", "cost_unit", "simulated"),
    ]
    compute_cost: Annotated[
        float, Means("of the computes; cost is the makespan", "cost_unit", "simulated")
    ]
    measured_host_peak_bytes: Annotated[int, Means("the most on the host", "bytes", "measured")]
    measured_waiting: Annotated[
        dict[str, float],
        Means("how long compute, out and in stood still, medians", "seconds", "measured"),
    ]
    measured_link: Annotated[
        dict[str, float | None],
        Means(
            "bandwidth that out and in had; null: nothing was copied", "bytes/second", "measured"
        ),
    ]


class Measured(TypedDict, total=False):
    """Measured."""

    measured_repeats: Annotated[
        int, Means("timed steps of the plan, interleaved with as many eager ones")
    ]
    measured_spikes: Annotated[
        int, Means("more of them, not counted: the eager step beside was disturbed")
    ]
    measured_overhead_interval: Annotated[
        list[float] | None,
        Means("95 % interval of measured_overhead, [from, to]", "ratio", length=2),
    ]
    measured_seconds_iqr: Annotated[
        float, Means("spread of measured_seconds (interquartile range)", "seconds")
    ]
    eager_seconds: Annotated[
        float | None, Means("of eager training; null: it does not fit the device", "seconds")
    ]
    eager_peak_bytes: Annotated[int | None, Means("the same", "bytes")]
    requested_bytes: Annotated[
        int | None, Means("measured peak before the caching allocator rounds up (CUDA)", "bytes")
    ]
    over_budget_bytes: Annotated[
        int, Means("of the measured peak; reason says what explains it", "bytes")
    ]
    fragmentation_bytes: Annotated[
        int | None, Means("of the reserved ones, not in use at the peak (CUDA)", "bytes")
    ]
    gradient_tolerance: Annotated[
        float, Means("what the plan's implementations allow; 0: all exact", "ratio")
    ]
    verdict: Annotated[str, Means("of the comparison with eager training")]
    rounding: Annotated[
        InexactFacts | None,
        Means(
            "what the verdict on inexact implementations rests on: float64_*, alone_*, lossy_error"
        ),
    ]
    modelled_reserved_bytes: Annotated[
        int, Means("allocator=cuda: what a model of the caching allocator reserves", "bytes")
    ]
    modelled_fragmentation_bytes: Annotated[
        int, Means("of them, not in use when most are", "bytes")
    ]
    modelled_segments: Annotated[int, Means("of them, taken from the device one by one")]
    steady_allocator: Annotated[bool, Means("were malloc's thresholds fixed (CPU)?")]
    measurement_reused: Annotated[
        bool, Means("the same statements had been measured before, on the same bench")
    ]
    native: Annotated[
        NativeFacts, Means("PyTorch's own run of the plan: how, and what was measured then")
    ]
    lowered: Annotated[
        LoweredFacts,
        Means("device.native=compile: the plan by torch.compile, as `native`: `aot`, `inductor`"),
    ]
    measured_in_turns_with: Annotated[
        int, Means("rematbench-suite: programs that were timed in turns")
    ]
    checkpoint_all_seconds: Annotated[
        float,
        Means(
            "rematbench-suite: of checkpoint-all, in the same turns or, later, its own", "seconds"
        ),
    ]
    overhead_against_checkpoint_all: Annotated[
        float,
        Means(
            "median ratio to the step of checkpoint-all beside it, less 1; where that was timed "
            "before: to its ratio to the eager step beside it",
            "ratio",
        ),
    ]
    overhead_against_checkpoint_all_interval: Annotated[
        list[float], Means("its 95 % interval, [from, to]", "ratio", length=2)
    ]
    cuda_graph_seconds: Annotated[
        float, Means("of a step that is replayed as a CUDA graph", "seconds")
    ]
    cuda_graph: Annotated[str, Means("why there is no such replay")]


class Knob(TypedDict, total=False):
    """Planners with a knob."""

    curve: Annotated[
        list[dict[str, Any]], Means("what each value of the knob gave: knob, cost, peak_bytes")
    ]


class Search(TypedDict, total=False):
    """Integer programs and searches."""

    rows: Annotated[
        int, Means("of the largest program that was solved; of (9) as printed, after presolve")
    ]
    columns: Annotated[int, Means("the same")]
    nonzeros: Annotated[int, Means("the same")]
    linear_programs: Annotated[int, Means("relaxations that gave bounds")]
    integer_programs: Annotated[int, Means("of them solved in whole numbers, too")]
    solver_runs: Annotated[int, Means("of HiGHS, one more per round of rows")]
    nodes: Annotated[int, Means("of branch and bound")]
    build_seconds: Annotated[float, Means("until the program was handed to the solver", "seconds")]
    incumbents: Annotated[
        list[tuple[float, float | None, float | None]],
        Means("(seconds, cost or null, bound) whenever one of them got better"),
    ]
    seconds_to_gap_5: Annotated[float | None, Means("until a gap of 5 % was proven", "seconds")]
    seconds_to_gap_2: Annotated[float | None, Means("until a gap of 2 % was proven", "seconds")]
    bounds: Annotated[dict[str, float], Means("by the space that they hold for", "cost_unit")]
    refused_bound: Annotated[
        float, Means("a bound above the plan's cost, which is not believed", "cost_unit")
    ]
    no_plan_in: Annotated[list[str], Means("spaces proven to have none: a plan is outside them")]
    bound_by: Annotated[
        str, Means("how the bound was found; trivial: it is every op once, whatever the budget")
    ]
    interrupted: Annotated[bool, Means("Ctrl-C ended the search; the row is of its best plan")]
    integrality_gap: Annotated[
        float | None, Means("cost / bound of the linear relaxation", "ratio")
    ]
    solver_status: Annotated[str, Means("what the solver said at the end")]


class Largest(TypedDict, total=False):
    """rematbench-max-batch and rematbench-fit."""

    memory_bytes: Annotated[int, Means("of the device that was asked about", "bytes")]
    cost_limit: Annotated[
        float | None, Means("equation 10: training and one more forward pass", "cost_unit")
    ]
    max_batch: Annotated[
        dict[str, Any], Means("the search: vary, value, equation_11, probes, measured_*")
    ]
    fit: Annotated[
        dict[str, Any], Means("memory_bytes, reserve_bytes, tried, offloading (with a link), code")
    ]


class Extra(Asked, Ended, Job, TwoMemories, Measured, Knob, Search, Largest, total=False):
    """What only some rows have, whatever planned them; in groups."""


GROUPS = (Asked, Ended, Job, TwoMemories, Measured, Knob, Search, Largest)
