"""Recording a model's training step to a file: the worker's part of ``rematbench-record``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rematbench.base.errors import ConfigError
from rematbench.jobs.sources import make_workload
from rematbench.streams.events import EventStream
from rematbench.streams.log import write_log


def record_model(config: Mapping[str, Any]) -> EventStream:
    """Record the model of a checked configuration.

    Raises:
        ConfigError: the model cannot be made.
        CaptureError: its training step fails.
    """
    given = {key: config[key] for key in ("batch_size", "resolution") if config[key] is not None}
    model = dict(config["model"]) | given
    import torch

    from rematbench.costmodel.device import require
    from rematbench.tracing.recorder import record_workload

    device = config["device"]["name"]
    require(device)
    if config["threads"] is not None:
        torch.set_num_threads(config["threads"])
    return record_workload(make_workload(model, config["seed"]), device, config["seed"])


def record_to_file(config: Mapping[str, Any], say: Callable[[str], None]) -> str:
    """Record and write the log, in the worker process.

    Returns:
        What to tell the user.

    Raises:
        ConfigError: the file cannot be written, or the model cannot be made.
        CaptureError: its training step fails.
    """
    out = Path(str(config["out"]))
    say("record")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        stream = record_model(config)
        say("write")
        # Written by atomic rename: an interrupted recording leaves nothing.
        write_log(out, stream)
    except OSError as error:
        if error.filename is None:
            raise
        raise ConfigError(f"out={out}: {error.filename}: {error.strerror}") from error
    kinds = Counter(type(event).__name__.lower() for event in stream.events)
    seconds = sum(getattr(event, "cost", 0) for event in stream.events) / 1e9
    return (
        f"{out}: {kinds['call']} calls and {kinds['mutate']} mutations in {seconds:.3f} s, "
        f"{kinds['constant']} constants, {kinds['release']} releases"
    )
