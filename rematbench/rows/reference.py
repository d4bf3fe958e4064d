"""``python -m rematbench.rows.reference`` prints ``docs/rows.md``: what columns and keys mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

from rematbench.rows.extra import GROUPS, Means
from rematbench.rows.row import STATUSES, Row

_HEAD = f"""# Rows

A job's result is a row: `row.json` in its run folder, a line of `leaderboard.csv`. Columns and
their order are a contract; missing is null (an empty cell). *Planned* is the planner's own figure,
*simulated* comes from the reference simulator, *measured* from the device. This page is made from
`rematbench/rows/row.py` and `rematbench/rows/extra.py` by `python -m rematbench.rows.reference`.

`status` is one of `{"`, `".join(STATUSES)}`.

| column | type | unit | from | |
|---|---|---|---|---|
"""
_EXTRA = """| `extra` | object | | | what only some rows have, below |

## `extra`

Keys that a row does not have are left out. A strategy of another package may add its own
(`Solution.details`).
"""
_NAMES = {str: "text", int: "integer", float: "number", bool: "true or false", Any: "any"}


def page() -> str:
    """The page, in Markdown."""
    lines = [
        f"| `{name}` | {kind} | {_unit(means)} | {means.source} | {means.text} |"
        for name, kind, means in _specs(Row)
    ]
    text = _HEAD + "\n".join(lines) + "\n" + _EXTRA
    for group in GROUPS:
        lines = [
            f"| `{name}` | {kind} | {_unit(means)} | {means.text} |"
            for name, kind, means in _specs(group)
        ]
        title = str(group.__doc__).rstrip(".")
        text += f"\n### {title}\n\n| key | type | unit | |\n|---|---|---|---|\n"
        text += "\n".join(lines) + "\n"
    return text


def _specs(kind: type) -> Iterator[tuple[str, str, Means]]:
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if hasattr(hint, "__metadata__"):
            yield name, _told(get_args(hint)[0], optional=kind is not Row), hint.__metadata__[0]


def _unit(means: Means) -> str:
    return f"`{means.unit}`" if means.unit == "cost_unit" else means.unit


def _told(kind: Any, optional: bool) -> str:
    """A type for people; that a column may be null goes without saying."""
    if kind in _NAMES:
        return _NAMES[kind]
    parts = get_args(kind)
    origin = getattr(kind, "__origin__", None)
    if origin in (list, tuple):
        return "list"
    if origin is dict:
        return "object"
    named = [_told(part, optional) for part in parts if part is not type(None)]
    return " or ".join(named) + (" or null" if optional and type(None) in parts else "")


def main() -> None:
    """Print the page."""
    print(page(), end="")


if __name__ == "__main__":
    main()
