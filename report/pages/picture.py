"""The schedule picture of a plan: R and S, as in Checkmate's figures."""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rematbench.graphs.blocks import block_of_ops, repeated_blocks
from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.plan import FETCH, FREE, Plan, move_of

Image = NDArray[np.uint8]
LARGEST = 640  # pixels: more stages than these share pixels
# Seaborn's colour-blind safe blue, orange and green on white, by the cells of R and S.
COLOURS = {"nothing": "#ffffff", "first": "#0173b2", "again": "#d55e00", "kept": "#029e73"}
_NOTHING, _FIRST, _AGAIN, _KEPT = range(4)
# Of blocks, in turns: light, so that neighbours differ and cells stay what is looked at.
_BLOCKS = ("#0173b2", "#de8f05", "#029e73", "#cc78bc", "#ca9161", "#56b4e9")


@dataclass(frozen=True)
class Band:
    """Neighbouring ops of one block.

    Attributes:
        block: name of the module.
        colour: of the block: the same in the forward and in the backward pass.
        start, end: share of all ops before it, and up to its end.
    """

    block: str
    colour: str
    start: float
    end: float


@dataclass(frozen=True)
class ScheduleImages:
    """R and S of a plan, cells in stages (down) by ops (across), as images.

    Ops and stages count the computed ops in the order of their first computation, so that stage
    t ends with the first computation of op t.

    Attributes:
        stages: how many there are, and how many ops.
        loss: the stage of the loss op; None without one.
        computed: R: computed for the first time, or again.
        kept: S: in memory when the stage begins.
        bands: the blocks of the model along the ops; none where no op has a scope.
    """

    stages: int
    loss: int | None
    computed: Image
    kept: Image
    bands: tuple[Band, ...] = ()


@dataclass(frozen=True)
class _Cells:
    """The filled cells: one per compute, one vertical strip per copy of a value."""

    computes: list[tuple[int, int]]
    strips: list[tuple[int, int, int]]
    column: dict[int, int]


class Painter:
    """Draws the schedules of plans for one graph.

    Args:
        graph: the plans' graph.
    """

    def __init__(self, graph: Graph) -> None:
        tables = graph.tables
        self.graph = graph
        self._op_of, self._writer = tables.op_of.tolist(), tables.writer.tolist()
        self._writes, over = tables.writes.lists(), tables.overwritten_by.lists()
        self._over = [[value for value in row if value >= 0] for row in over]
        blocks = repeated_blocks(graph)
        self._blocks = block_of_ops(graph, blocks)
        self._inks = {b.name: _BLOCKS[i % len(_BLOCKS)] for i, b in enumerate(blocks)}

    def schedule(self, plan: Plan) -> ScheduleImages:
        """R and S of a plan that the simulator accepts.

        Raises:
            InvalidPlan: the plan names an op or a value that the graph does not have.
        """
        cells = self._cells(plan.codes(self.graph))
        stages, loss = len(cells.column), self.graph.loss_index
        at = None if loss is None else cells.column.get(loss)
        images = _draw_computed(cells, stages), _draw_kept(cells, stages)
        return ScheduleImages(stages, at, *images, self._bands(list(cells.column)))

    def _bands(self, ops: list[int]) -> tuple[Band, ...]:
        """Runs of ops of one block; ops without a block do not end one."""
        runs: list[tuple[str, int, int]] = []
        for place, op in enumerate(ops):
            block = self._blocks[op]
            if block and runs and runs[-1][0] == block:
                runs[-1] = (block, runs[-1][1], place + 1)
            elif block:
                runs.append((block, place, place + 1))
        return tuple(Band(b, self._inks[b], s / len(ops), e / len(ops)) for b, s, e in runs)

    def _cells(self, codes: IntArray) -> _Cells:
        cells = _Cells([], [], {})
        born: dict[int, int] = {}  # the first stage that begins with the value in memory
        begun = False  # has the stage computed anything yet?

        def die(value: int) -> None:
            last = len(cells.column) - (0 if begun else 1)
            first = born.pop(value, last + 1)
            if first <= last:
                cells.strips.append((first, last, cells.column[self._writer[value]]))

        for code in codes.tolist():
            if code < 0:
                move, value = move_of(code, len(self.graph.values))
                if move == FREE:
                    die(value)
                elif move == FETCH:
                    born.setdefault(value, len(cells.column) + begun)
                continue
            op, stage = self._op_of[code], len(cells.column)
            begun = True
            for value in self._over[code]:
                die(value)
            if op not in cells.column:
                cells.column[op] = stage
                begun = False  # the next stage is about to
            cells.computes.append((stage, cells.column[op]))
            for value in self._writes[op]:
                born.setdefault(value, stage + 1)
        begun = False
        for value in list(born):
            die(value)
        return cells


def _pixel(index: IntArray, stages: int) -> IntArray:
    pixels: IntArray = index * min(stages, LARGEST) // max(stages, 1)
    return pixels


def _draw_computed(cells: _Cells, stages: int) -> Image:
    side = min(stages, LARGEST)
    image = np.full((side, side), _NOTHING, dtype=np.uint8)
    if not stages:
        return image
    at = np.array(cells.computes, dtype=np.int64)
    # After the last first computation there is no further stage: what follows is in its row.
    rows, columns = _pixel(np.minimum(at[:, 0], stages - 1), stages), _pixel(at[:, 1], stages)
    colours = np.where(at[:, 0] == at[:, 1], _FIRST, _AGAIN)
    np.maximum.at(image, (rows, columns), colours.astype(np.uint8))
    return image


def _draw_kept(cells: _Cells, stages: int) -> Image:
    side = min(stages, LARGEST)
    steps = np.zeros((side + 1, side), dtype=np.int64)
    if cells.strips:
        at = np.array(cells.strips, dtype=np.int64)
        inside = at[at[:, 0] < stages]
        columns = _pixel(inside[:, 2], stages)
        np.add.at(steps, (_pixel(inside[:, 0], stages), columns), 1)
        last = np.minimum(inside[:, 1], stages - 1)
        np.add.at(steps, (_pixel(last, stages) + 1, columns), -1)
    live = np.cumsum(steps, axis=0)[:side] > 0
    return np.where(live, _KEPT, _NOTHING).astype(np.uint8)


def png(image: Image) -> bytes:
    """An image of colour numbers as a PNG file."""
    height, width = image.shape
    palette = b"".join(bytes.fromhex(colour[1:]) for colour in COLOURS.values())
    lines = np.zeros((height, width + 1), dtype=np.uint8)  # each line begins with its filter: none
    lines[:, 1:] = image
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", zlib.compress(lines.tobytes(), 4)))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in (*parts, (b"IEND", b"")))


def _chunk(name: bytes, content: bytes) -> bytes:
    check = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)


def data_uri(image: Image) -> str:
    """An image for the ``src`` of an HTML page that needs no other file."""
    return "data:image/png;base64," + base64.b64encode(png(image)).decode()
