"""``rematbench-instances solve``: any strategy over any selection, as ``rematbench -m`` runs it."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping, Sequence

from omegaconf import OmegaConf

from rematbench.base.errors import ConfigError
from rematbench.cli.app import command, recall, run_or_recall
from rematbench.cli.hydra_task import JobTask
from rematbench.instances.records import HOME, read_library
from rematbench.instances.selection import FILTERS, select, sweeps

RESOLVER = "library_sweeps"
_DECIDED = ("model", "budget")


def overrides(words: Sequence[str], folder: str) -> list[str]:
    """What ``rematbench`` is given.

    The sweep's folder is named after the words, so that the same command goes on where it was.

    Args:
        words: a selection, and keys of ``rematbench``; ``part=k/n`` takes a part of the graphs.
        folder: of the library.

    Raises:
        ConfigError: the selection is bad, there is no strategy, or a key that the library decides.
    """
    selection = [word for word in words if _key(word) in ("", *FILTERS)]
    keys = dict(word.split("=", 1) for word in words if word not in selection)
    select(read_library(folder), selection or ["no selection"])
    _check_keys(keys)
    part = keys.pop("part", "1/1")
    rest = [f"{key}={value}" for key, value in keys.items()]
    sweeps(folder, " ".join(selection), part)  # says what is wrong with the part
    given = ",".join(f'"{text}"' for text in (folder, " ".join(selection), part))
    made = [f"hydra.sweeper.sweeps=${{{RESOLVER}:{given}}}"]
    if "hydra.sweep.dir" not in keys:
        library = [] if folder == HOME else [f"library={folder}"]
        made.append(f"hydra.sweep.dir={_folder([*selection, *sorted([*rest, *library])], part)}")
    return [*rest, *made]


def _folder(words: Sequence[str], part: str) -> str:
    """The sweep's, which no other words have: a hash tells apart what a name cannot."""
    name = re.sub(r"[^\w.=-]+", "_", " ".join([*words, part]))
    if any(re.search(r"[^\w.=-]", word) for word in words):
        name += f"-{hashlib.sha256(' '.join(words).encode()).hexdigest()[:8]}"
    return f"runs/instances/{name}"


def _check_keys(keys: Mapping[str, str]) -> None:
    if "strategy" not in keys:
        raise ConfigError("solve: no strategy; give strategy=NAME, or strategy='glob(*)'")
    for key in _DECIDED:
        if key in keys:
            raise ConfigError(f"{key}={keys[key]}: the library decides it; leave it out")


def _key(word: str) -> str:
    return word.partition("=")[0] if "=" in word else ""


def solve(words: Sequence[str], folder: str) -> None:
    """Run the sweep; finished jobs are recalled. Exits as ``rematbench -m`` does."""
    given = overrides(words, folder)
    OmegaConf.register_new_resolver(
        RESOLVER, lambda *asked: OmegaConf.create(sweeps(*asked)), replace=True
    )
    sys.argv = ["rematbench-instances", "-m", *given]
    command("rematbench-instances", "config", JobTask(run_or_recall, recall))
