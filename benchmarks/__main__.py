"""Every benchmark, one after the other, each in a process of its own.

``python -m benchmarks`` goes on where it was stopped: what has a record of the code as it is now is
left out (``--again`` runs it, too). It begins from a commit only (``--dirty`` to begin all the
same), and ends with the table in ``docs/benchmarks.md``. ``python -m benchmarks NAME ...`` runs
some; ``python -m benchmarks.NAME`` runs one, whatever there is. What cannot run in this clone, or
only in part, is named with its remedy, and the others run. ``--list`` runs none: it says of which
code each record is, and what this clone lacks.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.util import find_spec

from benchmarks.figures import changed_files, commit, record_of, same_code
from benchmarks.table import ALL, write_page
from benchmarks.trees import NEEDED, lacking, left_out


def is_current(name: str) -> bool:
    """Has it a record of this code?"""
    record = record_of(name)
    return bool(record and record["commit"] and same_code(record["commit"]))


def state_of(name: str) -> str:
    """Of which code is its record? And what does this clone lack to make another?"""
    record, needed = record_of(name), needs(name) or left_out(name)
    if record is None:
        said = "not measured yet"
    else:
        code = "this code" if is_current(name) else "other code"
        day = record["utc"].partition("T")[0]
        said = f"{code}: {record['commit'] or 'no commit'}, {day}, {record.get('machine', '')}"
    return f"{said}; {needed}" if needed else said


def show() -> None:
    """Print the state of each, how many records are of this code, and of how many commits all."""
    records = {name: record for name in ALL if (record := record_of(name))}
    for name in ALL:
        print(f"{name:15} {state_of(name)}")
    commits = {record["commit"] for record in records.values()}
    ours = sum(map(is_current, records))
    print(f"{len(records)} records of {len(commits)} commits; {ours} are of this code")


def needs(name: str) -> str | None:
    """What a benchmark lacks in this clone, and the remedy; None: nothing."""
    if name == "site" and find_spec("mkdocs") is None:
        return "it builds the site, and mkdocs is not installed: run `make docs`"
    return lacking(NEEDED[name]) if name in NEEDED else None


def unclean() -> str | None:
    """Why a record could not name the code that it is of, and the remedy."""
    if commit() is None:
        return "there is no git checkout, which says of which code a record is; give --dirty"
    if changed := changed_files():
        return f"{changed[0]} differs from the commit: commit first, or give --dirty"
    return None


def run(name: str, again: bool) -> str | None:
    """Run a benchmark; what to say at the end where it failed, or could not run.

    Args:
        again: even where it has a record of this code.
    """
    if not again and is_current(name):
        print(f"{name}: its record is of this code")
        return None
    if needed := needs(name):
        print(f"{name}: {needed}")
        return f"{name} (not in this clone)"
    if part := left_out(name):
        print(f"{name}: {part}")
    print(f"{name} ...", flush=True)
    done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}"])
    return name if done.returncode else None


def main() -> None:
    """Run what is asked for; exit code 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ALL))
    parser.add_argument(
        "--again", action="store_true", help="also those with a record of this code"
    )
    parser.add_argument("--dirty", action="store_true", help="code may differ from the commit")
    parser.add_argument("--list", action="store_true", help="of which code is each record?")
    given = parser.parse_args()
    if given.list:
        show()
        return
    if unknown := set(given.names) - set(ALL):
        parser.error(f"{sorted(unknown)[0]}: there is no such benchmark; choose {', '.join(ALL)}")
    if not given.dirty and (said := unclean()):
        parser.error(said)
    failed = [wrong for name in given.names or ALL if (wrong := run(name, given.again))]
    print(f"the table: {write_page()}")
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
