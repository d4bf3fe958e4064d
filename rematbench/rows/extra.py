"""What a row's ``extra`` may hold: each key, its type, its unit and what it means.

The only list of them: ``docs/rows.md`` is made from it, type checkers know it. A strategy of
another package may add keys of its own (``Solution.details``); its documentation names them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

Source = Literal["job", "planned", "simulated", "measured", "run"]


@dataclass(frozen=True, slots=True)
class Means:
    """What a column of the row, or a key of ``extra``, stands for.

    Attributes:
        text: in a few words.
        unit: bytes, seconds, ratio, pixels, cost_unit (see that column), or none.
        source: where a column's numbers come from; never two of them on one axis.
        length: how many a list holds; None: as many as there are.
    """

    text: str
    unit: str = ""
    source: Source = "job"
    length: int | None = None


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
    options: Annotated[dict[str, Any], Means("of the model, where they were given")]
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
        dict[str, Any] | None,
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
        dict[str, Any], Means("PyTorch's own run of the plan: how, and what was measured then")
    ]
    lowered: Annotated[
        dict[str, Any],
        Means("device.native=compile: the plan by torch.compile, as `native`: `aot`, `inductor`"),
    ]
    measured_in_turns_with: Annotated[
        int, Means("rematbench-suite: programs that were timed in turns")
    ]
    checkpoint_all_seconds: Annotated[
        float, Means("rematbench-suite: of checkpoint-all, in the same turns", "seconds")
    ]
    overhead_against_checkpoint_all: Annotated[
        float, Means("median ratio to the step of checkpoint-all beside it, less 1", "ratio")
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
    candidates: Annotated[int, Means("Chen: ops where a segment may end")]
    segment_bytes: Annotated[float, Means("Chen, greedy: the knob b of the chosen plan", "bytes")]
    segment_length: Annotated[int, Means("Chen, sqrt: candidates from one checkpoint to the next")]
    segments: Annotated[int, Means("torch_checkpoint: parts of the network")]
    ratio: Annotated[
        float, Means("torch_budget: the activation budget of the chosen plan", "ratio")
    ]
    failures: Annotated[
        list[dict[str, Any]], Means("torch_budget: ratios at which the partitioner failed, and how")
    ]
    share: Annotated[
        float | None,
        Means("torch_knapsack: of the budget that the strategy inside was given", "ratio"),
    ]
    slots: Annotated[int, Means("revolve, joins: values of the chain that may be live")]
    steps: Annotated[int, Means("revolve: forward steps of the chain")]
    advances: Annotated[int, Means("revolve: forward steps that are run, recomputed ones included")]
    branches: Annotated[list[int], Means("joins: steps of each branch")]
    makespan: Annotated[float, Means("joins: of Theorem 3, in operations")]
    reading: Annotated[str, Means("equiv_chain, older rows: now the variant")]
    c_min: Annotated[int, Means("joins: fewest slots that suffice")]
    c_opt: Annotated[int, Means("joins: slots from which nothing is recomputed")]
    bytes_per_slot: Annotated[float, Means("joins: the simulated peak over the slots", "bytes")]
    checkpoint_bytes: Annotated[
        int, Means("feng_huang: of the checkpoints, in the paper's objective", "bytes")
    ]
    largest_segment_bytes: Annotated[int, Means("feng_huang: the objective's other part", "bytes")]
    no_checkpoint_bytes: Annotated[
        int, Means("feng_huang: of everything between source and target", "bytes")
    ]
    tail: Annotated[
        str, Means("feng_huang: what follows the last checkpoint is kept or recomputed")
    ]
    checkpoint_vertices: Annotated[
        int | list[int], Means("feng_huang: their number; random_checkpoints: which")
    ]
    vertices: Annotated[int, Means("feng_huang: of its network")]
    edges: Annotated[int, Means("feng_huang: of its network")]
    valid_draws: Annotated[int, Means("random_checkpoints: draws that divide the network")]
    invalid_draws: Annotated[int, Means("random_checkpoints: draws that do not")]


class ChainDp(TypedDict, total=False):
    """chain_dp."""

    stages: Annotated[int, Means("of the chain")]
    unit_bytes: Annotated[int, Means("sizes are rounded up to multiples of it", "bytes")]
    rounding_loss_at_most: Annotated[
        float, Means("what rounding may have cost, over the optimum", "ratio")
    ]
    held_bytes: Annotated[int, Means("live throughout, beside the residents", "bytes")]
    planned_bytes: Annotated[int, Means("the peak that was planned for, kusumoto's too", "bytes")]


class Kusumoto(TypedDict, total=False):
    """kusumoto."""

    family: Annotated[str, Means("of lower sets that the plan is a sequence of")]
    lower_sets: Annotated[int, Means("of that family")]
    blocks: Annotated[int, Means("lower sets of the plan")]
    formula_peak_bytes: Annotated[int, Means("the peak by the paper's formula", "bytes")]
    costs_rounded: Annotated[bool, Means("were costs rounded to whole units?")]


class Practice(TypedDict, total=False):
    """every_layer, every_n_layers, selective_ops, selective_attention, save_dots."""

    checkpointed: Annotated[
        dict[str, int], Means("how many modules of each list run forward again; * is a number")
    ]
    n: Annotated[int, Means("every_n_layers: of the blocks, every n-th runs again")]
    attention_cores: Annotated[int, Means("selective_attention: attentions that run again")]


class XlaRemat(TypedDict, total=False):
    """xla_remat."""

    rank: Annotated[str, Means("by which candidates were picked: bytes or cost")]
    limit_bytes: Annotated[int | None, Means("that the pass was given; null: none", "bytes")]


class Rockmate(TypedDict, total=False):
    """rockmate."""

    blocks_solved: Annotated[int, Means("blocks that differ in more than names")]
    block_options: Annotated[int, Means("ways to run a block, of all blocks together")]


class SacIlp(TypedDict, total=False):
    """sac_ilp."""

    discarded: Annotated[
        dict[str, float], Means("per checkpointed module, the share of its bytes to drop", "ratio")
    ]
    modelled_peak_bytes: Annotated[int, Means("by the program's own model", "bytes")]
    program_budget_bytes: Annotated[int, Means("that the program was given", "bytes")]


class Moccasin(TypedDict, total=False):
    """moccasin."""

    computes: Annotated[int, Means("of an op at most (C), first one included")]
    fitted_seconds: Annotated[float, Means("until a plan was within the budget", "seconds")]


class Dtr(TypedDict, total=False):
    """DTR."""

    judge: Annotated[str, Means("dtr: the runtime judged itself, on a log: there is no plan")]
    heuristic: Annotated[str, Means("the score that picks what is evicted")]
    dealloc: Annotated[str, Means("what a release does: banish, eager or none")]
    semantics: Annotated[str, Means("whose rules: simrd's or the paper's")]
    staleness: Annotated[bool, Means("does the score know how long a tensor was not used?")]
    size: Annotated[bool, Means("does the score know a tensor's bytes?")]
    cost: Annotated[str, Means("which cost the score knows: estar, eqclass, local or none")]
    thrash_limit: Annotated[
        float | None, Means("compute, over that without a limit, at which it gives up", "ratio")
    ]
    evictions: Annotated[int, Means("")]
    rematerializations: Annotated[int, Means("ops run again")]
    storage_accesses: Annotated[
        int, Means("reads of storages' metadata, the paper's measure of its own cost")
    ]
    events_crc32: Annotated[
        str | None, Means("of all that happened, as 8 hex digits: equal runs, equal digits")
    ]
    total_compute: Annotated[float, Means("of the run, on the log's clock", "cost_unit")]
    additional_compute: Annotated[float, Means("the part that is rematerialization", "cost_unit")]
    constant_bytes: Annotated[int, Means("of a log: inputs and weights", "bytes")]
    largest_op_bytes: Annotated[
        int, Means("of a log: what its largest op needs beside constants", "bytes")
    ]
    fragmentation: Annotated[
        float, Means("coop: free share of the memory, mean over blocks that found no room", "ratio")
    ]
    scattered_evictions: Annotated[
        int, Means("coop: evictions while enough was free, in too small pieces")
    ]
    dtr_at_addresses: Annotated[
        dict[str, Any], Means("coop: the same of DTR, where a storage needs one piece of memory")
    ]
    trace_omitted: Annotated[bool, Means("the run has too many events for trace.csv")]


class Search(TypedDict, total=False):
    """Integer programs and searches."""

    rows: Annotated[
        int, Means("of the largest program that was solved; of (9) as printed, after presolve")
    ]
    columns: Annotated[int, Means("the same")]
    nonzeros: Annotated[int, Means("the same")]
    linear_programs: Annotated[int, Means("anytime: relaxations that gave bounds")]
    integer_programs: Annotated[int, Means("anytime: of them solved in whole numbers, too")]
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
    no_plan_in: Annotated[list[str], Means("spaces proven to have none: the plan is outside them")]
    bound_by: Annotated[
        str, Means("how the bound was found; trivial: it is every op once, whatever the budget")
    ]
    block_kinds: Annotated[int, Means("hierarchical: blocks that differ, of blocks")]
    interrupted: Annotated[bool, Means("Ctrl-C ended the search; the row is of its best plan")]
    integrality_gap: Annotated[
        float | None, Means("cost / bound of the linear relaxation", "ratio")
    ]
    solver_status: Annotated[str, Means("what the solver said at the end")]
    peak_bound_bytes: Annotated[int, Means("minimise=peak: no plan of (9) peaks lower", "bytes")]
    proven: Annotated[bool, Means("minimise=peak: the plan's peak is that bound")]
    blind_bound: Annotated[
        float | None,
        Means("checkmate_d, checkmate_o: of the problem without workspaces", "cost_unit"),
    ]
    epsilon: Annotated[
        float, Means("rounding: share of the budget that the relaxation leaves free", "ratio")
    ]
    threshold: Annotated[float | None, Means("rounding: from which a fraction counts as 1")]
    sample: Annotated[int, Means("rounding, randomized: number of the draw")]
    ratio_to_bound: Annotated[float, Means("rounding: cost / bound", "ratio")]
    tried: Annotated[int, Means("rounding: schedules")]
    feasible: Annotated[int, Means("rounding: those within the budget")]
    feasible_share: Annotated[float, Means("rounding: feasible / tried", "ratio")]
    paper_setting: Annotated[
        dict[str, Any] | None, Means("rounding: what the paper's epsilon and threshold gave")
    ]
    relaxation_costs: Annotated[Any, Means("rounding: of the relaxations, by epsilon", "cost_unit")]
    known: Annotated[
        list[dict[str, Any]], Means("anytime_joint: plans that it was handed, and whether they fit")
    ]
    operators: Annotated[bool, Means("monet: with other implementations of operators?")]
    locals: Annotated[str, Means("monet: loose or tight sizes of locals")]
    forward_ops: Annotated[int, Means("monet: ops")]
    published_rows: Annotated[int, Means("monet: of its program")]
    published_columns: Annotated[int, Means("the same")]
    presolved_rows: Annotated[int, Means("what HiGHS's presolve leaves of them")]
    presolved_columns: Annotated[int, Means("the same")]


class Gist(TypedDict, total=False):
    """Gist."""

    ways: Annotated[dict[str, int], Means("ops by the kind of implementation")]
    lossy: Annotated[bool, Means("does an encoding lose bits?")]
    encoded_values: Annotated[int, Means("values that wait encoded for the backward pass")]
    encoded_from_bytes: Annotated[int, Means("their size", "bytes")]
    encoded_to_bytes: Annotated[int, Means("the size of their encodings", "bytes")]
    sparsity: Annotated[
        dict[str, float], Means("zeros in each value that is stored sparsely", "ratio")
    ]


class Largest(TypedDict, total=False):
    """rematbench-max-batch and rematbench-fit."""

    memory_bytes: Annotated[int, Means("of the device that was asked about", "bytes")]
    cost_limit: Annotated[
        float | None, Means("equation 10: training and one more forward pass", "cost_unit")
    ]
    max_batch: Annotated[
        dict[str, Any], Means("the search: vary, value, equation_11, probes, measured_*")
    ]
    fit: Annotated[dict[str, Any], Means("memory_bytes, reserve_bytes, tried, code")]


class Extra(
    Asked,
    Ended,
    Job,
    Measured,
    Knob,
    ChainDp,
    Kusumoto,
    Practice,
    XlaRemat,
    Rockmate,
    SacIlp,
    Moccasin,
    Dtr,
    Search,
    Gist,
    Largest,
    total=False,
):
    """What only some rows have; in groups."""


GROUPS = (
    Asked,
    Ended,
    Job,
    Measured,
    Knob,
    ChainDp,
    Kusumoto,
    Practice,
    XlaRemat,
    Rockmate,
    SacIlp,
    Moccasin,
    Dtr,
    Search,
    Gist,
    Largest,
)
