"""The list of packages, which is that of the folders; all else stands in pyproject.toml."""

import tomllib
from pathlib import Path

from setuptools import find_packages, setup

SETTINGS = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["setuptools"]
ROOMS = {"rematbench": "rematbench", **SETTINGS["package-dir"]}

setup(
    packages=[
        *ROOMS,
        *(f"{room}.{inner}" for room, at in ROOMS.items() for inner in find_packages(at)),
        "hydra_plugins",
    ]
)
