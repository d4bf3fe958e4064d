"""Tables from rows, their geometric means, and tables as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox


def latest(lines: Sequence[Mapping[str, Any]], keys: list[str]) -> pd.DataFrame:
    """One line for each combination of the keys, the last one's, in their order."""
    if not lines:
        return pd.DataFrame()
    frame = pd.DataFrame(lines).drop_duplicates(keys, keep="last")
    return frame.sort_values(keys, ignore_index=True)


def geometric_mean(numbers: Sequence[float]) -> float | None:
    """Of positive numbers; None of none.

    >>> geometric_mean([1, 4])
    2.0
    """
    if not len(numbers):
        return None
    return float(np.exp(np.mean(np.log(np.asarray(numbers, dtype=float)))))


def table_picture(frame: pd.DataFrame, title: str, narrow: float = 0.105) -> Figure:
    """A table of text, its first column to the left and the others centred.

    Args:
        narrow: inches per character.
    """
    text = frame.astype(object).where(frame.notna(), "–").astype(str)
    parts = [str(column).split("\n") for column in text.columns]
    widest = [
        max(len(word) for word in (*header, *text.iloc[:, i])) + 2 for i, header in enumerate(parts)
    ]
    lines = max(len(header) for header in parts)
    width, height = narrow * sum(widest), 0.27 * (len(text) + lines) + 0.35
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_title(title, fontsize=10, loc="left", y=1.0)
    grid = axes.table(
        cellText=text.to_numpy().tolist(),
        colLabels=list(text.columns),
        colWidths=[each / sum(widest) for each in widest],
        cellLoc="center",
        bbox=Bbox.from_bounds(0, 0, 1, 0.96),
    )
    grid.auto_set_font_size(False)
    grid.set_fontsize(9)
    for (line, column), cell in grid.get_celld().items():
        cell.set_linewidth(0)
        cell.set_facecolor("0.88" if line == 0 else ("0.965" if line % 2 == 0 else "white"))
        cell.set_height((lines if line == 0 else 1) / (len(text) + lines))
        if line == 0:
            cell.set_text_props(weight="bold")
        if column == 0:
            cell.set_text_props(ha="left")
            cell.PAD = 0.03
    return figure
