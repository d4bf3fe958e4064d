"""What a log's seconds and a model's form do to DTR: DenseNet-BC's smallest memory.

``python -m benchmarks.log_costs`` writes ``runs/benchmarks/log_costs.json``, which docs/claims.csv
quotes. Two logs, recorded on a CPU: DenseNet-BC of three dense blocks for images of 32 pixels, and
one of four (6, 12, 24 and 16 layers, as in DenseNet-121). Each is played as it was recorded, where
an operator that was interrupted costs a hundred times what it costs elsewhere and is never evicted;
with each operator's median; and with operators that all cost the same, as they would where
launching a kernel takes longest. Dead storages are evicted eagerly, and a step may take three times
its computation, as in the paper.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median_low

from benchmarks.figures import Figure, publish
from rematbench.engines.eviction.compiled import compile_stream
from rematbench.engines.eviction.rules import Rules
from rematbench.engines.eviction.runtime import baseline_peak, play
from rematbench.streams.events import Call, EventStream, Mutate
from rematbench.streams.eviction import HEURISTICS
from rematbench.streams.log import read_log

LOGS = {
    "three blocks": Path("runs/reference/logs/densenet_bc.log.gz"),
    "four blocks": Path("runs/reference/densenet_bc_four_blocks.log.gz"),
}
SHARES = (0.5, 0.4, 0.3, 0.2)
"""Budgets, as parts of the unlimited peak under banishing."""
CHOSEN = ("eqclass", "full")


def with_costs(stream: EventStream, cost: Callable[[Call | Mutate], int]) -> EventStream:
    """The same events, each operator at the cost that it is given."""
    events = tuple(
        replace(event, cost=cost(event)) if isinstance(event, Call | Mutate) else event
        for event in stream.events
    )
    return replace(stream, events=events)


def evened(stream: EventStream) -> EventStream:
    """Each operator costs its own median, whatever it reads."""
    costs = defaultdict[str, list[int]](list)
    for event in stream.events:
        if isinstance(event, Call | Mutate):
            costs[event.op].append(event.cost)
    median = {op: median_low(found) for op, found in costs.items()}
    return with_costs(stream, lambda event: median[event.op])


def overheads(title: str, stream: EventStream) -> Iterator[Figure]:
    """DTR's overhead at each budget that it meets."""
    compiled = compile_stream(stream)
    peak = baseline_peak(compiled)
    for name in CHOSEN:
        for share in SHARES:
            run = play(compiled, int(share * peak), Rules(HEURISTICS[name], "eager", 3.0, 0))
            if run.status == "ok":
                over = 100 * run.remat_compute / compiled.source.cost
                yield Figure(f"{title}, {name}: at {share}", over, None, "%")


def main() -> None:
    """Play, print, write."""
    found: list[Figure] = []
    for form, path in LOGS.items():
        stream = read_log(path)
        costs = {
            "as recorded": stream,
            "by medians": evened(stream),
            "all alike": with_costs(stream, lambda event: 1000),
        }
        for told, played in costs.items():
            found += overheads(f"densenet_bc, {form}, {told}", played)
    publish("log_costs", found)


if __name__ == "__main__":
    main()
