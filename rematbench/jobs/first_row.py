"""What is known of a job's row before anything runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rematbench.conf.published import LIBRARIES
from rematbench.jobs.settings import LAYERED, MEASURED_PEAK, Settings
from rematbench.rows.extra import Extra
from rematbench.rows.provenance import commit, machine, now, versions
from rematbench.rows.row import Row, make_row
from rematbench.strategies.registry import entry, names


def first_row(settings: Settings) -> Row:
    """What is known of a row before anything ran."""
    budget, peak = settings.budget, settings.measured_peak
    resolution = settings.model.get("resolution")
    return make_row(
        model=settings.label,
        batch_size=settings.model.get("batch_size"),
        resolution=None if resolution is None else str(resolution),
        strategy=settings.strategy,
        budget_bytes=budget.bytes if peak is None else budget.of(peak),
        budget_fraction=budget.fraction,
        costmodel=settings.costmodel,
        seed=settings.seed,
        threads=settings.threads or os.cpu_count(),
        versions=versions(*_libraries(settings)),
        commit=commit(),
        utc=now(),
        extra={
            **settings.mark,
            "accounting": settings.accounting,
            "time_limit": settings.time_limit,
            "machine": machine(),
            **({} if peak is None else {"budget_base": MEASURED_PEAK}),
            **_modelled(settings),
            **_optimizer(settings),
            **_options(settings),
        },
    )


def _libraries(settings: Settings) -> tuple[str, ...]:
    """The package that the model is from, where it is not ours."""
    kind = str(settings.model["kind"])
    return (kind,) if kind in LIBRARIES else ()


def _options(settings: Settings) -> Extra:
    """What was given that tells the graph from others of the model, and the plan from others."""
    model = settings.model
    found: Extra = {"strategy_options": _of_strategy(settings)}
    if not found["strategy_options"]:
        del found["strategy_options"]
    if model.get("length"):
        found["length"] = model["length"]
    if model.get("lengths"):
        found["lengths"] = model["lengths"]
    if options := model.get("options") or _of_layers(model):
        found["options"] = options
    return found


def _of_strategy(settings: Settings) -> dict[str, Any]:
    """Of the strategy's options, without known plans, those that are not its defaults."""
    name = settings.strategy
    usual = entry(name).defaults if name in names() else {}
    given = {key: value for key, value in settings.options.items() if key != "known"}
    return {key: value for key, value in given.items() if key not in usual or usual[key] != value}


def _of_layers(model: Mapping[str, Any]) -> dict[str, Any]:
    """Of a random graph what it is drawn by, beside its length."""
    if model["kind"] != "random_layered":
        return {}
    return {key: model[key] for key in LAYERED if key in model and key != "length"}


def _modelled(settings: Settings) -> Extra:
    """The machine whose times the costs are, where they are modelled."""
    return {"preset": settings.preset} if settings.costmodel == "roofline" else {}


def _optimizer(settings: Settings) -> Extra:
    """What was asked of the optimizer, where there is one."""
    if settings.optimizer == "none":
        return {}
    found: Extra = {"optimizer": settings.optimizer}
    if settings.master_weights is not None:
        found["master_weights"] = settings.master_weights
    return found
