"""torchvision's deep networks with two blocks in each stage, which take seconds to capture."""

from __future__ import annotations

from typing import Any

import pytest

from rematbench.zoo.vision import import_torchvision


def make_shallow(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every network of a family (``densenet``, ``resnet``) that is made from here on."""
    module = getattr(import_torchvision().models, family)
    build = getattr(module, f"_{family}")

    def shallow(first: Any, layers: Any, *rest: Any, **options: Any) -> Any:
        return build(first, [2] * len(layers), *rest, **options)

    monkeypatch.setattr(module, f"_{family}", shallow)
