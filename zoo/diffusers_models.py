"""Networks of Hugging Face's diffusers, trained to tell the noise in what they are given."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rematbench.base.errors import ConfigError
from rematbench.base.origin import accuse
from rematbench.tracing.workload import Workload
from rematbench.zoo.libraries import LibraryModel

_STEPS = 1000  # of the diffusion (Ho et al., 2020)
_TEXT = 77  # tokens, as CLIP gives them
_OWN = ("sequence_length",)
Conditions = Mapping[str, Callable[[], Tensor]]
"""What a network is told besides the sample and its time: by argument, what makes it."""


def workload(asked: LibraryModel) -> Workload:
    """A network with a batch of noisy samples and the noise's mean squared error.

    Raises:
        ConfigError: there is no such network or option.
    """
    diffusers: Any = importlib.import_module("diffusers")
    diffusers.logging.set_verbosity_error()
    conditions = _CONDITIONS[asked.one_of("model.config", asked.what, _CONDITIONS)]
    of = getattr(diffusers, asked.what)
    known = [name for name in inspect.signature(of.__init__).parameters if name != "self"]
    asked.check_options({*known, *_OWN}, asked.what)
    options = {key: value for key, value in asked.options.items() if key not in _OWN}
    try:
        module = of(**options)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise ConfigError(
            f"{asked.where}: {asked.what} says: {str(error) or accuse(error)}"
        ) from error
    _attend(asked, module)
    config, size = module.config, asked.size(1)
    height, width = asked.image_size("sample_size", config.sample_size, 64)
    text = conditions(asked, config, size)

    def make_batch() -> tuple[Tensor, ...]:
        noisy = torch.randn(size, config.in_channels, height, width)
        times = torch.randint(0, _STEPS, (size,))
        return noisy, times, torch.randn_like(noisy), *(make() for make in text.values())

    def loss(module: nn.Module, noisy: Tensor, times: Tensor, noise: Tensor, *rest: Tensor) -> Any:
        given: dict[str, Any] = dict(zip(text, rest, strict=True))
        added = {key: given.pop(key) for key in ("text_embeds", "time_ids") if key in given}
        if added:
            given["added_cond_kwargs"] = added
        # A network that tells the variance, too, does so behind the noise.
        found = module(noisy, timestep=times, **given).sample[:, : noise.shape[1]]
        return F.mse_loss(found.float(), noise.float())

    made = Workload(asked.name, module, make_batch, loss)
    return made if asked.dtype is None else made.cast(asked.dtype)


def _attend(asked: LibraryModel, module: Any) -> None:
    from diffusers.models.attention_processor import AttnProcessor, AttnProcessor2_0

    kinds = {"sdpa": AttnProcessor2_0, "eager": AttnProcessor}
    kind = kinds[
        asked.one_of(
            "model.options.attention", "sdpa" if asked.attention is None else asked.attention, kinds
        )
    ]
    for part in module.modules():
        if hasattr(part, "set_processor"):
            part.set_processor(kind())


def _text(asked: LibraryModel, config: Any, size: int) -> Conditions:
    """Encoded text; SDXL's pooled text and its image's size and crop, too."""
    length = asked.length("sequence_length", _TEXT)
    text: dict[str, Callable[[], Tensor]] = {
        "encoder_hidden_states": lambda: torch.randn(size, length, config.cross_attention_dim)
    }
    if config.addition_embed_type == "text_time":
        pooled = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
        text["text_embeds"] = lambda: torch.randn(size, pooled)
        text["time_ids"] = lambda: torch.rand(size, 6)
    return text


def _classes(asked: LibraryModel, config: Any, size: int) -> Conditions:
    """The class, where the network is told one."""
    for key in ("num_embeds_ada_norm", "num_class_embeds"):
        count: int | None = getattr(config, key, None)
        if count is not None:
            asked.check_classes(key, count)
            return {"class_labels": partial(torch.randint, count, (size,))}
    return {}


_CONDITIONS: dict[str, Callable[[LibraryModel, Any, int], Conditions]] = {
    "UNet2DConditionModel": _text,
    "UNet2DModel": _classes,
    "DiTTransformer2DModel": _classes,
}
