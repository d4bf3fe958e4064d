"""DTR: speed beside the readable reference and the original, and every golden row of simrd.

``python -m benchmarks.dtr [FOLDER]`` prints both and writes runs/benchmarks/dtr.json. FOLDER
holds ``golden.csv`` and the logs that it names (default ``../shared/data/simrd``, which is no part
of the repository: where it is absent, the record says what is left out).
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from benchmarks.figures import Figure, publish
from benchmarks.trees import SIMRD, left_out
from rematbench.engines.eviction.compiled import CompiledStream, compile_stream
from rematbench.engines.eviction.reference import play_slowly
from rematbench.engines.eviction.rules import Rules, Run
from rematbench.engines.eviction.runtime import baseline_peak, play, warm_up
from rematbench.rows.provenance import HOUSE
from rematbench.streams.eviction import HEURISTICS
from rematbench.streams.log import read_log

NAMES = {
    "DTR": "full",
    "DTRUnopt": "full",
    "DTREqClass": "eqclass",
    "DTRLocal": "local",
    "LRU": "lru",
    "LargestStorage": "largest",
    "RandomStorage": "random",
}
GOLDEN = "golden rows equal"
OWN = HOUSE / "tests/data/transformer_lm.log"
# Ops per second of the original on the transformer log at half of its peak, and how many times
# as fast we are to be.
ORIGINAL = {"full": (180, 100), "eqclass": (1900, 20)}


@cache
def compiled(path: Path) -> tuple[CompiledStream, int]:
    """A log's tables, and the peak that fractions are of."""
    made = compile_stream(read_log(path))
    return made, baseline_peak(made)


def differences(row: dict[str, str], run: Run) -> list[str]:
    """Columns of a golden row that a run does not match."""
    found = {
        "status": run.status,
        "total_compute": str(run.total_compute),
        "remat_compute": str(run.remat_compute),
        "peak_memory": str(run.peak_bytes),
        "num_evictions": str(run.evictions),
        "num_remats": str(run.rematerializations),
        "event_crc32": run.events_crc32,
    }
    wrong = [name for name, value in found.items() if row[name] != value]
    expected = int(row["storage_accesses"])
    slack = 0.01 * expected if row["heuristic"] == "DTREqClass" else 0
    if abs(run.storage_accesses - expected) > slack:
        wrong.append("storage_accesses")
    return wrong


def golden(folder: Path) -> list[Figure]:
    """Play each row; print one line for each."""
    rows = equal = 0
    with (folder / "golden.csv").open() as file:
        for row in csv.DictReader(file):
            log, peak = compiled(folder / f"{row['log']}.log.gz")
            rules = Rules(
                HEURISTICS[NAMES[row["heuristic"]]],
                row["dealloc"],  # type: ignore[arg-type]
                float(row["overhead_limit"]),
                int(row["seed"] or 0),
            )
            budget = int(peak * float(row["ratio"]))
            run, seconds = timed(lambda: play(log, budget, rules))  # noqa: B023 (called at once)
            wrong = differences(row, run)
            rows, equal = rows + 1, equal + (not wrong)
            name = f"{row['log']} {row['heuristic']} {row['dealloc']} {row['ratio']} {row['seed']}"
            verdict = f"differs in {', '.join(wrong)}" if wrong else "equal"
            rate = (len(log.ops) + run.rematerializations) / seconds
            print(f"{name:<44} {run.status:<7} {run.events_crc32} {rate:>9,.0f} op/s  {verdict}")
    return [Figure(GOLDEN, equal, rows, f"of {rows}", at_least=True)]


def timed(run: Callable[[], Run], repeats: int = 1) -> tuple[Run, float]:
    """The result, and the processor time of the fastest of some runs."""
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        result = run()
        seconds.append(time.process_time() - began)
    return result, max(min(seconds), 1e-9)


def speed(path: Path) -> list[Figure]:
    """Ops per second at half of the peak, beside the readable path in the same run."""
    log, peak = compiled(path)
    figures = []
    for name, (original, times) in ORIGINAL.items():
        rules = Rules(HEURISTICS[name], "eager", 2.0)
        run, fast = timed(lambda: play(log, peak // 2, rules), 5)  # noqa: B023
        same, slow = timed(lambda: play_slowly(log, peak // 2, rules))  # noqa: B023
        assert run.events_crc32 == same.events_crc32
        ops = len(log.ops) + run.rematerializations
        label = f"{path.name.partition('.')[0]} at 0.5, {name}"
        figures += [
            Figure(f"{label}: our speed", ops / fast, original * times, "op/s", at_least=True),
            Figure(f"{label}: readable path", ops / slow, None, "op/s"),
            Figure(f"{label}: ratio of the two", slow / fast, 1, "times", at_least=True),
        ]
    return figures


def main() -> None:
    """Run both; exit code 1 where a golden row differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    given = parser.parse_args().folder
    folder = given or HOUSE / SIMRD
    warm_up()
    figures, facts = [], {}
    if (folder / "golden.csv").exists():
        figures = [*golden(folder), *speed(folder / "transformer.log.gz")]
    elif given:
        sys.exit(f"{folder}: holds no golden.csv; give the folder that does")
    elif said := left_out("dtr"):
        print(said)
        facts["left_out"] = said
    figures += speed(OWN)
    publish("dtr", figures, **facts)
    sys.exit(any(not f.kept for f in figures if f.name == GOLDEN))


if __name__ == "__main__":
    main()
