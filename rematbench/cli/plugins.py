"""What other distributions and we register, as choices of Hydra's groups."""

from __future__ import annotations

from typing import Any

from hydra.core.config_store import ConfigNode, ConfigStore
from omegaconf import OmegaConf

from rematbench.base.errors import ConfigError
from rematbench.costmodel import plugins as costmodels
from rematbench.strategies.registry import GROUP, Entry, registered


def register_plugins() -> None:
    """Make strategies and others' cost models choices: ``strategy=NAME``, ``costmodel=NAME``.

    A strategy's options are its node.
    """
    store = ConfigStore.instance()
    store.repo["strategy"] = _Strategies.fromkeys(f"{name}.yaml" for name in registered())
    for name in costmodels.registered():
        node = {"name": name, "preset": "v100"}
        store.store(group="costmodel", name=name, node=node, provider=costmodels.GROUP)


class _Strategies(dict[str, Any]):
    """The nodes of Hydra's group: options are read, from source, when a strategy is chosen.

    It is copied and sent to other processes, so that it holds names alone.
    """

    def __getitem__(self, name: str) -> ConfigNode:
        node = OmegaConf.create(_node(registered()[name.removesuffix(".yaml")]))
        return ConfigNode(name, node, "strategy", None, GROUP)


def _node(entry: Entry) -> dict[str, object]:
    try:
        return {"_target_": entry.path, **entry.defaults}
    except ConfigError:  # said when the strategy is chosen, rather than by every command
        return {"_target_": entry.path}
