"""What other distributions and we register, as choices of Hydra's groups."""

from __future__ import annotations

from hydra.core.config_store import ConfigStore

from rematbench.base.errors import ConfigError
from rematbench.costmodel import plugins as costmodels
from rematbench.strategies.registry import GROUP, Entry, registered


def register_plugins() -> None:
    """Make strategies and others' cost models choices: ``strategy=NAME``, ``costmodel=NAME``.

    A strategy's options are its node.
    """
    store = ConfigStore.instance()
    for name, entry in registered().items():
        store.store(group="strategy", name=name, node=_node(entry), provider=GROUP)
    for name in costmodels.registered():
        node = {"name": name, "preset": "v100"}
        store.store(group="costmodel", name=name, node=node, provider=costmodels.GROUP)


def _node(entry: Entry) -> dict[str, object]:
    try:
        return {"_target_": entry.path, **entry.defaults}
    except ConfigError:  # said when the strategy is chosen, rather than by every command
        return {"_target_": entry.path}
