"""A job's settings: the resolved configuration as plain data, checked before anything runs."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rematbench import costmodel
from rematbench.base.checks import flag, one_of, seconds, whole
from rematbench.base.code_hash import content_hash
from rematbench.base.errors import ConfigError
from rematbench.base.option_types import check_options
from rematbench.conf.published import LIBRARIES, SIZES, sized
from rematbench.costmodel.machines import MACHINES
from rematbench.graphs.budget import Budget, parse_budget, parse_bytes
from rematbench.graphs.link_choice import LinkChoice, read_link
from rematbench.jobs.accounting import NAMES as ACCOUNTINGS
from rematbench.jobs.optimizer import NAMES as OPTIMIZERS, check_optimizer
from rematbench.rows.extra import Extra
from rematbench.rows.provenance import hardware, versions
from rematbench.rows.row import marked
from rematbench.strategies.registry import entry, names

ALLOCATORS = ("none", "cuda")
DEVICES = ("none", "cpu", "cuda", "xpu", "mps")
TORCH_KINDS = ("zoo", "python", *LIBRARIES)
NATIVES = ("compile",)
FRONTS = ("auto", "trace", "dynamo")
DTYPES = ("float32", "float64", "bfloat16", "float16")
NUMERICS = ("tf32", "cudnn_benchmark", "deterministic")
# Event streams: DTR is their judge, and fractions of the budget are of the banishing peak.
STREAM_KINDS = ("simrd_log", "toy_chain")
LAYERED = ("length", "width", "variability", "density", "skips", "seed")
"""Options of random layered graphs."""
MEASURED_PEAK = "measured_checkpoint_all_peak_bytes"
"""How a row calls :attr:`Settings.measured_peak`."""
_NUMBERS = {"batch_size": 1, "length": 1}
_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_RESOLUTION = re.compile(r"[1-9]\d*(x[1-9]\d*)?")
# PyTorch's generators take 64 bits; a step draws with its seed and the next ones.
LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True)
class Settings:
    """One job.

    Attributes:
        model: kind, name, batch_size, resolution, path and so on, as ``conf/model`` has them.
        strategy: name of the strategy.
        target: dotted path of its class.
        options: keyword arguments of its class.
        budget: of the peak.
        time_limit: seconds for the planner.
        costmodel: given, unit, flops, roofline, profiled, or another distribution's.
        preset: the machine that ``roofline`` models.
        device: none, cpu, or an accelerator: cuda (also ROCm's), xpu, mps.
        repeats: timed runs of the plan, at least.
        within: more runs, until the 95 % interval of the measured overhead is so narrow; or None.
        timing_seconds: of runs, at most.
        seed: of every random choice.
        accounting: full, activations or checkmate.
        threads: of torch and the solvers, or None for one per core.
        cache: folder of finished jobs and op profiles, or None.
        job_time_limit: seconds for the whole job (capture, plan, execute), or None.
        job_memory_limit: resident bytes of the process that runs the job, or None.
        numerics: of CUDA kernels, see :func:`rematbench.costmodel.device.use_numerics`.
        execute: run the plan on the device; else it is only captured and costed for it.
        trains_on: the device that the plan is made to train on, where nothing runs here; saved
            states of its random generator count. None: ``device``.
        device_memory: bytes of CUDA memory that the process may take, or None for all.
        experiment: the chosen ``experiment=``, or what else asked for the job; None: a person.
        group: which of the experiment's groups of sweeps.
        front: how a model is captured: auto, trace or dynamo.
        native: ``compile``: plans run through ``torch.compile``, too; None: they do not.
        optimizer: whose state is resident, see :mod:`rematbench.jobs.optimizer`.
        master_weights: does it hold them? None: as is usual with it.
        allocator: none, or cuda: whose model replays the plan.
        measured_peak: bytes that a fraction of the budget is of; None: of the simulated peak.
        link: to the host.
        host: the most bytes on the host, or None.
        graph_file: the model's graph, which another process has captured and costed; or None.
    """

    model: dict[str, Any]
    strategy: str
    target: str
    options: dict[str, Any]
    budget: Budget
    time_limit: float
    costmodel: str
    preset: str
    device: str
    repeats: int
    seed: int
    accounting: str
    threads: int | None
    cache: str | None
    job_time_limit: float | None = None
    job_memory_limit: int | None = None
    numerics: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(NUMERICS, False))
    execute: bool = True
    trains_on: str | None = None
    device_memory: int | None = None
    experiment: str | None = None
    group: str | None = None
    front: str = "auto"
    native: str | None = None
    optimizer: str = "none"
    master_weights: bool | None = None
    allocator: str = "none"
    within: float | None = None
    timing_seconds: float = 10.0
    measured_peak: int | None = None
    graph_file: str | None = None
    link: LinkChoice = field(default_factory=LinkChoice)
    host: int | None = None

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Settings:
        """The settings that :func:`dataclasses.asdict` made a document of."""
        given: dict[str, Any] = {"budget": Budget(**document["budget"])}
        if "link" in document:
            given["link"] = LinkChoice(**document["link"])
        return cls(**{**document, **given})

    @property
    def captured(self) -> bool:
        """Does the graph come from a PyTorch model?"""
        return self.model["kind"] in TORCH_KINDS

    @property
    def label(self) -> str:
        """The model's name for people: the configured one, or its file's or function's."""
        return model_label(self.model)

    @property
    def mark(self) -> Extra:
        """Who asked for the job, as in the row's ``extra``: the result does not depend on it."""
        return marked(self.experiment, self.group)

    def key(self) -> str:
        """What the result depends on, as far as it is known before the job runs, hashed.

        That is: settings, input files, versions, and the hardware where something is measured;
        what code the job runs is for :mod:`rematbench.worker.manifest` to say.
        """
        content = asdict(self)
        for name in ("cache", "job_time_limit", "job_memory_limit", "experiment", "group"):
            del content[name]
        content["model"].pop("path", None)  # the content counts, not the place
        content["options"].pop("known", None)
        content["label"] = self.label
        inputs = [_digest(path) for path in self._inputs()]
        # Another distribution's cost model may measure, too.
        measured = self.device != "none" or self.costmodel not in costmodel.MODELLED
        facts = [content, inputs, versions(), hardware() if measured else None]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]

    def _inputs(self) -> list[str]:
        found = [self.model["path"]] if self.model.get("path") else []
        return found + list(self.options.get("known") or [])  # plan files


def _digest(path: str) -> str:
    try:
        return content_hash(path)
    except OSError:
        return ""  # whoever reads the file says what is wrong with it


def settings_from(config: Mapping[str, Any], strategy: str) -> Settings:
    """Check a resolved configuration.

    Args:
        config: plain data, as ``conf/job.yaml`` lays it out; ``experiment`` is the chosen one.
        strategy: the chosen strategy's name.

    Raises:
        ConfigError: a value is missing or out of range; names its key.
        BudgetError: the budget is malformed.
    """
    device, costs = _group(config, "device"), _group(config, "costmodel")
    model = _model(config)
    options = _group(config, "strategy")
    target = str(options.pop("_target_"))
    strategy = _named(strategy, target)
    _check_options(strategy, target, options)
    link = read_link(_group(config, "link") if "link" in config else None)
    settings = Settings(
        model=model,
        strategy=strategy,
        target=target,
        options=options,
        budget=parse_budget(config["budget"]),
        time_limit=seconds("time_limit", config["time_limit"]),
        costmodel=_costs(costs, model["kind"], device["name"] if link.per_second else "none"),
        preset=one_of("costmodel.preset", costs["preset"], tuple(MACHINES)),
        device=one_of("device", device["name"], DEVICES),
        numerics={key: flag(f"device.{key}", device.get(key, False)) for key in NUMERICS},
        repeats=whole("device.repeats", device["repeats"], 1),
        within=_or_none(_within, "within", device),
        timing_seconds=seconds("device.seconds", device.get("seconds", 10.0)),
        native=_or_none(_native, "native", device),
        seed=whole("seed", config["seed"], 0, LARGEST_SEED),
        accounting=one_of("accounting", config["accounting"], ACCOUNTINGS),
        allocator=one_of("allocator", config.get("allocator", "none"), ALLOCATORS),
        threads=None if config["threads"] is None else whole("threads", config["threads"], 1),
        cache=_or_none(_path, "cache", config),
        job_time_limit=_or_none(seconds, "job_time_limit", config),
        job_memory_limit=_or_none(_memory, "job_memory_limit", config),
        experiment=config.get("experiment"),
        group=_or_none(_name, "group", config),
        front=one_of("capture.front", _group(config, "capture").get("front", "auto"), FRONTS),
        optimizer=one_of("optimizer", config.get("optimizer") or "none", OPTIMIZERS),
        master_weights=_or_none(flag, "master_weights", config),
        link=link,
        host=_or_none(parse_bytes, "host", config),
    )
    _check_together(settings)
    return settings


def _model(config: Mapping[str, Any]) -> dict[str, Any]:
    """The chosen model's entries, with those of its aliases at the top level."""
    model = _group(config, "model")
    if model["kind"] in LIBRARIES:
        _check_model(model)
        one_of("model.size", model.get("size"), SIZES)
        model = sized(model)
    for alias in ("batch_size", "resolution"):
        if config.get(alias) is not None:
            if alias not in model:
                raise ConfigError(f"{alias}={config[alias]}: model={model['name']} has no {alias}")
            model[alias] = config[alias]
    if config.get("dtype") is not None:
        if model["kind"] not in TORCH_KINDS:
            raise ConfigError(f"dtype={config['dtype']}: model={model['name']} is no PyTorch model")
        model["dtype"] = one_of("dtype", config["dtype"], DTYPES)
    for key, least in _NUMBERS.items():
        if model.get(key) is not None:
            whole(f"model.{key}", model[key], least)
    if model.get("lengths") is not None:
        _lengths(model["lengths"])
    _check_model(model)
    if model.get("path"):
        model["path"] = _path("model.path", model["path"])
    return model


def _check_together(settings: Settings) -> None:
    """What each key allows and another does not."""
    check_optimizer(
        settings.optimizer,
        settings.master_weights,
        captured=settings.captured,
        accounting=settings.accounting,
    )
    attention = (settings.model.get("options") or {}).get("attention")
    if attention == "flex_attention" and settings.device != "cuda":
        raise ConfigError(
            "model.options.attention=flex_attention: has no backward pass on the CPU, whose graph "
            "is captured; use sdpa or eager, or device=cuda"
        )
    if settings.device != "none" and not settings.captured:
        raise ConfigError(
            f"device={settings.device}: model={settings.model['name']} is not a PyTorch model and "
            "cannot be executed; use device=none"
        )


def _group(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = config[key]
    if not isinstance(found, Mapping):
        raise ConfigError(f"{key}={found}: choose one by name; --help lists them")
    return dict(found)


def _check_model(model: Mapping[str, Any]) -> None:
    """The keys of a model that every kind has alike."""
    target, options = model.get("target"), model.get("options")
    if target is not None and not _TARGET.fullmatch(str(target)):
        raise ConfigError(f"model.target={target}: give package.module:function")
    if options is not None and not isinstance(options, Mapping):
        raise ConfigError(f"model.options={options}: give a mapping such as {{hidden:64}}")
    resolution = model.get("resolution")
    if resolution is not None and not _RESOLUTION.fullmatch(str(resolution)):
        raise ConfigError(f"model.resolution={resolution}: give 224, or 416x608 (height x width)")
    flag("model.backward", model.get("backward", True))


def _costs(costs: Mapping[str, Any], kind: str, timed_on: str) -> str:
    """The cost model; by default ``profiled`` where copies take seconds on a given device."""
    name = costs["name"]
    if name is not None:
        return one_of("costmodel.name", name, costmodel.names())
    return "profiled" if timed_on != "none" and kind in TORCH_KINDS else default_costs(kind)


def _named(strategy: str, target: str) -> str:
    """A strategy's name in rows; of a class that is given in place of a named one, its path."""
    return target if strategy in names() and entry(strategy).path != target else strategy


def _check_options(strategy: str, target: str, options: Mapping[str, Any]) -> None:
    """The options of a strategy that is known by name; others' are checked when they are made."""
    if strategy in names():
        check_options(strategy, entry(strategy).options, options)


def chosen(choices: Mapping[str, Any]) -> str | None:
    """The chosen ``experiment=`` among Hydra's choices of groups; None where there is none."""
    name = choices.get("experiment")
    return None if name in (None, "null") else str(name)


def model_label(model: Mapping[str, Any]) -> str:
    """A model's name for people: the configured one, or its file's or function's."""
    if model.get("path"):
        return Path(model["path"]).name.partition(".")[0]
    name = str(model.get("target") or model["name"])
    if name in LIBRARIES:
        name = str(model.get("config") or model.get("arch") or name)
    if model.get("size") == "small":
        name = f"{name}-small"
    return f"{name}-{model['dtype']}" if model.get("dtype") else name


def default_costs(kind: str) -> str:
    """The cost model when none is named."""
    return "flops" if kind in (*TORCH_KINDS, "keras") else "given"


def _lengths(given: Any) -> None:
    if not isinstance(given, list) or not given or any(type(n) is not int or n < 0 for n in given):
        raise ConfigError(
            f"model.lengths={given}: give a list of whole numbers, 0 or more, such as [4,10,12]"
        )


def _path(key: str, given: Any) -> str:
    if not isinstance(given, (str, int, float)) or isinstance(given, bool):
        raise ConfigError(f"{key}={given}: give a path")
    return os.path.abspath(os.path.expanduser(str(given)))


def _memory(key: str, given: Any) -> int:
    if not os.path.exists("/proc/self/statm"):
        raise ConfigError(f"{key}={given}: needs Linux, whose /proc says what a process holds")
    return parse_bytes(key, given)


def _name(key: str, given: Any) -> str:
    if not isinstance(given, (str, int)) or isinstance(given, bool):
        raise ConfigError(f"{key}={given}: give a word")
    return str(given)


def _within(key: str, given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 < given < 1:
        raise ConfigError(f"device.{key}={given}: give a share between 0 and 1, or null")
    return float(given)


def _native(key: str, given: Any) -> str:
    return one_of(f"device.{key}", given, NATIVES)


def _or_none(check: Callable[[str, Any], Any], key: str, config: Mapping[str, Any]) -> Any:
    given = config.get(key)
    return None if given is None else check(key, given)
