"""What the DTR paper (simrd) says beside its figures, and what our rows say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from rematbench.report.figures import ClaimLine

_LOGS = (
    "logs that we record come from a CPU, with our models and batches, the paper's from a Titan V; "
    "docs/papers/simrd.md has these numbers on the logs that its program ships"
)


def chain_notes(data: pd.DataFrame, kind: str) -> tuple[ClaimLine, ...]:
    """Figures 2 and 3: how the additional computations grow."""
    banish = data[data["dealloc"] == "banish"]
    full, lru = (_tail(banish[banish["strategy"] == name]) for name in ("full", "lru"))
    if kind == "sqrt":
        claims = (
            ("DTR-Full, B = ceil(2 sqrt n)", "approximately n (section 5.1)", full, _full_sqrt),
            ("LRU, B = ceil(2 sqrt n)", "'seems to be linear'", lru, _lru),
        )
    else:
        claims = (
            ("DTR-Full, B = ceil(log2 n)", "'appears to grow like n log n'", full, _full_log),
            ("LRU, B = ceil(log2 n)", "'appears to grow like n log n'", lru, _lru),
        )
    return tuple(ClaimLine(claim, paper, *ours(tail)) for claim, paper, tail, ours in claims)


def _tail(curve: pd.DataFrame) -> pd.DataFrame:
    """The last three lengths of a curve: asymptotics."""
    return curve.sort_values("length").tail(3)


def _growth(tail: pd.DataFrame) -> float:
    """The exponent of n over the tail."""
    if len(tail) < 2:
        return float("nan")
    logs = np.log(tail[["length", "additional"]].to_numpy(float))
    return float((logs[-1, 1] - logs[0, 1]) / (logs[-1, 0] - logs[0, 0]))


def _measured(tail: pd.DataFrame) -> str:
    if tail.empty:
        return "no row"
    last = tail.iloc[-1]
    return (
        f"{last['additional']:.0f} at n = {last['length']:.0f} "
        f"({last['additional'] / last['length']:.2f} n), growing like n^{_growth(tail):.2f}"
    )


def _full_sqrt(tail: pd.DataFrame) -> tuple[str, str]:
    return _measured(tail), "agrees: about n"


def _full_log(tail: pd.DataFrame) -> tuple[str, str]:
    if tail.empty:
        return "no row", ""
    last = tail.iloc[-1]
    per = last["additional"] / (last["length"] * np.log2(last["length"]))
    return f"{_measured(tail)}; {per:.2f} n log2 n", "agrees with n log n"


def _lru(tail: pd.DataFrame) -> tuple[str, str]:
    return _measured(tail), (
        "faster than that: equally stale tensors go newest first, as in the original program; "
        "by chance it is slower at both budgets (python -m benchmarks.lru_ties)"
    )


def notes(name: str, data: pd.DataFrame) -> tuple[ClaimLine, ...]:
    """The lines of a figure on logs."""
    return _NOTES.get(name, _ablation)(data)


def smallest(data: pd.DataFrame, curve: str) -> dict[str, tuple[float, float]]:
    """Per model: the smallest ratio that a curve meets, and its slowdown there."""
    fine = data[(data["curve"] == curve) & (data["status"] == "ok")]
    lines = fine.sort_values("memory_ratio").groupby("model").first()
    return {
        str(model): (float(line["memory_ratio"]), float(line["slowdown"]))
        for model, line in lines.iterrows()
    }


def _label(met: dict[str, tuple[float, float]]) -> str:
    if not met:
        return "no plan"
    return "; ".join(
        f"{model} {ratio:g} at {cost - 1:+.1%}" for model, (ratio, cost) in met.items()
    )


def _heuristics(data: pd.DataFrame) -> tuple[ClaimLine, ...]:
    classes, lru = smallest(data, "eqclass"), smallest(data, "lru")
    densenet = {m: v for m, v in classes.items() if m.startswith("densenet")}
    fine = data[(data["status"] == "ok") & (data["curve"] == "lru") & (data["memory_ratio"] <= 0.7)]
    cheap = fine[fine["memory_ratio"] == 0.7]
    ratios = sorted(set(data["memory_ratio"]), reverse=True)
    seventy = "; ".join(f"{r.model} {r.slowdown - 1:+.1%}" for r in cheap.itertuples())
    return (
        ClaimLine(
            "DenseNet-BC, DTR-EqClass: smallest memory",
            "20.0 % of memory at 22.7 % overhead (section 5.3)",
            _label(densenet) if densenet else "no DenseNet among the logs",
            _LOGS,
        ),
        ClaimLine(
            "LRU saves up to 30 % 'with very little overhead'",
            "ratio 0.7 (figure 4)",
            f"at 0.7: {seventy or 'no plan'}; smallest ratios: {_label(lru)}",
            _LOGS,
        ),
        ClaimLine(
            "smallest ratio of each model, DTR-EqClass",
            "not printed",
            _label(classes),
            f"budgets of this sweep: {', '.join(f'{ratio:g}' for ratio in ratios)}",
        ),
    )


def _eviction(data: pd.DataFrame) -> tuple[ClaimLine, ...]:
    eager, banish = smallest(data, "eager"), smallest(data, "banish")
    unet = {m: v for m, v in eager.items() if m.startswith("unet")}
    unet_banish = {m: v for m, v in banish.items() if m.startswith("unet")}
    return (
        ClaimLine(
            "U-Net: banishing saves 10 %, eager eviction 50 %",
            "smallest ratios 0.9 and 0.5 (section 5.4)",
            f"banishing: {_label(unet_banish)}; eager: {_label(unet)}",
            _LOGS,
        ),
        ClaimLine(
            "banishing saves less than eager eviction on most models",
            "figure 5",
            f"banishing: {_label(banish)}; eager: {_label(eager)}",
            _LOGS,
        ),
    )


def _accesses(data: pd.DataFrame) -> tuple[ClaimLine, ...]:
    fine = data[data["status"] == "ok"]
    wide = fine.pivot_table(
        index=["model", "memory_ratio"], columns="curve", values="storage_accesses"
    )
    text = []
    for more, less in (("full", "eqclass"), ("eqclass", "local")):
        if {more, less} <= set(wide):
            pair = wide[[more, less]].dropna()
            pair = pair[pair[less] > 0]
            if len(pair):
                ratio = float(np.exp(np.log(pair[more] / pair[less]).mean()))
                text.append(f"{more} / {less}: {ratio:.1f} (geometric mean of {len(pair)})")
    return (
        ClaimLine(
            "accesses of Full, EqClass and Local lie an order of magnitude apart",
            "'generally separated by at least an order of magnitude' (section 5.5)",
            "; ".join(text) or "no pair to compare",
            "the distance grows with the number of storages; counted as in the original program",
        ),
    )


def _ablation(data: pd.DataFrame) -> tuple[ClaimLine, ...]:
    ours = {
        curve: _label(smallest(data, curve))
        for curve in ("s=yes, m=yes", "s=yes, m=no", "s=no, m=yes", "s=no, m=no")
    }
    return (
        ClaimLine(
            "cost and size alone do better than cost and staleness on static models, worse on "
            "dynamic ones",
            "section 5.3 (no numbers printed)",
            "smallest ratios: " + "; ".join(f"[{curve}] {text}" for curve, text in ours.items()),
            _LOGS,
        ),
    )


_NOTES: dict[str, Callable[[pd.DataFrame], tuple[ClaimLine, ...]]] = {
    "simrd_fig4": _heuristics,
    "simrd_fig5": _eviction,
    "simrd_fig6": _accesses,
}
