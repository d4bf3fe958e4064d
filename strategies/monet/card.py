"""MONeT: the published integer program."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import MONET, Card


class Facts(TypedDict, total=False):
    """monet."""

    operators: Annotated[bool, Means("with other implementations of operators?")]
    locals: Annotated[str, Means("loose or tight sizes of locals")]
    forward_ops: Annotated[int, Means("ops")]
    published_rows: Annotated[int, Means("of its program")]
    published_columns: Annotated[int, Means("the same")]
    presolved_rows: Annotated[int, Means("what HiGHS's presolve leaves of them")]
    presolved_columns: Annotated[int, Means("the same")]


CARDS = (
    Card(
        name="monet",
        planner="planner.Monet",
        paper=MONET,
        problem="least cost of schedule and implementations together within so many bytes: the "
        "published program, by HiGHS",
        guarantee="none: optimal by its own count of bytes",
        scope="training steps; 80 ops in seconds; captured models have implementations",
        page="monet.md",
        golden="sizes of the published program (Table 7); `anytime_joint`'s bounds",
        knobs="`operators=false`: MONeT-NoOp; `presolve=true`: only its size after presolve",
        implementations=True,
        turn="first",
        place=20,
        facts=Facts,
    ),
)
