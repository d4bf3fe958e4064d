"""What people write into ``torch.compile(..., backend="rematbench", options={...})``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from rematbench import costmodel as costs
from rematbench.base.cache_dirs import cache_root
from rematbench.base.checks import did_you_mean
from rematbench.base.errors import ConfigError
from rematbench.graphs.budget import Budget, parse_budget, parse_bytes
from rematbench.graphs.files import plan_document
from rematbench.graphs.plan import Plan
from rematbench.graphs.planning import Strategy
from rematbench.training.choice import plan_or_strategy

EAGER, INDUCTOR = "eager", "inductor"
LOWERINGS = (EAGER, INDUCTOR)
_REMEDY = 'torch.compile(model, backend="rematbench", options={"budget": "8GiB"})'


@dataclass(frozen=True)
class Options:
    """The options of one compilation.

    Attributes:
        budget: the peak while it runs, parameters and all that the caller holds included.
        plan: a plan, or the strategy that makes it.
        name: of the strategy, for people.
        lower: ``eager``: our generated statements; ``inductor``: Inductor's kernels.
        reserve: bytes of the budget for what the graph does not see: optimizer state, parameters
            of parts that are not compiled.
        time_limit: seconds for the strategy.
        costmodel: see :func:`rematbench.costmodel.names`.
        graphs: how many calls of compiled graphs have to share the budget: pending at once.
        seed: of the strategy.
        cache: where plans and profiles are kept; None: nowhere.
        progress: say on standard error what is measured and planned.
    """

    budget: Budget
    plan: Plan | Strategy
    name: str
    lower: str = EAGER
    reserve: int = 0
    time_limit: float = 60.0
    costmodel: str = "profiled"
    graphs: int = 1
    seed: int = 0
    cache: Path | None = None
    progress: bool = True

    def key(self) -> dict[str, Any]:
        """What decides a plan besides its graph, its budget and versions."""
        if isinstance(self.plan, Plan):
            plan: Any = plan_document(self.plan)
        else:
            kind = type(self.plan)
            known = asdict(self.plan) if is_dataclass(self.plan) else repr(self.plan)
            plan = [f"{kind.__module__}.{kind.__qualname__}", known]
        told = [plan, self.time_limit, self.graphs, self.seed]
        return {"options": json.loads(json.dumps(told, default=repr))}


_NAMES = ("strategy", *(f.name for f in fields(Options) if f.name not in ("plan", "name")))


def read_options(given: Mapping[str, Any] | None, **others: Any) -> Options:
    """Read the options as they were given.

    Args:
        others: what else ``torch.compile`` passed on: ``mode``.

    Raises:
        ConfigError, BudgetError: an unknown option, or a bad value; says what to give.
    """
    if others:
        raise ConfigError(f"{'='.join(map(str, next(iter(others.items()))))}: give {_REMEDY}")
    told = dict(given or {})
    for name in told:
        if name not in _NAMES:
            hint = did_you_mean(str(name), _NAMES)
            raise ConfigError(
                f"option {name}: unknown; {hint}it may be one of: {', '.join(_NAMES)}"
            )
    strategy = told.pop("strategy", "anytime")
    plan = plan_or_strategy(strategy)
    name = strategy if isinstance(strategy, str) else type(plan).__name__
    budget = parse_budget(told.pop("budget", None))
    known = {key: _read(key, value) for key, value in {"cache": True, **told}.items()}
    return Options(budget=budget, plan=plan, name=name, **known)


def _is_number(given: Any) -> bool:
    return isinstance(given, (int, float)) and not isinstance(given, bool)


_GOOD: dict[str, tuple[Callable[[Any], bool], str]] = {
    "lower": (lambda given: given in LOWERINGS, " or ".join(LOWERINGS)),
    "time_limit": (lambda given: _is_number(given) and given > 0, "seconds above 0"),
    "graphs": (lambda given: type(given) is int and given >= 1, "a whole number of 1 or more"),
    "seed": (lambda given: type(given) is int, "a whole number"),
    "progress": (lambda given: isinstance(given, bool), "True or False"),
}
"""What an option may be, as a test and in words."""


def _read(name: str, given: Any) -> Any:
    if name in _GOOD and not _GOOD[name][0](given):
        raise ConfigError(f"option {name}={given}: give {_GOOD[name][1]}")
    if name == "time_limit":
        return float(given)
    if name == "reserve":
        return 0 if given in (None, 0) else parse_bytes("option reserve", given)
    if name == "costmodel":
        known = [name for name in costs.names() if name != "given"]
        if given not in known:
            raise ConfigError(f"option costmodel={given}: give one of {', '.join(known)}")
    return _cache(given) if name == "cache" else given


def _cache(given: Any) -> Path | None:
    if given is True:
        root = cache_root()
        return None if root is None else root / "compiled"
    if given in (False, None):
        return None
    if not isinstance(given, (str, Path)):
        raise ConfigError(f"option cache={given}: give a folder, True or False")
    return Path(given).expanduser()
