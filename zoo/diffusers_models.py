"""Networks of Hugging Face's diffusers, trained to tell the noise in what they are given."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rematbench.graphs.errors import ConfigError
from rematbench.tracing.workload import Workload, image_size
from rematbench.zoo.libraries import Asked

_STEPS = 1000  # of the diffusion (Ho et al., 2020)
_OWN = ("sequence_length",)


def workload(asked: Asked) -> Workload:
    """A network with a batch of noisy samples and the noise's mean squared error.

    Raises:
        ConfigError: there is no such network or option.
    """
    diffusers: Any = importlib.import_module("diffusers")

    diffusers.logging.set_verbosity_error()
    names = [name for name in dir(diffusers) if name.endswith(("UNet2DConditionModel",))]
    of = getattr(diffusers, asked.one_of("model.config", asked.what, names))
    known = [name for name in inspect.signature(of.__init__).parameters if name != "self"]
    asked.check_options({*known, *_OWN}, asked.what)
    options = {key: value for key, value in asked.options.items() if key not in _OWN}
    try:
        module = of(**options)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise ConfigError(f"{asked.where}: {asked.what} says: {error}") from error
    _attend(asked, module)
    height, width = image_size(asked.resolution, module.config.sample_size or 64)
    size, config = asked.batch_size or 1, module.config
    length = asked.options.get("sequence_length") or 77

    def make_batch() -> tuple[Tensor, ...]:
        shape = (size, config.in_channels, height, width)
        times = torch.randint(0, _STEPS, (size,))
        states = torch.randn(size, length, config.cross_attention_dim)
        return torch.randn(shape), times, states, torch.randn(size, config.out_channels, *shape[2:])

    made = Workload(asked.name, module, make_batch, _noise)
    return made if asked.dtype is None else made.cast(asked.dtype)


def _noise(module: nn.Module, noisy: Tensor, times: Tensor, states: Tensor, noise: Tensor) -> Any:
    return F.mse_loss(module(noisy, times, encoder_hidden_states=states).sample.float(), noise)


def _attend(asked: Asked, module: Any) -> None:
    from diffusers.models.attention_processor import AttnProcessor, AttnProcessor2_0

    kinds = {"sdpa": AttnProcessor2_0, "eager": AttnProcessor}
    given = asked.attention or "sdpa"
    module.set_attn_processor(kinds[asked.one_of("model.options.attention", given, kinds)]())
