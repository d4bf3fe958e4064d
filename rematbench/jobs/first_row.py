"""What is known of a job's row before anything runs."""

from __future__ import annotations

import os

from rematbench.conf.published import LIBRARIES
from rematbench.jobs.settings import MEASURED_PEAK, Settings
from rematbench.rows.extra import Extra
from rematbench.rows.provenance import commit, machine, now, versions
from rematbench.rows.row import Row, make_row


def first_row(settings: Settings) -> Row:
    """What is known of a row before anything ran."""
    budget, peak = settings.budget, settings.measured_peak
    resolution = settings.model.get("resolution")
    named = ("length", "lengths", "options")
    details = {key: settings.model[key] for key in named if settings.model.get(key)}
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
            **details,
        },
    )


def _libraries(settings: Settings) -> tuple[str, ...]:
    """The package that the model is from, where it is not ours."""
    kind = str(settings.model["kind"])
    return (kind,) if kind in LIBRARIES else ()


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
