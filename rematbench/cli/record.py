"""``rematbench-record model=tree_lstm out=F.log.gz``: a training step as an event log.

The log has simrd's format; ``rematbench model=simrd_log model.path=F.log.gz`` plans on it.
"""

from __future__ import annotations

from pathlib import Path

from rematbench.base.checks import whole
from rematbench.base.errors import ConfigError
from rematbench.cli.app import command
from rematbench.cli.hydra_task import CommandTask, Config
from rematbench.cli.terminal import working
from rematbench.jobs.settings import LARGEST_SEED, TORCH_KINDS
from rematbench.worker.worker import the_worker


def check(config: Config) -> None:
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


def _work(config: Config) -> None:
    check(config)
    with working(f"record {config['model']['name']}") as say:
        message = the_worker().record(dict(config), say)
    print(message)


def main() -> None:
    """The command. Exits 2 for a bad configuration, with one line that says what."""
    command("rematbench-record", "record", CommandTask(_work))


if __name__ == "__main__":
    main()
