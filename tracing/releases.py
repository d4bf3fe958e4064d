"""What differs between the releases of PyTorch that we run with; imported before its private API.

A new release gets a line here once ``make matrix`` has run on it. pyproject.toml's range and the
record ``runs/benchmarks/versions.json``, which names what failed, are
held against these lines. Nobody has run 2.12 and 2.14: they are taken to be as their neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rematbench.base.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TorchRelease:
    """One minor release.

    Attributes:
        torchvision: the minor release that was built for it.
        holds_tangents: AOTAutograd's backward function holds its tangents until it returns; later
            ones hand over a list that the backward half empties.
        keeps_layouts: a plan's halves take less memory where Inductor does not choose layouts.
        sees_sequentials: Dynamo looks into a ``Sequential`` that compiles itself.
    """

    torchvision: str
    holds_tangents: bool = False
    keeps_layouts: bool = True
    sees_sequentials: bool = False


RELEASES = {
    "2.11": TorchRelease("0.26", holds_tangents=True, keeps_layouts=False),
    "2.12": TorchRelease("0.27", holds_tangents=True),
    "2.13": TorchRelease("0.28"),
    "2.14": TorchRelease("0.29"),
    "2.15": TorchRelease("0.29", sees_sequentials=True),
}


def release_of(version: str) -> TorchRelease:
    """The line of a version such as ``2.13.0+cpu``.

    Raises:
        ConfigError: there is none.
    """
    minor = ".".join(version.split(".")[:2])
    if minor not in RELEASES:
        first, *_, last = RELEASES
        raise ConfigError(
            f"PyTorch {version} is installed; rematbench runs with {first} to {last}: "
            f"pip install 'torch=={last}.*'"
        )
    return RELEASES[minor]


RELEASE = release_of(torch.__version__)
"""Of the PyTorch that is installed."""
