"""Sizes for people, and from them: bytes, and pixels of images."""

from __future__ import annotations

from rematbench.base.errors import ConfigError


def size(count: float | None) -> str:
    """Bytes for people.

    >>> size(3 * 2**29)
    '1.50 GiB'
    """
    if count is None:
        return ""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while count >= 1000 and len(units) > 1:
        count /= 1024
        del units[0]
    digits = 0 if units[0] == "B" or count >= 100 else 1 if count >= 10 else 2
    return f"{count:.{digits}f} {units[0]}"


def image_size(resolution: int | str | None, default: int | str) -> tuple[int, int]:
    """Height and width from ``224`` or ``"416x608"``.

    Raises:
        ConfigError: neither form.
    """
    given = default if resolution is None else resolution
    parts = str(given).lower().split("x")
    if len(parts) in (1, 2) and all(part.isdecimal() and int(part) > 0 for part in parts):
        return int(parts[0]), int(parts[-1])
    raise ConfigError(f"resolution={given}: give pixels such as 224, or 416x608 (height x width)")
