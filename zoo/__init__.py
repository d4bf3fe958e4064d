"""The models: torchvision's, and ours where torchvision has none.

``make_model(name, **options)`` builds any of :data:`NAMES`; ``make_python_model`` a user's own.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch._guards import detect_fake_mode

from rematbench.graphs.errors import ConfigError
from rematbench.tracing.workload import Workload

_TORCHVISION = (
    *("vgg11", "vgg13", "vgg16", "vgg19", "alexnet"),
    *("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext101"),
    *("mobilenet_v2", "googlenet", "inception_v3", "vit_b_16", "convnext_tiny"),
    *("densenet121", "densenet161", "densenet169", "densenet201"),
)
_OURS = {
    "mobilenet_v1": "classifiers",
    "resnet32": "classifiers",
    "densenet_bc": "classifiers",
    "darts": "cells",
    "nasnet": "cells",
    "amoebanet": "cells",
    "unet": "segmentation",
    "fcn8": "segmentation",
    "segnet": "segmentation",
    "unet3d": "segmentation",
    "roberta": "sequences",
    "transformer_lm": "sequences",
    "lstm_lm": "sequences",
    "tree_lstm": "sequences",
    "biggan_generator": "generative",
    "biggan_discriminator": "generative",
    "siamese": "joins",
    "cross_modal": "joins",
}
NAMES = (*_TORCHVISION, *_OURS)
_GIVEN = ("name", "options")


def make_model(name: str, **options: Any) -> Workload:
    """Build a model of the zoo.

    Args:
        name: one of :data:`NAMES`.
        options: batch_size, resolution and what the model's own factory takes.

    Raises:
        ConfigError: an unknown name, or an option that the model does not have.
    """
    made: Workload = _call(f"model={name}", _factory(name), options)
    return made


def _factory(name: str) -> Callable[..., Workload]:
    if name in _OURS:
        module = importlib.import_module(f"rematbench.zoo.{_OURS[name]}")
        found: Callable[..., Workload] = getattr(module, name)
        return found
    if name in _TORCHVISION:
        from rematbench.zoo.vision import classifier

        return functools.partial(classifier, name)
    near = difflib.get_close_matches(name, NAMES, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise ConfigError(f"model={name}: unknown; {hint}the zoo has: {', '.join(NAMES)}")


def _call(where: str, make: Callable[..., Any], options: dict[str, Any]) -> Any:
    try:
        inspect.signature(make).bind(**options)
        return make(**options)
    except TypeError as error:
        accepted = ", ".join(k for k in inspect.signature(make).parameters if k not in _GIVEN)
        raise ConfigError(f"{where}: {error}; its options are: {accepted or 'none'}") from error


def make_python_model(target: str, **options: Any) -> Workload:
    """Build a user's own model.

    Args:
        target: ``package.module:function``, importable from where you stand. The function gets
            ``options`` and returns a :class:`Workload`; or ``(module, batch)``, where
            ``module(*batch)`` is the loss; or ``(module, batch, loss)``, where
            ``loss(module, *batch)`` is. ``batch`` is a tuple of tensors.

    Raises:
        ConfigError: the function cannot be found, or returns something else.
    """
    where = f"model.target={target}"
    place, _, name = target.partition(":")
    if not name:
        raise ConfigError(f"{where}: give package.module:function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        make = getattr(importlib.import_module(place), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{where}: {error}; check the name and PYTHONPATH") from error
    made = _call(where, make, options)
    if isinstance(made, Workload):
        return made
    match made:
        case (nn.Module() as module, tuple() | list() as batch):
            return _workload(where, module, tuple(batch), _own_loss)
        case (nn.Module() as module, tuple() | list() as batch, loss) if callable(loss):
            return _workload(where, module, tuple(batch), loss)
    raise ConfigError(
        f"{where}: returned {type(made).__name__}; return (module, batch), with module(*batch) a "
        "scalar loss, or (module, batch, loss), with loss(module, *batch) one"
    )


def _own_loss(module: nn.Module, *batch: Tensor) -> Tensor:
    loss: Tensor = module(*batch)
    return loss


def _workload(
    where: str, module: nn.Module, batch: tuple[Any, ...], loss: Callable[..., Tensor]
) -> Workload:
    for i, item in enumerate(batch):
        if not isinstance(item, Tensor):
            raise ConfigError(f"{where}: item {i} of the batch is no tensor; give tensors only")

    def make_batch() -> tuple[Tensor, ...]:
        mode = detect_fake_mode()
        return batch if mode is None else tuple(mode.from_tensor(item) for item in batch)

    return Workload(where.partition(":")[2], module, make_batch, loss)
