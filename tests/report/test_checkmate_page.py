"""docs/papers/checkmate.md: its numbers of ours are those of committed records and rows."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from rematbench.report.collect import collect
from rematbench.report.papers.checkmate import tradeoff_table
from rematbench.report.papers.checkmate_gaps import gaps
from rematbench.report.papers.checkmate_memory import batch_table
from rematbench.report.papers.checkmate_rounding import rounding_table
from rematbench.report.tables import geometric_mean
from rematbench.rows.row import Row

HOUSE = Path(__file__).parents[2]
PAGE = (HOUSE / "docs/papers/checkmate.md").read_text()
TEXT = " ".join(PAGE.split())
LAYERS = {"VGG-16": "keras_vgg16", "VGG-19": "keras_vgg19", "MobileNet": "keras_mobilenet"}
LAYERS |= {"U-Net": "keras_unet", "ResNet-50": "keras_resnet50"}


def record(name: str) -> dict[str, float]:
    content = json.loads((HOUSE / f"runs/benchmarks/{name}.json").read_text())
    return {row["figure"]: row["value"] for row in content["figures"]}


# Section 6.2's step and the authors' program


def test_section_6_2_s_table_is_its_record_s() -> None:
    trial = json.loads((HOUSE / "runs/benchmarks/baselines62.json").read_text())["trial"]
    found = {(each["network"], each["strategy"], each["schedule"]): each for each in trial}
    schedules = ("ours, before", "S of ours, R of least cost", "S of segments", "S of checkpoints")
    for title, name in LAYERS.items():
        cells = []
        for schedule in schedules:
            each = [found[name, heuristic, schedule] for heuristic in ("ap_sqrt", "ap_greedy")]
            cells.append(", ".join(_mean(one["ratios"]) for one in each))
        line = f"| {' | '.join(cells)} |"
        (shown,) = [
            line for line in PAGE.splitlines() if line.startswith(f"| {title}, by Keras' layers | ")
        ]
        assert shown.endswith(line), (title, line)
    same = [
        found[network, strategy, "ours, before"]["ratios"]
        == found[network, strategy, "S of ours, R of least cost"]["ratios"]
        for network, strategy in {key[:2] for key in found}
    ]
    assert all(same)
    assert f"on all {len(same)} pairs of network and strategy" in TEXT


def _mean(ratios: list[float | None]) -> str:
    met = [ratio for ratio in ratios if ratio]
    return f"{geometric_mean(met):.2f}x ({len(met)} of {len(ratios)})"


def test_what_the_authors_program_gives() -> None:
    found = record("authors_baselines")
    head = "keras_resnet50, ap_greedy, gradients kept, too: "
    mean, least, most = (found[head + of] for of in ("mean", "least", "most"))
    said = f"ResNet-50's AP greedy is {mean:.2f}x ({least:.2f}x to {most:.2f}x; the paper 1.25x)"
    assert said in TEXT
    mobilenet = found["keras_mobilenet, ap_greedy, segments kept: mean"]
    assert f"MobileNet's {mobilenet:.2f}x without the gradients" in TEXT
    batch = found["keras_mobilenet, largest batch of linearized_greedy, segments kept"]
    assert f"largest batch of linearized greedy {batch:g} in place of" in TEXT
    worst = max(
        value for name, value in found.items() if name.startswith("keras_vgg19, ap_greedy, ")
        and name.endswith("most")
    )  # fmt: skip
    assert f"VGG-19's AP greedy is {worst:.2f}x at most" in TEXT


# The paper's own program, and causes


def test_how_long_the_8_layer_chain_takes() -> None:
    found = record("causes")
    ours, theirs = (
        found[f"8-layer chain, (9) as printed, optimum proven: {solver}"]
        for solver in ("HiGHS", "Gurobi")
    )
    assert f"(the same program: HiGHS {ours:.2f} CPU s, Gurobi {theirs:.2f})" in TEXT
    head = "keras_unet, largest batch of linearized_greedy in 16 GB"
    exact, steps = found[head], found[f"{head}, of 4, 12, 20, ..."]
    assert f"so its U-Net is {steps:g}, not {exact:g}," in TEXT


def programs() -> list[dict[str, str]]:
    with (HOUSE / "runs/reference/papers-programs.csv").open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["strategy"] != "monet"]


def test_what_the_program_itself_reaches_in_20_s() -> None:
    rows = {row["model"]: row for row in programs() if row["strategy"] == "checkmate_ilp"}
    over = {name: 100 * float(row["overhead"]) for name, row in rows.items()}
    gaps = {name: float(row["gap"]) for name, row in rows.items()}
    proven = {name for name, gap in gaps.items() if gap <= 0.002}
    assert proven == {*LAYERS.values(), "vgg16", "mobilenet_v1"}
    assert f"(ResNet-50 to {100 * gaps['keras_resnet50']:.1f} %)" in TEXT
    assert f"VGG-16 and MobileNet at 16 GB ({over['mobilenet_v1']:.1f} % overhead)" in TEXT
    said = "{} at 16 GB ends at {:.1f} % with a gap of {:.0f} %".format
    assert said("U-Net", over["unet"], 100 * gaps["unet"]) in TEXT
    figure_1 = f"ResNet-32 at {over['resnet32']:.1f} % with one of {100 * gaps['resnet32']:.0f} %"
    assert figure_1 in TEXT


def test_rounding_with_the_paper_s_epsilon_and_threshold() -> None:
    means: dict[str, list[float]] = {}
    shares: dict[str, list[float]] = {}
    for row in programs():
        if row["strategy"] == "checkmate_rounding" and row["status"] == "ok":
            means.setdefault(row["model"], []).append(float(row["cost"]) / float(row["bound"]))
            shares.setdefault(row["model"], []).append(float(row["budget_fraction"]))
    mobilenet, resnet = (
        geometric_mean(means[f"keras_{name}"]) for name in ("mobilenet", "resnet50")
    )
    met = shares["keras_mobilenet"]
    assert (
        f"is on average {mobilenet:.3f}x of the bound on MobileNet ({max(met)} to {min(met)} of "
        f"the memory; no plan below) and {resnet:.3f}x on ResNet-50"
    ) in TEXT


# The papers' figures, quick profile


QUICK = collect([HOUSE / "runs/reference/papers/quick.csv.gz"]).rows


def of(experiment: str, model: str | None = None) -> list[Row]:
    return [
        row
        for row in QUICK
        if row["extra"].get("experiment") == experiment and model in (None, row["model"])
    ]


def slowdowns(model: str, gigabytes: float) -> dict[str, float]:
    """Of Figure 5's plans, at one budget."""
    data = tradeoff_table([row for row in of("checkmate_fig5", model) if row["budget_bytes"]])
    fine = data[(data["budget_GB"].round(3) == round(gigabytes, 3)) & data["slowdown"].notna()]
    return dict(zip(fine["strategy"], fine["slowdown"], strict=True))


def whole(model: str) -> float:
    """Of checkpoint-all, in GB."""
    return float(of("checkmate_fig5", model)[0]["checkpoint_all_peak_bytes"]) / 1e9


def test_u_net_at_16_gb() -> None:
    layers, ops = "keras_unet", "unet"
    share = {name: int(0.7 * whole(name) * 1e9) / 1e9 for name in (layers, ops)}
    at = {name: (slowdowns(name, 16), slowdowns(name, share[name])) for name in (layers, ops)}

    def ratio(name: str, which: int, strategy: str) -> str:
        found = at[name][which]
        return f"{found[strategy] / found['anytime']:.2f}x"

    greedy, root = "linearized_greedy", "linearized_sqrt"
    assert (
        f"| {ratio(layers, 0, greedy)} by Keras' layers ({ratio(layers, 1, greedy)} at 0.7 of the "
        f"memory, the paper's share); {ratio(ops, 0, greedy)} ({ratio(ops, 1, greedy)}) |"
    ) in PAGE
    assert root not in at[ops][0]
    assert (
        f"| {ratio(layers, 0, root)} by Keras' layers; no plan of linearized sqrt "
        f"({ratio(ops, 1, root)} at 0.7) |"
    ) in PAGE
    over = {name: 100 * (at[name][0]["anytime"] - 1) for name in at}
    program = {row["model"]: 100 * float(row["overhead"]) for row in programs()
               if row["strategy"] == "checkmate_ilp"}  # fmt: skip
    assert (
        f"| `anytime`: {over[layers]:.1f} % by Keras' layers; {over[ops]:.1f} %; `checkmate_ilp` "
        f"{program[layers]:.1f} % by Keras' layers (proven), {program[ops]:.1f} % of PyTorch's "
    ) in PAGE
    assert f"needs {whole(ops):.1f} GB at batch 32 here, 23 GB there" in TEXT
    assert f"layer by layer: {whole(layers):.1f} GB" in TEXT


def test_our_search_is_on_or_below_every_curve() -> None:
    seen = 0
    for model in ("vgg16", "mobilenet_v1", "unet", "keras_vgg16", "keras_mobilenet", "keras_unet"):
        data = tradeoff_table([row for row in of("checkmate_fig5", model) if row["budget_bytes"]])
        for _, mine in data[data["slowdown"].notna()].groupby("budget_GB"):
            found = dict(zip(mine["strategy"], mine["slowdown"], strict=True))
            found.pop("anytime_joint", None)  # chooses implementations, as no other does
            assert found["anytime"] <= min(found.values()) * (1 + 1e-3), (model, found)
            seen += 1
    assert seen >= 25


def test_largest_batches() -> None:
    table = batch_table(of("checkmate_fig6"))
    found = {
        model: dict(zip(mine["strategy"], mine["max_batch"], strict=True))
        for model, mine in table.groupby("model")
    }
    best = {
        model: max(mine[each] for each in ("ap_sqrt", "linearized_greedy"))
        for model, mine in found.items()
    }

    def cells(model: str) -> tuple[int, str, str]:
        mine = found[model]
        most = mine["anytime"]
        return most, f"{most / mine['checkpoint_all']:.2f}x", f"{most / best[model]:.2f}x"

    (a, b, c), (d, e, f) = cells("keras_mobilenet"), cells("mobilenet_v1")
    assert f"| {a}; {b}; {c} by Keras' layers; {d}; {e}; {f} |" in PAGE
    (a, _, c), (d, _, f) = cells("keras_unet"), cells("unet")
    assert f"| {a} (a lower bound); {c} by Keras' layers; {d}; {f} |" in PAGE
    over = [found[name]["anytime"] / found[name]["ap_sqrt"] for name in
            ("keras_mobilenet", "keras_unet")]  # fmt: skip
    assert f"(over `ap_sqrt` it is {over[0]:.2f}x and {over[1]:.2f}x by Keras' layers)" in TEXT
    assert f" in place of {best['keras_mobilenet']} " in TEXT
    steps = record("causes")[
        "keras_unet, largest batch of linearized_greedy in 16 GB, of 4, 12, 20, ..."
    ]
    assert f"and the ratio {found['keras_unet']['anytime'] / steps:.2f}x" in TEXT


def test_rounded_plans_of_figure_7() -> None:
    table = rounding_table(of("checkmate_fig7", "vgg16"))
    fits = table[table["memory_GB"] <= 16].groupby("kind")["cost_ms"].min()
    assert (
        f"| {fits['deterministic']:.0f} ms, {fits['randomized']:.0f} ms (`anytime`, ours, "
        f"{fits['anytime (ours)']:.0f}; `checkmate_ilp` {fits['ILP']:.0f}, proven) |"
    ) in PAGE


def test_gaps_of_relaxations() -> None:
    table = gaps(of("checkmate_appendix_a"))
    found = {(length, form): gap for length, form, gap in
             zip(table["length"], table["form"], table["gap"], strict=True)}  # fmt: skip
    for length, line in ((8, "| {:.4f}; {:.3f} |"), (10, "| {:.2f}; {:.1f} |")):
        said = line.format(found[length, "partitioned"], found[length, "unpartitioned"])
        assert said in PAGE
    solved = table[table["seconds"].notna()].set_index("form")
    assert f"| {solved.loc['partitioned', 'seconds']:.1f} s (the same program" in PAGE
    assert solved.loc["unpartitioned", "proven"] < 0.5
