"""Models whose hyperparameters stand in ``conf/model``: as published, and small."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

SIZES = ("published", "small")
LIBRARIES = ("transformers", "diffusers", "timm")
_OVER = ("batch_size", "resolution")  # a size's own, where nobody gives another


@cache
def of_libraries() -> dict[str, Mapping[str, Any]]:
    """The configurations in ``conf/model`` of models that a library has, by name."""
    import yaml

    found = {}
    for path in (files("rematbench.conf") / "model").iterdir():
        text = path.read_text(encoding="utf-8") if path.name.endswith(".yaml") else ""
        if is_of_library(text):
            found[path.name.removesuffix(".yaml")] = yaml.safe_load(text)
    return found


def is_of_library(text: str) -> bool:
    """Is a file of ``conf/model`` of a model that a library has?"""
    return any(f"kind: {library}" in text for library in LIBRARIES)


def sized(model: Mapping[str, Any]) -> dict[str, Any]:
    """A model's configuration at its ``size``: one set of options, the given ones first.

    Args:
        model: as ``conf/model`` has it. ``published`` and ``small`` are sections of what to take
            where it is not given; what ``small`` does not say is as published.
    """
    found = {key: value for key, value in model.items() if key not in SIZES}
    if not any(model.get(size) for size in SIZES):
        return found
    own: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for size in SIZES[: SIZES.index(model["size"]) + 1]:
        own |= model.get(size) or {}
        options |= own.pop("options", None) or {}
    for key in _OVER:
        if found.get(key) is None and key in own:
            found[key] = own[key]
    return found | {"own_dtype": own.get("dtype"), "options": options | (found["options"] or {})}
