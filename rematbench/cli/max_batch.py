"""``rematbench-max-batch``: the largest input that a strategy can train within a memory.

Checkmate (section 6.4) asks for the largest batch whose plan fits the memory and costs at most one
forward pass more than ordinary training (equation 10)::

    cost of the plan  <=  2 * cost of the forward pass + cost of the backward pass

Each value tried is an ordinary job: captured at that size, planned within the memory, simulated,
cached; where there is a device, a second search executes the plans within that memory, and real
out-of-memory errors end its climb. Sizes are doubled until one does not fit; the gap to the
largest that fits is halved until they are neighbours. So the answer fits and its successor does
not: it is the largest of all where, as is usual, nothing larger than a failure fits; this is
assumed, not checked. Equation 11's estimate from a batch of 1, or where it has none the line
through the last two peaks, is where the doubling looks first; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from rematbench.base.checks import flag, one_of, whole
from rematbench.base.errors import ConfigError, RematbenchError
from rematbench.cli.app import command, run_job
from rematbench.cli.hydra_task import JobTask
from rematbench.cli.mistakes import one_line
from rematbench.graphs.budget import Budget, parse_bytes
from rematbench.jobs.settings import Settings
from rematbench.rows.row import Row, joined, known, make_row, write_row
from rematbench.worker.cache import copy_files

STEPS = {"batch_size": 1, "resolution": 32}
_ROUNDING = 1 + 1e-9  # a plan that recomputes the whole forward pass is at the limit


@dataclass(frozen=True)
class Question:
    """What is asked.

    Attributes:
        memory: bytes of the device.
        vary: batch_size or resolution (then images are square).
        least: the smallest value tried.
        step: between neighbouring values.
    """

    memory: int
    vary: str
    least: int
    step: int


@dataclass(frozen=True)
class Probe:
    """One value tried.

    Attributes:
        value: of what is varied.
        status: of its job, or ``over_cost_limit``, or (measured) ``over_memory``.
        reason: why it does not fit.
        row: of its job; None where the model cannot be captured at that value.
        seconds: capture, costs and planning.
    """

    value: int
    status: str
    reason: str | None
    row: Row | None
    seconds: float

    @property
    def fits(self) -> bool:
        """Is the plan within the memory and the cost limit?"""
        return self.status == "ok"

    @property
    def reported_value(self) -> int | None:
        """The value, where it fits."""
        return self.value if self.fits else None

    @property
    def graph_hash(self) -> str | None:
        """Of its job's graph, where that is known."""
        return self.row["graph_hash"] if self.row else None

    def as_json(self) -> dict[str, Any]:
        """As it stands in ``extra.max_batch``."""
        row = self.row or make_row()
        cost = row["cost"]
        return {
            "value": self.value,
            "status": self.status,
            "reason": self.reason,
            "cost_ratio": cost and cost / known(row["checkpoint_all_cost"]),
            "peak_bytes": row["peak_bytes"],
            "measured_peak_bytes": row["measured_peak_bytes"],
            "seconds": self.seconds,
        }


def cost_limit(row: Row) -> float | None:
    """Equation 10: ordinary training and one more forward pass, in the row's cost unit.

    None where the job was stopped before anything was known.
    """
    if "forward_cost" not in row["extra"]:
        return None
    return float(known(row["checkpoint_all_cost"]) + row["extra"]["forward_cost"])


def equation_11(asked: Question, probes: Mapping[int, Probe]) -> int | None:
    """The paper's estimate of the batch: (memory - M_fixed) / (min M@1 - M_fixed), rounded down.

    M_fixed is what is resident at any batch: twice the parameters.
    M@1 is the leanest peak at batch 1 that the strategy's knob reaches within the cost limit.

    Args:
        probes: of 1, 2, ...

    Returns:
        The estimate, or None where batches of 1 and 2 were not tried, 1 does not fit, or the
        accounting is not Checkmate's.
    """
    plain = (asked.vary, asked.least, asked.step) == ("batch_size", 1, 1)
    if not plain or 2 not in probes or not probes[1].fits:
        return None
    one, two = probes[1].row, probes[2].row
    if one is None or two is None or (limit := cost_limit(one)) is None or cost_limit(two) is None:
        return None
    if one["extra"]["accounting"] != "checkmate":
        return None
    fixed = 2 * one["extra"]["resident_bytes"] - two["extra"]["resident_bytes"]
    least = _leanest(one, limit * _ROUNDING)
    return int((asked.memory - fixed) // (least - fixed)) if least > fixed else None


def _leanest(row: Row, limit: float) -> int:
    """The least peak of a job's plans that cost no more than a limit."""
    curve = [p for p in row["extra"].get("curve", []) if {"cost", "peak_bytes"} <= set(p)]
    return int(min(p["peak_bytes"] for p in [row, *curve] if p["cost"] <= limit))


def line(asked: Question, probes: Mapping[int, Probe]) -> int | None:
    """The largest number whose peak fits, if peaks grow as between the two largest that fit.

    Exact for a strategy whose plan does not depend on the memory; a lower bound for others, which
    recompute nothing while all fits.
    """
    fitting = sorted(k for k, probe in probes.items() if probe.fits)[-2:]
    if asked.vary != "batch_size" or len(fitting) < 2:
        return None
    rows = [probes[k].row or make_row() for k in fitting]
    first, second = (row["peak_bytes"] or 0 for row in rows)
    if second <= first:
        return None
    return fitting[0] + (asked.memory - first) * (fitting[1] - fitting[0]) // (second - first)


def largest(fits: Callable[[int], bool], guess: Callable[[], int | None]) -> int:
    """The largest k of 1, 2, ... that fits, or 0 where 1 does not.

    Args:
        guess: where to look first; asked once 1 and 2 fit, and after the first try near it.
    """
    low = high = 0
    for high in _upwards(guess):
        if not fits(high):
            break
        low = high
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def _upwards(guess: Callable[[], int | None]) -> Iterator[int]:
    """1, 2, around the guess (exact or a little off, as a rule), then doubled without end."""
    yield from (1, 2)
    k = 2
    if (near := (guess() or 0) * 99 // 100) > k:
        k = near
        yield k
    about = guess() or 0  # what that told counts, too
    for near in (about, about + 1, about * 101 // 100 + 1):
        if near > k:
            k = near
            yield k
    while True:
        k *= 2
        yield k


def question(config: Mapping[str, Any], settings: Settings) -> Question:
    """Read the command's own keys.

    Raises:
        ConfigError: one is bad, or names what the search decides.
    """
    vary = one_of("vary", config["vary"], tuple(STEPS))
    if vary not in settings.model:
        raise ConfigError(
            f"vary={vary}: model={settings.model['name']} has no {vary}; choose a model that has"
        )
    for key in (vary, "budget"):
        if config[key] is not None:
            remedy = "give memory" if key == "budget" else "give least and step"
            raise ConfigError(f"{key}={config[key]}: the search decides it; {remedy} instead")
    memory = parse_bytes("memory", config["memory"])
    step = STEPS[vary] if config["step"] is None else whole("step", config["step"], 1)
    least = step if config["least"] is None else whole("least", config["least"], 1)
    return Question(memory, vary, least, step)


def answer(asked: Question, settings: Settings, folder: Path, force: bool = False) -> Row:
    """Search, and write the files and the row of the largest value that fits.

    Args:
        settings: of a job; its budget and what varies are replaced.
        folder: run directory.
        force: plan again even where the cache has a probe.

    Returns:
        The row of the answer's job, or of the smallest value's where that does not fit; with
        ``memory_bytes``, ``cost_limit`` (equation 10) and ``max_batch`` in its ``extra``. On a
        device the search goes on with real steps, from the predicted value: then the row is of
        ``max_batch.measured_value``.

    Raises:
        RematbenchError: the configuration is bad, or the model cannot be captured at ``least``.
    """
    with TemporaryDirectory() as scratch:
        place = Path(scratch, "predicted")
        best, probes = _search(asked, replace(settings, execute=False), place, force)
        found = probes[best]
        details = {
            "vary": asked.vary,
            "value": found.reported_value,
            "equation_11": equation_11(asked, probes),
            "probes": [each.as_json() for each in probes.values()],
        }
        if settings.device != "none":
            place = Path(scratch, "measured")
            job = replace(settings, device_memory=asked.memory)
            best, probes = _search(asked, job, place, force, guess=best)
            found = probes[best]
            details["measured_value"] = found.reported_value
            details["measured_probes"] = [each.as_json() for each in probes.values()]
        copy_files(place / str(best), folder)
    assert found.row is not None  # its failure at the smallest value would have been raised
    limit = cost_limit(found.row)
    extra = {"memory_bytes": asked.memory, "cost_limit": limit, "max_batch": details}
    row = joined(found.row, {"reason": found.reason, "extra": extra})
    if not found.fits and row["status"] == "ok":
        row["status"] = "infeasible"
    write_row(folder / "row.json", row)
    return row


def _search(
    asked: Question, settings: Settings, scratch: Path, force: bool, guess: int | None = None
) -> tuple[int, dict[int, Probe]]:
    """The number of the best probe (1 where none fits), and all by number."""
    probes: dict[int, Probe] = {}

    def fits(k: int) -> bool:
        value = asked.least + (k - 1) * asked.step
        probes[k] = probe(asked, settings, value, scratch / str(k), force)
        if k == 2 and probes[1].graph_hash == probes[2].graph_hash:
            raise ConfigError(f"vary={asked.vary}: the model's graph does not depend on it")
        return probes[k].fits

    def about() -> int | None:
        return (equation_11(asked, probes) or line(asked, probes)) if guess is None else guess

    best = largest(fits, about)
    return max(best, 1), probes


def probe(asked: Question, settings: Settings, value: int, folder: Path, force: bool) -> Probe:
    """Plan at one value.

    Raises:
        RematbenchError: the model cannot be captured at the smallest value.
    """
    began = perf_counter()
    folder.mkdir(parents=True)
    model, budget = settings.model | {asked.vary: value}, Budget(asked.memory)
    job = replace(settings, model=model, budget=budget)
    try:
        row = run_job(job, folder, force)
    except RematbenchError as error:
        if value == asked.least:
            raise
        return Probe(value, "failed", one_line(error), None, perf_counter() - began)
    status, reason, limit = str(row["status"]), row["reason"], cost_limit(row)
    measured, cost = row["measured_peak_bytes"], row["cost"]
    if status == "ok" and limit is not None and known(cost) > limit * _ROUNDING:
        status = "over_cost_limit"
        reason = f"the plan's cost {cost:g} is over the limit of {limit:g}"
    elif status == "ok" and measured is not None and measured > asked.memory:
        status, reason = "over_memory", f"the measured peak of {measured} bytes is over the memory"
    return Probe(value, status, reason, row, perf_counter() - began)


def _work(config: Mapping[str, Any], settings: Settings, folder: Path) -> Row:
    return answer(question(config, settings), settings, folder, flag("force", config["force"]))


def main() -> None:
    """The ``rematbench-max-batch`` command."""
    command("rematbench-max-batch", "max_batch", JobTask(_work))


if __name__ == "__main__":
    main()
