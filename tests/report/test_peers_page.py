"""docs/peers.md: the table beside ``aot_eager`` and Inductor is that of its committed rows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from statistics import median
from typing import Any

from committed import HOUSE

from rematbench.rows.row import known

PAGE = (HOUSE / "docs/peers.md").read_text()
ROWS: list[dict[str, Any]] = json.loads((HOUSE / "runs/benchmarks/compile.rows.json").read_text())[
    "rows"
]
WRONG = 0.1
"""Errors above it are gradients of another dropout, below it rounding."""


def of(network: str) -> Mapping[str, dict[str, Any]]:
    return {row["name"]: row for row in ROWS if row["network"] == network}


def ratios() -> list[dict[str, Any]]:
    """Runs by PyTorch's ``activation_memory_budget``."""
    return [row for row in ROWS if ", ratio " in row["name"]]


def beside_the_fastest(network: str, ours: dict[str, Any]) -> str:
    """Our time over that of the fastest ratio of ``aot_eager`` that fits, as the page has it."""
    fits = [
        row
        for row in ratios()
        if (row["network"], row["name"].partition(",")[0]) == (network, "aot_eager")
        and row["peak_bytes"] <= ours["budget_bytes"]
    ]
    right = [median(row["wall"]) for row in fits if row["error"] < WRONG]
    if right:
        return f"{median(ours['wall']) / min(right):.2f}"
    return "none fits with the right gradients" if fits else "none fits"


def test_the_table_is_that_of_its_rows() -> None:
    lines = re.findall(r"^\| (\w+)[^|]* \| (0\.[57]) \| (.*) \|$", PAGE, re.MULTILINE)
    assert len(lines) == 8
    for network, budget, cells in lines:
        rows = of(network)
        eager, inductor = (rows[f"ours, {lower}, {budget}"] for lower in ("eager", "inductor"))
        shares = [f"{row['peak_bytes'] / row['budget_bytes']:.3f}" for row in (eager, inductor)]
        time = median(inductor["wall"]) / median(rows["inductor"]["wall"])
        expected = [shares[0], beside_the_fastest(network, eager), shares[1], f"{time:.2f}"]
        assert cells.split(" | ") == expected, (network, budget)


def test_what_is_said_below_it_is_of_its_rows() -> None:
    ours = [row for row in ROWS if row["budget_bytes"]]
    assert all(row["peak_bytes"] <= row["budget_bytes"] for row in ours)
    assert all(row["bitwise"] for row in ours if "eager" in row["name"])
    of_pairs = [median(row["beside"]) for row in ROWS if row["name"] == "ours, eager"]
    assert f"takes {min(of_pairs):.2f} to {max(of_pairs):.2f} of `aot_eager`'s time" in PAGE
    beside = [
        f"{row['value']:.2f}"
        for row in json.loads((HOUSE / "runs/benchmarks/compile.json").read_text())["figures"]
        if re.search(r", inductor, .*: time / best ratio's that fits$", row["figure"])
    ]
    gpt2, leaner, mobilenet = beside
    said = " ".join(PAGE.split())
    assert (
        f"takes {gpt2} (gpt2 at 0.7), {leaner} (gpt2 at 0.5) and {mobilenet} (MobileNet-V2 at 0.7)"
        in said
    )
    eager = [row for row in ratios() if row["name"].startswith("aot_eager")]
    wrong = [row["error"] for row in ratios() if row["error"] >= WRONG]
    assert len(wrong) == 11  # "eleven"
    runs = (
        f"{len(ratios())} runs there ({len(eager)} of `aot_eager`'s, {len(ratios()) - len(eager)}"
    )
    assert f"{runs} of Inductor's), eleven have wrong gradients (off by {min(wrong):.2f}" in said
    at = {row["name"]: known(row["peak_bytes"]) for row in eager if row["network"] == "resnet50"}
    above = at["aot_eager, ratio 0.0"] / at["aot_eager, ratio 0.75"] - 1
    assert f"ResNet-50's at 0 is {100 * above:.0f} % above that at 0.75" in said
