"""The networks of Checkmate's experiments as Keras has them, layer by layer.

Classifiers follow ``tf.keras.applications`` of TensorFlow 2.0 (1000 classes), segmentation networks
``keras_segmentation``'s on a VGG-16 encoder (19 classes): the models by whose graphs the paper's
numbers were made. Here they are planned, not executed.
"""

from __future__ import annotations

from collections.abc import Callable

from rematbench.base.errors import ConfigError
from rematbench.graphs.builders.layers import IMAGE, Layers
from rematbench.graphs.ir import Graph

_CLASSES, _PIXEL_CLASSES = 1000, 19
_MOST_PIXELS, _MOST_BATCH = 2**14, 10**6
_VGG16, _VGG19 = (2, 2, 3, 3, 3), (2, 2, 4, 4, 4)  # convolutions before each pooling
_CHANNELS = (64, 128, 256, 512, 512)
_MOBILENET = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5,
              (1024, 2), (1024, 1))  # fmt: skip
"""Channels and stride of each block."""
_RESNET50 = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Channels, blocks and stride of each stage."""


def keras_graph(name: str, batch_size: int, height: int, width: int) -> Graph:
    """The forward graph of a network.

    Args:
        name: one of :data:`NETWORKS`.
        batch_size: images.
        height, width: of an image.

    Raises:
        ConfigError: an unknown network, or a batch or an image beyond all bounds.
        GraphError: the images are too small for the network.

    >>> len(keras_graph("resnet50", 1, 224, 224).ops)
    176
    """
    if name not in NETWORKS:
        raise ConfigError(f"model.network={name}: unknown; use one of {', '.join(NETWORKS)}")
    if max(height, width) > _MOST_PIXELS or batch_size > _MOST_BATCH:
        raise ConfigError(
            f"model=keras_{name}: a batch of {batch_size} of {height}x{width}: give at most "
            f"{_MOST_BATCH} images of {_MOST_PIXELS}x{_MOST_PIXELS}"
        )
    layers = Layers(f"keras_{name}", batch_size, height, width)
    NETWORKS[name](layers)
    return layers.graph()


def _encoder(net: Layers, convs: tuple[int, ...]) -> list[str]:
    """Stages of a VGG; returns what each pooling writes."""
    x, pooled = IMAGE, []
    for count, channels in zip(convs, _CHANNELS, strict=False):
        for _ in range(count):
            x = net.conv(x, channels)
        x = net.pool(x)
        pooled.append(x)
    return pooled


def _vgg(net: Layers, convs: tuple[int, ...]) -> None:
    x = net.same(_encoder(net, convs)[-1], "flatten")
    net.dense(net.dense(net.dense(x, 4096), 4096), _CLASSES)


def _vgg16(net: Layers) -> None:
    _vgg(net, _VGG16)


def _vgg19(net: Layers) -> None:
    _vgg(net, _VGG19)


def _mobilenet(net: Layers) -> None:
    """MobileNet, version 1."""

    def normed(x: str) -> str:
        return net.activation(net.norm(x))

    x = normed(net.conv(net.pad(IMAGE, 1), 32, stride=2, padded=False, bias=False))
    for channels, stride in _MOBILENET:
        x = net.depthwise(net.pad(x, 1), 2, padded=False) if stride == 2 else net.depthwise(x)
        x = normed(net.conv(normed(x), channels, 1, bias=False))
    x = net.same(net.same(net.mean(x), "reshape"), "dropout")
    net.activation(net.same(net.dense(x, _CLASSES), "reshape"), "softmax")


def _resnet50(net: Layers) -> None:
    """ResNet-50, version 1: the first convolution of a block has its stride."""
    x = net.conv(net.pad(IMAGE, 6), 64, 7, 2, padded=False)
    x = net.pool(net.pad(net.activation(net.norm(x))), 3)
    for channels, blocks, first in _RESNET50:
        for block in range(blocks):
            stride = 1 if block else first
            beside = x if block else net.norm(net.conv(x, 4 * channels, 1, stride))
            x = net.activation(net.norm(net.conv(x, channels, 1, stride)))
            x = net.activation(net.norm(net.conv(x, channels)))
            x = net.norm(net.conv(x, 4 * channels, 1))
            x = net.activation(net.add(beside, x))
    net.dense(net.mean(x), _CLASSES)


def _decode(net: Layers, x: str, channels: int) -> str:
    return net.norm(net.conv(net.pad(x), channels, padded=False))


def _classified(net: Layers, x: str) -> None:
    net.activation(net.same(x, "reshape"), "softmax")


def _unet(net: Layers) -> None:
    """``vgg_unet``: classes at half the images' height and width."""
    *beside, x = _encoder(net, _VGG16[:4])
    x = _decode(net, x, 512)
    for channels, skip in zip((256, 128, 64), reversed(beside), strict=True):
        x = _decode(net, net.concat(skip, net.upsample(x)), channels)
    _classified(net, net.conv(x, _PIXEL_CLASSES))


def _segnet(net: Layers) -> None:
    """``vgg_segnet``."""
    x = _decode(net, _encoder(net, _VGG16[:4])[-1], 512)
    for channels in (256, 128, 64):
        x = _decode(net, net.upsample(x), channels)
    _classified(net, net.conv(x, _PIXEL_CLASSES))


def _fcn8(net: Layers) -> None:
    """``fcn_8_vgg``."""
    *_, third, fourth, x = _encoder(net, _VGG16)
    for window in (7, 1):
        x = net.same(net.conv(x, 4096, window), "dropout")
    x = net.conv(x, _PIXEL_CLASSES, 1)
    for skip in (fourth, third):
        x = net.deconv(x, _PIXEL_CLASSES, 4, 2)
        beside = net.conv(skip, _PIXEL_CLASSES, 1)
        x = net.add(net.crop(x, beside), beside)
    _classified(net, net.deconv(x, _PIXEL_CLASSES, 16, 8))


NETWORKS: dict[str, Callable[[Layers], None]] = {
    "vgg16": _vgg16,
    "vgg19": _vgg19,
    "mobilenet": _mobilenet,
    "resnet50": _resnet50,
    "unet": _unet,
    "fcn8": _fcn8,
    "segnet": _segnet,
}
