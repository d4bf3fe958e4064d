"""Budgets: the allowed peak, in bytes or as a fraction of checkpoint-all's simulated peak."""

from __future__ import annotations

import re
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, TypeVar

from rematbench.base.errors import BudgetError, ConfigError
from rematbench.base.limits import BYTES_TOLD, MOST_BYTES, shown

_UNITS = {
    **{"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12},
    **{"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40},
}
_LEAST_SCIENTIFIC = 1000.0
"""Whole floats from here on are bytes: ``1e3``. Below, one is likelier a fraction gone wrong."""
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[a-z]+)", re.IGNORECASE)
Number = TypeVar("Number", int, float)
_REMEDY = (
    "give null, a fraction such as 0.5 (above 0, up to 1.0), or bytes such as 123456789 or 8GiB"
)


@dataclass(frozen=True, slots=True)
class Budget:
    """Exactly one of the two is set; neither means no limit."""

    bytes: int | None = None
    fraction: float | None = None

    def __str__(self) -> str:
        return str(self.bytes if self.fraction is None else self.fraction)

    def of(self, checkpoint_all_peak: int) -> int | None:
        """The budget in bytes."""
        if self.fraction is not None:
            return int(self.fraction * checkpoint_all_peak)
        return self.bytes


def parse_budget(given: Any) -> Budget:
    """Read a budget as it stands on the command line.

    >>> parse_budget("8GiB").bytes
    8589934592
    >>> parse_budget(0.5).fraction
    0.5
    >>> parse_budget(1e3).bytes
    1000

    Numbers may be NumPy's.

    Raises:
        BudgetError: anything but null, a fraction, or a positive number of bytes; or the integer
            1, which may mean either.
    """
    if given is None:
        return Budget()
    given = plain_number(given)
    if type(given) is int and given == 1:
        raise BudgetError("budget=1: one byte, or everything? give 1B or 1.0")
    if type(given) is int and given > 0:
        return Budget(bytes=_allowed(given, given))
    if type(given) is float and 0 < given <= 1:
        return Budget(fraction=given)
    if type(given) is float and given.is_integer() and given >= _LEAST_SCIENTIFIC:
        return Budget(bytes=int(_allowed(given, given)))
    if isinstance(given, str) and (match := _SIZE.fullmatch(given.strip())):
        factor = _UNITS.get(match["unit"].lower())
        if factor and (size := float(match["number"]) * factor) >= 1:
            return Budget(bytes=int(_allowed(given, size)))
    raise BudgetError(f"budget={given}: not a budget; {_REMEDY}")


def plain_number(given: Any) -> Any:
    """An int or a float of NumPy's, or of any other library's, as Python's; else as it is."""
    if isinstance(given, Integral) and not isinstance(given, bool):
        return int(given)
    return float(given) if isinstance(given, Real) and not isinstance(given, Integral) else given


def _label(given: Any) -> str:
    return given if isinstance(given, str) else shown(given)


def _allowed(given: Any, size: Number) -> Number:
    if size > MOST_BYTES:
        raise BudgetError(f"budget={_label(given)}: too large; {BYTES_TOLD}")
    return size


def parse_bytes(key: str, given: Any) -> int:
    """Read a positive number of bytes as it stands on the command line.

    >>> parse_bytes("memory", "8GiB")
    8589934592

    Raises:
        ConfigError: it is none; names ``key``.
    """
    try:
        found = given if type(given) is int and given == 1 else parse_budget(given).bytes
    except BudgetError:
        found = None
    if found is None:
        raise ConfigError(
            f"{key}={_label(given)}: give bytes such as 17179869184 or 16GiB; {BYTES_TOLD}"
        )
    return found
