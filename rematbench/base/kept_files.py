"""Files of the cache: what was measured once, and is measured again where the file is damaged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from rematbench.base.cache_dirs import FOR_THE_USER
from rematbench.base.errors import ConfigError, UnwritableError
from rematbench.base.json_files import read_json, write_json

_Kept = TypeVar("_Kept")
_log_user = logging.getLogger(FOR_THE_USER)


def read_kept(path: Path, meaning: Callable[[Any], _Kept], then: str) -> _Kept | None:
    """What a file holds; None where there is none, or it is damaged, and then it goes.

    Args:
        meaning: of its JSON; raises where that is none.
        then: said to the user of a damaged file: ``"its ops are measured again"``.
    """
    if not path.exists():
        return None
    try:
        return meaning(read_json(path))
    except (ConfigError, KeyError, TypeError, ValueError, AttributeError) as error:
        why = error if isinstance(error, ConfigError) else f"{path}: damaged ({error!r})"
        _log_user.warning("%s: dropped from the cache, %s", why, then)
        with suppress(OSError):
            path.unlink()
        return None


def keep(path: Path, document: Any, what: str) -> None:
    """Write a file; where that is not possible, the user is told, and nothing else happens.

    Args:
        what: of the document: ``"op profiles are"``.
    """
    try:
        write_json(path, document)
    except UnwritableError as error:
        _log_user.warning("%s not kept: %s", what, error)
