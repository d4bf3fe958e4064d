"""DTR's runtime: simrd's golden results, the readable reference, invariants."""

from __future__ import annotations

import csv
import functools
from pathlib import Path
from typing import Any

import pytest
from event_streams import streams
from hypothesis import given, settings, strategies as st

from rematbench.base.errors import ConfigError, GraphError
from rematbench.engines.eviction.compiled import (
    SEMANTICS,
    CompiledStream,
    Semantics,
    compile_stream,
    semantics_named,
)
from rematbench.engines.eviction.reference import play_slowly
from rematbench.engines.eviction.rules import (
    Happened,
    Rules,
    Run,
    heuristic_named,
)
from rematbench.engines.eviction.runtime import baseline_peak, play
from rematbench.engines.eviction.scores import ratio
from rematbench.graphs.builders.synthetic import random_graph, unit_chain
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.streams.convert import stream_of_graph
from rematbench.streams.events import Annotate, Call, Constant, EventStream, Release, Result
from rematbench.streams.eviction import HEURISTICS, Heuristic
from rematbench.streams.ids import StepKind
from rematbench.streams.log import read_log

DATA = Path(__file__).parents[3] / "shared" / "data" / "simrd"
# Small logs of our own models, committed.
RECORDED = sorted((Path(__file__).parents[1] / "data").glob("*.log*"))
NAMES = {
    "DTR": "full",
    "DTRUnopt": "full",
    "DTREqClass": "eqclass",
    "DTRLocal": "local",
    "LRU": "lru",
    "LargestStorage": "largest",
    "RandomStorage": "random",
}
RULES = [
    Rules(heuristic, dealloc, 3.0)
    for heuristic in (*HEURISTICS.values(), Heuristic(False, True, "eqclass"))
    for dealloc in ("none", "eager", "banish")
    if not (dealloc == "banish" and heuristic.cost == "eqclass")
]
needs_data = pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data/simrd")


@functools.cache
def log(name: str) -> CompiledStream:
    return compile_stream(read_log(DATA / f"{name}.log.gz"))


def golden() -> list[dict[str, str]]:
    if not DATA.exists():
        return []
    with (DATA / "golden.csv").open() as file:
        return list(csv.DictReader(file))


@needs_data
@pytest.mark.parametrize("name", ["unet", "resnet32", "transformer"])
def test_golden_rows(name: str) -> None:
    rows = [row for row in golden() if row["log"] == name]
    assert rows
    peak, cost = baseline_peak(log(name)), log(name).source.cost
    for row in rows:
        budget = int(peak * float(row["ratio"]))
        assert budget == int(row["budget_bytes"])
        rules = Rules(
            HEURISTICS[NAMES[row["heuristic"]]],
            row["dealloc"],  # type: ignore[arg-type]
            float(row["overhead_limit"]),
            int(row["seed"] or 0),
        )
        run = play(log(name), budget, rules)
        found = (run.status, run.total_compute, run.remat_compute, run.peak_bytes)
        assert found == (
            row["status"],
            *(int(row[c]) for c in ("total_compute", "remat_compute", "peak_memory")),
        )
        assert run.evictions == int(row["num_evictions"])
        assert run.rematerializations == int(row["num_remats"])
        assert run.events_crc32 == row["event_crc32"]
        assert run.total_compute / cost == float(row["overhead_ratio"])
        slack = 0.01 if row["heuristic"] == "DTREqClass" else 0
        assert run.storage_accesses == pytest.approx(int(row["storage_accesses"]), rel=slack, abs=0)


def same(run: Run, reference: Run) -> None:
    for name in Run.__dataclass_fields__:
        if name not in ("records", "stuck"):
            assert getattr(run, name) == getattr(reference, name), name
    assert run.records.tolist() == reference.records.tolist()


@needs_data
@pytest.mark.parametrize("rules", RULES, ids=lambda r: f"{r.heuristic.cost}-{r.dealloc}")
def test_readable_path_on_a_log(rules: Rules) -> None:
    budget = baseline_peak(log("unet")) * 6 // 10
    same(play(log("unet"), budget, rules), play_slowly(log("unet"), budget, rules))


@pytest.mark.parametrize("path", RECORDED, ids=lambda p: p.name)
@pytest.mark.parametrize("name", ["full", "eqclass", "lru"])
def test_readable_path_on_recorded_logs(path: Path, name: str) -> None:
    compiled = compile_stream(read_log(path))
    rules = Rules(HEURISTICS[name], thrash_limit=2.0)
    budget = baseline_peak(compiled) * 7 // 10
    same(play(compiled, budget, rules), play_slowly(compiled, budget, rules))


@pytest.mark.parametrize("share", [0.3, 0.45, 0.6])
@pytest.mark.parametrize("dealloc", ["none", "eager"])
def test_readable_path_where_no_op_makes_a_view(share: float, dealloc: Any) -> None:
    """Backward regions that are changed are those that a walk would find."""
    for graph in (unit_chain(40), random_graph(40, 7), random_graph(60, 2)):
        compiled = compile_stream(stream_of_graph(graph).stream)
        budget = int(share * simulate(graph, program_order(graph)).peak_bytes)
        rules = Rules(HEURISTICS["full"], dealloc)
        same(play(compiled, budget, rules), play_slowly(compiled, budget, rules))


@settings(max_examples=100, deadline=None)
@given(
    streams(),
    st.sampled_from(RULES),
    st.floats(0.2, 1.1),
    st.sampled_from([*SEMANTICS.values(), Semantics(root_cost=True)]),
)
def test_random_streams(
    stream: EventStream, rules: Rules, ratio: float, semantics: Semantics
) -> None:
    compiled = compile_stream(stream, semantics)
    budget = int(play(compiled, None, rules).peak_bytes * ratio)
    run = play(compiled, budget, rules)
    same(run, play_slowly(compiled, budget, rules))
    assert run.peak_bytes <= budget
    replay(compiled, run, budget)


def test_a_view_needs_what_its_op_read() -> None:
    """Banishing pins all that was made from a storage, where deps(S) are of the root's op alone."""
    made = [Call("op", ("w0",), (Result(f"t{i}", 0),), 0, i // 12) for i in range(2, 13)]
    events = [
        *(Constant("w0", 0), Constant("w1", 0)),
        Call("op", ("w0",), (Result("t0", 1),), 0),
        Call("op", ("w0", "w1", "t0"), (Result("t1", 0, 2),), 0),
        *made[:2],
        *(Release("w1"), Release("t0")),
        *made[2:],
        Annotate("BACKWARD"),
    ]
    rules = Rules(HEURISTICS["full"], "banish", thrash_limit=3.0)
    for semantics in SEMANTICS.values():
        compiled = compile_stream(EventStream(tuple(events), "views"), semantics)
        for budget in (0, 1, 2):
            run = play(compiled, budget, rules)
            same(run, play_slowly(compiled, budget, rules))
            replay(compiled, run, budget)


def replay(compiled: CompiledStream, run: Run, budget: int) -> None:
    """Arguments are there when an op runs, memory fits, what is kept is there at the end."""
    source = compiled.source
    resident: set[int] = set()
    storage_of = [tensor.storage for tensor in source.tensors]
    for kind, number, _ in run.records.tolist():
        op = source.ops[source.tensors[number].op]
        if kind == Happened.EVICTED:
            resident.remove(storage_of[number])
        elif kind != Happened.BANISHED:
            assert {storage_of[t] for t in op.arguments} <= resident
            resident |= {storage_of[t] for t in op.outputs}
            assert sum(source.storages[s].bytes for s in resident) <= budget
    if run.status == "ok":
        kept = [what for kind, what in source.steps if kind == StepKind.KEEP]
        alive = {storage_of[t] for t in source.kept()}
        assert alive <= resident
        assert len(kept) >= len(alive)


@settings(max_examples=500, deadline=None)
@given(st.integers(-(2**61), 2**61), st.integers(1, 2**61), st.integers(1, 2**61))
def test_scores_are_exact(cost: int, size: int, stale: int) -> None:
    assert ratio(cost, size, stale) == cost / (size * stale)


def chain(length: int) -> EventStream:
    """Algorithm 3 of the paper: a chain of unit ops, and back."""
    events = [
        Call("f", (f"t{i - 1}",) if i else (), (Result(f"t{i}", 1),), 1) for i in range(length)
    ]
    after = "none"
    for i in range(length - 1, -1, -1):
        reads = (f"t{i}",) if after == "none" else (f"t{i}", after)
        events.append(Call("g", reads, (Result(f"g{i}", 1),), 1))
        events.append(Release(f"t{i}"))
        events += [Release(after)] if after != "none" else []
        after = f"g{i}"
    return EventStream(tuple(events), "chain")


def test_deep_recomputation_needs_no_stack() -> None:
    run = play(compile_stream(chain(3000)), 3, Rules(HEURISTICS["lru"]), time_limit=1)
    assert run.status in ("ok", "oom", "stopped")
    assert play(compile_stream(chain(3000)), 3, Rules(), time_limit=0).status == "stopped"


def test_thrashing_and_no_room() -> None:
    compiled = compile_stream(chain(100))
    assert play(compiled, 20, Rules(thrash_limit=1.1)).status == "thrash"
    run = play(compiled, 1, Rules())
    assert run.status == "oom"
    assert run.stuck == (1, 2)


def test_used_after_banishing() -> None:
    events = (Constant("x", 1), Call("f", ("x",), (Result("y", 1),), 1), Release("y"))
    dead = EventStream((*events, Call("f", ("y",), (Result("z", 1),), 1)), "dead")
    with pytest.raises(GraphError, match="event 3: uses a tensor after its last release"):
        play(compile_stream(dead), None, Rules(dealloc="banish"))


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (lambda: heuristic_named("best", {}), "strategy.heuristic=best: unknown"),
        (lambda: heuristic_named("full", {"size": True}), "strategy.size: is of .*ablation"),
        (lambda: heuristic_named("ablation", {"cost": "all"}), "strategy.cost=all: unknown"),
        (lambda: heuristic_named("ablation", {"size": 1}), "strategy.size=1: give true"),
        (lambda: Rules(dealloc="lazy"), "strategy.dealloc=lazy"),  # type: ignore[arg-type]
        (lambda: Rules(HEURISTICS["eqclass"], "banish"), "EqClass is not defined"),
        (lambda: Rules(thrash_limit=0.5), "strategy.thrash_limit=0.5"),
        (lambda: Rules(seed=-1), "strategy.seed=-1"),
        (lambda: semantics_named("simrd", root_cost=True), "only semantics=paper"),
        (lambda: semantics_named("book"), "strategy.semantics=book"),
    ],
)
def test_bad_options(bad, text: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match=text):
        bad()


def test_bytes_and_costs_stay_exact() -> None:
    with pytest.raises(GraphError, match=r"2\^60 bytes"):
        compile_stream(EventStream((Constant("x", 2**60),)))
    with pytest.raises(GraphError, match=r"2\^53"):
        compile_stream(EventStream((Call("f", (), (Result("y", 1),), 2**53),)))
