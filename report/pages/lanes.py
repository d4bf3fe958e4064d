"""Three lanes over time: what compute, the link out and the link in do in a plan with copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematbench.graphs.copies import COMPUTE, IN, OUT
from rematbench.graphs.ir import Graph
from rematbench.graphs.link import Link
from rematbench.graphs.plan import FETCH, OFFLOAD
from rematbench.graphs.simulate import Trace
from rematbench.report.pages.picture import COLOURS
from rematbench.rows.row import Row

WIDTH, LANE = 900, 30  # of the drawing, and the height of a lane, in pixels
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Lane:
    """One engine.

    Attributes:
        name: compute, out or in.
        paths: SVG paths of when it is at work, with their colours and what they are.
        busy: share of the makespan.
        waited: share of it in which the engine stood still for another.
    """

    name: str
    paths: tuple[tuple[str, str, str], ...]
    busy: float
    waited: float


@dataclass(frozen=True)
class Lanes:
    """All three.

    Attributes:
        makespan: in the row's cost unit.
        link: as `rematbench-verify` takes it.
    """

    makespan: float
    link: str
    lanes: tuple[Lane, ...]


def link_of(row: Row) -> Link | None:
    """The link that a row's plan was judged with; None where it says nothing of one."""
    said = row["extra"].get("link")
    if not isinstance(said, dict):
        return None
    out, into, latency = (float(said.get(key) or 0) for key in ("out", "in", "latency"))
    return Link(out, into, latency, bool(said.get("shared")))


def lanes_of(graph: Graph, trace: Trace, link: Link) -> Lanes | None:
    """What to draw of a plan; None where it copies nothing or costs nothing."""
    copies, codes = trace.copies, trace.codes
    if copies is None or trace.cost <= 0:
        return None
    kind = np.where(codes >= 0, -1, ~codes // max(1, len(graph.values)))
    ops = np.where(codes >= 0, graph.tables.op_of[np.maximum(codes, 0)], -1)
    first = np.zeros(len(codes), dtype=np.bool_)
    first[np.unique(ops, return_index=True)[1]] = True
    tasks: dict[int, list[tuple[str, str, Mask]]] = {
        COMPUTE: [
            ("computed for the first time", COLOURS["first"], (kind < 0) & first),
            ("computed again", COLOURS["again"], (kind < 0) & ~first),
        ],
        OUT: [("copied to the host", COLOURS["kept"], kind == OFFLOAD)],
        IN: [("copied back", "#cc78bc", kind == FETCH)],
    }
    spans = copies.begins, copies.ends

    def lane(engine: int, name: str) -> Lane:
        paths = tuple(
            (_path(spans[0][mask], spans[1][mask], trace.cost), colour, what)
            for what, colour, mask in tasks[engine]
        )
        busy = sum(float((spans[1] - spans[0])[mask].sum()) for _, _, mask in tasks[engine])
        return Lane(name, paths, busy / trace.cost, copies.waiting[engine] / trace.cost)

    said: dict[str, Any] = {"out": link.out, "in": link.into, "latency": link.latency}
    words = ["link=given", *(f"link.{key}={value!r}" for key, value in said.items())]
    words += ["link.shared=true"] if link.shared else []
    names = ("compute", "link out", "link in")
    found = tuple(lane(engine, name) for engine, name in enumerate(names))
    return Lanes(trace.cost, " ".join(words), found)


def _path(begins: NDArray[np.float64], ends: NDArray[np.float64], makespan: float) -> str:
    """Boxes, as high as a lane; those with less than half a pixel between them are one."""
    if not len(begins):
        return ""
    across = np.round(begins / makespan * WIDTH, 2), np.round(ends / makespan * WIDTH, 2)
    order = np.argsort(across[0], kind="stable")
    left, right = across[0][order], np.maximum.accumulate(across[1][order])
    starts = np.flatnonzero(np.append(True, left[1:] > right[:-1] + 0.5))
    stops = np.append(starts[1:] - 1, len(left) - 1)
    boxes = zip(left[starts].tolist(), right[stops].tolist(), strict=True)
    return "".join(f"M{a:g} 0H{b:g}V{LANE}H{a:g}Z" for a, b in boxes)
