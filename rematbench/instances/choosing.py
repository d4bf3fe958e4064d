"""Which candidates become the library's graphs, and which problems REMATLIB-100: by features alone.

As MIPLIB 2017 did (Gleixner et al., "MIPLIB 2017", Mathematical Programming Computation, 2021,
section 4): candidates are grouped by features, and each group sends a representative. Here groups
are Ward's clusters over ranks of features, the representative is the member nearest to the
cluster's mean, and nothing depends on what a search finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematbench.instances.features import Features
from rematbench.instances.table import features_of

ROOM = 0.9
"""A graph is of use where its floor is at most so much of the peak."""
MOST_OPS = 50_000
QUOTAS = {"torchvision": 40, "timm": 75, "transformers": 60, "diffusers": 16}
"""How many graphs of a family are chosen of its candidates; of other families, all."""
HUNDRED, HUNDRED_OPS = 100, 10_000
"""How many problems REMATLIB-100 has, and the most ops of their graphs."""


def clusters(vectors: Sequence[Sequence[float]], count: int) -> NDArray[np.int64]:
    """Ward's clusters, numbered from 1; fewer points than ``count`` are one each.

    Args:
        vectors: a row per point. Each column is replaced by its ranks, from 0 to 1, so that no
            feature counts for more because of its unit or its outliers.
    """
    from scipy.cluster.hierarchy import fcluster, linkage

    if len(vectors) <= count:
        return np.arange(1, len(vectors) + 1)
    found: NDArray[np.int64] = fcluster(linkage(ranks(vectors), "ward"), count, "maxclust")
    return found


def ranks(vectors: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Per column, ranks from 0 to 1; equal numbers share theirs."""
    from scipy.stats import rankdata

    table = np.asarray(vectors, dtype=float)
    found: NDArray[np.float64] = (rankdata(table, axis=0) - 1) / max(1, len(table) - 1)
    return found


def representatives(vectors: Sequence[Sequence[float]], count: int) -> list[int]:
    """Per cluster, the index of the point nearest to its mean; the first of several."""
    label, points = clusters(vectors, count), ranks(vectors)
    found = []
    for number in np.unique(label).tolist():
        members = np.flatnonzero(label == number)
        distance = np.linalg.norm(points[members] - points[members].mean(axis=0), axis=1)
        found.append(int(members[np.argmin(np.round(distance, 9))]))
    return sorted(found)


def chosen_graphs(rows: Iterable[Mapping[str, str]]) -> set[str]:
    """Names of the candidates that the library takes.

    Args:
        rows: of ``features.csv``. Candidates that could not be made, that have no room between
            floor and peak, or that are the same graph as an earlier one, do not count.
    """
    usable: dict[str, list[tuple[str, Features]]] = {}
    seen: set[str] = set()
    for row in rows:
        if not row["ops"] or row["hash"] in seen:
            continue
        seen.add(row["hash"])
        found = features_of(row)
        if found.floor_bytes <= ROOM * found.peak_bytes and found.ops <= MOST_OPS:
            usable.setdefault(row["family"], []).append((row["name"], found))
    chosen: set[str] = set()
    for family, members in usable.items():
        count = QUOTAS.get(family, len(members))
        vectors = [found.vector() for _, found in members]
        chosen |= {members[i][0] for i in representatives(vectors, count)}
    return chosen


def hundred(problems: Sequence[Mapping[str, Any]], graphs: Mapping[str, Features]) -> set[str]:
    """Names of REMATLIB-100's problems: one of each of a hundred graphs.

    A family sends graphs by the square root of how many it has, one of each cluster; the k-th of
    all lends the k-th of its budgets, counted in a circle, so that tight and loose ones alternate.

    Args:
        problems: rows of ``problems.csv``.
        graphs: features, by path.
    """
    of: dict[str, list[Mapping[str, Any]]] = {}
    families: dict[str, list[str]] = {}
    for each in problems:
        if each["ops"] <= HUNDRED_OPS:
            of.setdefault(each["graph"], []).append(each)
            families.setdefault(each["family"], []).append(each["graph"])
    members = {family: list(dict.fromkeys(found)) for family, found in families.items()}
    counts = shares({family: len(found) for family, found in members.items()}, HUNDRED)
    sent = [
        found[i]
        for family, found in members.items()
        for i in representatives([graphs[graph].vector() for graph in found], counts[family])
    ]
    return {of[graph][k % len(of[graph])]["instance"] for k, graph in enumerate(sent)}


def shares(sizes: Mapping[str, int], total: int) -> dict[str, int]:
    """``total`` places, by the square roots of sizes; what is left goes to the largest remainders.

    >>> shares({"a": 100, "b": 4, "c": 4}, 10)
    {'a': 7, 'b': 2, 'c': 1}
    """
    roots = {name: size**0.5 for name, size in sizes.items()}
    exact = {name: total * root / sum(roots.values()) for name, root in roots.items()}
    found = {name: min(int(share), sizes[name]) for name, share in exact.items()}
    free = [name for name in sizes if found[name] < sizes[name]]
    left = sorted(free, key=lambda name: (found[name] - exact[name], name))
    for name in left[: total - sum(found.values())]:
        found[name] += 1
    return found
