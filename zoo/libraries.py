"""Models of other people's libraries: transformers, diffusers and timm, with random weights.

A library is imported when a model of it is made; nothing is downloaded. Each has a module here:
what it calls its models, their options, a batch and the loss that they are trained with.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from rematbench.base.checks import did_you_mean
from rematbench.base.errors import ConfigError, RematbenchError, is_out_of_memory
from rematbench.base.imports import uncollected
from rematbench.base.origin import accuse
from rematbench.conf.published import of_libraries, sized
from rematbench.tracing.workload import Workload, image_size
from rematbench.zoo.vision import import_torchvision

AUTOCAST = ("bfloat16", "float16")
_LOADS = frozenset(
    (
        *("pretrained", "checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir"),
        *("weights", "weights_backbone", "pretrained_backbone", "use_pretrained_backbone"),
    )
)
"""Options by which the libraries read weights from disk or fetch them."""


@dataclass(frozen=True)
class LibraryModel:
    """What a library's model is made from.

    Attributes:
        where: names it in errors: ``model=gpt2``.
        name: for people and files.
        what: the library's own name of it: a configuration, an architecture, a class.
        task: what it is trained for; None: the library's first that fits.
        batch_size, resolution: None: the model's own.
        attention: which implementation computes attention; None: the library's own choice.
        dtype: of parameters and inputs; None: PyTorch's default.
        options: further ones, the library's.
    """

    where: str
    name: str
    what: str
    task: str | None
    batch_size: int | None
    resolution: int | str | None
    attention: str | None
    dtype: torch.dtype | None
    options: Mapping[str, Any]

    def size(self, default: int) -> int:
        """The batch's."""
        return default if self.batch_size is None else self.batch_size

    def attention_or(self, default: str) -> str:
        """Which implementation computes attention."""
        return default if self.attention is None else self.attention

    def length(self, key: str, default: int) -> int:
        """An option that counts tokens.

        Raises:
            ConfigError: it is no whole number, or below 1.
        """
        given = self.options.get(key)
        length: int = default if given is None else given
        if type(length) is not int or length < 1:
            raise ConfigError(f"{self.where} model.options.{key}={length}: give 1 or more")
        return length

    def image_size(self, key: str, own: Any, default: int) -> tuple[int, int]:
        """Height and width of images: as asked, else the model's own.

        Args:
            key: the model's option that has its own.
            own: its value: pixels of a side or of both, or None.
            default: pixels, of a model that takes images of any size.

        Raises:
            ConfigError: the model's own has none.
        """
        sides = own if isinstance(own, list | tuple) else [default if own is None else own]
        if not all(type(side) is int and side > 0 for side in sides):
            raise ConfigError(f"{self.where} model.options.{key}={own}: give 1 or more")
        return image_size(self.resolution, "x".join(map(str, sides)))

    def check_classes(self, key: str, count: int) -> None:
        """Raises ConfigError where a classifier has no class."""
        if count < 1:
            raise ConfigError(
                f"{self.where} model.options.{key}={count}: its loss needs a class; give 1 or more"
            )

    def one_of(self, key: str, given: str, names: Iterable[str]) -> str:
        """``given``, one of ``names``.

        Raises:
            ConfigError: it is not; names the nearest.
        """
        known = tuple(names)
        if given in known:
            return given
        raise ConfigError(f"{self.where} {key}={given}: unknown; {nearest(given, known)}")

    def check_options(self, known: Collection[str], of: str) -> None:
        """Raises ConfigError for an option that is not among ``known``."""
        for key in self.options:
            if key not in known:
                raise ConfigError(
                    f"{self.where} model.options.{key}: {of} has no such option; "
                    f"{nearest(key, known)}"
                )


def nearest(given: str, known: Collection[str], shown: int = 12) -> str:
    """What to say of a name that is not known: the nearest, and some of all."""
    hint = did_you_mean(given, known, cutoff=0.5)
    rest = f" and {len(known) - shown} more" if len(known) > shown else ""
    return f"{hint}there are: {', '.join(sorted(known)[:shown])}{rest}"


def import_library(where: str, name: str) -> ModuleType:
    """A library of the extra ``models``.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        with uncollected():
            import_torchvision()  # all three import it
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ConfigError(
            f"{where}: {name} is not installed; it comes with the extra models: "
            'pip install "rematbench[models]"'
        ) from error


def make_library_model(given: Mapping[str, Any]) -> Workload:
    """A model of a library, as ``conf/model`` describes it.

    Args:
        given: kind (the library), name, config or arch, task, size, batch_size, resolution,
            dtype, options.

    Raises:
        ConfigError: the library, the model or an option of it is not there.
    """
    model = sized(given)
    options = dict(model["options"])
    autocast, rank = options.pop("autocast", None), options.pop("lora", None)
    where = f"model={model['name']}"
    for key in filter(options.get, _LOADS):
        raise ConfigError(
            f"{where} model.options.{key}={options[key]}: it would load trained weights, which "
            "no plan depends on; leave it out (to train from them, use model=python)"
        )
    if autocast not in (None, *AUTOCAST):
        raise ConfigError(
            f"{where} model.options.autocast={autocast}: give one of {', '.join(AUTOCAST)}, or null"
        )
    asked = LibraryModel(
        where=where,
        name=model["name"],
        what=_what(where, model),
        task=model.get("task"),
        batch_size=model.get("batch_size"),
        resolution=model.get("resolution"),
        attention=options.pop("attention", None),
        dtype=getattr(torch, model.get("dtype") or model.get("own_dtype") or "", None),
        options=options,
    )
    made = _made(model["kind"], asked, given.get("options") or {})
    if rank is not None:
        from rematbench.zoo.adapters import adapt

        adapt(where, made.module, rank)
    return made if autocast is None else _autocast(made, getattr(torch, autocast))


def make_named(name: str, options: Mapping[str, Any]) -> Workload:
    """A model that ``conf/model`` names; see :func:`make_library_model`."""
    rest = dict(options)
    own = ("size", "batch_size", "resolution", "dtype", "config", "arch", "task")
    given = {key: rest.pop(key) for key in own if key in rest}
    return make_library_model({**of_libraries()[name], **given, "options": rest})


def _what(where: str, model: Mapping[str, Any]) -> str:
    key = "arch" if model["kind"] == "timm" else "config"
    if not isinstance(model.get(key), str):
        raise ConfigError(f"{where} model.{key}={model.get(key)}: give the name of one")
    return str(model[key])


def _made(library: str, asked: LibraryModel, chosen: Mapping[str, Any]) -> Workload:
    import_library(asked.where, library)
    make: Callable[[LibraryModel], Workload]
    make = importlib.import_module(f"rematbench.zoo.{library}_models").workload
    try:
        return make(asked)
    except RematbenchError:
        raise
    except Exception as error:  # a library looks at its options where it uses them
        if is_out_of_memory(error):
            raise
        shown = ", ".join(f"{key}={value}" for key, value in chosen.items()) or "as published"
        raise ConfigError(
            f"{asked.where}: {asked.what} cannot be made with model.options {shown}: "
            f"{accuse(error)}"
        ) from error


def _autocast(made: Workload, dtype: torch.dtype) -> Workload:
    """The same step under autocast, as training loops enter it: around forward and loss."""
    inner = made.loss

    def loss(module: nn.Module, *batch: Tensor) -> Tensor:
        # No cache of casts: a weight that is used twice would be cast once, and its gradients
        # added in low precision, in some runs and not in others.
        with torch.autocast(batch[0].device.type, dtype=dtype, cache_enabled=False):
            return inner(module, *batch)

    return replace(made, loss=loss)
