"""``rematbench-record model=tree_lstm out=F.log.gz``: a training step as an event log.

The log has simrd's format; ``rematbench model=simrd_log model.path=F.log.gz`` plans on it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Hydra then passes its errors on, instead of printing a traceback and leaving.
os.environ.setdefault("HYDRA_FULL_ERROR", "1")

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rematbench.graphs.errors import ConfigError, RematbenchError
from rematbench.mistakes import explain
from rematbench.settings import LARGEST_SEED, TORCH_KINDS, whole
from rematbench.terminal import working
from rematbench.worker import the_worker

BAD_CONFIGURATION = 2
_mistakes: list[Exception] = []


def check(config: Mapping[str, Any]) -> None:
    """Look at a resolved configuration, as ``conf/record.yaml`` lays it out, before anything runs.

    Raises:
        ConfigError: a value is unknown or out of range; names its key.
    """
    out = Path(str(config["out"]))
    if not out.name.endswith((".log", ".log.gz")):
        raise ConfigError(f"out={out}: give a file name that ends in .log or .log.gz")
    if out.is_dir():
        raise ConfigError(f"out={out}: is a folder; give the name of a file")
    model = config["model"]
    if model["kind"] not in TORCH_KINDS:
        raise ConfigError(f"model={model['name']}: not a PyTorch model; choose one of the zoo")
    for key in ("batch_size", "resolution"):
        if config[key] is not None and key not in model:
            raise ConfigError(f"{key}={config[key]}: model={model['name']} has no {key}")
    whole("seed", config["seed"], 0, LARGEST_SEED)
    if config["threads"] is not None:
        whole("threads", config["threads"], 1)


def _task(config: DictConfig) -> None:
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        assert isinstance(plain, dict)
        given = {str(key): value for key, value in plain.items()}
        check(given)
        with working(f"record {given['model']['name']}") as say:
            told = the_worker().record(given, say)
        print(told)
    except (RematbenchError, OmegaConfBaseException) as error:
        _mistakes.append(error)  # told by main: Hydra would add words of its own to an exception


_hydra_main = hydra.main(
    version_base="1.3", config_path="pkg://rematbench.conf", config_name="record"
)(_task)


def main() -> None:
    """The command. Exits 2 for a bad configuration, with one line that says what."""
    _mistakes.clear()
    try:
        _hydra_main()
        if _mistakes:
            raise _mistakes[0]
    except (HydraException, OmegaConfBaseException, RematbenchError) as error:
        print(f"rematbench-record: {explain(error)}", file=sys.stderr)
        sys.exit(BAD_CONFIGURATION)
    except KeyboardInterrupt:
        print("rematbench-record: interrupted; nothing was written", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
