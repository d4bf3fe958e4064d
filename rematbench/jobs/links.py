"""The link to the host in a job's configuration: ``link=pcie4 link.shared=true host=64GiB``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematbench.base.errors import ConfigError
from rematbench.graphs.budget import parse_bytes
from rematbench.graphs.link_choice import LinkChoice, read_link


def read_words(words: Sequence[str]) -> tuple[LinkChoice, int | None]:
    """Link and host of the words of a command line: ``link=pcie4 link.shared=true host=64GiB``.

    Raises:
        ConfigError: a word is none of these, or as :func:`read_link` does.
    """
    import yaml

    found: dict[str, Any] = {}
    host: int | None = None
    for word in expanded(words):
        key, equals, text = word.partition("=")
        value = yaml.safe_load(text)
        if key in _WORDS and equals:
            found[_WORDS[key]] = _number(value)
        elif key == "host" and value is not None:
            host = parse_bytes("host", value)
        else:
            raise ConfigError(f"{word}: unknown; give link=pcie4, link.out=25GB/s or host=64GiB")
    return read_link({"name": "none", **found} if found else None), host


_WORDS = {"link": "name"} | {f"link.{key}": key for key in ("out", "in", "latency", "shared")}


def _number(value: Any) -> Any:
    """What YAML takes for text and Hydra for a number: ``1e9``."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def expanded(words: Sequence[str]) -> list[str]:
    """The words of a command line, where ``link=1GB/s`` stands for a link given by its bandwidth.

    >>> expanded(["link=1GB/s", "seed=1"])
    ['link=given', 'link.out=1GB/s', 'link.in=1GB/s', 'seed=1']
    """
    found: list[str] = []
    for word in words:
        text = word.removeprefix("link=")
        if text != word and text.lower().endswith("b/s") and "," not in text:
            found += ["link=given", f"link.out={text}", f"link.in={text}"]
        else:
            found.append(word)
    return found
