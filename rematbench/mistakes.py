"""Bad configurations: one line for a user, one row for a sweep."""

from __future__ import annotations

import difflib
import re
from typing import Any

from omegaconf.errors import MissingMandatoryValue

from rematbench.graphs.blame import one_line as one_line
from rematbench.provenance import commit, now, versions
from rematbench.row import Row, make_row


def failed_row(model: object, strategy: object, reason: str, **extra: Any) -> Row:
    """The row of a job in a sweep that did not run.

    Args:
        extra: columns of ``extra``.
    """
    return make_row(
        model=None if model is None else str(model),
        strategy=None if strategy is None else str(strategy),
        status="failed",
        reason=reason,
        versions=versions(),
        commit=commit(),
        utc=now(),
        extra=extra,
    )


def bad_row(model: object, strategy: object, reason: str) -> Row:
    """The row of a job in a sweep whose configuration is bad."""
    return failed_row(model, strategy, reason, bad_config=True)


def explain(error: BaseException) -> str:
    """One line for a user: what is wrong, the nearest valid name, the remedy."""
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key} is missing; give {error.full_key}=..."
    text = re.sub(r"^\w+ raised while resolving interpolation: ", "", one_line(error))
    key = re.match(r"Could not override '(?P<key>[^']+)'", text)
    if key:
        return f"{key['key']}: there is no such key; `rematbench ... --cfg job` lists them"
    missing = re.search(r"Could not find '(?P<group>[^']+)/(?P<name>[^/']+)'", text)
    if missing:
        names = re.search(r"Available options in '[^']+':(?P<names>.*?)(?: Config search|$)", text)
        return _nearest(missing["group"], missing["name"], names["names"].split() if names else [])
    return re.split(r" full_key: | See https:", text)[0]


def _nearest(group: str, name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    if group == "hydra/launcher":
        hint = "its package may not be installed (see docs/sweeps.md); "
    return f"{group}={name}: unknown; {hint}it may be one of: {', '.join(names)}"
