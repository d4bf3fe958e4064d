"""What strategies' rows say of the library's graphs: the library's own, and the leaderboard's.

The leaderboard captures its 46 networks with costs in seconds; the library has them in whole
nanoseconds. Graphs are equal where ops, values and checkpoint-all's peak are, and its cost but for
rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rematbench.graphs.ir import Graph
from rematbench.report.leaderboard.board import OTHER_OPS
from rematbench.rows.row import Row

ROUNDING = 1e-3
"""Costs of checkpoint-all may differ by so much, relatively: each op's is rounded."""
_NANOSECONDS = {"second": 1e9, "nanosecond": 1.0, "ns": 1.0}
_WORDS = {
    **{"infeasible": "none", "not_applicable": "n/a", "time_limit": "time", "thrashed": "none"},
    **{"out_of_memory": "memory", "failed": "failed"},
}
_Shape = tuple[int | None, int | None, int | None]


@dataclass(frozen=True, slots=True)
class StrategyPlan:
    """What a strategy has at a budget of a graph.

    Attributes:
        budget_bytes: that it was given.
        seconds: that it was given; None: not known.
        overhead: of its plan over checkpoint-all (ratio); None: it has none that counts.
        why: what there is instead of an overhead, in a word; empty where there is one.
    """

    strategy: str
    budget_bytes: int
    seconds: float | None
    overhead: float | None
    why: str


class StrategyRows:
    """Rows, found again by their graph.

    Args:
        rows: of any graphs.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._by_shape: dict[_Shape, list[Row]] = {}
        for row in rows:
            shape = row["ops"], row["values"], row["checkpoint_all_peak_bytes"]
            self._by_shape.setdefault(shape, []).append(row)

    def of(self, graph: Graph, peak: int, cost: float) -> Sequence[StrategyPlan]:
        """Those of a graph, of each strategy and budget the one with the cheapest plan.

        Of equal graphs from elsewhere those are left out that run other implementations of ops.

        Args:
            peak: of checkpoint-all, in bytes.
            cost: of checkpoint-all, in the graph's unit.
        """
        found: dict[tuple[str, int], StrategyPlan] = {}
        for row in self._by_shape.get((len(graph.ops), len(graph.values), peak), ()):
            if not _is_of(row, graph, cost) or not row["budget_bytes"]:
                continue
            plan = _plan(row)
            key = plan.strategy, plan.budget_bytes
            if key not in found or _less(plan, found[key]):
                found[key] = plan
        return [*found.values()]


def _is_of(row: Row, graph: Graph, cost: float) -> bool:
    if row["graph_hash"] == graph.hash:
        return True
    if row["strategy"] in OTHER_OPS or not row["checkpoint_all_cost"]:
        return False
    theirs, ours = (_NANOSECONDS.get(str(unit)) for unit in (row["cost_unit"], graph.cost_unit))
    if theirs is None or ours is None:
        return False
    return abs(row["checkpoint_all_cost"] * theirs / (cost * ours) - 1) <= ROUNDING


def _plan(row: Row) -> StrategyPlan:
    ok = row["status"] == "ok"
    moved = ok and row["extra"].get("in_program_order") is False
    return StrategyPlan(
        str(row["strategy"]),
        row["budget_bytes"] or 0,
        row["extra"].get("time_limit"),
        row["overhead"] if ok and not moved else None,
        "moved" if moved else "" if ok else _WORDS.get(str(row["status"]), str(row["status"])),
    )


def _less(one: StrategyPlan, other: StrategyPlan) -> bool:
    if one.overhead is None or other.overhead is None:
        return one.overhead is not None
    return one.overhead < other.overhead


def by_strategy(plans: Iterable[StrategyPlan]) -> Mapping[str, Sequence[StrategyPlan]]:
    """By who made them, by budget; those with the most plans first, then the cheapest ones."""
    found: dict[str, list[StrategyPlan]] = {}
    for plan in sorted(plans, key=lambda each: each.budget_bytes):
        found.setdefault(plan.strategy, []).append(plan)

    def place(name: str) -> tuple[int, float, str]:
        known = [each.overhead for each in found[name] if each.overhead is not None]
        return -len(known), sum(known), name

    return {name: found[name] for name in sorted(found, key=place)}
