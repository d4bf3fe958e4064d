"""Kinds of networks, by which results are grouped."""

from __future__ import annotations

import re

OTHER = "other"
_FAMILIES = (
    ("diffusion", r"sd15_unet|sdxl_unet|dit_.*|diffusers|UNet2D.*|DiT.*"),
    ("U-shaped", r"(keras_)?(unet|segnet|fcn8)|unet3d"),
    (
        "transformer",
        r"gpt2.*|llama.*|qwen.*|gemma.*|mixtral.*|bert.*|roberta|t5.*|whisper.*|vit.*|swin.*"
        r"|transformer_lm",
    ),
    ("recurrent", r"lstm_lm|tree_lstm"),
    ("joins", r"siamese|cross_modal|join"),
    (
        "CNN",
        r"alexnet|amoebanet|nasnet|darts|biggan.*|convnext.*|densenet.*|googlenet|inception.*"
        r"|(keras_)?(mobilenet|resnet|vgg).*|resnext.*",
    ),
    ("synthetic", r"unit_chain.*|toy_chain.*|random_layered.*"),
)


def family(model: str | None) -> str:
    """A network's kind; ``other`` for a name that we do not know.

    >>> family("resnet50"), family("sdxl_unet"), family("unet"), family("mine")
    ('CNN', 'diffusion', 'U-shaped', 'other')
    """
    for name, pattern in _FAMILIES:
        if model is not None and re.fullmatch(pattern, model):
            return name
    return OTHER
