"""The size of images, as people give it."""

from __future__ import annotations

from rematbench.base.errors import ConfigError


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
