"""Strategies of other distributions, through the entry-point group ``rematbench.strategies``.

An entry point ``name = "package.module:Class"`` becomes ``strategy=name``. The class is a
dataclass whose fields are the options, as for our own strategies.
"""

from __future__ import annotations

import dataclasses
from importlib.metadata import entry_points
from typing import Any

from hydra.core.config_store import ConfigStore

from rematbench.graphs.errors import ConfigError

GROUP = "rematbench.strategies"


def register_strategies() -> None:
    """Make each registered strategy a choice of the configuration group ``strategy``.

    Raises:
        ConfigError: an entry point cannot be loaded, or is no class.
    """
    for entry in entry_points(group=GROUP):
        try:
            kind = entry.load()
        except Exception as error:
            raise ConfigError(
                f"strategy {entry.name!r} of {entry.value} cannot be loaded ({error}); "
                "repair or uninstall that distribution"
            ) from error
        node: dict[str, Any] = {"_target_": entry.value.replace(":", ".")}
        if dataclasses.is_dataclass(kind):
            node |= {
                f.name: f.default
                for f in dataclasses.fields(kind)
                if f.default is not dataclasses.MISSING
            }
        ConfigStore.instance().store(group="strategy", name=entry.name, node=node, provider=GROUP)
