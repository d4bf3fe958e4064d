"""The models: torchvision's, those of other libraries, and ours where none has them.

``make_model(name, **options)`` builds any of :data:`NAMES` and of :data:`LIBRARY_NAMES`, whose
hyperparameters stand in ``conf/model``; ``make_python_model`` a user's own.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

from rematbench.base.checks import did_you_mean
from rematbench.base.errors import ConfigError
from rematbench.conf.published import of_libraries
from rematbench.tracing.workload import Workload
from rematbench.zoo.libraries import make_library_model, make_named
from rematbench.zoo.own import call, make_python_model

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
LIBRARY_NAMES = tuple(sorted(of_libraries()))
__all__ = ["LIBRARY_NAMES", "NAMES", "make_library_model", "make_model", "make_python_model"]


def make_model(name: str, **options: Any) -> Workload:
    """Build a model of the zoo.

    Args:
        name: one of :data:`NAMES` or :data:`LIBRARY_NAMES`.
        options: batch_size, resolution and what the model's own factory takes; a library's model
            has a size, too (``published`` or ``small``), and its configuration's options.

    Raises:
        ConfigError: an unknown name, an option that the model does not have, or a count below 1.
    """
    if name in LIBRARY_NAMES:
        return make_named(name, options)
    factory = _factory(name)
    for key, parameter in inspect.signature(factory).parameters.items():
        given = options.get(key)
        counts = type(parameter.default) is int or parameter.annotation == "int | None"
        if counts and isinstance(given, (int, float)) and given < 1:
            raise ConfigError(f"model={name} model.options.{key}={given}: give 1 or more")
    made: Workload = call(f"model={name}", factory, options)
    return made


def _factory(name: str) -> Callable[..., Workload]:
    if name in _OURS:
        module = importlib.import_module(f"rematbench.zoo.{_OURS[name]}")
        found: Callable[..., Workload] = getattr(module, name)
        return found
    if name in _TORCHVISION:
        from rematbench.zoo.vision import classifier

        return functools.partial(classifier, name)
    names = (*NAMES, *LIBRARY_NAMES)
    hint = did_you_mean(name, names)
    raise ConfigError(f"model={name}: unknown; {hint}the zoo has: {', '.join(names)}")
