"""Keys of configuration files and what they say of them, read as text: without Hydra."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from typing import Any

from rematbench.conf.published import SIZES

_REST = r"([^#]*?)\s*(?:#\s*(.*))?$"  # what follows a key or a dash, and a comment


def shown(value: Any) -> str:
    """A value as it stands on the command line."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value).replace(" ", "")


def conf_text(name: str) -> str:
    """The content of a file of ``conf``, by its path there."""
    return files("rematbench.conf").joinpath(*name.split("/")).read_text(encoding="utf-8")


def choices_of(group: str) -> list[str]:
    """What a group of the configuration can be.

    >>> choices_of("device")
    ['cpu', 'cuda', 'none']
    """
    if group == "strategy":
        from rematbench.strategies.registry import names

        return list(names())
    folder = files("rematbench.conf") / group
    if not folder.is_dir():
        return []
    files_ = (each.name for each in folder.iterdir() if each.name.endswith(".yaml"))
    found = {name.removesuffix(".yaml") for name in files_}
    if group == "costmodel":
        from rematbench.costmodel.plugins import registered

        found |= set(registered())
    return sorted(found)


def group_keys(group: str, name: str) -> list[tuple[str, str, str]]:
    """The keys of a choice: ``model.options.hidden``, its default, what is said of it."""
    if group == "strategy":
        from rematbench.strategies.registry import entry

        return [
            (f"strategy.{option.name}", shown(option.default), option.doc)
            for option in entry(name).options
        ]
    import yaml

    text = conf_text(f"{group}/{name}.yaml")
    published = ((yaml.safe_load(text) or {}).get("published") or {}).get("options") or {}
    found = []
    for key, default, meaning in read_keys(text):
        if key == "options" and published:
            found += [(f"{group}.options.{each}", shown(published[each]), "") for each in published]
        elif key.partition(".")[0] not in ("kind", "name", *SIZES):
            found.append((f"{group}.{key}", default, meaning))
    return found


def conf_texts(config: str) -> list[str]:
    """A command's file in ``conf``, and that of the jobs where it builds on them."""
    text = conf_text(f"{config}.yaml")
    return [text, conf_text("job.yaml")] if "  - job\n" in text else [text]


def chosen_groups(texts: Sequence[str]) -> dict[str, str]:
    """Which choices of groups the ``defaults`` of files make, the first file's before others'."""
    found: dict[str, str] = {}
    for text in reversed(texts):
        section = re.search(r"^defaults:.*\n((?:  .*\n)+)", text, re.MULTILINE)
        found |= re.findall(r"^  - (?:override )?(\w+): (\S+)", section[1] if section else "", re.M)
    return found


def assignments(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Key and value of the words of a command line that are KEY=VALUE."""
    for word in words:
        key, equals, value = word.partition("=")
        if equals:
            yield key, value


def read_keys(text: str) -> list[tuple[str, str, str]]:
    """The top-level keys of a configuration file: key, default, and what its comments say."""
    keys: list[list[str]] = []
    for line in text.splitlines():
        if found := re.match(rf"(\w+):\s*{_REST}", line):
            keys.append([*found.groups("")])
        elif _has_keys(keys) and (found := re.match(rf"  (\w+):\s*{_REST}", line)):
            keys.append([f"{_parent(keys)}.{found[1]}", *found.groups("")[1:]])
        elif keys and (found := re.match(rf"  (- )?{_REST}", line)):
            _add(keys[-1], *found.groups(""))
    hidden = ("defaults", "hydra")
    return [
        (key, value or "...", meaning)
        for key, value, meaning in keys
        if key.partition(".")[0] not in hidden
    ]


def _has_keys(keys: list[list[str]]) -> bool:
    """Is the last key one that has keys of its own, or one of these?"""
    return bool(keys) and (not keys[-1][1] or "." in keys[-1][0])


def _parent(keys: list[list[str]]) -> str:
    """The key above the next one, which stands for it where it has no value."""
    parent = keys[-1][0].partition(".")[0]
    if not keys[-1][1]:
        keys.pop()
    return parent


def _add(key: list[str], item: str, content: str, comment: str) -> None:
    """A line below a key: an item of its list, or more of its comment."""
    if item and (not key[1] or key[1].startswith("[")):
        key[1] = f"{key[1].rstrip(']')}{',' if key[1] else '['}{content}]"
    if comment and not content:
        key[2] = f"{key[2]} {comment}".strip()
