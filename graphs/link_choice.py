"""The link that people choose: by its name, its bandwidth, or number by number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rematbench.base.checks import flag, one_of
from rematbench.base.errors import ConfigError
from rematbench.graphs.link import GIVEN, LINKS, NONE, Link, rate

NAMES = (*LINKS, GIVEN)
SECOND = "second"
"""The cost unit in which bandwidths per second are bandwidths."""


@dataclass(frozen=True, slots=True)
class LinkChoice:
    """A chosen link.

    Attributes:
        name: none, pcie3, pcie4, pcie5, c2c or given.
        out, into, latency, shared: see :class:`~rematbench.graphs.link.Link`.
        per_second: is any of these per second, or in seconds, so that costs have to be?
    """

    name: str = "none"
    out: float = 0.0
    into: float = 0.0
    latency: float = 0.0
    shared: bool = False
    per_second: bool = False

    def of(self, cost_unit: str) -> Link:
        """The link, for costs in some unit.

        Raises:
            ConfigError: it is per second, and costs are no seconds.
        """
        if self.per_second and cost_unit != SECOND:
            raise ConfigError(
                f"link={self.name}: its bandwidth is per second, and costs are in {cost_unit}; "
                f"give link=given with link.out and link.in in bytes per {cost_unit}, or plan with "
                "costs in seconds (costmodel=roofline or costmodel=profiled)"
            )
        return Link(self.out, self.into, self.latency, self.shared)

    def as_json(self) -> dict[str, Any]:
        """As it stands in a row's ``extra.link``."""
        return {
            "name": self.name,
            "out": self.out,
            "in": self.into,
            "latency": self.latency,
            "shared": self.shared,
        }


def read_link(given: Mapping[str, Any] | None) -> LinkChoice:
    """The link of a configuration's ``link``; None: there is none.

    Raises:
        ConfigError: an unknown name, a bandwidth or latency that is none, or ``given`` without
            bandwidths; names the key.
    """
    if given is None:
        return LinkChoice()
    name = one_of("link", given.get("name"), NAMES)
    preset = LINKS.get(name)
    if preset is NONE:
        for key in ("out", "in", "latency"):
            if given.get(key) is not None:
                raise ConfigError(f"link.{key}={given[key]}: there is no link; give link=given")
        return LinkChoice()
    base = {} if preset is None else {"out": preset.out, "in": preset.into}
    out, out_timed = _bandwidth("out", given, base)
    into, in_timed = _bandwidth("in", given, base)
    latency, timed = _latency(given.get("latency"), preset, out_timed or in_timed)
    shared = flag("link.shared", given.get("shared", False))
    timed = timed or out_timed or in_timed
    Link(out, into, latency, shared)
    return LinkChoice(name, out, into, latency, shared, timed)


def _bandwidth(
    key: str, given: Mapping[str, Any], preset: Mapping[str, float]
) -> tuple[float, bool]:
    """A direction's bandwidth, and whether it is per second."""
    if given.get(key) is not None:
        return rate(f"link.{key}", given[key])
    if key not in preset:
        raise ConfigError(
            f"link=given: link.{key} is missing; give bytes per second such as link.{key}=25GB/s, "
            "or bytes per cost unit"
        )
    return preset[key], True


def _latency(given: Any, preset: Link | None, timed: bool) -> tuple[float, bool]:
    """Cost units per copy, and whether they are seconds."""
    if given is None:
        # A preset's latency is of its bandwidths, not of what replaces both of them.
        return (preset.latency, True) if preset is not None and timed else (0.0, False)
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ConfigError(f"link.latency={given}: give cost units per copy, 0 or more")
    return float(given), False


def chosen_link(given: Any) -> LinkChoice:
    """The link that Python code gives: ``"pcie4"``, ``"25GB/s"``, a :class:`Link`, or a mapping of
    ``out``, ``in``, ``latency`` and ``shared``.

    Raises:
        ConfigError: it is none of these, or as :func:`read_link` does.
    """
    if isinstance(given, LinkChoice):
        return given
    if isinstance(given, Link):
        return LinkChoice(GIVEN, given.out, given.into, given.latency, given.shared)
    if isinstance(given, Mapping):
        unknown = [key for key in given if key not in ("name", *_KEYS)]
        if unknown:
            raise ConfigError(f"link.{unknown[0]}: unknown; give {', '.join(_KEYS)}")
        return read_link({"name": GIVEN, **given})
    if isinstance(given, str) and given.strip().lower().endswith("b/s"):
        return read_link({"name": GIVEN, "out": given, "in": given})
    if given == GIVEN:
        raise ConfigError(
            f'link={GIVEN}: give its numbers: link={{"out": "25GB/s", "in": "25GB/s"}}'
        )
    return read_link({"name": given})


_KEYS = ("out", "in", "latency", "shared")
