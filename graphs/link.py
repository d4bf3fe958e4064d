"""The link between a device and its host: how fast values are copied out and in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType
from typing import Any

from rematbench.base.errors import ConfigError
from rematbench.base.limits import shown

_RATE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kmgt]?i?b)/s", re.IGNORECASE)
_UNITS = MappingProxyType(
    {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
    | {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
)


@dataclass(frozen=True, slots=True)
class Link:
    """A link; without bandwidth in a direction there is no such link.

    Attributes:
        out, into: bytes per cost unit from device to host, and back; 0: no such link.
        latency: cost units per copy, beside its bytes.
        shared: does one engine copy in both directions?

    Raises:
        ConfigError: a number is negative or not finite.
    """

    out: float = 0.0
    into: float = 0.0
    latency: float = 0.0
    shared: bool = False

    def __post_init__(self) -> None:
        for key, value in (("out", self.out), ("in", self.into), ("latency", self.latency)):
            if not (isfinite(value) and value >= 0):
                raise ConfigError(f"link.{key}={value}: give a finite number, 0 or more")

    def copy_out(self, size: int) -> float:
        """Cost units that a copy of ``size`` bytes to the host takes."""
        return self.latency + size / self.out

    def copy_in(self, size: int) -> float:
        """Cost units that a copy of ``size`` bytes from the host takes."""
        return self.latency + size / self.into

    @property
    def both(self) -> bool:
        """Can a value go to the host and come back?"""
        return self.out > 0 and self.into > 0


NONE = Link()
LATENCY = 1e-5
"""Seconds per asynchronous copy: our estimate; it matters below 1 MB."""
LINKS = MappingProxyType(
    {
        "none": NONE,
        "pcie3": Link(12e9, 12e9, LATENCY),  # POFO's V100; gearshifft#82: 12.9 out, 12.2 in
        "pcie4": Link(25e9, 25e9, LATENCY),  # A100: nvbandwidth#42, #53
        "pcie5": Link(52.8e9, 55.6e9, LATENCY),  # H100: nvbandwidth#24
        "c2c": Link(294e9, 346e9, LATENCY),  # GH200: nvbandwidth#23, out about 15 % less
    }
)
"""Measured with pinned memory: bytes per second out and in."""
GIVEN = "given"
"""A link all of whose numbers are the user's."""


def rate(key: str, given: Any) -> tuple[float, bool]:
    """A bandwidth, and whether it is one per second.

    >>> rate("link", "1GB/s"), rate("link.out", 25)
    ((1000000000.0, True), (25.0, False))

    Raises:
        ConfigError: it is none; names ``key``.
    """
    if isinstance(given, str) and (match := _RATE.fullmatch(given.strip())):
        return float(match["number"]) * _UNITS[match["unit"].lower()], True
    if not isinstance(given, bool) and isinstance(given, int | float) and 0 <= given < 1e30:
        return float(given), False
    told = given if isinstance(given, str) else shown(given)
    raise ConfigError(
        f"{key}={told}: no bandwidth; give bytes per second such as 25GB/s, or a number of bytes "
        "per cost unit, 0 or more"
    )
