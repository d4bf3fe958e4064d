"""Dynamic tensor rematerialization."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card, Paper


class Facts(TypedDict, total=False):
    """dtr, coop."""

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
    evictions: Annotated[int, Means("storages that were dropped")]
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
    trace_omitted: Annotated[bool, Means("the run has too many events for trace.csv")]


CARDS = (
    Card(
        name="dtr",
        planner="planner.Dtr",
        paper=Paper(
            authors="Kirisame et al.",
            year=2020,
            title="Dynamic Tensor Rematerialization",
            url="https://arxiv.org/abs/2006.09616",
        ),
        problem="evict online what scores least",
        scope="everything, logs",
        page="simrd.md",
        golden="simrd's event sequences, by checksum",
        knobs="`heuristic=full`, `eqclass`, `local`, `lru`, `largest`, `random`, `ablation`",
        place=19,
        facts=Facts,
    ),
)
