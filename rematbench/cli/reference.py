"""``python -m rematbench.cli.reference`` writes ``docs/rows.md`` and ``docs/strategies.md``.

The one says what columns of a row and keys of its ``extra`` mean, the other lists the strategies.
Both are made from the code: rows from their types, strategies from their cards.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints, is_typeddict

from rematbench.base.meanings import Means
from rematbench.rows.extra import GROUPS
from rematbench.rows.measured import NESTED
from rematbench.rows.row import STATUSES, Row
from rematbench.strategies import registry
from rematbench.strategies.cards import Card

MADE = "by `python -m rematbench.cli.reference`"
_ROWS = f"""# Rows

A job's result is a row: `row.json` in its run folder, a line of `leaderboard.csv`. Columns and
their order are a contract; missing is null (an empty cell). *Planned* is the planner's own figure,
*simulated* comes from the reference simulator, *measured* from the device. This page is made from
`rematbench/rows/` and the strategies' cards {MADE}.

`status` is one of `{"`, `".join(STATUSES)}`.

| column | type | unit | from | |
|---|---|---|---|---|
"""
_EXTRA = """| `extra` | object | | | what only some rows have, below |

## `extra`

Keys that a row does not have are left out. A strategy of another package may add its own
(`Solution.details`), and say what they mean on its card.
"""
_STRATEGIES = f"""# Strategies

One line per `strategy=`, from the cards (`card.py` in each strategy's folder) {MADE}.
Every plan of every one of them is judged by the one simulator. `rematbench --help strategy=NAME`
has all options (`strategy.slots=3`).

*Guarantee*: **optimal** within the space named, as far as the row's bound says so; **bound**: the
row has a proven lower bound of its cost; **none**: a heuristic whose plan within the budget is
simulated, no more. Spaces: **(9)**, Checkmate's integer program over stages; **F**, its part that
recomputes forward ops alone, after the forward pass; **C**, plans with at most C computes of an op.
*Held against*: what the tests compare its results with, beside examples worked by hand, brute force
on tiny graphs and properties. *Folder*: in `strategies/`. Each was executed at the tightest budget
that it meets on a small network, with eager training's gradients:
`runs/reference/executed-strategies.csv` has what it recomputed there.

A greedy strategy, Revolve and the join programs sweep their knob and return the cheapest plan whose
simulated peak fits the budget; the whole trade-off curve is in `extra.curve`. If you quote a
strategy's rows, please cite its paper.

| strategy | published | what it solves | guarantee | applies to | folder | held against |
|---|---|---|---|---|---|---|
"""
_NAMES = {str: "text", int: "integer", float: "number", bool: "true or false", Any: "any"}


def rows_page() -> str:
    """``docs/rows.md``."""
    lines = [
        f"| `{name}` | {kind} | {_unit(means)} | {means.source} | {means.text} |"
        for name, kind, means in _specs(Row)
    ]
    text = _ROWS + "\n".join(lines) + "\n" + _EXTRA
    for group in (*GROUPS, *NESTED, *registry.facts()):
        lines = [
            f"| `{name}` | {kind} | {_unit(means)} | {means.text} |"
            for name, kind, means in _specs(group)
        ]
        title = str(group.__doc__).rstrip(".")
        text += f"\n### {title}\n\n| key | type | unit | |\n|---|---|---|---|\n"
        text += "\n".join(lines) + "\n"
    return text


def strategies_page() -> str:
    """``docs/strategies.md``."""
    return _STRATEGIES + "".join(
        f"| {' | '.join(_cells(card))} |\n"
        for name, card in registry.cards().items()
        if registry.entry(name).source == "rematbench"
    )


def _cells(card: Card) -> Iterator[str]:
    """The cells of a strategy's line."""
    paper = card.paper
    yield f"`{card.name}`"
    yield f"[{paper.authors} {paper.year}]({paper.url})" if paper else ""
    options = f". Options: {card.knobs}" if card.knobs else ""
    page = f" ([page](papers/{card.page}))" if card.page else ""
    yield card.problem + options + page
    yield from (card.guarantee, card.scope)
    yield f"`{registry.entry(card.name).path.split('.')[2]}/`"
    yield card.golden


def _specs(kind: type) -> Iterator[tuple[str, str, Means]]:
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if hasattr(hint, "__metadata__"):
            yield name, _label(get_args(hint)[0], optional=kind is not Row), hint.__metadata__[0]


def _unit(means: Means) -> str:
    return f"`{means.unit}`" if means.unit == "cost_unit" else means.unit


def _label(kind: Any, optional: bool) -> str:
    """A type for people; that a column may be null goes without saying."""
    if kind in _NAMES:
        return _NAMES[kind]
    parts = get_args(kind)
    origin = getattr(kind, "__origin__", None)
    if origin in (list, tuple):
        return "list"
    if origin is dict or is_typeddict(kind):
        return "object"
    named = [_label(part, optional) for part in parts if part is not type(None)]
    return " or ".join(named) + (" or null" if optional and type(None) in parts else "")


def main() -> None:
    """Write the pages into ``docs``."""
    Path("docs", "rows.md").write_text(rows_page())
    Path("docs", "strategies.md").write_text(strategies_page())


if __name__ == "__main__":
    main()
