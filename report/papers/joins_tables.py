"""Tables 1 and 2 of the join-network paper: what ResNets weigh, with and without activations."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from rematbench.report.figures import ClaimLine, Drawing
from rematbench.report.tables import latest, table_picture
from rematbench.rows.row import Row, known

_MB = 2**20
# Printed in Table 1 and Table 2, megabytes: of all weights, by depth; of all, by size.
_RESNETS = {18: 175.05, 34: 329.29, 50: 384.85, 101: 674.65, 152: 913.36}
_PAPER_MEMORY = {
    224: (230.05, 413.00, 620.27, 1027.21, 1410.62),
    350: (309.83, 534.96, 964.66, 1543.72, 2139.75),
    500: (449.21, 749.73, 1570.93, 2472.72, 3458.50),
    650: (639.07, 1039.08, 2387.54, 3682.00, 5161.76),
    1100: (1496.10, 2346.95, 6073.06, 9208.30, 12961.96),
    1500: (2628.70, 4075.07, 10944.42, 16515.11, 23277.27),
}
_COPIES = 4  # weights, gradients and two moments of an optimizer, as the paper's numbers suggest


def resnet_table(rows: Sequence[Row]) -> pd.DataFrame:
    """Per ResNet and image size: parameters, and the peak of a step without rematerialization."""
    found = []
    for row in rows:
        depth = (row["model"] or "").removeprefix("resnet")
        is_known = depth.isdigit() and int(depth) in _RESNETS
        if not is_known or row["strategy"] != "checkpoint_all" or row["status"] != "ok":
            continue
        size = int(str(row["resolution"]).split("x")[0])
        # The images and their labels are resident, too.
        images = (3 * size * size * 4 + 8) * (row["batch_size"] or 1)
        weights = (row["extra"]["resident_bytes"] - images) / 2 / _MB
        place = list(_RESNETS).index(int(depth))
        printed = _PAPER_MEMORY.get(size)
        found.append(
            {
                "model": row["model"],
                "size": size,
                "weights_MB": weights,
                "weights_4_copies_MB": _COPIES * weights,
                "weights_paper_MB": _RESNETS[int(depth)],
                "peak_MB": known(row["peak_bytes"]) / _MB,
                "peak_4_copies_MB": known(row["peak_bytes"]) / _MB + (_COPIES - 2) * weights,
                "peak_paper_MB": printed[place] if printed else None,
                "depth": int(depth),
            }
        )
    return latest(found, ["depth", "size"]).drop(columns="depth", errors="ignore")


def draw_weights(rows: Sequence[Row]) -> Drawing | None:
    """Table 1."""
    data = resnet_table(rows)
    if data.empty:
        return None
    data = data.drop_duplicates("model")[
        ["model", "weights_MB", "weights_4_copies_MB", "weights_paper_MB"]
    ].reset_index(drop=True)
    shown = data.round(2).rename(
        columns={
            "weights_MB": "weights (MB)\nours",
            "weights_4_copies_MB": "four copies (MB)\nours",
            "weights_paper_MB": "weights (MB)\npaper",
        }
    )
    notes = tuple(
        ClaimLine(
            each.model,
            f"{each.weights_paper_MB:.2f} MB",
            f"{each.weights_MB:.2f} MB; four copies {each.weights_4_copies_MB:.2f} MB",
            "the paper does not say what it counts: 3.9 to 4.0 times the weights",
        )
        for each in data.itertuples()
    )
    title = "Table 1: memory of all weights of ResNets"
    return Drawing(title, data, table_picture(shown, title), notes)


def draw_memory(rows: Sequence[Row]) -> Drawing | None:
    """Table 2."""
    data = resnet_table(rows)
    if data.empty:
        return None
    lines: list[dict[str, object]] = []
    for size, mine in data.groupby("size"):
        line: dict[str, object] = {"image": size}
        for each in mine.itertuples():
            line[f"{each.model}\nours"] = f"{each.peak_4_copies_MB:.0f}"
            paper = "–" if pd.isna(each.peak_paper_MB) else f"{each.peak_paper_MB:.0f}"
            line[f"{each.model}\npaper"] = paper
        lines.append(line)
    notes = tuple(
        ClaimLine(
            f"{each.model}, {each.size} px",
            f"{each.peak_paper_MB:.0f} MB",
            f"{each.peak_4_copies_MB:.0f} MB with four copies of the weights, "
            f"{each.peak_MB:.0f} MB with two (simulated)",
            "the paper does not say what it counts beside activations; ours is the peak",
        )
        for each in data.dropna(subset="peak_paper_MB").itertuples()
    )
    batches = sorted({row["batch_size"] or 1 for row in rows})
    text = ", ".join(map(str, batches))
    title = (
        f"Table 2: weights and activations of ResNets, batch {text} (MB, four copies of weights)"
    )
    return Drawing(title, data, table_picture(pd.DataFrame(lines), title), notes)
