"""Every benchmark, one after the other, each in a process of its own.

``python -m benchmarks`` goes on where it was stopped: what has a record of the code as it is now is
left out (``--again`` runs it, too). It begins from a commit only (``--dirty`` to begin all the
same), and ends with the table in ``docs/benchmarks.md``. ``python -m benchmarks NAME ...`` runs
some; ``python -m benchmarks.NAME`` runs one, whatever there is.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from benchmarks.figures import changed_files, record_of, same_code
from benchmarks.table import ALL, write_page


def is_current(name: str) -> bool:
    """Has it a record of this code?"""
    record = record_of(name)
    return bool(record and record["commit"] and same_code(record["commit"]))


def main() -> None:
    """Run what is asked for; exit code 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ALL))
    parser.add_argument(
        "--again", action="store_true", help="also those with a record of this code"
    )
    parser.add_argument("--dirty", action="store_true", help="code may differ from the commit")
    given = parser.parse_args()
    if unknown := set(given.names) - set(ALL):
        parser.error(f"{sorted(unknown)[0]}: there is no such benchmark; choose {', '.join(ALL)}")
    if not given.dirty and (changed := changed_files()):
        parser.error(f"{changed[0]} differs from the commit: commit first, or give --dirty")
    failed = []
    for name in given.names or ALL:
        if not given.again and is_current(name):
            print(f"{name}: its record is of this code")
            continue
        print(f"{name} ...", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"]).returncode:
            failed.append(name)
    print(f"the table: {write_page()}")
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
