"""Pages quote rows: planners' those of ``planners_pages``, simrd's those of the program's logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from committed import HOUSE, quoted

from rematbench.rows.row import Row

ROWS = quoted("planners_pages")
LOGS = quoted("simrd_published")


def page(name: str) -> str:
    return " ".join((HOUSE / f"docs/{name}.md").read_text().split())


def row(
    strategy: str, model: str, budget: float, rows: list[Row] = ROWS, **known: Any
) -> dict[str, Any]:
    """The one row of a job, with what ``extra`` and its options have as keys of their own."""
    found = [
        flat
        for each in rows
        for extra in [each["extra"]]
        for flat in [{**extra, **extra.get("options", {}), **each}]
        if (flat["strategy"], flat["model"], flat["budget_fraction"]) == (strategy, model, budget)
        and all(flat.get(key) == value for key, value in known.items())
    ]
    (only,) = found
    return only


def percent(flat: dict[str, Any], key: str = "overhead", digits: int = 1) -> str:
    return f"{100 * flat[key]:.{digits}f} %"


def test_the_rows_are_of_one_core() -> None:
    assert {each["threads"] for each in (*ROWS, *LOGS)} == {1}


# Coop


COOP = [
    ("U-Net at 0.8", "unet", 0.8),
    ("U-Net at 0.6", "unet", 0.6),
    ("MobileNet at 0.8", "mobilenet_v1", 0.8),
    ("MobileNet at 0.6", "mobilenet_v1", 0.6),
    ("MobileNet at 0.4", "mobilenet_v1", 0.4),
    ("ResNet-50, 32 at 224 px, roofline, `accounting=full`, at 0.7", "resnet50", 0.7),
    ("the same at 0.5", "resnet50", 0.5),
]


@pytest.mark.parametrize(("title", "model", "budget"), COOP)
def test_coop_beside_dtr_on_the_same_addresses(title: str, model: str, budget: float) -> None:
    coop = row("coop", model, budget)
    dtr = coop["dtr_at_addresses"]
    more = dtr["additional_compute"] / (coop["total_compute"] - coop["additional_compute"])
    cells = [percent(coop), coop["scattered_evictions"], f"{coop['fragmentation']:.2f}"]
    cells += [f"{100 * more:.1f} %", dtr["scattered_evictions"], f"{dtr['fragmentation']:.2f}"]
    assert f"| {title} | {' | '.join(map(str, cells))} |" in page("papers/coop")


def test_coop_where_it_has_no_plan_on_a_log_and_on_long_chains() -> None:
    text = page("papers/coop")
    none = row("coop", "unet", 0.5)
    assert none["status"] == "infeasible"
    assert none["reason"].startswith("2071986176 bytes in one piece were wanted")
    assert "its largest op wants 2.1 GB in one piece" in text
    log, less = (row("coop", "unet", budget, ops=113) for budget in (1.0, 0.9))
    assert f"Coop ends with {percent(log, digits=0)} more compute" in text
    said = [each["dtr_at_addresses"]["status"] for each in (log, less)]
    assert [*said, less["status"]] == ["infeasible"] * 3
    short, long = (row("coop", "unit_chain", 0.5, ops=ops) for ops in (2501, 10001))
    assert long["scattered_evictions"] == 0
    assert (
        f"a chain of 10,001 ops at half its peak has {long['evictions']:,} evictions, "
        f"{percent(long, digits=0)} more compute and nothing scattered, and takes "
        f"{long['plan_cpu_seconds']:.0f} CPU seconds, DTR's run beside it included; "
        f"one of 2,501 ops {short['plan_cpu_seconds']:.0f}"
    ) in text


# Rockmate, sac_ilp, hierarchical


def test_rockmate_beside_the_others() -> None:
    text = page("papers/rockmate")
    columns = ("rockmate", "chain_dp", "sac_ilp", "anytime")
    for layers, cell, budgets in ((4, " 4, 224", (0.7, 0.5, 0.35)), (48, " 48, 2,512", (0.5, 0.3))):
        for budget in budgets:
            found = {
                name: row(name, "transformer_lm", budget, layers=layers)
                for name in columns
                if layers == 4 or name != "sac_ilp"
            }
            cells = [percent(found[name]) if name in found else "not tried" for name in columns]
            if found["anytime"]["gap"] <= 1e-4:
                cells[-1] += {"any": " (proven)", "F": " (proven of F)"}[
                    found["anytime"]["bound_of"]
                ]
            if layers == 48:
                cells[0] += f" in {found['rockmate']['plan_cpu_seconds']:.0f} s"
            assert f"|{cell} | {budget} | {' | '.join(cells)} |" in text, budget
            cell = ""


def test_rockmate_on_a_small_resnet() -> None:
    shares = {n: percent(row(n, "resnet50", 0.7, resolution="96")) for n in RESNET}
    rockmate, *others = (f"`{name}` {share}" for name, share in shares.items())
    sentence = f"{rockmate.split('` ')[1]} ({', '.join(others)}; 60 s each)"
    assert f"at 0.7 of its peak: {sentence}" in page("papers/rockmate")


RESNET = ("rockmate", "anytime", "moccasin", "chain_dp")


def test_pytorch_s_program_for_selective_checkpointing() -> None:
    said = [
        f"{percent(row('sac_ilp', 'transformer_lm', budget, layers=4))} at {budget}"
        for budget in (0.7, 0.5, 0.35)
    ]
    assert f"{', '.join(said)} of the peak" in page("papers/sac_ilp")


def test_blocks_of_deep_transformers() -> None:
    for layers, ops in ((48, 2512), (192, 10000)):
        found = row("hierarchical", "transformer_lm", 0.4, layers=layers)
        assert found["ops"] == ops
        cells = [
            layers,
            f"{ops:,}",
            f"{found['blocks']}, {found['block_kinds']}",
            percent(found, digits=2),
        ]
        cells += [percent(found, "gap", 3), f"{found['plan_cpu_seconds']:.1f}"]
        assert f"| {' | '.join(map(str, cells))} |" in page("papers/hierarchical")


# Moccasin, and the guide's random graph


def test_moccasin_on_the_papers_graphs() -> None:
    text = page("papers/moccasin")
    small = [row("moccasin", "random_layered_n100", budget) for budget in (0.9, 0.8)]
    assert all(each["gap"] == 0 for each in small)
    shares = " and ".join(percent(each, digits=3) for each in small)
    (seconds,) = {f"{each['plan_cpu_seconds']:.0f}" for each in small}
    assert f"| - | {shares}, each proven in {seconds} CPU seconds |" in text
    large = row("moccasin", "random_layered_n250", 0.9)
    best = row("anytime", "random_layered_n250", 0.9)
    assert (best["cost"], best["bound"], best["bound_of"]) == (large["cost"], large["cost"], "9")
    proven = f"`strategy.gap=0`, in {best['plan_cpu_seconds']:.0f} CPU seconds, that no plan of (9)"
    assert f"| {percent(large, digits=3)}; `anytime` proves with {proven} costs less |" in text
    tight = [
        percent(row("moccasin", "random_layered_n250", 0.8, computes=computes), digits=3)
        for computes in (2, 3)
    ]
    assert "| {}; {} with `strategy.computes=3`".format(*tight) in text
    wide, narrow = (row("moccasin", "resnet50_train", budget) for budget in (0.9, 0.8))
    assert wide["gap"] == 0
    proven = f"{percent(wide, digits=3)}, proven in {wide['plan_cpu_seconds']:.0f} CPU seconds"
    assert f"| {proven}, and {percent(narrow, digits=3)} |" in text


def test_the_guides_random_graph() -> None:
    found = row("anytime", "random_layered", 0.8)
    assert found["time_limit"] == 200
    said = (
        f"an overhead of {percent(found, digits=2)} at a proven gap of {percent(found, 'gap', 2)}"
    )
    assert said in page("guide")


# DTR's distance from the optimum on the published program's logs


def published() -> Iterator[str]:
    for title, model in (
        ("U-Net", "unet"),
        ("ResNet-32", "resnet32"),
        ("Transformer", "transformer"),
    ):
        for budget in (0.8, 0.6, 0.5, 0.4):
            dtr, best = (row(name, model, budget, LOGS) for name in ("dtr", "anytime"))
            bound = best["bound"] / best["checkpoint_all_cost"] - 1
            first = f" {title} ({best['ops']:,})" if budget == 0.8 else ""
            shown = percent(dtr) if dtr["status"] == "ok" else "does not meet it"
            yield f"|{first} | {budget} | {shown} | {percent(best)} | {100 * bound:.1f} % |"


def test_what_dtr_pays_in_all() -> None:
    met = [row for row in LOGS if row["strategy"] == "dtr"]
    best = {(r["model"], r["budget_fraction"]): r for r in LOGS if r["strategy"] == "anytime"}
    (none,) = [(r["model"], r["budget_fraction"]) for r in met if r["status"] != "ok"]
    assert none == ("unet", 0.4)
    ratios = [
        r["overhead"] / best[r["model"], r["budget_fraction"]]["overhead"]
        for r in met
        if r["status"] == "ok"
    ]
    said = f"DTR pays {min(ratios):.1f} to {max(ratios):.1f} times the best plan's overhead, and"
    assert f"{said} at U-Net's 0.4 finds no way" in page("papers/simrd")


def test_dtr_on_the_published_logs() -> None:
    text = page("papers/simrd")
    assert [line for line in published() if line not in text] == []
