"""What the papers print: networks, sizes, ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Checkmate
_LAYERED = {"keras_mobilenet": "mobilenet_v1"}
GAP_LENGTH = 8  # layers of the chain of appendix A and section 4.6
INTEGRALITY_GAPS = {"partitioned": 1.18, "unpartitioned": 21.56}
SOLVE_TIMES = {"partitioned": "0.23 s", "unpartitioned": "9.4 h"}
# Figure 3's, by year.
ARCHITECTURES = {
    "alexnet": "AlexNet\n2012",
    "vgg19": "VGG19\n2014",
    "inception_v3": "Inception v3\n2015",
    "resnet152": "ResNet-152\n2015",
    "densenet201": "DenseNet-201\n2016",
    "resnext101": "ResNeXt-101\n2016",
    "fcn8": "FCN8s\n2017",
    "transformer_lm": "Transformer\n2017",
    "roberta": "RoBERTa\n2018",
    "biggan_generator": "BigGAN\n2018",
}

# MONeT
FIG4_RATIO = 0.53  # of the memory
# Table 7: forward ops; rows and columns of Checkmate's program, of MONeT-NoOp's, of MONeT's.
Size = tuple[int, int]
MONET_SIZES: dict[str, tuple[int, Size, Size, Size]] = {
    "googlenet": (215, (719327, 519252), (221630, 104673), (781747, 362640)),
    "resnet50": (175, (473592, 344659), (344652, 167238), (487842, 229431)),
    "mobilenet_v2": (153, (337316, 247033), (153828, 74579), (241478, 115047)),
    "unet": (67, (65715, 48744), (32273, 15982), (73624, 36548)),
    "vgg16": (40, (25334, 18968), (12772, 6306), (21918, 11234)),
}

# Join networks
JOINS = ("RNN", "CM", "SNN")
# Table 1: megabytes of all weights, by depth.
RESNETS = {18: 175.05, 34: 329.29, 50: 384.85, 101: 674.65, 152: 913.36}


def shape(lengths: Sequence[int]) -> tuple[str, int] | None:
    """Which of the paper's models a join is, and its L: RNN (6L), CM (L, 5L), SNN (2L, 2L, 2L)."""
    total = sum(lengths)
    if total % 6:
        return None
    each = total // 6
    models = {"RNN": [6 * each], "CM": [each, 5 * each], "SNN": [2 * each] * 3}
    return next(((name, each) for name in JOINS if models[name] == sorted(lengths)), None)


@dataclass(frozen=True)
class CutOff:
    """A line of Table 2: megabytes and the extra time, on the paper's GPUs (PyTorch 1.5)."""

    batch: int
    regular: int
    random: int | None
    chen: int | None
    ours: int
    cut: int
    overhead: int


FENG_HUANG = {
    "alexnet": CutOff(1024, 4955, 4408, 4408, 3287, 34, 34),
    "vgg11": CutOff(64, 3577, 2781, 2781, 2781, 22, 34),
    "vgg13": CutOff(64, 5136, 3565, 3565, 3565, 31, 33),
    "vgg16": CutOff(64, 5136, 4352, 3957, 3565, 31, 32),
    "vgg19": CutOff(64, 5189, 4548, 3957, 3565, 31, 33),
    "resnet18": CutOff(256, 5635, 4069, None, 3677, 35, 30),
    "resnet34": CutOff(128, 4079, 2231, None, 1838, 55, 35),
    "resnet50": CutOff(64, 5323, 2714, None, 1973, 63, 31),
    "resnet101": CutOff(32, 3934, 2541, None, 1024, 74, 35),
    "resnet152": CutOff(16, 2767, 1464, None, 526, 81, 37),
    "densenet121": CutOff(32, 4027, 1629, None, 898, 78, 34),
    "densenet161": CutOff(16, 3751, 1432, None, 666, 82, 36),
    "densenet169": CutOff(32, 4862, 1774, None, 897, 82, 32),
    "densenet201": CutOff(16, 3146, 1242, None, 474, 85, 53),
    "inception_v3": CutOff(32, 3074, 1336, None, 881, 71, 29),
    "nasnet": CutOff(64, 5832, None, None, 1129, 81, 31),
    "amoebanet": CutOff(64, 4944, None, None, 1058, 79, 36),
    "darts": CutOff(64, 5627, None, None, 1115, 80, 55),
}


def paper_name(model: str) -> str:
    """What we call a network of Checkmate's by PyTorch, where ``model`` is it by Keras' layers.

    >>> paper_name("keras_mobilenet"), paper_name("keras_unet"), paper_name("unet")
    ('mobilenet_v1', 'unet', 'unet')
    """
    return _LAYERED.get(model, model.removeprefix("keras_"))
