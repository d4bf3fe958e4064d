"""Strict JSON on disk, plain or gzip, written by atomic rename."""

from __future__ import annotations

import gzip
import json
import math
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rematbench.base.errors import ConfigError, RematbenchError, UnwritableError

_NOT_TEXT = "not text (UTF-8); give a JSON file, plain or gzip"


@contextmanager
def readable(path: Path, error: type[RematbenchError]) -> Iterator[None]:
    """What goes wrong inside while a file is read, plain or gzip, becomes an ``error``."""
    try:
        yield
    except gzip.BadGzipFile as fault:
        raise error(f"{path}: damaged gzip ({fault}); write the file again") from None
    except (EOFError, zlib.error) as fault:
        raise error(f"{path}: damaged or truncated gzip ({fault}); write it again") from None
    except OSError as fault:
        raise error(f"{path}: cannot be read ({fault.strerror or fault}); check the path") from None


def read_json(path: str | Path, error: type[RematbenchError] = ConfigError) -> Any:
    """Read strict JSON, gzip or plain (told by content, not by name).

    Raises:
        error: the file is missing, unreadable, truncated, not JSON, holds NaN or Infinity, or
            an object with a repeated key.
    """
    path = Path(path)
    try:
        with readable(path, error):
            raw = path.read_bytes()
            if raw[:2] == b"\x1f\x8b":
                raw = gzip.decompress(raw)
        # json.loads would guess UTF-16 or UTF-32 from zeros, which binary files begin with, too.
        text = raw.decode("utf-8-sig")
        if "\0" in text:
            raise error(f"{path}: {_NOT_TEXT}")
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_reject)
    except json.JSONDecodeError as fault:
        where = f"line {fault.lineno}, column {fault.colno}"
        if fault.msg == "Extra data":
            raise error(f"{path}: goes on after its JSON ends, at {where}; keep one") from None
        raise error(
            f"{path}: not valid JSON at {where} ({fault.msg}); is the file truncated?"
        ) from None
    except UnicodeDecodeError:
        raise error(f"{path}: {_NOT_TEXT}") from None
    except RecursionError:
        raise error(
            f"{path}: its lists or objects are nested too deep; give a file of ours"
        ) from None
    except ValueError as fault:
        if "digits" in str(fault):  # Python's own limit on whole numbers
            fault = ValueError("holds a number of thousands of digits; give a smaller one")
        raise error(f"{path}: {fault}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"key {twice!r} appears twice in one object; keep one")
    return found


def _reject(constant: str) -> Any:
    raise ValueError(f"holds {constant}, which is not JSON; give a finite number or null")


def without_infinities(document: Any) -> tuple[Any, list[str]]:
    """A document of dictionaries and lists with null for each NaN and infinity, which JSON lacks.

    Returns:
        The new document, and where they stood: ``bound``, ``incumbents.0.1``, ...
    """
    lost: list[str] = []

    def clean(value: Any, where: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            return {key: clean(item, (*where, str(key))) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [clean(item, (*where, str(i))) for i, item in enumerate(value)]
        if isinstance(value, float) and not math.isfinite(value):
            lost.append(".".join(where))
            return None
        return value

    return clean(document, ()), lost


def write_json(path: str | Path, document: Any, indent: int | None = None) -> None:
    """Write strict JSON by atomic rename, gzip when the name ends in ``.gz``."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(document, allow_nan=False, indent=indent, separators=separators) + "\n"
    content = text.encode()
    if Path(path).suffix == ".gz":
        content = gzip.compress(content, compresslevel=6, mtime=0)
    write_bytes(path, content)


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file by atomic rename, making its folder where needed.

    Raises:
        UnwritableError: the system refuses; says why.
    """
    path = Path(path)
    draft = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(draft, 0o666 & ~_umask())
        os.replace(draft, path)
    except BaseException as error:
        if draft is not None:
            Path(draft).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise UnwritableError(path, error) from None
        raise


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
