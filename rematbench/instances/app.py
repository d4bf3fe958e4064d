"""``rematbench-instances``: list, solve, submit, check and compare the library of problems."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rematbench.base.checks import did_you_mean
from rematbench.base.errors import ConfigError, RematbenchError
from rematbench.base.origin import one_line
from rematbench.base.sizes import size
from rematbench.instances.news import tell
from rematbench.instances.records import HOME, STATUSES, Library, is_closed, read_library
from rematbench.instances.selection import ALL, FILTERS, select
from rematbench.instances.tally import by_space
from rematbench.rows.provenance import now

NAME = "rematbench-instances"
_MOST_TOLD = 20
Words = Sequence[str]


def list_instances(words: Words, options: Mapping[str, str]) -> None:
    """One line per instance, and what they are in all."""
    library = _library(options)
    chosen = select(library, words or [ALL])
    records = [library.record(each.instance) for each in chosen]
    print(f"{'instance':44} {'ops':>6} {'budget':>9} {'value':>16} {'gap':>7} status  by")
    for problem, record in zip(chosen, records, strict=True):
        gap = "" if record.gap is None else f"{record.gap:.3%}"
        value = "" if record.value is None else str(record.value)
        print(
            f"{problem.instance:44} {problem.ops:6} {size(problem.budget_bytes):>9} {value:>16} "
            f"{gap:>7} {record.status:7} {record.by or ''}".rstrip()
        )
    counts = Counter(record.status for record in records)
    closed = sum(map(is_closed, records)) / len(records)
    told = ", ".join(f"{counts[status]} {status}" for status in STATUSES)
    graphs = len({each.graph for each in chosen})
    print(
        f"{len(chosen)} instances of {graphs} graphs: {told}; {closed:.1%} closed (easy ones too): "
        f"{by_space(records)}"
    )


def solve_selection(words: Words, options: Mapping[str, str]) -> None:
    """A sweep of ``rematbench -m``."""
    from rematbench.instances.solve import solve

    solve(words, options.get("library", HOME))


def submit_files(words: Words, options: Mapping[str, str]) -> None:
    """Judge offers; write records and news."""
    from rematbench.instances.submit import submit

    if not words:
        raise ConfigError("submit: give a *.plan.json, a *.bound.json, a run's folder or a sweep's")
    steps, refused = submit(
        _library(options), [Path(word) for word in words], options.get("by"), now()[:10]
    )
    for step in [*steps.values()][:_MOST_TOLD]:
        print(tell(step))
    if len(steps) > _MOST_TOLD:
        print(f"and {len(steps) - _MOST_TOLD} more")
    said = "refused: " if steps else f"{NAME}: "
    for reason in refused[:_MOST_TOLD]:
        print(f"{said}{reason}", file=sys.stderr)
    if len(refused) > _MOST_TOLD:
        print(f"{said}{len(refused) - _MOST_TOLD} more", file=sys.stderr)
    if not steps:
        sys.exit(1)


def check_records(words: Words, options: Mapping[str, str]) -> None:
    """Verify every record of a selection; exits 1 where something is wrong."""
    from rematbench.instances.verify import faults

    library = _library(options)
    chosen = select(library, words or [ALL])
    found = [*faults(library, chosen)]
    for fault in found:
        print(f"{NAME}: {fault}", file=sys.stderr)
    if found:
        sys.exit(1)
    closed = sum(is_closed(library.record(each.instance)) for each in chosen)
    sound = "record is" if len(chosen) == 1 else "records are"
    print(f"{len(chosen)} {sound} sound, {closed} of them closed")


def compare_sides(words: Words, options: Mapping[str, str]) -> None:
    """Two sides on what both were asked for."""
    from rematbench.instances.compare import compare, shown

    filters = [word for word in words if word.partition("=")[0] in FILTERS]
    sides = [word for word in words if word not in filters]
    if len(sides) not in (2, 3):
        raise ConfigError(
            "compare: give A, B and (if not all) a selection; A and B are folders of rows or plans"
        )
    library = _library(options)
    chosen = select(library, [*(sides[2:] or [ALL]), *filters])
    print(shown(compare(library, chosen, (sides[0], sides[1]))))


COMMANDS: Mapping[str, tuple[Callable[[Words, Mapping[str, str]], None], tuple[str, ...]]] = {
    "list": (list_instances, ("library",)),
    "solve": (solve_selection, ("library",)),
    "submit": (submit_files, ("library", "by")),
    "check": (check_records, ("library",)),
    "compare": (compare_sides, ("library",)),
}
"""Each command's function, and its own keys."""


def _library(options: Mapping[str, str]) -> Library:
    return read_library(options.get("library", HOME))


def _run(given: Words) -> None:
    asked = given[0] if given else "no command"
    if asked not in COMMANDS:
        hint = did_you_mean(asked, COMMANDS)
        raise ConfigError(f"{asked}: unknown; {hint}give one of {', '.join(COMMANDS)}")
    work, keys = COMMANDS[asked]
    own = [word for word in given[1:] if word.partition("=")[0] in keys and "=" in word]
    options = {key: value for key, _, value in (word.partition("=") for word in own)}
    work([word for word in given[1:] if word not in own], options)


def main() -> None:
    """The command. Exits 1 for what is refused or unsound, 2 for bad words."""
    try:
        _run(sys.argv[1:])
        sys.stdout.flush()
    except RematbenchError as error:
        print(f"{NAME}: {one_line(error)}", file=sys.stderr)
        sys.exit(1 if sys.argv[1:2] == ["submit"] else 2)
    except BrokenPipeError:  # whoever reads the output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
