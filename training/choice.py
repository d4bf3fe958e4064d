"""What people give as a plan: a plan, its file, or a strategy: object, class or name."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from rematbench.base.errors import ConfigError
from rematbench.graphs.files import read_plan
from rematbench.graphs.plan import Plan
from rematbench.graphs.planning import Strategy


def plan_or_strategy(given: Any) -> Plan | Strategy:
    """The plan, or the strategy object, that was meant.

    Raises:
        ConfigError: it is none, or no strategy (nor a file) has its name.
        PlanError: the file is no plan.
    """
    if isinstance(given, str) and given.isidentifier() and not Path(given).is_file():
        given = _by_name(given)
    if isinstance(given, (str, Path)):
        return read_plan(given)
    if isinstance(given, type):
        given = _made(given)
    if isinstance(given, (Plan, Strategy)):
        return given
    raise ConfigError(
        f"{given!r} is no plan; give a Plan, the path of a plan file, or a strategy such as "
        '"ap_greedy" or rematbench.strategies.chen.ApGreedy()'
    )


def _by_name(name: str) -> Any:
    # Only what is named is imported: a step must not need every strategy's libraries.
    from rematbench.strategies import registry

    if name not in registry.names():
        try:
            registry.entry(name, f"plan {name!r}")
        except ConfigError as error:
            raise ConfigError(f"{error}; nor is there a plan file of that name") from None
    return registry.make(name)


def _made(kind: type[Any]) -> Any:
    """A class of strategies, with its defaults."""
    try:
        inspect.signature(kind).bind()
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{kind.__name__} cannot be made without arguments ({error}); give an object of it"
        ) from error
    return kind()
