"""``rematbench-record model=tree_lstm out=F.log.gz``: a training step as an event log.

The log has simrd's format; ``rematbench model=simrd_log model.path=F.log.gz`` plans on it.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
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
from rematbench.settings import TORCH_KINDS
from rematbench.sources import make_workload
from rematbench.streams.events import EventStream
from rematbench.streams.log import write_log

BAD_CONFIGURATION = 2
_mistakes: list[Exception] = []


def record_model(config: dict[str, Any]) -> EventStream:
    """Record the model of a resolved configuration, as ``conf/record.yaml`` lays it out.

    Raises:
        ConfigError: a value is unknown or out of range; names its key.
        CaptureError: the model's training step fails.
    """
    model = dict(config["model"])
    if model["kind"] not in TORCH_KINDS:
        raise ConfigError(f"model={model['name']}: not a PyTorch model; choose one of the zoo")
    for key in ("batch_size", "resolution"):
        if config[key] is not None:
            if key not in model:
                raise ConfigError(f"{key}={config[key]}: model={model['name']} has no {key}")
            model[key] = config[key]
    for key, least in (("seed", 0), ("threads", 1)):
        given = config[key]
        if (given is not None or key == "seed") and (type(given) is not int or given < least):
            raise ConfigError(f"{key}={given}: give a whole number, {least} or more")
    # PyTorch takes seconds to load: not before the configuration is known to be good.
    import torch

    from rematbench.costmodel.device import require
    from rematbench.tracing.recorder import record_workload

    device = config["device"]["name"]
    require(device)
    if config["threads"] is not None:
        torch.set_num_threads(config["threads"])
    return record_workload(make_workload(model, config["seed"]), device, config["seed"])


def _task(config: DictConfig) -> None:
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        assert isinstance(plain, dict)
        _record_to_file({str(key): value for key, value in plain.items()})
    except (RematbenchError, OmegaConfBaseException, OSError) as error:
        _mistakes.append(error)  # told by main: Hydra would add words of its own to an exception


def _record_to_file(given: dict[str, Any]) -> None:
    out = Path(str(given["out"]))
    if not out.name.endswith((".log", ".log.gz")):
        raise ConfigError(f"out={out}: give a file name that ends in .log or .log.gz")
    out.parent.mkdir(parents=True, exist_ok=True)
    stream = record_model(given)
    # Written by atomic rename: an interrupted recording leaves nothing.
    write_log(out, stream)
    kinds = Counter(type(event).__name__.lower() for event in stream.events)
    seconds = sum(getattr(event, "cost", 0) for event in stream.events) / 1e9
    print(
        f"{out}: {kinds['call']} calls and {kinds['mutate']} mutations in {seconds:.3f} s, "
        f"{kinds['constant']} constants, {kinds['release']} releases"
    )


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
    except OSError as error:
        print(f"rematbench-record: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("rematbench-record: interrupted; nothing was written", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
