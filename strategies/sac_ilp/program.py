"""PyTorch's private program, fed with our numbers: the one place that knows its names."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from unittest.mock import patch

import numpy as np

from rematbench.base.clock import planning_seconds
from rematbench.base.errors import NotApplicable
from rematbench.graphs.ir import Graph
from rematbench.strategies.sac_ilp.modules import Module, ModuleTree

GIB = 2**30
# Their times are in milliseconds and enter as such: the model's forward pass becomes this many.
_MILLISECONDS = 100.0
# An op without cost takes this share of the forward pass: their program divides by times.
_LEAST = 1e-9
# Of its solver, at least: 0 would be no limit.
_LEAST_SECONDS = 0.1
# Points of a trade-off that two lines can be fitted to.
_FEWEST = 4


@dataclass(frozen=True)
class Decision:
    """What the program chose.

    Attributes:
        discarded: per checkpointed module, the share of its activations that is dropped.
        peak_bytes: by the program's own model.
    """

    discarded: dict[str, float]
    peak_bytes: int


class SacProgram:
    """``sac_milp`` for one graph.

    Args:
        graph: a training step.
        tree: its modules.
        random: names of the ops that draw random numbers: all or none of a module's are repeated.
        seed: of the fits of lines to trade-offs.

    Raises:
        NotApplicable: pulp or pwlf is missing.
    """

    def __init__(self, graph: Graph, tree: ModuleTree, random: Collection[str], seed: int) -> None:
        require()
        self._graph, self._tree = graph, tree
        self._random, self._seed = frozenset(random), seed
        self._fits: dict[object, Any] = {}

    def solve(self, budget: int, deadline: float) -> Decision | None:
        """The program's choice for a budget in bytes; None where it finds none.

        Args:
            deadline: of its solver, by :func:`~rematbench.base.clock.planning_seconds`.
        """
        from torch.distributed._tools import sac_ilp

        solver = sac_ilp.PULP_CBC_CMD

        def bounded(**options: Any) -> Any:
            left = max(_LEAST_SECONDS, deadline - planning_seconds())
            return solver(**options | {"timeLimit": min(options.get("timeLimit", left), left)})

        with (
            _quiet("torch.distributed._tools.sac_ilp"),
            patch.object(sac_ilp, "PULP_CBC_CMD", bounded),
        ):
            discarded, _, peak = sac_ilp.sac_milp(self._modules, budget / GIB)
        return None if peak < 0 else Decision(discarded, peak)

    def recomputed(self, module: Module, share: float) -> list[int]:
        """Ops of a module to run again, in its estimator's greedy order: ``share`` of its bytes."""
        stats, order = self._greedy(module)
        total, gone, found = sum(stats.memory), 0, set(order.recomputed_ops)
        for each in order.msps_meta:
            # Shares are rounded to four digits by the program.
            if gone >= (share - 1e-4) * total:
                break
            gone += each.memory
            found |= {each.op_idx} | order.random_ops_group.get(each.op_idx, set())
        return [module.ops[i] for i in sorted(found)]

    @cached_property
    def _modules(self) -> Any:
        from torch.distributed._tools.ilp_utils import parse_module_info

        names = [module.name for module in self._tree.modules]
        orders = {"fw_pre_order": names, "fw_post_order": list(self._tree.ended)}
        orders |= {"bw_pre_order": names[::-1], "bw_post_order": list(self._tree.ended)[::-1]}
        known = [self._stats(module) for module in self._tree.modules]
        return parse_module_info({"mod_order": orders, "mod_stats": known})

    def _stats(self, module: Module) -> dict[str, Any]:
        """What ``aggregate_stats`` collects of a module."""
        # Whatever is resident is there all the time, as their parameters are.
        parameters = self._graph.resident_bytes
        times = self._times(module)
        fit = None if module.is_leaf else self._fit(module)
        return {
            "fqn": module.name,
            "param_per_module": parameters,
            "grad_per_module": 0,
            "grad_total": module.gradients,
            "act_fw_per_module": module.kept,
            "act_bw_per_module": 0,
            "act_grad_per_module": module.transient,
            "act_total": module.live,
            "input_per_module": 0,
            "output_per_module": module.output,
            "fw_runtime_per_module": sum(times),
            "bw_runtime_per_module": 0.0,
            "is_leaf": fit is None,
            "sac_runtime": fit.sac_runtime if fit else 0.0,
            "sac_memory": fit.sac_memory if fit else 0,
            "n_segments": fit.n_segments if fit else 0,
            "slopes": fit.slopes if fit else [],
            "intercepts": fit.intercepts if fit else [],
            "breakpoints": fit.fit_breaks if fit else [],
            "tradeoff_curve": fit.tradeoff_curve if fit else {},
        }

    @cached_property
    def _unit(self) -> float:
        """Milliseconds of a unit of cost."""
        total = sum(self._graph.ops[op].cost for op in self._tree.modules[0].ops)
        return _MILLISECONDS / total if total else 0.0

    def _times(self, module: Module) -> list[float]:
        least = _LEAST * _MILLISECONDS
        return [max(least, self._graph.ops[op].cost * self._unit) for op in module.ops]

    def _greedy(self, module: Module) -> tuple[Any, Any]:
        """A module's ops as their estimator sees them, and in which order it would drop them."""
        from torch.distributed._tools.sac_estimator import SACEstimator, SACStats

        tables = self._graph.tables
        names = [self._graph.ops[op].name for op in module.ops]
        stats = SACStats(
            func_names=names,
            runtimes=self._times(module),
            memory=[int(tables.value_bytes[tables.writes[op]].sum()) for op in module.ops],
            view_like_ops=[],
            rand_ops=[i for i, name in enumerate(names) if name in self._random],
            saved_autograd_ops=[],
            inplace_ops=[],
            force_store_random=False,
        )
        return stats, SACEstimator()._get_greedy_order_meta(stats)

    def _fit(self, module: Module) -> Any:
        """The trade-off between bytes and time of a module, as lines; None without bytes."""
        from torch.distributed._tools.sac_estimator import SACEstimator, SACTradeOffStats

        stats, order = self._greedy(module)
        if not sum(stats.memory):
            return None
        alike = (tuple(stats.memory), tuple(stats.runtimes), tuple(stats.rand_ops))
        if alike not in self._fits:
            if len(order.msps_meta) < _FEWEST:
                self._fits[alike] = SACTradeOffStats(
                    1, [1.0], [0.0], [0.0, 1.0], {}, sum(stats.memory), sum(stats.runtimes)
                )
            else:
                with _seeded(self._seed):
                    fitted = SACEstimator()._get_sac_tradeoff_pwlf_stats(stats, order)
                self._fits[alike] = fitted
        return self._fits[alike]


def require() -> None:
    """Raise NotApplicable, which names the extra, unless pulp and pwlf are there."""
    missing = [name for name in ("pulp", "pwlf") if importlib.util.find_spec(name) is None]
    if missing:
        raise NotApplicable(
            f"sac_ilp needs {' and '.join(missing)}, which PyTorch's program imports and which "
            "is not installed; install it with pip install 'rematbench[sac]'"
        )


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Without a logger's messages (the row says where there is no plan) and pulp's warnings."""
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of what pulp 4 will not have
            yield
    finally:
        logger.disabled = before


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """The fit of lines draws from numpy's global generator, which is left as it was."""
    before = np.random.get_state()
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        np.random.set_state(before)
