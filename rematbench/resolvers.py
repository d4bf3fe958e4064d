"""What configuration files may compute: ``${event_logs:PLACE}``."""

from __future__ import annotations

import re
from pathlib import Path

from omegaconf import OmegaConf

from rematbench.graphs.errors import ConfigError

_ENDINGS = ("*.log", "*.log.gz")
_PLAIN = re.compile(r"[\w./+~@%-]+")


def event_logs(place: str) -> list[str]:
    """The event logs of a folder, by name, as values of an override (quoted where needed).

    Args:
        place: a folder, or a single log.

    Raises:
        ConfigError: there are none.
    """
    if Path(place).is_file():
        return [_quoted(place)]
    found = sorted(path for ending in _ENDINGS for path in Path(place).glob(ending))
    if not found:
        raise ConfigError(
            f"logs={place}: no *.log or *.log.gz there; give a folder that has some, such as "
            "`rematbench-record model=unet out=FOLDER/unet.log.gz` makes"
        )
    return [_quoted(str(path)) for path in found]


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def register_resolvers() -> None:
    """Make the resolvers known to OmegaConf."""
    OmegaConf.register_new_resolver("event_logs", event_logs, replace=True)
