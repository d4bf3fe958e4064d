"""The library of two memories: problems whose plans may copy values to a host and back.

``python -m rematbench.instances.linked`` writes ``instances/two-memories/problems.csv``: the
leaderboard's track for two memories, on the library's own graphs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path

from rematbench.instances.records import LibraryProblem, read_library
from rematbench.instances.table import write_table

NETWORKS = (
    *("resnet50_b128", "mobilenet_v2_b128", "vit_b_16_b64", "gpt2_b8", "segnet_b16"),
    *("sd15_unet_b16", "dit_xl_2_b64", "siamese_b32", "lstm_lm_b512", "tree_lstm_b4096"),
)
"""Of each kind of network the first two of the leaderboard."""
SHARES = (0.35, 0.5, 0.7)
"""Budgets: of the peak of each op once in program order."""
RATES = (12, 25, 55, 450)
"""Bytes per nanosecond, in both directions."""
FOLDER = "two-memories"


def linked(folder: str | Path = "instances") -> Iterator[LibraryProblem]:
    """Its problems, of the graphs of the library beside it.

    Args:
        folder: of that library.

    Raises:
        ConfigError: there is no library.
    """
    library = read_library(folder)
    for name in NETWORKS:
        first = library.of_graph(name)[0]
        for number, share in enumerate(SHARES, 1):
            budget = int(share * first.peak_bytes)
            for rate in RATES:
                yield replace(
                    first,
                    instance=f"{name}@{number}-{rate}",
                    graph=f"../{first.graph}",
                    budget_bytes=budget,
                    in_100=0,
                    link=rate,
                )


def main() -> None:
    """Write the table."""
    columns = [field.name for field in fields(LibraryProblem)]
    place = Path("instances") / FOLDER / "problems.csv"
    place.parent.mkdir(exist_ok=True)
    write_table(place, columns, map(asdict, linked()))
    print(place)


if __name__ == "__main__":
    main()
