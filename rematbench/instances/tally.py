"""How many problems are closed, and among which plans: of all, or of a narrower space alone.

``python -m rematbench.instances.tally`` writes it into ``docs/instances.md``; a test holds it.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rematbench.base.json_files import write_bytes
from rematbench.cli.arguments import Arguments
from rematbench.instances.evidence import SPACES
from rematbench.instances.records import BestKnown, is_closed, is_without_plan, read_library

BEGIN, END = "<!-- tally -->", "<!-- tally ends -->"
_COMMIT = re.compile(r"rematbench \S+ [0-9a-f]{12}")
_KINDS: tuple[tuple[str, Callable[[BestKnown], bool]], ...] = (
    ("closed, with a plan", lambda each: is_closed(each) and each.value is not None),
    ("closed: there is no plan", lambda each: is_closed(each) and each.value is None),
    ("hard", lambda each: each.status == "hard"),
    ("open", lambda each: each.status == "open"),
)


def by_space(records: Iterable[BestKnown]) -> str:
    """What the closed ones are closed in, in a line.

    >>> by_space([])
    'none in any space'
    """
    closed = [each for each in records if is_closed(each)]
    found = Counter((is_without_plan(each), each.bound_of) for each in closed)
    said = [
        f"{found[without, space]} {words} {space}"
        for without, words in ((False, "in space"), (True, "without a plan in"))
        for space in SPACES
        if found[without, space]
    ]
    return ", ".join(said) or "none in any space"


def text_of(records: Sequence[BestKnown]) -> str:
    """The same in a table, with the names of those that have no plan."""
    head = ["", *(f"space `{space}`" for space in SPACES), "no bound", "in all"]
    lines = [head, ["---"] * len(head), *(_counts(records, *kind) for kind in _KINDS)]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    closed = sum(map(is_closed, records))
    wide = sum(is_closed(each) and each.bound_of == "any" for each in records)
    lacking = [each for each in records if is_without_plan(each)]
    listed = ", ".join(f"`{each.instance}` ({each.bound_of})" for each in lacking)
    return (
        f"{closed:,} of {len(records):,} problems ({closed / len(records):.1%}) are closed, each "
        f"among the plans of a space: {by_space(records)}. Among all plans in program order (space "
        f"`any`) {wide / len(records):.1%} are.\n\n{table}\n\n"
        f"Provably without a plan (of the space in brackets): {listed or 'none'}.\n\n"
        f"{_kept(records)}\n"
    )


def _kept(records: Sequence[BestKnown]) -> str:
    """How many bounds and proofs can be held against something."""
    proven = [each for each in records if each.bound_of is not None]
    kept = sum(each.bound_date is not None for each in proven)
    plans = [str(each.by) for each in records if each.value is not None]
    old = sum("rematbench " in by and not _COMMIT.search(by) for by in plans)
    return (
        f"Of the {len(proven):,} bounds and proofs, {kept:,} have their evidence here. The other "
        f"{len(proven) - kept:,} are of before it was kept, and say who proved them and in how "
        "many seconds; `instances/evidence/undated.csv`, a list of the day since which it is kept, "
        "has them all, and `check` lets none be added. "
        f"Of the {len(plans):,} plans, {old:,} are of programs of ours before their commit was "
        "kept; a plan says itself what it is worth."
    )


def _counts(
    records: Sequence[BestKnown], name: str, holds: Callable[[BestKnown], bool]
) -> list[str]:
    found = Counter(each.bound_of for each in filter(holds, records))
    return [name, *(str(found[space]) for space in (*SPACES, None)), str(found.total())]


def put(page: str, records: Sequence[BestKnown]) -> str:
    """A page with the text in its place."""
    before, _, rest = page.partition(f"{BEGIN}\n")
    return f"{before}{BEGIN}\n{text_of(records)}{END}{rest.partition(END)[2]}"


def main(words: Sequence[str]) -> None:
    """The command."""
    parser = Arguments(prog="rematbench.instances.tally", description=__doc__)
    parser.add_argument("--library", default="instances", help="its folder")
    parser.add_argument("--page", type=Path, default=Path("docs/instances.md"))
    given = parser.parse_args(words)
    library = read_library(given.library)
    records = [library.record(name) for name in library.instances]
    write_bytes(given.page, put(given.page.read_text(encoding="utf-8"), records).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
