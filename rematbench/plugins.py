"""Strategies as choices of Hydra's group ``strategy``: each one's options are its node."""

from __future__ import annotations

from hydra.core.config_store import ConfigStore

from rematbench.graphs.errors import ConfigError
from rematbench.strategies.registry import GROUP, Entry, registered


def register_strategies() -> None:
    """Make each strategy, ours or another distribution's, a choice ``strategy=NAME``."""
    store = ConfigStore.instance()
    for name, entry in registered().items():
        store.store(group="strategy", name=name, node=_node(entry), provider=GROUP)


def _node(entry: Entry) -> dict[str, object]:
    try:
        return {"_target_": entry.path, **entry.defaults}
    except ConfigError:  # said when the strategy is chosen, rather than by every command
        return {"_target_": entry.path}
