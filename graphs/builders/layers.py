"""Forward graphs of networks layer by layer, an op each, as Checkmate's prototype read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, prod

from rematbench.base.errors import GraphError
from rematbench.graphs.ir import Graph, Op, Phase, Value, simple_op

FLOAT = 4
"""Bytes of a number."""
IMAGE, WEIGHTS, GRADIENTS = "image", "_weights", "_weights_gradient"
Shape = tuple[int, ...]
"""Height, width, channels; of flat values, channels alone."""


def kind_of(resident: str) -> str:
    """Kind of a resident value of such a graph, by its name.

    A layer's weights and their gradients are two values. Where ``accounting=checkmate`` doubles
    parameters, gradients count as buffers, that is, not again.
    """
    if resident.endswith(GRADIENTS):
        return "buffer"
    return "parameter" if resident.endswith(WEIGHTS) else "input"


@dataclass
class Layers:
    """A network under construction: each method adds a layer and returns its name.

    A layer writes one value, its output for the whole batch in single precision, and costs the
    floating-point operations of its arithmetic (two per multiplication and addition; batch
    normalization four per number, pooling its window, activations one). Activations that Keras
    names as an argument of a convolution are part of it. Weights, their gradients and the images
    are resident.

    Args:
        name: of the graph.
        batch_size: images.
        height, width: of an image of three channels.

    >>> net = Layers("one", 1, 8, 8)
    >>> net.conv(IMAGE, 2)
    'conv0'
    >>> net.graph().ops[0].cost
    6912
    """

    name: str
    batch_size: int
    height: int
    width: int
    _shapes: dict[str, Shape] = field(init=False)
    _ops: list[Op] = field(default_factory=list, init=False)
    _values: list[Value] = field(init=False)

    def __post_init__(self) -> None:
        self._shapes = {IMAGE: (self.height, self.width, 3)}
        self._values = [Value(IMAGE, self._bytes(IMAGE), resident=True)]

    def conv(
        self,
        source: str,
        channels: int,
        window: int = 3,
        stride: int = 1,
        *,
        padded: bool = True,
        bias: bool = True,
    ) -> str:
        """A convolution; ``padded``: zeros around it keep the size (over the stride)."""
        height, width, inputs = self._shapes[source]
        size = [_steps(n, window, stride, padded) for n in (height, width)]
        weights = window**2 * inputs
        shape = (*size, channels)
        return self._add("conv", [source], shape, 2 * weights, (weights + bias) * channels)

    def depthwise(self, source: str, stride: int = 1, *, padded: bool = True) -> str:
        """A 3 by 3 convolution of each channel alone, without a bias."""
        height, width, channels = self._shapes[source]
        size = [_steps(n, 3, stride, padded) for n in (height, width)]
        return self._add("dwconv", [source], (*size, channels), 2 * 9, 9 * channels)

    def deconv(self, source: str, channels: int, window: int, stride: int) -> str:
        """A transposed convolution without padding or a bias."""
        height, width, inputs = self._shapes[source]
        size = [(n - 1) * stride + window for n in (height, width)]
        work = 2 * inputs * window**2 / stride**2  # each input number meets the window once
        weights = window**2 * inputs * channels
        return self._add("deconv", [source], (*size, channels), work, weights)

    def dense(self, source: str, channels: int) -> str:
        """Every number to every number, with a bias."""
        inputs = prod(self._shapes[source])
        return self._add("fc", [source], (channels,), 2 * inputs, (inputs + 1) * channels)

    def norm(self, source: str) -> str:
        """Batch normalization."""
        shape = self._shapes[source]
        return self._add("bn", [source], shape, 4, 4 * shape[-1])

    def activation(self, source: str, kind: str = "relu") -> str:
        """A function of each number, or softmax over the channels."""
        return self._add(kind, [source], self._shapes[source], 1)

    def pool(self, source: str, window: int = 2, stride: int = 2) -> str:
        """The largest number of each window; no padding."""
        height, width, channels = self._shapes[source]
        size = [_steps(n, window, stride, False) for n in (height, width)]
        return self._add("pool", [source], (*size, channels), window**2)

    def mean(self, source: str) -> str:
        """The mean of each channel."""
        height, width, channels = self._shapes[source]
        return self._add("gap", [source], (channels,), height * width)

    def pad(self, source: str, by: int = 2) -> str:
        """``by`` more rows and columns of zeros."""
        height, width, channels = self._shapes[source]
        return self._add("pad", [source], (height + by, width + by, channels), 0)

    def crop(self, source: str, like: str) -> str:
        """As many rows and columns as ``like`` has."""
        return self._add("crop", [source], (*self._shapes[like][:2], self._shapes[source][2]), 0)

    def upsample(self, source: str) -> str:
        """Each number four times."""
        height, width, channels = self._shapes[source]
        return self._add("up", [source], (2 * height, 2 * width, channels), 1)

    def concat(self, first: str, second: str) -> str:
        """The channels of both.

        Raises:
            GraphError: they differ in height or width.
        """
        *size, channels = self._shapes[first]
        if size != [*self._shapes[second][:2]]:
            raise GraphError(
                f"{self.name}: concat {len(self._ops)} would join {_label(size)} and "
                f"{_label(self._shapes[second][:2])}; give height and width in multiples of 8"
            )
        return self._add("concat", [first, second], (*size, channels + self._shapes[second][-1]), 0)

    def add(self, first: str, second: str) -> str:
        """The sum of two values of a shape."""
        return self._add("add", [first, second], self._shapes[first], 1)

    def same(self, source: str, kind: str) -> str:
        """The same numbers under another shape (flatten, reshape), or dropout."""
        return self._add(kind, [source], self._shapes[source], 0)

    def graph(self) -> Graph:
        """What was built, without a backward pass; its output is the last layer's."""
        return Graph(self.name, tuple(self._values), tuple(self._ops), self._ops[-1].writes, "flop")

    def _add(self, kind: str, reads: list[str], shape: Shape, work: float, weights: int = 0) -> str:
        """A layer that costs ``work`` per number that it writes."""
        if min(shape) < 1:
            raise GraphError(
                f"{self.name}: images of {self.height}x{self.width} are too small for its layer "
                f"{len(self._ops)} ({kind}); give a larger resolution"
            )
        name = f"{kind}{len(self._ops)}"
        held = [name + WEIGHTS] if weights else []
        self._shapes[name] = shape
        numbers = self.batch_size * prod(shape)
        self._ops.append(
            simple_op(name, Phase.FORWARD, [*reads, *held], [name], round(work * numbers))
        )
        self._values.append(Value(name, self._bytes(name)))
        for resident in (name + WEIGHTS, name + GRADIENTS) if weights else ():
            self._values.append(Value(resident, FLOAT * weights, resident=True))
        return name

    def _bytes(self, name: str) -> int:
        return FLOAT * self.batch_size * prod(self._shapes[name])


def _steps(size: int, window: int, stride: int, padded: bool) -> int:
    """Places of a window along an axis."""
    return ceil(size / stride) if padded else (size - window) // stride + 1


def _label(size: Sequence[int]) -> str:
    return "x".join(map(str, size))
