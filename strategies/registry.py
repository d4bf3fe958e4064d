"""Strategies by name: ours, those of other distributions, and aliases that preset options.

Nothing here imports a strategy before it is asked for: names and options are known without.
Other distributions register theirs through the entry-point group ``rematbench.strategies``: an
entry point ``name = "package.module:Class"`` is treated like a line of :data:`OURS`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from rematbench.base import imports
from rematbench.base.checks import did_you_mean
from rematbench.base.errors import ConfigError
from rematbench.base.options import Option, options_of

GROUP = "rematbench.strategies"
OURS = MappingProxyType(
    {
        "anytime": "rematbench.strategies.anytime.planner.Anytime",
        "anytime_joint": "rematbench.strategies.anytime_joint.planner.AnytimeJoint",
        "ap_greedy": "rematbench.strategies.chen.planner.ApGreedy",
        "ap_revolve": "rematbench.strategies.revolve.planner.ApRevolve",
        "ap_sqrt": "rematbench.strategies.chen.planner.ApSqrt",
        "chain_dp": "rematbench.strategies.chain_dp.planner.ChainDp",
        "checkmate_d": "rematbench.strategies.checkmate.compared.CheckmateCompared",
        "checkmate_ilp": "rematbench.strategies.checkmate.ilp.CheckmateIlp",
        "checkmate_rounding": "rematbench.strategies.checkmate.rounding.CheckmateRounding",
        "checkpoint_all": "rematbench.strategies.checkpoint_all.planner.CheckpointAll",
        "chen_greedy": "rematbench.strategies.chen.planner.ChenGreedy",
        "chen_sqrt": "rematbench.strategies.chen.planner.ChenSqrt",
        "coop": "rematbench.strategies.coop.planner.Coop",
        "dtr": "rematbench.strategies.dtr.planner.Dtr",
        "equiv_chain": "rematbench.strategies.joins.planner.EquivChain",
        "every_layer": "rematbench.strategies.practice.planner.EveryLayer",
        "every_n_layers": "rematbench.strategies.practice.planner.EveryNLayers",
        "feng_huang": "rematbench.strategies.feng_huang.planner.FengHuang",
        "gist": "rematbench.strategies.gist.planner.Gist",
        "hierarchical": "rematbench.strategies.hierarchical.planner.Hierarchical",
        "join_dp": "rematbench.strategies.joins.planner.JoinDp",
        "kusumoto": "rematbench.strategies.kusumoto.planner.Kusumoto",
        "linearized_greedy": "rematbench.strategies.chen.planner.LinearizedGreedy",
        "linearized_sqrt": "rematbench.strategies.chen.planner.LinearizedSqrt",
        "moccasin": "rematbench.strategies.moccasin.planner.Moccasin",
        "monet": "rematbench.strategies.monet.planner.Monet",
        "random_checkpoints": "rematbench.strategies.feng_huang.random_checkpoints"
        ".RandomCheckpoints",
        "rockmate": "rematbench.strategies.rockmate.planner.Rockmate",
        "revolve": "rematbench.strategies.revolve.planner.Revolve",
        "save_dots": "rematbench.strategies.practice.planner.SaveDots",
        "selective_attention": "rematbench.strategies.practice.planner.SelectiveAttention",
        "selective_ops": "rematbench.strategies.practice.planner.SelectiveOps",
        "sac_ilp": "rematbench.strategies.sac_ilp.planner.SacIlp",
        "torch_budget": "rematbench.strategies.torch_budget.planner.TorchBudget",
        "torch_checkpoint": "rematbench.strategies.torch_checkpoint.planner.TorchCheckpoint",
        "torch_knapsack": "rematbench.strategies.torch_knapsack.planner.TorchKnapsack",
        "xla_remat": "rematbench.strategies.xla_remat.planner.XlaRemat",
    }
)
"""Where the class of each of our strategies is."""


@dataclass(frozen=True)
class Entry:
    """A strategy that can be chosen by name.

    Attributes:
        name: as in ``strategy=name``.
        path: of its class, a dataclass whose fields are the options.
        presets: options whose defaults an alias replaces.
        source: the distribution that registers it.
    """

    name: str
    path: str
    presets: Mapping[str, Any]
    source: str = "rematbench"

    @functools.cached_property
    def options(self) -> tuple[Option, ...]:
        """Its options, with the presets as defaults.

        Raises:
            ConfigError: its class cannot be read.
        """
        try:
            found = options_of(self.path)
        except ConfigError as error:
            if self.source == "rematbench":
                raise
            raise ConfigError(
                f"strategy {self.name!r} of {self.source} cannot be loaded ({error}); "
                "repair or uninstall that distribution"
            ) from error
        return tuple(option.preset(self.presets) for option in found)

    @property
    def defaults(self) -> dict[str, Any]:
        """Each option's default."""
        return {option.name: option.default for option in self.options}


@functools.cache
def registered() -> Mapping[str, Entry]:
    """All strategies that are classes of their own, by name; ours come before others' of the name.

    Aliases are not among them: :func:`entry` and :func:`names` know these, too.
    """
    theirs = {
        name: Entry(name, found.path, {}, found.source)
        for name, found in imports.registered_in(GROUP).items()
    }
    ours = {name: Entry(name, path, {}) for name, path in OURS.items()}
    return MappingProxyType(dict(sorted((theirs | ours).items())))


@functools.cache
def aliases() -> tuple[str, ...]:
    """Names of the files of ``conf/strategy``: each another strategy with options preset."""
    folder = files("rematbench.conf") / "strategy"
    found = (each.name for each in folder.iterdir()) if folder.is_dir() else ()
    return tuple(sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml")))


def names() -> tuple[str, ...]:
    """Everything that can be chosen by ``strategy=``, in order."""
    return tuple(sorted({*registered(), *aliases()}))


def entry(name: str, where: str | None = None) -> Entry:
    """A strategy by name.

    Args:
        where: what to call it in messages, ``strategy=NAME`` unless said otherwise.

    Raises:
        ConfigError: there is none of that name.
    """
    if name in registered():
        return registered()[name]
    if name in aliases():
        return _alias(name)
    hint = did_you_mean(name, names())
    where = f"strategy={name}" if where is None else where
    raise ConfigError(f"{where}: unknown; {hint}it may be one of: {', '.join(names())}")


def class_of(name: str) -> Any:
    """A strategy's class, by name; imports it.

    Raises:
        ConfigError: there is none of that name, or it cannot be imported.
    """
    return imports.find(entry(name).path, f"strategy={name}")


def make(name: str, **options: Any) -> Any:
    """A strategy object by name.

    Args:
        options: instead of the defaults.

    Raises:
        ConfigError: there is none of that name, or it has no such option.
    """
    found = entry(name)
    known = [option.name for option in found.options]
    for option in options:
        if option not in known:
            accepted = ", ".join(known) or "none"
            raise ConfigError(f"strategy={name}: no option {option}; its options are: {accepted}")
    return class_of(name)(**dict(found.presets) | options)


def quick_planners() -> tuple[Any, ...]:
    """Strategies that plan in no time: our searches begin from their plans where they find none."""
    return tuple(make(name) for name in ("dtr", "ap_greedy", "linearized_greedy"))


def resolve(given: str, where: str) -> Any:
    """A strategy's class with its defaults, by name or by path.

    Args:
        given: ``ap_greedy``, or ``rematbench.strategies.chen.ApGreedy``.
        where: what to call it in messages: ``strategy.inner=ap_greedy``.

    Raises:
        ConfigError: there is none, or it cannot be made without options.
    """
    if given.isidentifier():
        found = entry(given, where)
        kind, presets = imports.find(found.path, where), dict(found.presets)
    else:
        kind, presets = imports.find(given, where), {}
    try:
        return kind(**presets)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {error}") from error


def _alias(name: str) -> Entry:
    """An alias's file: ``defaults: [NAME, _self_]``, and options to preset."""
    import yaml

    content = yaml.safe_load((files("rematbench.conf") / "strategy" / f"{name}.yaml").read_text())
    base = entry(content.pop("defaults")[0])
    return Entry(name, base.path, {**base.presets, **content}, base.source)
