"""``rematbench-fit``: "I have this model and 8 GiB": a plan to train with, and the code to paste.

Several strategies plan within the memory, ordinary training first; the cheapest plan wins. With
``link=pcie4`` (and ``host=64GiB``) it also says what offloading would bring. With
``largest_batch=true`` each searches its largest batch, as ``rematbench-max-batch`` does, and the
largest wins. The run folder gets the winner's row, plan and graph, and ``train.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rematbench.base.checks import flag, whole
from rematbench.base.errors import ConfigError
from rematbench.base.sizes import size
from rematbench.cli.app import command, run_job
from rematbench.cli.fit_offload import (
    brought,
    has_host,
    offloads,
    said,
    with_hybrid,
    without_link,
)
from rematbench.cli.hydra_task import JobTask
from rematbench.cli.max_batch import Question, answer
from rematbench.conf.published import LIBRARIES
from rematbench.graphs.budget import Budget, parse_bytes
from rematbench.graphs.files import write_bytes
from rematbench.jobs.settings import Settings
from rematbench.rows.row import Row, format_row, joined, write_row
from rematbench.strategies.registry import entry
from rematbench.worker.cache import copy_files

_ORDINARY = "checkpoint_all"
_SGD = "torch.optim.SGD(model.parameters(), lr=0.1)"
# What makes each optimizer: an import, and the call.
_OPTIMIZERS = {
    "none": ("import torch\n", _SGD),
    "sgd": ("import torch\n", _SGD),
    "momentum": ("import torch\n", "torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)"),
    "adamw": ("import torch\n", "torch.optim.AdamW(model.parameters(), lr=1e-4)"),
    "adamw8bit": (
        "import bitsandbytes\nimport torch\n",
        "bitsandbytes.optim.AdamW8bit(model.parameters(), lr=1e-4)",
    ),
}


@dataclass(frozen=True)
class FitRequest:
    """What is asked.

    Attributes:
        memory: bytes of the device.
        reserve: bytes of it that a step does not see (optimizer state).
        strategies: names, in the order in which they are asked.
        largest_batch: the largest batch, rather than the cheapest plan at the given one.
        least: the smallest batch tried.
    """

    memory: int
    reserve: int
    strategies: tuple[str, ...]
    largest_batch: bool
    least: int

    @property
    def budget(self) -> int:
        """Bytes that the plan may use."""
        return self.memory - self.reserve


def request_from(config: Mapping[str, Any], settings: Settings) -> FitRequest:
    """Read the command's own keys.

    Raises:
        ConfigError: one is bad, or the model is not PyTorch's.
    """
    largest = flag("largest_batch", config["largest_batch"])
    _check_job(config, settings, largest)
    memory, reserve = (_bytes(key, config[key]) for key in ("memory", "reserve"))
    if reserve >= memory:
        raise ConfigError(
            f"reserve={config['reserve']} leaves nothing of memory={config['memory']}"
        )
    names = config["strategies"]
    if not isinstance(names, list):
        raise ConfigError(f"strategies={names}: give a list such as [ap_greedy,anytime]")
    asked = tuple(dict.fromkeys([_ORDINARY, settings.strategy, *map(str, names)]))
    asked = with_hybrid(asked) if has_host(settings) else asked
    least = 1 if config["least"] is None else whole("least", config["least"], 1)
    return FitRequest(memory, reserve, asked, largest, least)


def _check_job(config: Mapping[str, Any], settings: Settings, largest: bool) -> None:
    """Refuse keys of a job that mean nothing here, or what the printed code would not keep to.

    Args:
        largest: is the batch searched?

    Raises:
        ConfigError: there is one.
    """
    if not settings.captured:
        raise ConfigError(f"model={settings.model['name']}: only a PyTorch model can be trained")
    if config["budget"] is not None:
        raise ConfigError(f"budget={config['budget']}: give memory (and reserve) instead")
    if settings.accounting != "full":  # apply would refuse the plan
        raise ConfigError(
            f"accounting={settings.accounting}: a training step holds all that there is; "
            "give accounting=full"
        )
    if largest and config["batch_size"] is not None:
        raise ConfigError(
            f"batch_size={config['batch_size']}: the search of largest_batch=true decides it; "
            "give least instead"
        )


def _bytes(key: str, given: Any) -> int:
    return 0 if str(given).strip().lower() in ("0", "0b") else parse_bytes(key, given)


def with_strategy(settings: Settings, name: str) -> Settings:
    """The same job by another strategy, with its default options.

    Raises:
        ConfigError: there is none of that name.
    """
    if name == settings.strategy:
        return settings
    found = entry(name, f"strategies: {name}")
    return replace(settings, strategy=name, target=found.path, options=found.defaults)


def fit(asked: FitRequest, settings: Settings, folder: Path, force: bool = False) -> Row:
    """Ask each strategy and write the winner's files, row and code.

    Returns:
        The winner's row, with ``fit`` in its ``extra``; the leanest one's where none fits.

    Raises:
        RematbenchError: the configuration is bad, or the model cannot be captured.
    """
    settings = replace(settings, trains_on=_device(settings))
    jobs = [without_link(with_strategy(settings, name)) for name in asked.strategies]
    with TemporaryDirectory() as scratch:
        rows: list[Row] = []
        for number, job in enumerate(jobs):
            place = Path(scratch, str(number))
            place.mkdir()
            rows.append(_ask(asked, job, place, force))
            if rows[0]["status"] == "ok" and not asked.largest_batch:
                break  # ordinary training fits, and nothing is cheaper
        best = min(range(len(rows)), key=lambda i: _rank(asked, rows[i]))
        copy_files(Path(scratch, str(best)), folder)
    facts = {
        "memory_bytes": asked.memory,
        "reserve_bytes": asked.reserve,
        "tried": [_label(each) for each in rows],
    }
    if has_host(settings):
        facts["offloading"] = brought(rows, _best_without(asked, rows))
    row = joined(rows[best], {"extra": {"fit": facts}})
    write_row(folder / "row.json", row)
    (folder / "train.py").unlink(missing_ok=True)  # of an earlier run
    if row["status"] == "ok":
        write_bytes(folder / "train.py", code(asked, settings, row, folder / "plan.json").encode())
    return row


def _ask(asked: FitRequest, settings: Settings, folder: Path, force: bool) -> Row:
    if not asked.largest_batch:
        return run_job(replace(settings, budget=Budget(asked.budget)), folder, force)
    question = Question(asked.budget, "batch_size", asked.least, 1)
    return answer(question, settings, folder, force)


def _rank(asked: FitRequest, row: Row) -> tuple[Any, ...]:
    """Smallest is best."""
    infinite = float("inf")
    overhead = infinite if row["overhead"] is None else row["overhead"]
    batch = -(row["batch_size"] or 0) if asked.largest_batch else 0
    return (row["status"] != "ok", batch, overhead, row["peak_bytes"] or infinite)


def _best_without(asked: FitRequest, rows: list[Row]) -> int | None:
    """The number of the best row whose plan copies nothing to the host; None: there is none."""
    plain = [i for i, row in enumerate(rows) if row["status"] == "ok" and not offloads(row)]
    return min(plain, key=lambda i: _rank(asked, rows[i]), default=None)


def _device(settings: Settings) -> str:
    """Where the printed code trains: on the device whose trace the plan is of."""
    return "cpu" if settings.device == "none" else settings.device


def _label(row: Row) -> dict[str, Any]:
    return {
        key: row[key]
        for key in ("strategy", "status", "reason", "batch_size", "overhead", "peak_bytes")
    }


def _making(model: Mapping[str, Any]) -> tuple[str, str]:
    """The function that makes a model, and the expression that does."""
    own, cast = ["batch_size", "resolution"], ""
    if model["kind"] in LIBRARIES:
        own += ["config", "arch", "task", "size", "dtype"]
    elif model.get("dtype"):
        cast = f".cast(torch.{model['dtype']})"
    options = dict(model.get("options") or {})
    options |= {key: model[key] for key in own if model.get(key) is not None}
    given = "".join(f", {key}={value!r}" for key, value in options.items())
    if model["kind"] == "python":
        return "make_python_model", f"make_python_model({model['target']!r}{given}){cast}"
    return "make_model", f"make_model({model['name']!r}{given}){cast}"


def code(asked: FitRequest, settings: Settings, row: Row, plan: Path) -> str:
    """What to paste into a training script."""
    make, workload = _making(settings.model | {"batch_size": row["batch_size"]})
    what = "ordinary training fits" if row["strategy"] == _ORDINARY else row["strategy"]
    # `apply` sees the step alone.
    budget = asked.budget - row["extra"].get("memory", {}).get("optimizer", 0)
    host = _host(settings, row)
    imported, made = _OPTIMIZERS[settings.optimizer]
    batch = "" if row["batch_size"] is None else f", batch {row['batch_size']}"
    return f"""\
# {what}: simulated peak {size(row["peak_bytes"])} of {size(asked.budget)}, overhead \
{row["overhead"]:+.1%}{batch}
import random

import numpy as np
{imported}
from rematbench.zoo import {make}
from rematbench import apply

device = {_device(settings)!r}  # the plan is of this device's trace
torch.manual_seed({settings.seed})
random.seed({settings.seed})
np.random.seed({settings.seed % 2**32})
workload = {workload}
model, loss = workload.module.to(device), workload.loss
with torch.device(device):
    example = workload.make_batch()
step = apply(model, loss, example, {str(plan)!r}, {budget}, costmodel={row["costmodel"]!r}{host})

optimizer = {made}
for _ in range(3):
    with torch.device(device):
        batch = workload.make_batch()  # your data here: tensors like those of the example
    optimizer.zero_grad()
    value = step(*batch)  # instead of loss(model, *batch).backward()
    optimizer.step()
    print(value.item())
"""


def _host(settings: Settings, row: Row) -> str:
    """What ``apply`` has to know of the host, of a plan that copies there."""
    needed = row["extra"].get("host_peak_bytes")
    if not needed:
        return ""
    link = settings.link.as_json() | {"name": "given"}
    measured = settings.link.per_second  # there, and then by the machine that trains
    limit = needed if settings.host is None else settings.host
    return f", host={limit}" + ("" if measured else f", link={link}")


def _work(config: Mapping[str, Any], settings: Settings, folder: Path) -> Row:
    row = fit(request_from(config, settings), settings, folder, flag("force", config["force"]))
    row["extra"]["fit"]["code"] = str(folder / "train.py") if row["status"] == "ok" else None
    write_row(folder / "row.json", row)
    return row


def _show(row: Row) -> None:
    print(format_row(row, extra=False))
    if row["extra"].get("memory"):
        parts = ", ".join(f"{name} {size(held)}" for name, held in row["extra"]["memory"].items())
        print(f"\nAt the peak: {parts}")
    facts = row["extra"].get("fit", {})
    if "offloading" in facts:
        found = list(said(facts["offloading"], "max_batch" in row["extra"]))
        print("", *(found or ["Ordinary training fits: nothing has to go to the host."]), sep="\n")
    if facts.get("code"):
        print(f"\n{Path(facts['code']).read_text()}", end="")


def main() -> None:
    """The ``rematbench-fit`` command."""
    command("rematbench-fit", "fit", JobTask(_work, show=_show))


if __name__ == "__main__":
    main()
