"""Recompute or offload: overhead over budget, a curve per link, and what docs/offload.md says.

``python -m rematbench.report.offload ROWS docs/offload.md`` writes the page's answer again, from
rows of ``experiment=leaderboard_offload``; ``rematbench-report ROWS --figure offload`` draws them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from rematbench.base.errors import ConfigError
from rematbench.report.collect import collect
from rematbench.rows.row import Row, costs_of

OURS, THEIRS = "hybrid", "auto_perf"
ALONE = 0.0
"""The rate that stands for recomputation alone."""
HALF = 0.5
"""The link pays from where on `hybrid`'s overhead is at most so much of recomputation's."""
TIE = 1 + 1e-4
"""Costs within this of each other are equal, as on the leaderboard."""
_COLUMNS = ("costs", "network", "budget", "rate", "strategy", "overhead", "gap")
_GB = 1e9
_HEAD = "## When does it pay?"
_ANSWER = """{head}

By {count} rows, `runs/reference/leaderboard/offload.csv.gz`, made by
`rematbench -m experiment=leaderboard_offload`: {networks} networks of the leaderboard by an H100's
roofline, {limit} s of one core for each plan. Budgets are fractions of ordinary training's peak,
overheads are over its time, and links are as fast in both directions. Medians over the networks of
`hybrid`'s overhead, beside that of recomputation alone (`anytime`):

{medians}

**The crossover** of a network is the slowest of these links with which `hybrid` has at most half of
the overhead of recomputation alone. At a budget of {middle:g}:

{networks_table}

At {middle:g}, of strategies that copy: the median overhead where they have a plan, and on how many
of the networks that they apply to.

{strategies}

{sentences}

The curves: `rematbench-report runs/reference/leaderboard/offload.csv.gz --figure offload`. This
section is made by `python -m rematbench.report.offload`, and a test holds it against the rows.

"""


def lines(rows: Sequence[Row]) -> pd.DataFrame:
    """A line per row of two memories, or of recomputation alone.

    Columns: ``costs`` (cost model and machine), ``network``, ``budget`` (fraction), ``rate`` (GB/s
    of the slower direction; 0: no link), ``strategy``, ``overhead`` (infinite without a plan) and
    ``gap`` (missing without a bound).
    """
    found = [
        (
            costs_of(row),
            row["model"],
            row["budget_fraction"],
            _rate(row),
            row["strategy"],
            row["overhead"] if row["status"] == "ok" else inf,
            row["gap"],
        )
        for row in rows
        if row["budget_fraction"] and row["status"] != "not_applicable"
    ]
    frame = pd.DataFrame(found, columns=list(_COLUMNS))
    return frame.astype({"overhead": float, "gap": float, "rate": float})


def _rate(row: Row) -> float:
    link = row["extra"].get("link")
    return min(link["out"], link["in"]) / _GB if link else ALONE


def curves(frame: pd.DataFrame) -> pd.DataFrame:
    """What is drawn: per network, budget and link ours, and the best of recomputation alone."""
    drawn = frame[(frame["rate"] == ALONE) | (frame["strategy"] == OURS)]
    keys = ["costs", "network", "budget", "rate"]
    return drawn.groupby(keys, as_index=False, sort=False)["overhead"].min()


def crossovers(frame: pd.DataFrame) -> pd.DataFrame:
    """Per network and budget the slowest link that pays, in GB/s; infinite: none of these."""
    found = []
    for (costs, network, budget), mine in curves(frame).groupby(
        ["costs", "network", "budget"], sort=False
    ):
        alone = float(mine.loc[mine["rate"] == ALONE, "overhead"].min())
        pays = mine[(mine["rate"] > ALONE) & (mine["overhead"] <= HALF * alone)]
        slowest = float(pays["rate"].min()) if len(pays) else inf
        found.append((costs, network, budget, slowest))
    return pd.DataFrame(found, columns=["costs", "network", "budget", "rate"])


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Draw ``offload.png`` and ``.pdf``, and write ``offload.csv`` with what they show.

    Raises:
        ConfigError: no row of ours has a link and a plan at a fractional budget.
    """
    data = curves(lines(rows))
    data = data[np.isfinite(data["overhead"])]
    if not (data["rate"] > ALONE).any():
        raise ConfigError(
            "figure offload: no ok row of hybrid with a link and a fractional budget; make them "
            "by: rematbench -m experiment=leaderboard_offload"
        )
    figure = _figure(data)
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"offload.{ending}" for ending in ("png", "pdf", "csv")]
    figure.savefig(paths[0], dpi=160, bbox_inches="tight")
    figure.savefig(paths[1], bbox_inches="tight", metadata={"CreationDate": None})
    plt.close(figure)
    slowest = crossovers(lines(rows)).rename(columns={"rate": "crossover"})
    data.merge(slowest, "left").to_csv(paths[2], index=False, float_format="%.6g")
    return paths


def _figure(data: pd.DataFrame) -> Figure:
    panels = list(data.groupby(["costs", "network"], sort=False))
    rates = sorted(set(data["rate"]) - {ALONE})
    shades = dict(
        zip(rates, plt.get_cmap("viridis")(np.linspace(0, 0.85, len(rates))), strict=True)
    )
    columns = min(4, len(panels))
    figure, axes = plt.subplots(
        -(-len(panels) // columns), columns, squeeze=False, layout="constrained", sharex=True
    )
    figure.set_size_inches(3.1 * columns, 2.5 * len(axes) + 0.5)
    for axis, ((costs, network), mine) in zip(axes.flat, panels, strict=False):
        for rate, points in mine.sort_values("budget").groupby("rate"):
            name = "recomputation alone" if rate == ALONE else f"{rate:g} GB/s"
            look = {"color": "0.3", "linestyle": "--"} if rate == ALONE else {}
            look = look or {"color": shades[rate]}
            axis.plot(points["budget"], points["overhead"], marker="o", ms=3, label=name, **look)
        axis.set_title(f"{network}\n{costs}", fontsize="small")
        axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    handles, names = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=5, fontsize="small")
    figure.supxlabel("budget / ordinary training's peak")
    figure.supylabel("overhead")
    return figure


def answer(rows: Sequence[Row]) -> str:
    """The section of ``docs/offload.md`` that answers from rows."""
    frame = lines(rows)
    track = frame[frame["costs"].str.contains("h100")]
    budgets = sorted({float(each) for each in track["budget"]}, reverse=True)
    middle = budgets[len(budgets) // 2]
    limits = {float(row["extra"].get("time_limit") or 0) for row in rows} - {0.0}
    return _ANSWER.format(
        head=_HEAD,
        count=len(rows),
        networks=track["network"].nunique(),
        limit=" or ".join(f"{each:g}" for each in sorted(limits)),
        medians=_medians(track, budgets),
        middle=middle,
        networks_table=_networks(track, middle, budgets),
        strategies=_strategies(track[track["budget"] == middle]),
        sentences="\n".join(f"- {text}" for text in _sentences(frame, track)),
    )


def _medians(track: pd.DataFrame, budgets: Sequence[float]) -> str:
    found = curves(track).pivot_table("overhead", "budget", "rate", aggfunc="median")
    rates = list(found.columns)
    body = [[f"{b:g}", *(_percent(found.loc[b, rate]) for rate in rates)] for b in budgets]
    return _table(["budget", *map(_link, rates)], body)


def _networks(track: pd.DataFrame, middle: float, budgets: Sequence[float]) -> str:
    found = curves(track[track["budget"] == middle]).pivot(
        index="network", columns="rate", values="overhead"
    )
    slowest = crossovers(track).pivot(index="network", columns="budget", values="rate")
    order = list(dict.fromkeys(track["network"]))
    body = [
        [
            f"`{name}`",
            *(_percent(found.loc[name, rate]) for rate in found.columns),
            ", ".join(_rate_words(slowest.loc[name, budget]) for budget in budgets),
        ]
        for name in order
        if name in found.index
    ]
    at = ", ".join(f"{budget:g}" for budget in budgets)
    return _table(["network", *map(_link, found.columns), f"crossover at {at} (GB/s)"], body)


def _strategies(some: pd.DataFrame) -> str:
    copying = some[some["rate"] > ALONE]
    rates = sorted(set(copying["rate"]))
    body = []
    for name, mine in copying.groupby("strategy", sort=False):
        cells = []
        for rate in rates:
            overheads = mine.loc[mine["rate"] == rate, "overhead"]
            planned = overheads[np.isfinite(overheads)]
            shown = _percent(planned.median()) if len(planned) else "–"
            cells.append(f"{shown} ({len(planned)} of {len(overheads)})")
        body.append([f"`{name}`", *cells])
    return _table(["strategy", *map(_link, rates)], body)


def _sentences(frame: pd.DataFrame, track: pd.DataFrame) -> list[str]:
    ours = track[(track["strategy"] == OURS) & (track["rate"] > ALONE)]
    gaps = ours["gap"].dropna()
    found = [
        f"`{OURS}` is within {_share(gaps.median())} of its bound at the median of {len(gaps)} "
        f"problems, within {_share(gaps.quantile(0.9))} on 90 % of them, and within "
        f"{_share(gaps.max())} on all ({_problem(ours.loc[gaps.idxmax()])} is the worst)."
    ]
    keys = ["network", "budget", "rate"]
    pairs = ours.merge(track[track["strategy"] == THEIRS], "inner", keys, suffixes=("", "_theirs"))
    good = (1 + pairs["overhead"]) <= (1 + pairs["overhead_theirs"]) * TIE
    planned = pairs[np.isfinite(pairs["overhead_theirs"])]
    points = planned["overhead_theirs"] - planned["overhead"]
    found.append(
        f"It is at least as fast as `{THEIRS}` on {100 * good.mean():.0f} % of {len(pairs)}; that "
        f"has a plan on {len(planned)} of them, at the median {100 * points.median():.1f} points "
        "slower."
    )
    found.append(_slower(ours, track[track["rate"] == ALONE]))
    theirs = curves(frame[frame["costs"].str.contains("v100")])
    if len(theirs):
        wide = theirs.pivot(index=["network", "budget"], columns="rate", values="overhead")
        ratios = wide[wide.columns.max()] / wide[ALONE]
        found.append(
            f"In POFO's setting (three networks, batch 16, 500 px, a V100's roofline, "
            f"{wide.columns.max():g} GB/s, 3 s a plan) its overhead is {ratios.median():.2f} of "
            f"that of recomputation alone at the median of {len(ratios)} problems."
        )
    return found


def _slower(ours: pd.DataFrame, alone: pd.DataFrame) -> str:
    """On which problems our plan with a link is slower than recomputation alone."""
    both = ours.merge(alone, "inner", ["network", "budget"], suffixes=("", "_alone"))
    slower = both[(1 + both["overhead"]) > (1 + both["overhead_alone"]) * TIE]
    named = "; ".join(_problem(each) for _, each in slower.iterrows())
    text = f"On {len(slower)} of {len(both)} it is slower than recomputation alone"
    return f"{text} ({named})." if named else f"{text}."


def _problem(line: pd.Series[Any]) -> str:
    return f"`{line['network']}` at {line['budget']:g}, {line['rate']:g} GB/s"


def _link(rate: float) -> str:
    return "recomputation alone" if rate == ALONE else f"{rate:g} GB/s"


def _rate_words(rate: float) -> str:
    return f"{rate:g}" if rate < inf else "none"


def _percent(value: float) -> str:
    return f"{100 * value:+.1f} %" if np.isfinite(value) else "–"


def _share(value: float) -> str:
    return f"{100 * value:.2f} %"


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def with_answer(page: str, rows: Sequence[Row]) -> str:
    """A page whose section :data:`_HEAD` is made again.

    Raises:
        ConfigError: it has none.
    """
    text, count = re.subn(rf"^{re.escape(_HEAD)}\n.*?(?=^## |\Z)", lambda _: answer(rows), page,
                          flags=re.M | re.S)  # fmt: skip
    if not count:
        raise ConfigError(f"the page has no section {_HEAD!r}")
    return text


if __name__ == "__main__":
    page = Path(sys.argv[2])
    page.write_text(with_answer(page.read_text(), collect([Path(sys.argv[1])]).rows))
