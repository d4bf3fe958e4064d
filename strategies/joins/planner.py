"""The join strategies of Beaumont et al.: schedules from Theorem 3, and EQUIV-CHAIN."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from rematbench.base.checks import check_choice, check_count
from rematbench.base.errors import Infeasible, NotApplicable
from rematbench.engines.plans.steps import (
    Action,
    Backward,
    Forward,
    Steps,
    Turn,
    join_steps,
    plan_from_actions,
)
from rematbench.graphs.builders.synthetic import join
from rematbench.strategies.base import Problem, Solution, Traits, cheapest_within
from rematbench.strategies.joins.dp import (
    Costs,
    FloatArray,
    JoinTable,
    chain_table,
    enough_slots,
    smallest_slots,
)


def chain_actions(
    table: FloatArray, branch: int, start: int, length: int, slots: int, u_f: float
) -> Iterator[Action]:
    """PROB(length, slots) (Theorem 1): go back over length + 1 steps from ``start`` on.

    Args:
        table: of :func:`chain_table`.
    """
    if length == 0:
        yield Backward((branch, start))
        return
    if slots == 3:
        for last in range(start + length, start - 1, -1):
            yield from _advance(branch, start, last)
            yield Backward((branch, last))
        return
    ahead = min(
        range(1, length + 1),
        key=lambda i: i * u_f + table[length - i, slots - 1] + table[i - 1, slots],
    )
    yield from _advance(branch, start, start + ahead)
    yield from chain_actions(table, branch, start + ahead, length - ahead, slots - 1, u_f)
    yield from chain_actions(table, branch, start, ahead - 1, slots, u_f)


def _advance(branch: int, start: int, stop: int) -> Iterator[Action]:
    """Forward from ``start`` to ``stop``; the value at ``start`` stays."""
    for step in range(start, stop):
        yield Forward((branch, step), in_place=step > start)


def join_actions(table: JoinTable, slots: int) -> list[Action]:
    """A canonical schedule (Definition 8) of the makespan that Theorem 3 gives."""
    actions: list[Action] = []
    place = [0] * len(table.lengths)
    segments = []
    for branch, ahead, free in table.decisions(slots):
        actions += _advance(branch, place[branch], place[branch] + ahead)
        segments.append((branch, place[branch], ahead - 1, free))
        place[branch] += ahead
    actions.append(Turn())
    for branch, start, length, free in reversed(segments):
        u_f = table.costs.forward
        actions += chain_actions(table.chain, branch, start, length, free, u_f)
    return actions


def equiv_actions(lengths: Sequence[int], slots: int, reading: str) -> tuple[list[Action], float]:
    """EQUIV-CHAIN (section 6): the branches side by side as one chain of k-fold steps.

    Args:
        slots: of the join; the chain has a k-th of them.
        reading: what the paper leaves open. ``join``: Theorem 3 with one branch; ``chain``: a
            sweep to the Turn, then Theorem 1; ``turn``: Theorem 1 alone, whose last backward
            step is the Turn.

    Returns:
        The schedule and its makespan.
    """
    k, longest = len(lengths), max(lengths)
    if not longest:
        return [Turn()], 1.0
    costs = Costs(k, k, 1)
    if reading == "join":
        table = JoinTable((longest,), slots // k, costs)
        return _widen(join_actions(table, slots // k), lengths), table.makespan(slots // k)
    chain = chain_table(longest, slots // k, costs)
    if reading == "chain":  # one sweep to the Turn, and then back over the steps
        back = chain_actions(chain, 0, 0, longest - 1, slots // k, k)
        span = longest * k + 1 + float(chain[longest - 1, slots // k])
        return _widen([*_advance(0, 0, longest), Turn(), *back], lengths), span
    made = chain_actions(chain, 0, 0, longest, slots // k, k)
    turn = Backward((0, longest))  # the last step back is the Turn
    actions = [Turn() if action == turn else action for action in made]
    return _widen(actions, lengths), float(chain[longest, slots // k])


def _widen(actions: Iterable[Action], lengths: Sequence[int]) -> list[Action]:
    """Steps of the equivalent chain as steps of all branches that are long enough.

    Steps are aligned at the turn, as in the paper's Figure 10.
    """
    longest = max(lengths)
    wide: list[Action] = []
    for action in actions:
        if isinstance(action, Turn):
            wide.append(action)
            continue
        for branch, length in enumerate(lengths):
            step = action.place[1] - (longest - length)
            if step < 0:
                continue
            if isinstance(action, Backward):
                wide.append(Backward((branch, step)))
            else:
                wide.append(Forward((branch, step), action.in_place and step > 0))
    return wide


@dataclass(frozen=True)
class JoinDp:
    """Optimal for joins of equal steps (Theorem 3).

    On a captured join each step lies between two places that everything in its branch passes
    through; the theory takes all steps as equal, and ``details`` holds what it planned beside
    what was simulated.

    Attributes:
        slots: the paper's c; None takes the cheapest plan that fits the budget.

    Raises:
        ConfigError: slots below 1.
    """

    traits: ClassVar[Traits] = Traits("partly", "no", "no", budgeted=True)
    slots: int | None = None

    def __post_init__(self) -> None:
        if self.slots is not None:
            check_count("slots", self.slots)

    def warm_up(self) -> None:
        """Compile the programs."""
        type(self)().plan(Problem(join([1, 1])))

    def plan(self, problem: Problem) -> Solution:
        """The schedule of Theorem 3.

        Raises:
            NotApplicable: the graph is no join, or too large for the program.
            Infeasible: fewer slots than c_min, or nothing fits the budget.
        """
        steps = _join(problem)
        lengths = steps.lengths
        least = smallest_slots(lengths, [0] * len(lengths))
        _check_slots(self.slots, least)
        most = enough_slots(lengths) if self.slots is None else self.slots
        table = JoinTable(lengths, most)
        tried = [self.slots] if self.slots is not None else range(least, most + 1)
        return _cheapest(problem, steps, tried, table.makespan, partial(join_actions, table))


@dataclass(frozen=True)
class EquivChain:
    """The paper's baseline: all branches as one chain.

    Attributes:
        slots: of the join; None takes the cheapest plan that fits the budget.
        reading: ``join``, ``chain`` or ``turn``: what the paper leaves open, see
            :func:`equiv_actions`.

    Raises:
        ConfigError: an unknown reading, or slots below 1.
    """

    traits: ClassVar[Traits] = Traits("partly", "no", "no", budgeted=True)
    slots: int | None = None
    reading: Literal["join", "chain", "turn"] = "join"

    def __post_init__(self) -> None:
        check_choice("reading", self.reading, ("join", "chain", "turn"))
        if self.slots is not None:
            check_count("slots", self.slots)

    def warm_up(self) -> None:
        """Compile the programs."""
        type(self)().plan(Problem(join([1, 1])))

    def plan(self, problem: Problem) -> Solution:
        """REV on the equivalent chain, with a k-th of the slots.

        Raises:
            NotApplicable: the graph is no join.
            Infeasible: too few slots for the chain, or nothing fits the budget.
        """
        steps = _join(problem)
        lengths = steps.lengths
        k, longest = len(lengths), max(lengths)
        least = k * (3 if longest > 1 or self.reading == "turn" else 2)
        _check_slots(self.slots, least)
        whole = range(least, k * (longest + 2) + 1, k)
        tried = [self.slots] if self.slots is not None else whole

        def span(c: int) -> float:
            return equiv_actions(lengths, c, self.reading)[1]

        def actions(c: int) -> list[Action]:
            return equiv_actions(lengths, c, self.reading)[0]

        return _cheapest(problem, steps, tried, span, actions, self.reading)


def _join(problem: Problem) -> Steps:
    if problem.graph.loss_index is None:
        raise NotApplicable("the graph has no loss op, so that there is no backward pass to plan")
    return join_steps(problem.graph)


def _check_slots(slots: int | None, least: int) -> None:
    if slots is not None and slots < least:
        raise Infeasible(f"{slots} slots are fewer than c_min; give {least} or more", proven=True)


def _cheapest(
    problem: Problem,
    steps: Steps,
    tried: Iterable[int],
    makespan: Callable[[int], float],
    actions: Callable[[int], list[Action]],
    variant: str | None = None,
) -> Solution:
    made = ((slots, plan_from_actions(steps, actions(slots))) for slots in tried)
    slots, plan, trace, curve = cheapest_within(problem, made)
    facts = {
        "slots": slots,
        "branches": list(steps.lengths),
        "makespan": makespan(slots),
        "c_min": smallest_slots(steps.lengths, [0] * len(steps.lengths)),
        "c_opt": enough_slots(steps.lengths),
        "bytes_per_slot": trace.peak_bytes / slots,
        "curve": curve,
    }
    return Solution(plan, objective=makespan(slots), variant=variant, details=facts)
