"""timm's image classifiers."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rematbench.base.errors import ConfigError
from rematbench.base.origin import accuse
from rematbench.tracing.workload import Workload, image_size
from rematbench.zoo.libraries import LibraryModel

_ATTENTION = ("sdpa", "eager")


def workload(asked: LibraryModel) -> Workload:
    """A classifier with its cross-entropy loss.

    Raises:
        ConfigError: there is no such architecture or option.
    """
    import timm

    asked.one_of("model.arch", asked.what, timm.list_models())
    module = _made(asked, timm.create_model)
    attention = asked.one_of(
        "model.options.attention",
        asked.attention_or("sdpa"),
        _ATTENTION,
    )
    for part in module.modules():
        if hasattr(part, "fused_attn"):
            part.fused_attn = attention == "sdpa"
    default = module.default_cfg["input_size"][1:]
    height, width = image_size(asked.resolution, "x".join(map(str, default)))
    size = asked.size(32)

    def make_batch() -> tuple[Tensor, ...]:
        asked.check_classes("num_classes", module.num_classes)
        images = torch.randn(size, 3, height, width)
        return images, torch.randint(0, module.num_classes, (size,))

    made = Workload(asked.name, module, make_batch, _loss)
    return made if asked.dtype is None else made.cast(asked.dtype)


def _made(asked: LibraryModel, create: Any) -> Any:
    build = functools.partial(create, asked.what, pretrained=False)
    try:
        return build(**asked.options)
    except TypeError as error:
        with torch.device("meta"):
            of = type(build())
        asked.check_options({*inspect.signature(of.__init__).parameters} - {"self"}, asked.what)
        raise ConfigError(
            f"{asked.where}: {asked.what} says: {str(error) or accuse(error)}"
        ) from error
    except (ValueError, AssertionError, KeyError) as error:
        raise ConfigError(
            f"{asked.where}: {asked.what} says: {str(error) or accuse(error)}"
        ) from error


def _loss(module: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(module(images).float(), labels)
