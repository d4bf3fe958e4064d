"""What a log's seconds do to DTR: a step as it was recorded, and with each operator's median.

``python -m benchmarks.log_costs`` writes ``runs/benchmarks/log_costs.json``, which docs/claims.csv
quotes. The log is that of DenseNet-BC in ``runs/reference/logs``, recorded on a CPU: an operator
that was interrupted costs a hundred times what it costs elsewhere, and is never evicted. Dead
storages are evicted eagerly, and rematerialization may cost twice the step, as in the paper.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
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

LOG = Path("runs/reference/logs/densenet_bc.log.gz")
SHARES = (0.5, 0.4, 0.3, 0.2)
"""Budgets, as parts of the unlimited peak under banishing."""
CHOSEN = ("eqclass", "full")


def evened(stream: EventStream) -> EventStream:
    """Each operator costs its own median, whatever it reads."""
    costs = defaultdict[str, list[int]](list)
    for event in stream.events:
        if isinstance(event, Call | Mutate):
            costs[event.op].append(event.cost)
    median = {op: median_low(found) for op, found in costs.items()}
    events = tuple(
        replace(event, cost=median[event.op]) if isinstance(event, Call | Mutate) else event
        for event in stream.events
    )
    return replace(stream, events=events)


def overheads(title: str, stream: EventStream) -> Iterator[Figure]:
    """DTR's overhead at each budget that it meets."""
    compiled = compile_stream(stream)
    peak = baseline_peak(compiled)
    for name in CHOSEN:
        for share in SHARES:
            run = play(compiled, int(share * peak), Rules(HEURISTICS[name], "eager", 3.0, 0))
            if run.status == "ok":
                over = 100 * run.remat_compute / compiled.source.cost
                yield Figure(f"densenet_bc, {title}, {name}: at {share}", over, None, "%")


def main() -> None:
    """Play, print, write."""
    stream = read_log(LOG)
    recorded, even = overheads("as recorded", stream), overheads("by medians", evened(stream))
    publish("log_costs", [*recorded, *even])


if __name__ == "__main__":
    main()
