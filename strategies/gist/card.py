"""Gist: what waits for the backward pass is stored encoded."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card, Paper


class Facts(TypedDict, total=False):
    """gist."""

    ways: Annotated[dict[str, int], Means("ops by the kind of implementation")]
    lossy: Annotated[bool, Means("does an encoding lose bits?")]
    encoded_values: Annotated[int, Means("values that wait encoded for the backward pass")]
    encoded_from_bytes: Annotated[int, Means("their size", "bytes")]
    encoded_to_bytes: Annotated[int, Means("the size of their encodings", "bytes")]
    sparsity: Annotated[
        dict[str, float], Means("zeros in each value that is stored sparsely", "ratio")
    ]


CARDS = (
    Card(
        name="gist",
        planner="planner.Gist",
        paper=Paper(
            authors="Jain et al.",
            year=2018,
            title="Gist: Efficient Data Encoding for Deep Neural Network Training",
            url="https://doi.org/10.1109/ISCA.2018.00070",
        ),
        problem="store encodings (masks, sparse, half precision) in place of values",
        guarantee="none; one plan",
        scope="everything; captured models have encodings",
        page="monet.md",
        golden="eager gradients, to the tolerance that is stated",
        knobs="`half=false`: exact",
        implementations=True,
        turn="alone",
        place=21,
        facts=Facts,
    ),
)
