"""``python -m rematbench.instances.least``: the least bound, for each problem that has no better.

No plan costs less than each op that it cannot leave out, computed once. Also brings the table of
records to its present columns.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache

from rematbench.cli.arguments import Arguments
from rematbench.instances.evidence import NEEDED, needed_once, proven
from rematbench.instances.news import RecordStep, add_news, tell
from rematbench.instances.records import Library, is_without_plan, read_library, settled
from rematbench.rows.provenance import now


def add_least(library: Library, today: str) -> list[RecordStep]:
    """Write the bounds that are missing; what that changed.

    Args:
        today: ISO date.
    """
    records, steps = dict(library.records), list[RecordStep]()
    least = cache(lambda path: needed_once(library.graph(path)))
    for name, problem in library.instances.items():
        old = library.record(name)
        if problem.link is not None or is_without_plan(old):
            continue
        bound = least(problem.graph)
        if old.bound is None or old.bound < bound:
            records[name] = settled(proven(old, bound, "any", NEEDED, today))
            steps.append(RecordStep(old, records[name]))
            (library.folder / problem.evidence).unlink(missing_ok=True)  # of the lower bound
    library.write(records)
    if steps:
        add_news(library.folder / "NEWS.md", steps, today)
    return steps


def main(words: Sequence[str]) -> None:
    """The command."""
    parser = Arguments(prog="rematbench.instances.least", description=__doc__)
    parser.add_argument("--library", default="instances", help="its folder")
    given = parser.parse_args(words)
    for step in add_least(read_library(given.library), now()[:10]):
        print(tell(step))


if __name__ == "__main__":
    main(sys.argv[1:])
