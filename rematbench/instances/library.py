"""``instances/``, made: features of every candidate, those that are chosen, their problems.

``python -m rematbench.instances.library draw`` draws candidates from the installed libraries into
``instances/features.csv``; ``measure`` makes each that has no features yet, into
``build/instances/``; ``choose`` puts the graphs that the rule chooses into ``instances/`` and
writes ``problems.csv``. From a checkout's root; each goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rematbench.base.clock import OutOfTime, stopped_after
from rematbench.base.origin import one_line
from rematbench.instances.choosing import chosen_graphs, hundred
from rematbench.instances.families import Candidate, fixed
from rematbench.instances.features import features
from rematbench.instances.making import COLUMNS, make, problems, write
from rematbench.instances.table import (
    TABLE,
    Row,
    features_of,
    read_table,
    row_of,
    source_of,
    write_table,
)

PLACE, DRAFTS = Path("instances"), Path("build/instances")
SECONDS = 150
"""That a candidate may take to be made."""


def read(place: Path = PLACE) -> list[Row]:
    """``features.csv``, with a row for each fixed source that it lacks."""
    table = place / "features.csv"
    rows = read_table(table) if table.exists() else []
    names = {row["name"] for row in rows}
    return rows + [row_of(source) for source in fixed() if source.name not in names]


def add(rows: list[Row], sources: Iterable[Candidate]) -> None:
    """Candidates that are not there yet."""
    names = {row["name"] for row in rows}
    rows += [row_of(source) for source in sources if source.name not in names]


def measure(rows: list[Row], families: Iterable[str], place: Path = PLACE) -> None:
    """Make each candidate of these families (none: of all) that has neither features nor a reason.

    The table is written after each, so that nothing is made twice.
    """
    asked = {*families}
    for row in rows:
        if row["ops"] or row["reason"] or (asked and row["family"] not in asked):
            continue
        row |= _measured(source_of(row))
        said = row["reason"] or f"{row['ops']} ops"
        print(f"{row['family']} {row['name']}: {said}", flush=True)
        write_table(place / "features.csv", TABLE, rows)


def _measured(source: Candidate) -> Row:
    try:
        with stopped_after(SECONDS):
            graph = make(source)
            found = features(graph)
    except OutOfTime:
        return {"reason": f"stopped after {SECONDS} s"}
    except Exception as error:  # a library's own, of any type
        return {"reason": one_line(error)[:160]}
    write(DRAFTS / source.graph, graph)
    loss = str(int(graph.loss_index is not None))
    return {"hash": graph.hash, "loss": loss, **{k: str(v) for k, v in asdict(found).items()}}


def choose(rows: list[Row], place: Path = PLACE) -> None:
    """Graph files of the chosen candidates, and both tables.

    Raises:
        RematbenchError: a chosen graph was not made; ``measure`` makes it.
    """
    taken = chosen_graphs(rows)
    for row in rows:
        row["chosen"] = str(int(row["name"] in taken))
    sources = [source_of(row) for row in rows if row["name"] in taken]
    for source in sources:
        _put(source, place)
    keep = {place / source.graph for source in sources}
    for path in place.rglob("*.graph.json.gz"):
        if path not in keep:
            path.unlink()
    write_table(place / "features.csv", TABLE, rows)
    write_table(place / "problems.csv", COLUMNS, all_problems(rows))


def _put(source: Candidate, place: Path) -> None:
    target, draft = place / source.graph, DRAFTS / source.graph
    if target.exists():
        return
    if not draft.exists():
        write(draft, make(source))
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(draft, target)


def all_problems(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """``problems.csv``, from the chosen rows of ``features.csv``."""
    chosen = [row for row in rows if row["chosen"] == "1"]
    found = [
        problem
        for row in chosen
        for problem in problems(source_of(row), features_of(row), row["loss"] == "1")
    ]
    taken = hundred(found, {source_of(row).graph: features_of(row) for row in chosen})
    return [problem | {"in_100": int(problem["instance"] in taken)} for problem in found]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser("python -m rematbench.instances.library", description=__doc__)
    parser.add_argument("step", choices=("draw", "measure", "choose"))
    parser.add_argument("families", nargs="*", help="of measure; none: all")
    given = parser.parse_args()
    rows = read()
    if given.step == "draw":
        from rematbench.instances.drawing import drawn

        add(rows, drawn())
        write_table(PLACE / "features.csv", TABLE, rows)
    elif given.step == "measure":
        measure(rows, given.families)
    else:
        choose(rows)


if __name__ == "__main__":
    main()
