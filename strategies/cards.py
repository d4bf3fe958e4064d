"""A strategy's card: what everybody but its planner has to know of it, said once.

``card.py`` lies beside the planner and holds ``CARDS``. From the cards come the registry, what
``--help`` says of a strategy, ``docs/strategies.md``, its part of ``docs/rows.md``, its place and
colour in every picture, the exceptions that the leaderboard makes, and the cases of the GPU suite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Turn = Literal["first", "later", "alone", "never"]


@dataclass(frozen=True, slots=True)
class Paper:
    """Where a strategy was published.

    Attributes:
        authors: the first one's name, ``et al.``.
        year: of the first version that everybody could read.
        title: as printed.
        url: where it can be read.
    """

    authors: str
    year: int
    title: str
    url: str

    def cite(self) -> str:
        """One line of a list of references.

        >>> Paper("Chen et al.", 2016, "Sublinear Memory", "https://arxiv.org/abs/1").cite()
        'Chen et al., "Sublinear Memory", 2016, https://arxiv.org/abs/1'
        """
        return f'{self.authors}, "{self.title}", {self.year}, {self.url}'


# Papers that strategies in more than one folder are from.
CHECKMATE = Paper(
    authors="Jain et al.",
    year=2020,
    title="Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization",
    url="https://arxiv.org/abs/1910.02653",
)
MONET = Paper(
    authors="Shah et al.",
    year=2021,
    title="Memory Optimization for Deep Networks",
    url="https://arxiv.org/abs/2010.14501",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One strategy.

    Attributes:
        name: as in ``strategy=NAME``.
        planner: its class, from the card's folder on: ``planner.ChenSqrt``.
        presets: options of that class with another default: the name is an alias.
        paper: that published it; None: nobody did.
        problem: what it solves, in a few words.
        guarantee: what a row's bound says of its plans.
        scope: the graphs that it applies to.
        page: the page in ``docs/papers`` on it.
        golden: what its results are held against in the tests.
        knobs: its main options, as on the command line.
        ours: is it a search of this project, which no paper published?
        our_search: does our search make its plans, unless an option says otherwise?
        wall_clock: does its planner go by the wall clock, waiting for a process of its own?
        implementations: may its plans run other implementations than the captured ops? Its costs
            and bounds are then no other strategy's.
        prepared: does a job find what an earlier one of the process asked PyTorch's partitioner?
        turn: when the GPU suite plans it: ``first`` (it uses all the time that it is given),
            ``later``, ``alone`` (with the model in hand: not beside others) or ``never``.
        place: in legends; strategies keep theirs when one is added.
        colour: of its own, ``#rrggbb``; None: of the palette, by its place.
        facts: a TypedDict of its keys of a row's ``extra``.
    """

    name: str
    planner: str = "planner"
    presets: Mapping[str, Any] = field(default_factory=dict)
    paper: Paper | None = None
    problem: str = ""
    guarantee: str = "none"
    scope: str = "everything"
    page: str | None = None
    golden: str = ""
    knobs: str = ""
    ours: bool = False
    our_search: bool = False
    wall_clock: bool = False
    implementations: bool = False
    prepared: bool = False
    turn: Turn = "later"
    place: int | None = None
    colour: str | None = None
    facts: type | None = None
