"""Every strategy at the tightest budget that it meets, executed.

``python tests/support/tightest.py`` writes runs/reference/executed-strategies.csv: what each
strategy recomputed, and the verdict.
"""

from __future__ import annotations

import csv
import functools
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from rematbench import costmodel, validator
from rematbench.base.errors import Infeasible, NotApplicable
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import simulate
from rematbench.jobs.settings import settings_from
from rematbench.jobs.task import make_strategy
from rematbench.strategies import registry
from rematbench.strategies.base import ChoosesImplementations, Problem, SupportsWarmUp
from rematbench.tracing.alternatives import with_alternatives
from rematbench.tracing.captured import Captured
from rematbench.tracing.trace import capture
from rematbench.zoo import make_model

RECORD = Path(__file__).parents[2] / "runs" / "reference" / "executed-strategies.csv"
# A chain, a network with residual connections, a join, one with attention; the first that the
# strategy applies to. Batches are so large that parameters are a small part of the peak.
MODELS = {
    "mobilenet_v1": {"batch_size": 32, "resolution": 32, "width": 0.25},
    "resnet32": {"batch_size": 32, "resolution": 32, "blocks": 1},
    "siamese": {"batch_size": 4, "resolution": 64},
    "transformer_lm": {
        **{"batch_size": 16, "layers": 3, "width": 32, "heads": 2},
        **{"sequence_length": 32, "vocabulary": 64},
    },
}
FRACTIONS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SECONDS = 3.0
LONGER = {"checkmate_rounding": 60.0}
"""Seconds of those that end by themselves: beside other processes they take some times as long."""
NEVER = {
    "checkpoint_all": "it is ordinary training",
    "gist": "it encodes what waits, and computes nothing twice",
}
"""Strategies whose plans recompute nothing, and why."""
COPIES = ("auto_perf", "offload_all", "offload_dots", "offload_hidden", "poet", "pofo")
"""They need a link: plans that copy to the host are simulated alone so far."""
FIRST = dict.fromkeys(
    ("checkmate_ilp", "checkmate_rounding", "gist", "moccasin", "monet"), "resnet32"
)
"""Half precision loses more than it states in MobileNet's depthwise gradients: terms cancel. CP-SAT
and HiGHS alone find no plan of 225 ops in time."""


def names() -> list[str]:
    """The strategies whose plans can be executed."""
    return [name for name in registry.names() if name not in COPIES]


@dataclass(frozen=True)
class Executed:
    """What became of a strategy's plan.

    Attributes:
        fraction: the budget, of checkpoint-all's peak.
        encodings: ops that run by another implementation than the default.
    """

    strategy: str
    model: str
    fraction: float
    recomputations: int
    encodings: int
    verdict: str
    reason: str


@functools.cache
def captured(name: str) -> Captured:
    """A model, in FLOPs."""
    return _costed(capture(make_model(name, **MODELS[name])))


def _costed(found: Captured) -> Captured:
    return replace(found, graph=costmodel.apply("flops", found.graph, found))


def strategy_of(name: str) -> object:
    """A strategy as ``strategy=name`` makes it."""
    chosen = registry.entry(name)
    config = {
        "model": {"kind": "zoo", "name": "resnet32"},
        "strategy": {"_target_": chosen.path, **chosen.defaults},
        "costmodel": {"name": None, "preset": "v100"},
        "device": {"name": "none", "repeats": 1},
        **{"budget": None, "time_limit": SECONDS, "seed": 0, "accounting": "full"},
        **{"threads": 1, "cache": None, "capture": {"front": "auto"}},
    }
    return make_strategy(settings_from(config, name))


def executed(name: str, least: float = 0.0) -> Executed:
    """A strategy's plan at the smallest of :data:`FRACTIONS` at which it has one, executed.

    Args:
        least: smaller ones are not tried.

    Raises:
        LookupError: it applies to none of :data:`MODELS`, or fits nowhere.
    """
    strategy = strategy_of(name)
    if isinstance(strategy, SupportsWarmUp):
        strategy.warm_up()
    for model in sorted(MODELS, key=lambda model: model != FIRST.get(name)):
        net = captured(model)
        if isinstance(strategy, ChoosesImplementations):
            net = _costed(with_alternatives(net, strategy.kinds, None))
        found = _tightest(strategy, net, LONGER.get(name, SECONDS), least)
        if found is not None:
            fraction, plan = found
            return _run(name, model, fraction, net, plan)
    raise LookupError(f"{name} has no plan for any of {', '.join(MODELS)}")


def _tightest(
    strategy: object, net: Captured, seconds: float, least: float
) -> tuple[float, Plan] | None:
    peak = simulate(net.graph, program_order(net.graph)).peak_bytes
    for fraction in FRACTIONS:
        if fraction < least:
            continue
        problem = Problem(net.graph, int(fraction * peak), seconds, captured=net)
        try:
            plan = strategy.plan(problem).plan  # type: ignore[attr-defined]
        except NotApplicable:
            return None
        except Infeasible:
            continue
        if plan is not None and simulate(net.graph, plan).peak_bytes <= int(fraction * peak):
            return fraction, plan
    return None


def _run(name: str, model: str, fraction: float, net: Captured, plan: Plan) -> Executed:
    trace = simulate(net.graph, plan)
    tables = net.graph.tables
    codes = trace.codes[trace.codes >= 0]
    other = int((codes != tables.op_first[tables.op_of[codes]]).sum())
    found = validator.measure(net, plan, device="cpu", repeats=1)
    verdict, reason = str(found.verdict), found.reason or ""
    return Executed(name, model, fraction, trace.recomputations, other, verdict, reason)


def recorded(path: Path = RECORD) -> list[Executed]:
    """The rows of the table."""
    with path.open(newline="") as file:
        return [
            Executed(
                **(row | {"fraction": float(row["fraction"])})  # type: ignore[arg-type]
                | {key: int(row[key]) for key in ("recomputations", "encodings")}
            )
            for row in csv.DictReader(file)
        ]


def write(rows: Iterable[Executed], path: Path = RECORD) -> None:
    """The table, as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Executed)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


if __name__ == "__main__":
    rows = []
    for strategy_name in sys.argv[1:] or names():
        rows.append(executed(strategy_name))
        print(rows[-1], flush=True)
    if not sys.argv[1:]:
        write(rows)
