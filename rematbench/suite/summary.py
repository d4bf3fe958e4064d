"""What a suite's rows say of each model: exactness of the simulator, rank of costs, headlines."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from rich.table import Table

from rematbench.rows.row import Row

OVERHEAD, SHARE = 0.10, 1 / 3
"""The headlines: memory at 10 % overhead (MONeT), overhead at a third of the memory."""
_KEYS = ["model", "batch_size", "resolution", "device"]
# MONeT, Table 1 (P100): GB of PyTorch, of Checkmate (blind to workspace) and of MONeT at 10 %.
_TABLE_1 = {
    "resnet50": (15.1, 8.2, 5.7),
    "googlenet": (14.9, 10.5, 6.9),
    "unet": (14.3, 9.1, 5.2),
    "vgg16": (14.1, 9.9, 5.5),
    "mobilenet_v2": (14.5, 5.8, 4.8),
}
THEIRS = {
    (model, strategy): gigabytes / pytorch
    for model, (pytorch, *others) in _TABLE_1.items()
    for strategy, gigabytes in zip(("anytime", "anytime_joint"), others, strict=True)
}


def summarise(rows: Iterable[Row]) -> pd.DataFrame:
    """A line per model and device; plans that ran, each distinct one once.

    Returns:
        Columns: ``model``, ``batch_size``, ``resolution``, ``device``; ``rows`` (that were
        measured), ``ok`` (distinct plans among them) and ``wrong_gradients``; ``eager_seconds``;
        ``checkpoint_all_overhead`` (against eager, a ratio - 1); ``worst_peak_error`` (simulated
        against measured, the largest of absolute values); ``overhead_error`` (measured less
        planned overhead, both against checkpoint-all, the median of absolute values);
        ``rank_correlation`` (Spearman, planned cost and measured seconds);
        ``peak_at_10_percent`` (least measured peak of plans with at most 10 % measured overhead,
        as a share of checkpoint-all's); ``overhead_at_one_third`` (least measured overhead of
        plans with at most a third of its peak). Overheads of the last two are against
        checkpoint-all. What cannot be said is missing.
    """
    frame = pd.DataFrame([_flat(row) for row in rows])
    if frame.empty:
        return frame
    lines = []
    for key, group in frame.groupby(_KEYS, dropna=False, sort=False):
        if not pd.isna(key[-1]):
            lines.append(dict(zip(_KEYS, key, strict=True)) | _line(group))
    return pd.DataFrame(lines)


def headlines(rows: Iterable[Row]) -> pd.DataFrame:
    """A line per model, device and strategy: the headlines, MONeT's printed ones beside them.

    Returns:
        Columns: those of a model, ``strategy``, ``peak_at_10_percent`` and
        ``overhead_at_one_third`` as in :func:`summarise`; ``eager_peak_at_10_percent``, of eager
        training's peak where eager training's time is the measure (its in-place ops make it
        leaner than checkpoint-all), and beside it ``paper_peak_at_10_percent`` (their share of
        PyTorch's memory on a P100; their Checkmate does not see workspaces).
    """
    frame = pd.DataFrame([_flat(row) for row in rows])
    lines = []
    for key, group in frame.groupby(_KEYS, dropna=False, sort=False) if len(frame) else ():
        ran = group[group.measured_seconds.notna() & (group.status == "ok")]
        base = ran[ran.strategy == "checkpoint_all"]
        for strategy, mine in ran.groupby("strategy", sort=False) if len(base) else ():
            line = {"strategy": strategy} | _headline(mine, base.iloc[0])
            share = (mine.measured_peak_bytes / mine.eager_peak_bytes).astype(float)
            cheap = mine.measured_overhead.astype(float) <= OVERHEAD
            line["eager_peak_at_10_percent"] = share[cheap].min()
            theirs = {"paper_peak_at_10_percent": THEIRS.get((str(key[0]), str(strategy)))}
            lines.append(dict(zip(_KEYS, key, strict=True)) | line | theirs)
    return pd.DataFrame(lines)


def _flat(row: Row) -> dict[str, object]:
    extra = row["extra"]
    return {
        **{k: v for k, v in row.items() if k != "extra"},
        "eager_seconds": extra.get("eager_seconds"),
        "eager_peak_bytes": extra.get("eager_peak_bytes"),
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
    off = (inside.against_checkpoint_all - inside.overhead.astype(float)).abs()
    return line | {
        "eager_seconds": whole.eager_seconds,
        "checkpoint_all_overhead": whole.measured_overhead,
        "worst_peak_error": float(ran.peak_error.astype(float).abs().max()),
        "overhead_error": float(off.median()),
        "rank_correlation": _spearman(inside.cost, inside.measured_seconds),
        **_headline(inside, whole),
    }


def _headline(plans: pd.DataFrame, whole: pd.Series) -> dict[str, object]:
    """NaN where no plan is that cheap, or that lean."""
    overhead = plans.against_checkpoint_all.astype(float)
    share = plans.measured_peak_bytes.astype(float) / whole.measured_peak_bytes
    return {
        "peak_at_10_percent": share[overhead <= OVERHEAD].min(),
        "overhead_at_one_third": overhead[share <= SHARE].min(),
    }


def _spearman(planned: pd.Series, measured: pd.Series) -> float:
    """NaN for fewer than three plans."""
    if len(planned) < 3:
        return float("nan")
    # Of ranks; pandas asks SciPy for method="spearman", which a GPU machine may lack.
    return float(planned.astype(float).rank().corr(measured.astype(float).rank()))


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
