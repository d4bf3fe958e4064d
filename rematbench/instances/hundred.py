"""REMATLIB-100's table: every strategy on its hundred problems; from rows, a test makes it.

``python -m rematbench.instances.hundred ROWS ... --out docs/rematlib-100.md``
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rematbench.base.errors import ConfigError, RematbenchError
from rematbench.base.json_files import write_bytes
from rematbench.base.origin import one_line
from rematbench.cli.arguments import Arguments
from rematbench.instances.records import Library, LibraryProblem, graph_name, read_library
from rematbench.instances.selection import HUNDRED, select
from rematbench.report.collect import collect
from rematbench.report.leaderboard.board import TIE
from rematbench.report.leaderboard.held import HELD, held, took
from rematbench.report.leaderboard.names import label
from rematbench.rows.row import Row
from rematbench.strategies.registry import cards

CLOSE = 1.01
FACTORS = (CLOSE, 1.05, 1.2)
"""Of the cheapest plan, within which shares are counted."""
_HEAD = """# REMATLIB-100

A hundred diverse problems of [the library](instances.md), for comparisons in papers, and what each
strategy makes of them: {rows} rows{commits}, {limits}. **Modelled** costs; nothing here was
measured.

- *Applies to*: how many of the hundred a strategy can be asked at all. *Solved*: a plan within the
  budget, in program order.{moved}{failed}
- *Best*: no strategy here has a cheaper one (within 0.01 %). *Within 1 %* and so on: at most so
  much dearer than the cheapest one here. These are of all {problems} problems, so that a
  strategy that applies to few of them cannot score high (performance profiles of Dolan and Moré,
  2002).
- *Cost*: over the cheapest one's, the geometric mean over what a strategy solved: to be read beside
  how much that is.
- *Seconds*: of the processor, to plan, the median over what it solved.{late}

{table}

{unsolved}
{sections}
## Where it is from

Made from rows by `python -m rematbench.instances.hundred`, and held against them by a test. To put
a planner of your own beside them:

```
rematbench-instances solve REMATLIB-100 strategy=yours time_limit=1 hydra.sweep.dir=runs/yours
rematbench-instances compare runs/yours {place}:dtr
```

In the place of `runs/yours` may stand a folder of plan files that a program of your own wrote
([the rules](../instances/RULES.md)); then end the command with `REMATLIB-100`.
"""
_SECTION = """
## With {limit} s

{rows} rows of {problems} problems{commits} ([file](../{place})).
The cheapest plan, too, is of these rows.{after}{moved}{failed}{some}
{late}

{table}

{unsolved}
"""
_AFTER = """ *After*: within
1 % of it by the plan that the planner had by then. That is not what it has with so short a limit:
`hybrid` runs others for shares of its limit, and has their plans when these end."""
_SOME = """
Of the first table's strategies these alone were run: our own searches, which improve their plans
for as long as they may. (`checkmate_d` and `checkmate_o`, our search of published problems, and
planners that solve one program have the limits above alone.)"""
_MOVED = "run ops later than program order has them, and are left out."
_NOT_APPLICABLE = {
    "they move values to a host, and no problem here has a link to one "
    "([others](instances.md#two-memories) have)": (
        *("auto_perf", "offload_all", "offload_dots", "offload_hidden", "poet", "pofo"),
    ),
    "they ask PyTorch's own compiler, or run its network, and a graph's file is none": (
        *("torch_budget", "torch_knapsack", "torch_selective"),
    ),
}
"""Why a strategy applies to no problem of a graph's file alone."""
LATE = 1.05
"""Of its limit, beyond which a run is late."""
VERY_LATE = 1.0
"""Seconds beyond the limit, after which a run is named."""
_COLUMNS = ("strategy", "applies to", "solved", "best", "within 1 %", "within 5 %", "within 20 %")


def field_of(rows: Iterable[Row], library: Library) -> pd.DataFrame:
    """A line per strategy, time limit and problem of REMATLIB-100.

    Returns:
        ``strategy``, ``limit`` (seconds), ``problem``, ``applies``, ``moved`` (is its plan out of
        program order?), ``failed`` (did the run?), ``commit``, ``machine``, ``cost`` (infinite
        where there is no plan in program order), ``ratio`` (to the problem's cheapest; NaN where
        none has a plan), ``ratio_1`` and so on (of the plan that it had after so many seconds,
        :data:`.held.HELD`), ``seconds`` of planning, ``processor`` seconds (NaN where the row has
        none).

    Raises:
        ConfigError: no row is of these problems.
    """
    known = {(graph_name(p.graph), p.budget_bytes): p for p in select(library, [HUNDRED])}
    lines = [
        _line(row, problem)
        for row in rows
        if (problem := known.get((str(row["model"]), row["budget_bytes"] or 0))) is not None
    ]
    if not lines:
        raise ConfigError(f"{HUNDRED}: no row is of it; `rematbench-instances solve` makes some")
    field = pd.DataFrame(lines).sort_values("cost", kind="stable")
    field = field.drop_duplicates(["strategy", "limit", "problem"])
    least = field.groupby("problem")["cost"].transform("min")
    least = least.where(np.isfinite(least))
    early = {f"ratio_{at}": field.pop(f"held_{at}") / least for at in HELD}
    return field.assign(ratio=field["cost"] / least, **early)


def _line(row: Row, problem: LibraryProblem) -> dict[str, object]:
    solved, moved = row["status"] == "ok", row["extra"].get("in_program_order") is False
    early = zip(HELD, held(row), strict=True)
    return {f"held_{at}": np.inf if moved else cost for at, cost in early} | {
        "strategy": str(row["strategy"]),
        "limit": row["extra"].get("time_limit"),
        "problem": problem.instance,
        "applies": row["status"] != "not_applicable",
        "moved": solved and moved,
        "commit": (row["commit"] or "")[:7],
        "machine": row["extra"].get("machine", ""),
        "failed": row["status"] == "failed",
        "cost": row["cost"] if solved and not moved else np.inf,
        "seconds": took(row),
        "processor": row["extra"].get("plan_cpu_seconds", np.nan),
    }


def summary(field: pd.DataFrame) -> pd.DataFrame:
    """A line per strategy and limit: counts, the mean cost over the cheapest, median seconds."""
    lines: list[dict[Any, Any]] = []
    for (name, limit), mine in field.groupby(["strategy", "limit"], dropna=False):
        solved = mine[np.isfinite(mine["cost"])]
        within = {f: int((solved["ratio"] <= f * (1 + TIE)).sum()) for f in (1.0, *FACTORS)}
        lines.append(
            {
                "strategy": name,
                "limit": limit,
                "applies": int(mine["applies"].sum()),
                "solved": len(solved),
                **within,
                **{
                    _after(at): int((mine[f"ratio_{at}"] <= CLOSE * (1 + TIE)).sum()) for at in HELD
                },
                "cost": float(np.exp(np.log(solved["ratio"]).mean())),
                "seconds": float(solved["seconds"].median()),
            }
        )
    table = pd.DataFrame(lines)
    return table.sort_values([1.0, "solved", "applies"], ascending=False, kind="stable")


def document(found: Mapping[str, Sequence[Row]], library: Library) -> str:
    """``docs/rematlib-100.md``.

    Args:
        found: rows by their place, from a checkout's root: those of the first make the page, and
            each other place, of one time limit, a section of it.
    """
    (place, rows), *others = found.items()
    field = field_of(rows, library)
    limits = " or ".join(f"{limit:g}" for limit in sorted({*field["limit"].dropna()}))
    facts = _facts(field, place)
    known = field["strategy"].nunique()
    sections = [_section(field_of(more, library), where, known) for where, more in others]
    return _HEAD.format(
        **facts, limits=f"a planner was given {limits} s", sections="".join(sections)
    )


def _section(field: pd.DataFrame, place: str, known: int) -> str:
    """What planners do with another time limit; ``known``: how many the first table has."""
    facts, after = _facts(field, place, []), _AFTER if any(_earlier(field)) else ""
    some = _SOME if field["strategy"].nunique() < known else ""
    return _SECTION.format(**facts, limit=f"{field['limit'].max():g}", after=after, some=some)


def _facts(
    field: pd.DataFrame, place: str, every: Iterable[str] = tuple(cards())
) -> dict[str, object]:
    """What a table of rows, and the words around it, say; of ``every``, also who has none."""
    moved, left = int(field["moved"].sum()), field.groupby("problem")["cost"].min()
    unsolved = sorted(left.index[~np.isfinite(left)])
    several = field["limit"].nunique() > 1
    return {
        "rows": len(field),
        "failed": f" {failed} runs failed." if (failed := int(field["failed"].sum())) else "",
        "moved": f" {moved} plans {_MOVED}" if moved else "",
        "problems": len(left),
        "commits": _commits(field),
        "late": _late(field),
        "table": _table(summary(field), every, several=several, earlier=_earlier(field)),
        "unsolved": (
            f"On {len(unsolved)} none has a plan: {', '.join(f'`{name}`' for name in unsolved)}."
            if unsolved
            else "On each some strategy has a plan."
        ),
        "place": place,
    }


def _commits(field: pd.DataFrame) -> str:
    """What made the rows, and where."""
    found, machines = sorted({*field["commit"]}), sorted({*field["machine"]} - {""})
    where = f" ({'; '.join(machines)})" if machines else ""
    if len(found) > 1:
        return f", by {len(found)} commits{where}"
    return f", by commit {found[0]}{where}" if found[0] else where


def _after(seconds: int) -> str:
    return f"after {seconds} s"


def _earlier(field: pd.DataFrame) -> list[int]:
    """The seconds of :data:`HELD` after which every planner here went on."""
    return [at for at in HELD if at < field["limit"].min()]


def _table(
    found: pd.DataFrame, every: Iterable[str], *, several: bool, earlier: Sequence[int]
) -> str:
    """Those that apply to something, as a table; the others of ``every`` by name."""
    heads = [*_COLUMNS, *map(_after, earlier)]
    lines = [[*heads, "cost", "seconds"], ["---"] * (len(heads) + 2)]
    shown = found[found["applies"] > 0]
    for line in shown.to_dict("records"):
        name = label(line["strategy"], "`") + (f", {line['limit']:g} s" if several else "")
        keys = ("applies", "solved", 1.0, *FACTORS, *map(_after, earlier))
        counts = [line[key] for key in keys]
        numbers = ["–", "–"]
        if line["solved"]:
            numbers = [f"{line['cost']:.3f}", f"{line['seconds']:.2g}"]
        lines.append([name, *map(str, counts), *numbers])
    left = sorted({*every} - {*shown["strategy"]})
    never = sorted({*left} & {*chain.from_iterable(_NOT_APPLICABLE.values())})
    lines += [[label(name, "`"), "0", *["–"] * len(heads)] for name in never]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return "\n\n".join([text, *_missing(left, never)])


def _missing(left: Sequence[str], never: Sequence[str]) -> list[str]:
    """Who has no rows, and why."""
    said = [
        f"Not applicable to any of the hundred, because {why}: {_quoted(names)}."
        for why, names in _NOT_APPLICABLE.items()
        if {*names} & {*never}
    ]
    if others := [name for name in left if name not in never]:
        said.append(f"Not run yet: {_quoted(others)}.")
    return said


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _late(field: pd.DataFrame) -> str:
    """How many runs took longer than they were given, and which much longer."""
    late = field[field["processor"] > LATE * field["limit"]]
    very = field[field["processor"] > field["limit"] + VERY_LATE]
    if not len(late):
        return ""
    counts = Counter(sorted(late["strategy"])).most_common()
    runs, given = ("run", "it was") if len(late) == 1 else ("runs", "they were")
    whose = ", ".join(f"`{name}` {count}" for name, count in counts)
    said = (
        f"\n- *Late*: a planner looks at the clock only between its steps. {len(late)} {runs} took "
        f"more than {100 * (LATE - 1):.0f} % longer than\n  {given} given, in seconds of the "
        "processor: "
        f"{whose}."
    )
    if len(very):
        ordered = very.sort_values("processor", ascending=False, kind="stable")
        named = (
            f"`{each['strategy']}` on `{each['problem']}` ({each['processor']:.3f} s)"
            for each in ordered.to_dict("records")
        )
        said += f" {len(very)} took more than a second longer: {', '.join(named)}."
    return said


def main(arguments: Sequence[str]) -> None:
    """The command. Exits 2 for a bad argument, with one line that says what."""
    parser = Arguments(prog="rematbench.instances.hundred", description=__doc__)
    what = "rows: a leaderboard (.csv.gz) or a sweep's folder; one with other time limits after it"
    parser.add_argument("place", help=what)
    parser.add_argument("others", nargs="*", help="each of one time limit, a section of its own")
    parser.add_argument("--library", default="instances", help="folder of the library")
    parser.add_argument("--out", type=Path, help="the page; without: on the screen")
    given = parser.parse_args(arguments)
    try:
        found = {place: collect([Path(place)]).rows for place in (given.place, *given.others)}
        text = document(found, read_library(given.library))
    except RematbenchError as error:
        print(f"{parser.prog}: {one_line(error)}", file=sys.stderr)
        sys.exit(2)
    if given.out:
        write_bytes(given.out, text.encode())
    else:
        print(text, end="")


if __name__ == "__main__":
    main(sys.argv[1:])
