"""What DTR can be told (which storage to evict, what to do with dead ones), and what it tells."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, get_args

from rematbench.base.errors import ConfigError
from rematbench.graphs.ir import IntArray
from rematbench.streams.eviction import HEURISTICS, Cost, Heuristic

Dealloc = Literal["none", "eager", "banish"]
Status = Literal["ok", "oom", "thrash", "stopped"]


def heuristic_named(name: str, parts: Mapping[str, Any]) -> Heuristic:
    """The heuristic ``name``, or the ``ablation`` made of some parts.

    Args:
        parts: fields of :class:`Heuristic`; None leaves the default.

    Raises:
        ConfigError: an unknown name, or parts of anything but an ablation.
    """
    given = {key: value for key, value in parts.items() if value is not None}
    if name == "ablation":
        for key in ("staleness", "size"):
            if type(given.get(key, True)) is not bool:
                raise ConfigError(f"strategy.{key}={given[key]}: give true, false or null")
        if given.get("cost", "none") not in get_args(Cost):
            known = ", ".join(get_args(Cost))
            raise ConfigError(f"strategy.cost={given['cost']}: unknown; use one of {known}")
        return Heuristic(**given)
    if name not in HEURISTICS:
        known = ", ".join([*HEURISTICS, "ablation"])
        raise ConfigError(f"strategy.heuristic={name}: unknown; use one of {known}")
    if given:
        key = next(iter(given))
        raise ConfigError(f"strategy.{key}: is of strategy.heuristic=ablation; leave it null")
    return HEURISTICS[name]


@dataclass(frozen=True, slots=True)
class Rules:
    """How a stream is played, but for the budget.

    Attributes:
        heuristic: what to evict.
        dealloc: when the last reference to a storage goes, do nothing (``none``), evict it
            (``eager``) or remove it for good and pin what was made from it (``banish``).
        thrash_limit: give up when the rematerializations cost more than this, less one, times
            all ops; None for no limit.
        seed: of random choices.
    """

    heuristic: Heuristic = HEURISTICS["full"]
    dealloc: Dealloc = "eager"
    thrash_limit: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dealloc not in get_args(Dealloc):
            known = ", ".join(get_args(Dealloc))
            raise ConfigError(f"strategy.dealloc={self.dealloc}: unknown; use one of {known}")
        if self.dealloc == "banish" and self.heuristic.cost == "eqclass":
            raise ConfigError(
                "strategy.dealloc=banish: EqClass is not defined with it (paper, section 5.4); "
                "use eager, or heuristic=full"
            )
        limit = self.thrash_limit
        if limit is not None and (type(limit) not in (int, float) or not limit >= 1):
            raise ConfigError(f"strategy.thrash_limit={limit}: give a number, 1 or more, or null")
        if type(self.seed) is not int or self.seed < 0:
            raise ConfigError(f"strategy.seed={self.seed}: give a whole number, 0 or more, or null")


class Happened(IntEnum):
    """Kinds of records."""

    EVICTED = 0
    COMPUTED = 1
    RECOMPUTED = 2
    BANISHED = 3


_CHUNK = 2**16
_LETTERS = {Happened.EVICTED: "E", Happened.RECOMPUTED: "R", Happened.BANISHED: "B"}


@dataclass(frozen=True)
class Run:
    """What happened.

    Attributes:
        status: ``ok``, ``oom``, ``thrash`` (over the rematerialization limit), or ``stopped``
            by the caller.
        total_compute: the clock at the end; it starts at 1.
        remat_compute: cost of the rematerializations.
        peak_bytes: the largest memory at any op, workspaces included.
        evictions, rematerializations: how many; eager and banishing evictions included, and of
            the outputs of an op only the one that was asked for.
        storage_accesses: how often the heuristic looked at a storage (section 5.5).
        stuck: index of the event where it ended, and the bytes that were wanted there.
        records: rows of (kind, number, clock): a :class:`Happened`, the root tensor (evicted,
            banished) or the tensor, and the clock after it.
    """

    status: Status
    total_compute: int
    remat_compute: int
    peak_bytes: int
    evictions: int
    rematerializations: int
    storage_accesses: int
    stuck: tuple[int, int] | None
    records: IntArray

    @property
    def events_crc32(self) -> str:
        """Of every eviction, rematerialization and banishment, in order: 8 hex digits."""
        crc = 0
        for start in range(0, len(self.records), _CHUNK):
            rows = self.records[start : start + _CHUNK].tolist()
            events = (f"{_LETTERS[k]}{n}@{clock};" for k, n, clock in rows if k in _LETTERS)
            crc = zlib.crc32("".join(events).encode(), crc)
        return f"{crc:08x}"
