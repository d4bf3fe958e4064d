"""What a host would bring, for ``rematbench-fit link=pcie4 host=64GiB``.

Those of the strategies that can offload have the link, and the others do not: so the rows of one
fit say what offloading brings within the same memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rematbench.base.errors import ConfigError
from rematbench.base.sizes import size
from rematbench.graphs.link_choice import LinkChoice
from rematbench.jobs.settings import Settings
from rematbench.rows.row import Row
from rematbench.strategies.registry import class_of

NO_LINK = LinkChoice()
_HYBRID = "hybrid"


def has_host(settings: Settings) -> bool:
    """Is a link given?

    Raises:
        ConfigError: the host's memory is, and no link.
    """
    if settings.link == NO_LINK and settings.host is not None:
        raise ConfigError(
            f"host={settings.host}: there is no link to it; give link=pcie4, say, or link=25GB/s"
        )
    return settings.link != NO_LINK


def can_offload(name: str) -> bool:
    """Can the plans of a strategy copy to the host?"""
    return bool(class_of(name).traits.offloads)


def offloads(row: Row) -> bool:
    """Does a row's plan copy to the host? One of a strategy that can need not."""
    return bool(row["extra"].get("offloaded_bytes"))


def with_hybrid(names: tuple[str, ...]) -> tuple[str, ...]:
    """The strategies, and our own that offloads."""
    return names if _HYBRID in names else (*names, _HYBRID)


def without_link(settings: Settings) -> Settings:
    """The job, with a link only where its strategy can use it."""
    if settings.link == NO_LINK or can_offload(settings.strategy):
        return settings
    return replace(settings, link=NO_LINK, host=None)


def brought(rows: Sequence[Row], best: int | None) -> list[dict[str, Any]]:
    """Of each strategy that can offload: its plan, and the best one that does not.

    Args:
        rows: of all strategies that were asked.
        best: the number of the best row of those that do not offload; None: none of them fits.
    """
    plain = None if best is None else _facts(rows[best])
    return [
        {**_facts(row), **_moved(row), "without": plain}
        for row in rows
        if can_offload(row["strategy"] or "")
    ]


def _facts(row: Row) -> dict[str, Any]:
    return {key: row[key] for key in ("strategy", "status", "reason", "batch_size", "overhead")}


def _moved(row: Row) -> dict[str, Any]:
    return {key: row["extra"].get(key, 0) for key in ("offloaded_bytes", "host_peak_bytes")}


def said(found: Sequence[Mapping[str, Any]], largest_batch: bool) -> Iterator[str]:
    """One line for each strategy that can offload.

    Args:
        found: as :func:`brought` has it.
        largest_batch: batches are compared, too.
    """
    for each in found:
        plain = each["without"]
        other = "no plan fits" if plain is None else f"{_result(plain, largest_batch)}"
        other += "" if plain is None else f" ({plain['strategy']})"
        if each["status"] != "ok":
            yield f"{each['strategy']}, offloading: no plan ({each['status']}); without: {other}"
            continue
        moved = "nothing to the host"
        if each["offloaded_bytes"]:
            moved = f"{size(each['offloaded_bytes'])} to the host"
            moved += f", {size(each['host_peak_bytes'])} of them at once"
        mine = _result(each, largest_batch)
        yield f"{each['strategy']}, offloading: {mine} ({moved}); without: {other}"


def _result(facts: Mapping[str, Any], largest_batch: bool) -> str:
    batch = f"batch {facts['batch_size']}, " if largest_batch else ""
    return f"{batch}overhead {facts['overhead']:+.1%}"
