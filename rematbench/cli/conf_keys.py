"""Keys of configuration files and what they say of them, read as text: without Hydra."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

from rematbench.conf.published import SIZES


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


def chosen_groups(text: str) -> list[tuple[str, str]]:
    """Which choices of groups a file's ``defaults`` make."""
    section = re.search(r"^defaults:.*\n((?:  .*\n)+)", text, re.MULTILINE)
    found = re.findall(r"^  - (?:override )?(\w+): (\S+)", section[1] if section else "", re.M)
    return [(group, value) for group, value in found]


def read_keys(text: str) -> list[tuple[str, str, str]]:
    """The top-level keys of a configuration file: key, default, and what its comments say."""
    keys: list[list[str]] = []
    for line in text.splitlines():
        found = re.match(r"(\w+):\s*([^#]*?)\s*(?:#\s*(.*))?$", line)
        if found:
            keys.append([found[1], found[2], found[3] or ""])
            continue
        below = re.match(r"  (\w+):\s*([^#]*?)\s*(?:#\s*(.*))?$", line)
        if keys and below and (not keys[-1][1] or "." in keys[-1][0]):  # a key of the last key's
            parent = keys[-1][0].partition(".")[0]
            if not keys[-1][1]:
                keys.pop()
            keys.append([f"{parent}.{below[1]}", below[2], below[3] or ""])
            continue
        inside = re.match(r"  (- )?([^#]*?)\s*(?:#\s*(.*))?$", line)
        if keys and inside and line.startswith("  "):
            _add(keys[-1], bool(inside[1]), inside[2], inside[3])
    hidden = ("defaults", "hydra")
    return [
        (key, value or "...", meaning)
        for key, value, meaning in keys
        if key.partition(".")[0] not in hidden
    ]


def _add(key: list[str], item: bool, content: str, comment: str | None) -> None:
    """A line below a key: an item of its list, or more of its comment."""
    if item and (not key[1] or key[1].startswith("[")):
        key[1] = f"{key[1].rstrip(']')}{',' if key[1] else '['}{content}]"
    if comment and not content:
        key[2] = f"{key[2]} {comment}".strip()
