"""Strategies by name: those with a card in a folder here, and those of other distributions.

Nothing here imports a planner before it is asked for: names, options and cards are known without.
Other distributions register theirs through the entry-point group ``rematbench.strategies``, by an
entry point ``name = "package.module:Class"``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rematbench import strategies
from rematbench.base import imports
from rematbench.base.checks import did_you_mean
from rematbench.base.errors import ConfigError
from rematbench.base.options import Option, options_of
from rematbench.strategies.cards import Card

GROUP = "rematbench.strategies"
QUICK = ("dtr", "ap_greedy", "linearized_greedy")
"""They plan in no time: our searches begin from their plans where they find none."""


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
def _ours() -> Mapping[str, tuple[str, Card]]:
    """Each of our cards with its strategy's folder, by name: every folder here that has cards."""
    found: dict[str, tuple[str, Card]] = {}
    for place in strategies.__path__:
        for file in sorted(Path(place).glob("*/card.py")):
            folder = f"{strategies.__name__}.{file.parent.name}"
            for card in _module(f"{folder}.card", file).CARDS:
                found[card.name] = folder, card
    return MappingProxyType(found)


def _module(name: str, file: Path) -> Any:
    """A card's module, without the packages around it: those import the planner."""
    if name not in sys.modules:
        spec = spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


@functools.cache
def cards() -> Mapping[str, Card]:
    """The card of each strategy, in the order of every legend.

    A strategy of another distribution has its card in ``card.py`` beside the module that its entry
    point names; without one, it is shown by its name alone.
    """
    theirs = [_theirs(each) for each in registered().values() if each.source != "rematbench"]
    found = [*(card for _, card in _ours().values()), *theirs]
    found.sort(key=lambda card: (card.place is None, card.place or 0, card.name))
    return MappingProxyType({card.name: card for card in found})


def _theirs(entry: Entry) -> Card:
    bare = Card(name=entry.name, problem=f"of {entry.source}")
    module = entry.path.rpartition(".")[0]
    for package in (module, module.rpartition(".")[0]):
        with suppress(ConfigError):
            given: tuple[Card, ...] = imports.find(f"{package}.card.CARDS", entry.name)
            named = [card for card in given if card.name == entry.name]
            return named[0] if named else bare
    return bare


def facts() -> tuple[type, ...]:
    """The TypedDicts of all that strategies may put into a row's ``extra``."""
    return tuple(dict.fromkeys(card.facts for card in cards().values() if card.facts))


@functools.cache
def registered() -> Mapping[str, Entry]:
    """All strategies, by name; ours come before others' of the name."""
    theirs = {
        name: Entry(name, found.path, {}, found.source)
        for name, found in imports.registered_in(GROUP).items()
    }
    ours = {
        name: Entry(name, f"{folder}.{card.planner}", card.presets)
        for name, (folder, card) in _ours().items()
    }
    return MappingProxyType(dict(sorted((theirs | ours).items())))


def names() -> tuple[str, ...]:
    """Everything that can be chosen by ``strategy=``, in order."""
    return tuple(registered())


def entry(name: str, where: str | None = None) -> Entry:
    """A strategy by name.

    Args:
        where: what to call it in messages, ``strategy=NAME`` unless said otherwise.

    Raises:
        ConfigError: there is none of that name.
    """
    if name in registered():
        return registered()[name]
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
    """A strategy of each of :data:`QUICK`."""
    return tuple(make(name) for name in QUICK)


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
