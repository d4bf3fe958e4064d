"""What people write into ``torch.compile(..., backend="rematbench", options={...})``."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rematbench import costmodel as costs
from rematbench.base.cache_dirs import FOR_THE_USER, cache_root
from rematbench.base.checks import did_you_mean, flag, one_of, seconds, whole
from rematbench.base.errors import ConfigError
from rematbench.graphs.budget import Budget, parse_budget, parse_bytes
from rematbench.graphs.files import plan_document
from rematbench.graphs.plan import Plan
from rematbench.graphs.planning import Strategy
from rematbench.training.choice import plan_or_strategy
from rematbench.training.compiled.patience import GAP
from rematbench.training.host import HostMemory, default_strategy, host_memory

_warn = logging.getLogger(FOR_THE_USER)
EAGER, INDUCTOR = "eager", "inductor"
LOWERINGS = (EAGER, INDUCTOR)
KEEP, PLAN = "keep", "plan"
SEARCHES = ("anytime", "hybrid")
"""Our own, which end when more time cannot pay."""
_REMEDY = 'torch.compile(model, backend="rematbench", options={"budget": "8GiB"})'


@dataclass(frozen=True)
class Options:
    """The options of one compilation.

    Attributes:
        budget: the peak while it runs, parameters and all that the caller holds included.
        plan: a plan, or the strategy that makes it.
        name: of the strategy, for people.
        lower: ``eager``: our generated statements; ``inductor``: Inductor's kernels.
        checkpoint: ``keep``: what is in regions of ``torch.utils.checkpoint`` is computed again as
            the user asked; ``plan``: it is planned like everything else.
        reserve: bytes of the budget for what the graph does not see: optimizer state, parameters
            of parts that are not compiled.
        time_limit: seconds for the strategy.
        patient: it stops earlier, when more time cannot pay.
        replan_seconds: for the plan of a graph that is known at other sizes.
        costmodel: see :func:`rematbench.costmodel.names`.
        seed: of the strategy.
        cache: where plans and profiles are kept; None: nowhere.
        progress: say on standard error what is measured and planned.
        one_plan: all ranks of ``torch.distributed`` run the plan that rank 0 makes.
        offload: where values may wait for the backward pass; None: on the device alone.
    """

    budget: Budget
    plan: Plan | Strategy
    name: str
    lower: str = EAGER
    checkpoint: str = KEEP
    reserve: int = 0
    time_limit: float = 60.0
    patient: bool = False
    replan_seconds: float = 1.0
    costmodel: str = "profiled"
    seed: int = 0
    cache: Path | None = None
    progress: bool = True
    one_plan: bool = True
    offload: HostMemory | None = None

    def key(self) -> dict[str, Any]:
        """What decides a plan besides its graph, its budget and versions."""
        if isinstance(self.plan, Plan):
            plan: Any = plan_document(self.plan)
        else:
            kind = type(self.plan)
            known = asdict(self.plan) if is_dataclass(self.plan) else repr(self.plan)
            plan = [f"{kind.__module__}.{kind.__qualname__}", known]
        text = [plan, self.time_limit, self.seed, self.checkpoint]
        if self.offload is not None:
            text.append(asdict(self.offload))
        return {"options": json.loads(json.dumps(text, default=repr))}


_NAMES = (
    "strategy",
    "graphs",
    "link",
    *(f.name for f in fields(Options) if f.name not in ("plan", "name", "patient")),
)


def read_options(given: Mapping[str, Any] | None, **others: Any) -> Options:
    """Read the options as they were given.

    Args:
        others: what else ``torch.compile`` passed on: ``mode``.

    Raises:
        ConfigError, BudgetError: an unknown option, or a bad value; says what to give.
    """
    if others:
        raise ConfigError(f"{'='.join(map(str, next(iter(others.items()))))}: give {_REMEDY}")
    text = dict(given or {})
    _check_names(text)
    memory = _memory(text.pop("offload", None), text.pop("link", None), text.get("lower"))
    strategy = text.pop("strategy", default_strategy(memory))
    plan = plan_or_strategy(strategy)
    known = {name: read(text[name]) for name, read in _READERS.items() if name in text}
    if known.pop("graphs", None) is not None:
        _warn.warning("rematbench: option graphs is not read: the calls of a step are recorded")
    if "cache" not in text:
        known["cache"] = _cache(True)
    if strategy in SEARCHES:
        plan, known["patient"] = _good_enough(plan), True
    name = strategy if isinstance(strategy, str) else type(plan).__name__
    budget = parse_budget(text.get("budget"))
    return Options(budget=budget, plan=plan, name=name, offload=memory, **known)


def _memory(offload: Any, link: Any, lower: Any) -> HostMemory | None:
    found = host_memory("option offload", offload, link)
    if found is not None and lower == INDUCTOR:
        raise ConfigError(
            'option offload: with lower="inductor" what is saved stays on the device; give '
            'lower="eager", or no offload'
        )
    return found


def _check_names(given: Mapping[str, Any]) -> None:
    for name in given:
        if name not in _NAMES:
            hint = did_you_mean(str(name), _NAMES)
            raise ConfigError(
                f"option {name}: unknown; {hint}it may be one of: {', '.join(_NAMES)}"
            )


def _good_enough(plan: Any) -> Any:
    """The default, which needs no proof to the last digit: who wants one gives an object."""
    return replace(plan, gap=GAP)


def _reserve(given: Any) -> int:
    return 0 if given in (None, 0) else parse_bytes("option reserve", given)


def _seed(given: Any) -> int:
    if type(given) is not int:
        raise ConfigError(f"option seed={given}: give a whole number")
    return given


def _cache(given: Any) -> Path | None:
    if given is True:
        root = cache_root()
        return None if root is None else root / "compiled"
    if given in (False, None):
        return None
    if not isinstance(given, (str, Path)):
        raise ConfigError(f"option cache={given}: give a folder, True or False")
    return Path(given).expanduser()


_READERS: dict[str, Any] = {
    "lower": lambda given: one_of("option lower", given, LOWERINGS),
    "checkpoint": lambda given: one_of("option checkpoint", given, (KEEP, PLAN)),
    "reserve": _reserve,
    "time_limit": partial(seconds, "option time_limit"),
    "replan_seconds": partial(seconds, "option replan_seconds"),
    "costmodel": lambda given: one_of("option costmodel", given, costs.names()[1:]),
    "graphs": lambda given: whole("option graphs", given, 1),
    "seed": _seed,
    "cache": _cache,
    "progress": partial(flag, "option progress"),
    "one_plan": partial(flag, "option one_plan"),
}
