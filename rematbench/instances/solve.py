"""``rematbench-instances solve``: any strategy over any selection, as ``rematbench -m`` runs it."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from omegaconf import OmegaConf

from rematbench.base.errors import ConfigError
from rematbench.cli.app import command, recall, run_or_recall
from rematbench.cli.hydra_task import JobTask
from rematbench.instances.records import read_library
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
    rest = [word for word in words if word not in selection]
    keys = {_key(word): word.partition("=")[2] for word in rest}
    select(read_library(folder), selection or ["no selection"])
    if "strategy" not in keys:
        raise ConfigError("solve: no strategy; give strategy=NAME, or strategy='glob(*)'")
    for key in _DECIDED:
        if key in keys:
            raise ConfigError(f"{key}={keys[key]}: the library decides it; leave it out")
    part = keys.pop("part", "1/1")
    rest = [word for word in rest if _key(word) != "part"]
    sweeps(folder, " ".join(selection), part)  # says what is wrong with the part
    given = ",".join(f'"{text}"' for text in (folder, " ".join(selection), part))
    made = [f"hydra.sweeper.sweeps=${{{RESOLVER}:{given}}}"]
    if "hydra.sweep.dir" not in keys:
        name = re.sub(r"[^\w.=-]+", "_", " ".join([*selection, *sorted(rest), part]))
        made.append(f"hydra.sweep.dir=runs/instances/{name}")
    return [*rest, *made]


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
