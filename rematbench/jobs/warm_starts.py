"""Plans of a sweep's finished jobs as warm starts of later ones (``strategy.known=sweep``)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rematbench.base.errors import ConfigError
from rematbench.jobs.first_row import first_row
from rematbench.jobs.settings import Settings
from rematbench.rows.row import Row, cells, costs_of, read_row

SWEEP = "sweep"
_SAME = ("model", "batch_size", "resolution", "strategy", "threads")


def with_known_plans(settings: Settings, folder: Path) -> Settings:
    """The job with the plans of its sweep's earlier jobs for the same model and costs.

    Where budgets come upwards, and ablations before what contains them, their costs then fall
    in that order.

    Args:
        folder: run directory; jobs of a sweep have theirs side by side, named by number.

    Raises:
        ConfigError: the strategy takes no warm starts, or an earlier row is damaged.
    """
    if settings.options.get("known") != SWEEP:
        return settings
    # Not before: planners take compilers and solvers with them.
    from rematbench.graphs.planning import SupportsWarmStart
    from rematbench.jobs.task import make_strategy

    settings = replace(settings, options=settings.options | {"known": []})
    strategy = make_strategy(settings)
    if not isinstance(strategy, SupportsWarmStart):
        raise ConfigError(f"strategy.known=sweep: strategy={settings.strategy} takes no plans")
    ours, number = first_row(settings), int(folder.name) if folder.name.isdecimal() else 0
    before = [folder.parent / str(earlier) for earlier in range(number)]
    rows = {job: read_row(job / "row.json") for job in before if (job / "plan.json").exists()}
    known = [
        str(job / "plan.json")
        for job, row in rows.items()
        if _is_same(ours, row) and row["variant"] in strategy.contained
    ]
    return replace(settings, options=settings.options | {"known": known})


def _is_same(ours: Row, theirs: Row) -> bool:
    same = all(cells(theirs)[column] == cells(ours)[column] for column in _SAME)
    extra = (row["extra"] for row in (ours, theirs))
    details = [(each.get("accounting"), each.get("options")) for each in extra]
    same &= costs_of(ours) == costs_of(theirs) and details[0] == details[1]
    return same and theirs["status"] == "ok"
