"""Bad configurations: one line for a user, one row for a sweep."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.errors import HydraException
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError

from rematbench.base.checks import did_you_mean
from rematbench.base.errors import BudgetError, tell_os_error
from rematbench.base.origin import one_line as one_line, printable
from rematbench.cli.conf_keys import (
    assignments,
    choices_of,
    chosen_groups,
    conf_texts,
    group_keys,
    read_keys,
)
from rematbench.graphs.budget import Budget, parse_budget
from rematbench.jobs.settings import model_label
from rematbench.rows.provenance import commit, now, versions
from rematbench.rows.row import Row, make_row

MISTAKES = (HydraException, OmegaConfBaseException, YAMLError, UnicodeDecodeError)
"""What Hydra raises where a configuration is wrong."""
_GROUPS = ("model", "strategy", "costmodel", "device", "link", "experiment", "launch", "cases")
_LAUNCHERS = ("joblib", "ray", "slurm")  # extras with a launcher


def failed_row(config: Mapping[str, Any], strategy: object, reason: str, **extra: Any) -> Row:
    """The row of a job in a sweep that did not run.

    Args:
        config: of the job, as far as it is known.
        extra: columns of ``extra``.
    """
    model = config.get("model")
    parts = model if isinstance(model, Mapping) else {}
    known = {key: config.get(key) or parts.get(key) for key in ("batch_size", "resolution")}
    budget = _budget(config.get("budget"))
    return make_row(
        model=_label(parts or {"name": model}),
        batch_size=known["batch_size"] if isinstance(known["batch_size"], int) else None,
        resolution=None if known["resolution"] is None else str(known["resolution"]),
        strategy=None if strategy is None else str(strategy),
        budget_bytes=budget.bytes,
        budget_fraction=budget.fraction,
        status="failed",
        reason=reason,
        versions=versions(),
        commit=commit(),
        utc=now(),
        extra=extra,
    )


def _label(model: Mapping[str, Any]) -> str | None:
    """The model's name, as far as it is known."""
    given = {key: value for key, value in model.items() if value not in (None, "", "???")}
    return model_label(given) if {"name", "path", "target"} & set(given) else None


def _budget(given: Any) -> Budget:
    try:
        return parse_budget(given)
    except BudgetError:
        return Budget()


def explain(error: BaseException, config: str = "config", overrides: Sequence[str] = ()) -> str:
    """One line for a user: what is wrong, the nearest valid name, the remedy.

    Args:
        config: the command's file in ``conf``.
        overrides: what was given: they say which strategy's options there are.
    """
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key} is missing; give {error.full_key}=..."
    if isinstance(error, OSError) and not isinstance(error, HydraException):
        return tell_os_error(error)
    if isinstance(error, YAMLError | UnicodeDecodeError):
        return _bad_file(error)
    text = re.sub(r"^\w+ raised while resolving interpolation: ", "", one_line(error))
    key = re.match(r"Could not override '(?P<key>[^']+)'", text)
    if key:
        return unknown_key(key["key"], config, overrides)
    missing = re.search(r"Could not find '(?P<group>[^']+)/(?P<name>[^/']+)'", text)
    if missing:
        names = re.search(r"Available options in '[^']+':(?P<names>.*?)(?: Config search|$)", text)
        return _nearest(missing["group"], missing["name"], names["names"].split() if names else [])
    several = re.match(r"Ambiguous value for argument '(?P<word>.*?)' 1\.", text)
    if several:
        key_, _, value = several["word"].partition("=")
        return f"{several['word']}: several values; add -m for a sweep, or give {key_}=[{value}]"
    return re.split(r" full_key: | See https:", text)[0]


def _bad_file(error: YAMLError | UnicodeDecodeError) -> str:
    """What to say of a file that is no YAML."""
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        where = f"{error.problem_mark.name}:{error.problem_mark.line + 1}"
        return printable(f"{where}: {error.problem}; give one YAML document")
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    files = [frame.f_locals["full_path"] for frame in frames if "full_path" in frame.f_locals]
    where = printable(files[-1]) if files else "a file of --config-dir"
    return f"{where}: not YAML text in UTF-8 ({one_line(error)})"


def unknown_key(key: str, config: str, overrides: Sequence[str]) -> str:
    """What to say of a key that there is not."""
    texts = conf_texts(config)
    chosen = chosen_groups(texts) | dict(assignments(overrides))
    group = key.partition(".")[0]
    name = chosen.get(group, "")
    if "." in key and name in choices_of(group):
        known = [each for each, *_ in group_keys(group, name)]
        what = f"{group}={name} has no such option"
        listed = f"its options are: {', '.join(each.partition('.')[2] for each in known) or 'none'}"
    else:
        known = [each for text in texts for each, *_ in read_keys(text)]
        known += [each for each in chosen if each in _GROUPS]
        what, listed = "there is no such key", "--help lists them"
    hint = did_you_mean(key, known)
    return f"{key}: {what}; {hint}{listed}"


def _nearest(group: str, name: str, names: list[str]) -> str:
    hint = did_you_mean(name, names)
    if group == "hydra/launcher":
        kind = name.partition("_")[0]
        extra = "slurm" if kind == "submitit" else kind
        install = f'pip install "rematbench[{extra}]"' if extra in _LAUNCHERS else "an extra"
        hint = f"its package may not be installed: {install} (docs/sweeps.md); "
    return f"{group}={name}: unknown; {hint}it may be one of: {', '.join(names)}"
