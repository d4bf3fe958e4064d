"""docs/claims.csv on DTR: what it says of logs of ours is of the committed logs' rows."""

from __future__ import annotations

import re

import pandas as pd
import pytest
from committed import HOUSE, claims, quoted

from rematbench.report.papers.simrd import FIGURES, log_table
from rematbench.report.papers.simrd_notes import notes, smallest

PLACE = "runs/reference/papers/simrd_logs.csv.gz"
ACCESSES = "tests/data/golden/simrd/accesses.csv"
ROWS = quoted("simrd_logs")
PAGE = (HOUSE / "docs/papers/simrd.md").read_text()


def ours(begin: str) -> str:
    """What the claim that begins so says of ours; its line names the rows."""
    (line,) = [each for each in claims() if each["claim"].startswith(begin)]
    assert PLACE in line["where"].split("; ")
    return line["ours"]


def table(name: str, rows_of: str = "") -> pd.DataFrame:
    rows = [row for row in ROWS if row["extra"]["experiment"] == (rows_of or name)]
    return log_table(rows, FIGURES[name])


def slowdowns(name: str) -> pd.DataFrame:
    """A column per curve; a line per model and ratio at which any curve has a run."""
    data = table(name)
    fine = data[data["status"] == "ok"]
    return fine.pivot_table(
        index=["model", "memory_ratio"], columns="curve", values="slowdown", aggfunc="first"
    )


def test_densenet_s_smallest_memory() -> None:
    ((ratio, slowdown),) = [
        met for model, met in smallest(table("simrd_fig4"), "eqclass").items() if "dense" in model
    ]
    assert f"| {100 * ratio:g} % at {100 * slowdown - 100:.1f} %; of four dense blocks" in PAGE
    said = f"of three dense blocks, {ratio:g} at {slowdown - 1:+.1%},".replace("%", " %")
    assert said in ours("DenseNet-BC, DTR-EqClass")


def test_u_net_by_eager_eviction_and_by_banishing() -> None:
    data = table("simrd_fig5")
    unet = slowdowns("simrd_fig5").loc["unet"]
    least = unet["eager"].dropna().index.min()
    said = f"{least} at +{100 * unet['eager'][least] - 100:.1f} %, "
    said += f"0.8 at +{100 * unet['eager'][0.8] - 100:.1f} % on our CPU log"
    assert said in ours("U-Net: smallest ratio, eager eviction")
    shown = said.replace(" at", " (at", 1).replace(", 0.8", "; 0.8").replace(" on our CPU log", ")")
    assert f"{shown}, 1.0 on ours |" in PAGE
    banish, eager = smallest(data, "banish"), smallest(data, "eager")
    assert f"{banish['unet'][0]:.1f} on our CPU log" in ours("U-Net: smallest ratio, banishing")
    less = sum(banish[model][0] > eager[model][0] for model in eager)
    assert f"on {less} of {len(eager)} logs of ours" == ours("banishing saves less")
    ratios = f"({banish['resnet32'][0]} against {eager['resnet32'][0]})"
    assert f"not on our CPU log {ratios}" in ours("ResNet: banishing has the better")


def test_lru_at_seventy_per_cent() -> None:
    lru = slowdowns("simrd_fig4")["lru"].xs(0.7, level="memory_ratio").dropna()
    assert len(lru) == 3
    said = f"of ours, at {100 * lru.min() - 100:.1f} % to {100 * lru.max() - 100:.1f} %"
    assert f"on three of five CPU logs {said}" in ours("LRU saves 30 %")
    assert f"on three of five {said} |" in PAGE


def test_storage_accesses() -> None:
    (note,) = notes("simrd_fig6", table("simrd_fig6", "simrd_fig4"))
    pairs = re.findall(r"([\d.]+) \(geometric mean of (\d+)\)", note.ours)
    full, local = (ratio for ratio, _ in pairs)
    assert f"; {full}x, {local}x on ours |" in PAGE
    for begin, (ratio, count) in zip(
        ("Full over EqClass", "EqClass over Local"), pairs, strict=True
    ):
        said = ours(f"storage accesses of {begin}")
        assert f"{ratio}x on ours (geometric means of " in said
        assert said.endswith(f"and {count})")


def test_what_the_published_program_counts() -> None:
    """Its EqClass over its Local, in geometric mean; and how both grow from 0.8 to 0.6."""
    data = pd.read_csv(HOUSE / ACCESSES).pivot(
        index=["log", "ratio"], columns="heuristic", values=["status", "storage_accesses"]
    )
    fine = data[(data["status"] == "ok").all(axis=1)]["storage_accesses"].astype(float)
    ratios = fine["DTREqClass"] / fine["DTRLocal"]
    light, tight = (ratios.xs(r, level="ratio").prod() ** (1 / 3) for r in (0.8, 0.6))
    assert len(ratios.xs(0.8, level="ratio")) == len(ratios.xs(0.6, level="ratio")) == 3
    (line,) = [c for c in claims() if c["claim"] == "storage accesses of EqClass over Local"]
    assert line["ours"].startswith(f"{light:.1f}x at 0.8 of the memory and {tight:.1f}x at 0.6")
    assert ACCESSES in line["where"].split("; ")
    grown = fine.xs(0.6, level="ratio") / fine.xs(0.8, level="ratio")
    (local, eqclass) = (grown[each].agg(["min", "max"]) for each in ("DTRLocal", "DTREqClass"))
    assert f"{local['min']:.1f} to {local['max']:.1f} times as much at 0.6" in line["verdict"]
    assert f"every eviction, {eqclass['min']:.1f} to {eqclass['max']:.1f} times" in line["verdict"]
    assert f"{light:.1f}x at 0.8 of the memory, {tight:.1f}x at 0.6" in PAGE


def test_the_relaxed_cost_beside_the_exact_one() -> None:
    data = slowdowns("simrd_fig4")
    both = (data["eqclass"] / data["full"]).dropna()
    more = (data["full"].notna() & data["eqclass"].isna()).sum()
    assert not (data["full"].isna() & data["eqclass"].notna()).any()
    said = f"slowdown {both.min():.2f} to {both.max():.2f} of DTR-Full's at {len(both)} budgets; "
    said += f"DTR-Full meets {more} more"
    assert ours("the relaxed cost of EqClass") == said
    assert f"| {said.replace('DTR-Full', 'Full')} |" in PAGE


@pytest.mark.parametrize("model", ["ResNet-32", "DenseNet-BC", "U-Net", "lstm_lm", "tree_lstm"])
def test_size_beside_staleness(model: str) -> None:
    name = {"ResNet-32": "resnet32", "DenseNet-BC": "densenet_bc", "U-Net": "unet"}.get(
        model, model
    )
    data = slowdowns("simrd_fig11").loc[name]
    size, staleness = data["s=no, m=yes"].dropna(), data["s=yes, m=no"].dropna()
    least = size.index.min(), staleness.index.min()
    said = ours("ablation: size matters")
    if least[0] != least[1]:
        assert f"{model} down to {least[0]} against {least[1]}" in said
        assert model == "U-Net" or f"{model} down to {least[0]} and {least[1]}" in PAGE
    else:
        cells = [f"{100 * each[least[0]] - 100:.1f} %" for each in (size, staleness)]
        assert f"{model} {cells[0]} against {cells[1]}" in said
        assert f"{cells[0]} and {cells[1]}" in PAGE
        assert re.search(rf"{model} [^;]*at {least[0]}", said)
