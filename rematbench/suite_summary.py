"""What a suite's rows say of each model: exactness of the simulator, rank of costs, headlines."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from rich.table import Table

from rematbench.row import Row

OVERHEAD, SHARE = 0.10, 1 / 3
"""The headlines: memory at 10 % overhead (MONeT), overhead at a third of the memory."""


def summarise(rows: Iterable[Row]) -> pd.DataFrame:
    """A line per model and device; plans that ran, each distinct one once.

    Returns:
        Columns: ``model``, ``batch_size``, ``resolution``, ``device``; ``rows``, ``ok`` and
        ``wrong_gradients`` (counts); ``eager_seconds``; ``checkpoint_all_overhead`` (against
        eager, a ratio - 1); ``worst_peak_error`` (simulated against measured, the largest of
        absolute values); ``overhead_error`` (measured less planned overhead, both against
        checkpoint-all, the median of absolute values); ``rank_correlation`` (Spearman, planned
        cost and measured seconds); ``peak_at_10_percent`` (least measured peak of plans with at
        most 10 % measured overhead, as a share of checkpoint-all's); ``overhead_at_one_third``
        (least measured overhead of plans with at most a third of its peak). Overheads of the
        last two are against checkpoint-all. What cannot be said is missing.
    """
    frame = pd.DataFrame([_flat(row) for row in rows])
    if frame.empty:
        return frame
    keys = ["model", "batch_size", "resolution", "device"]
    lines = []
    for key, group in frame.groupby(keys, dropna=False, sort=False):
        if key[-1] is not None and not pd.isna(key[-1]):
            lines.append(dict(zip(keys, key, strict=True)) | _line(group))
    return pd.DataFrame(lines)


def _flat(row: Row) -> dict[str, object]:
    extra = row["extra"]
    return {
        **{k: v for k, v in row.items() if k != "extra"},
        "eager_seconds": extra.get("eager_seconds"),
        "against_checkpoint_all": extra.get("overhead_against_checkpoint_all"),
    }


def _line(group: pd.DataFrame) -> dict[str, object]:
    ran = group[group.measured_seconds.notna()]
    wrong = int((ran.status == "failed").sum())
    ran = ran[ran.status == "ok"].drop_duplicates(["cost", "measured_peak_bytes"])
    line: dict[str, object] = {"rows": len(group), "ok": len(ran), "wrong_gradients": wrong}
    base = ran[ran.strategy == "checkpoint_all"]
    if base.empty:
        return line
    whole = base.iloc[0]
    inside = ran.dropna(subset=["against_checkpoint_all"]).astype({"against_checkpoint_all": float})
    share = inside.measured_peak_bytes.astype(float) / whole.measured_peak_bytes
    cheap = share[inside.against_checkpoint_all <= OVERHEAD]
    lean = inside.against_checkpoint_all[share <= SHARE]
    off = (inside.against_checkpoint_all - inside.overhead.astype(float)).abs()
    return line | {
        "eager_seconds": whole.eager_seconds,
        "checkpoint_all_overhead": whole.measured_overhead,
        "worst_peak_error": float(ran.peak_error.astype(float).abs().max()),
        "overhead_error": float(off.median()),
        "rank_correlation": _spearman(inside.cost, inside.measured_seconds),
        "peak_at_10_percent": float(cheap.min()) if len(cheap) else np.nan,
        "overhead_at_one_third": float(lean.min()) if len(lean) else np.nan,
    }


def _spearman(planned: pd.Series, measured: pd.Series) -> float:
    """NaN for fewer than three plans."""
    if len(planned) < 3:
        return float("nan")
    return float(planned.astype(float).corr(measured.astype(float), method="spearman"))


_HEADS = {
    "ok": "plans\nrun",
    "wrong_gradients": "wrong\ngradients",
    "eager_seconds": "eager\nseconds",
    "checkpoint_all_overhead": "checkpoint-all\nagainst eager",
    "worst_peak_error": "worst\npeak error",
    "overhead_error": "overhead\nerror",
    "rank_correlation": "rank\ncorrelation",
    "peak_at_10_percent": "peak at\n+10 %",
    "overhead_at_one_third": "overhead\nat 1/3",
}
_NUMBERS = ("ok", "wrong_gradients", "eager_seconds", "rank_correlation")


def table(summary: pd.DataFrame) -> Table:
    """The summary for a terminal; ratios in percent."""
    device = "" if summary.empty else f" on {summary.device.iloc[0]}"
    made = Table(title=f"Measured{device}", title_justify="left")
    made.add_column("model")
    for head in _HEADS.values():
        made.add_column(head, justify="right")
    for line in summary.to_dict("records"):
        sizes = [line[key] for key in ("batch_size", "resolution") if not pd.isna(line[key])]
        name = f"{line['model']} {' x '.join(str(size) for size in sizes)}"
        made.add_row(name, *(_cell(key, line.get(key)) for key in _HEADS))
    return made


def _cell(key: str, value: float | None) -> str:
    if value is None or pd.isna(value):
        return ""
    return f"{value:.3g}" if key in _NUMBERS else f"{value:+.1%}"
