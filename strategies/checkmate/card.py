"""Checkmate: problem (9), its rounding, and Checkmate as MONeT compared itself with it."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import CHECKMATE, MONET, Card


class RoundingFacts(TypedDict, total=False):
    """checkmate_rounding."""

    epsilon: Annotated[float, Means("share of the budget that the relaxation leaves free", "ratio")]
    threshold: Annotated[float | None, Means("from which a fraction counts as 1")]
    sample: Annotated[int, Means("randomized: number of the draw")]
    ratio_to_bound: Annotated[float, Means("cost / bound", "ratio")]
    tried: Annotated[int, Means("schedules")]
    feasible: Annotated[int, Means("those within the budget")]
    feasible_share: Annotated[float, Means("feasible / tried", "ratio")]
    paper_setting: Annotated[
        dict[str, Any] | None, Means("what the paper's epsilon and threshold gave")
    ]
    relaxation_costs: Annotated[Any, Means("of the relaxations, by epsilon", "cost_unit")]


class Compared(TypedDict, total=False):
    """checkmate_d, checkmate_o."""

    blind_bound: Annotated[float | None, Means("of the problem without workspaces", "cost_unit")]


CARDS = (
    Card(
        name="checkmate_ilp",
        planner="ilp.CheckmateIlp",
        paper=CHECKMATE,
        problem="least cost within so many bytes, (9), by HiGHS alone, from its own rounding",
        guarantee="optimal, bound: (9)",
        scope="everything; 200 ops in seconds",
        page="checkmate.md",
        golden="(9) as printed; the paper's eight-layer chain",
        knobs="`variant=rows`, `paper`, `unpartitioned`",
        turn="first",
        place=15,
        colour="#b15928",
    ),
    Card(
        name="checkmate_rounding",
        planner="rounding.CheckmateRounding",
        paper=CHECKMATE,
        problem="two-phase rounding of the relaxation of (9) (section 5, appendix D)",
        guarantee="bound: (9), or F",
        scope="up to 1000 ops",
        page="checkmate.md",
        golden="the paper's ratios (Table 2)",
        knobs="`relaxation=full`, `reduced`, `paths`, `printed`",
        turn="first",
        place=16,
        colour="#801014",
        facts=RoundingFacts,
    ),
    Card(
        name="checkmate_d",
        planner="compared.CheckmateCompared",
        paper=MONET,
        problem="(9) blind to workspace, the default convolutions (MONeT's comparison)",
        guarantee="bound: blind; the peak may exceed the budget",
        page="monet.md",
        golden="MONeT's figures",
        knobs="`engine=search`, `program`",
        our_search=True,
        turn="first",
        place=17,
        facts=Compared,
    ),
    Card(
        name="checkmate_o",
        planner="compared.CheckmateCompared",
        presets={"convolutions": "fastest"},
        paper=MONET,
        problem="the same, then the fastest convolutions, whatever their workspace",
        guarantee="bound: blind; the peak may exceed the budget",
        page="monet.md",
        golden="MONeT's figures",
        knobs="`engine=search`, `program`",
        our_search=True,
        implementations=True,
        turn="first",
        place=18,
        facts=Compared,
    ),
)
