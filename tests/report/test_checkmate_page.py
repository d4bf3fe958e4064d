"""docs/papers/checkmate.md: its numbers of ours are those of committed records and rows."""

from __future__ import annotations

import json
import re

import pytest
from committed import HOUSE, claims, figures, lines, quoted

from rematbench.report.papers.checkmate import tradeoff_table
from rematbench.report.papers.checkmate_gaps import gaps
from rematbench.report.papers.checkmate_memory import batch_table
from rematbench.report.papers.checkmate_ratios import ratio_table
from rematbench.report.papers.checkmate_rounding import rounding_table
from rematbench.report.tables import geometric_mean
from rematbench.rows.row import Row

PAGE = (HOUSE / "docs/papers/checkmate.md").read_text()
TEXT = " ".join(PAGE.split())
LAYERS = {"VGG-16": "keras_vgg16", "VGG-19": "keras_vgg19", "MobileNet": "keras_mobilenet"}
LAYERS |= {"U-Net": "keras_unet", "ResNet-50": "keras_resnet50"}

LINE_UP = {"chen_sqrt", "chen_greedy", "revolve", "ap_sqrt", "ap_greedy", "linearized_sqrt"}
LINE_UP |= {"linearized_greedy", "checkmate_ilp", "checkmate_rounding", "checkpoint_all"}


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
    found = figures("authors_baselines")
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


def test_what_the_paper_s_program_takes_and_batches_in_steps() -> None:
    found = figures("causes")
    ours, theirs = (
        found[f"8-layer chain, (9) as printed, optimum proven: {solver}"]
        for solver in ("HiGHS", "Gurobi")
    )
    assert f"(the same program: HiGHS {ours:.2f} CPU s, Gurobi {theirs:.2f})" in TEXT
    building = figures("checkmate")["resnet50, 351 ops: building (9) in Pyomo"]
    assert f"writing it down takes {building:.0f} s for ResNet-50's 351 layers" in TEXT
    head = "keras_unet, largest batch of linearized_greedy in 16 GB"
    exact, steps = found[head], found[f"{head}, of 4, 12, 20, ..."]
    assert f"so its U-Net is {steps:g}, not {exact:g}," in TEXT


def programs() -> list[dict[str, str]]:
    rows = lines("runs/reference/papers-programs.csv")
    return [row for row in rows if row["strategy"] != "monet"]


def test_what_the_program_itself_reaches_in_20_s() -> None:
    rows = {row["model"]: row for row in programs() if row["strategy"] == "checkmate_ilp"}
    over = {name: 100 * float(row["overhead"]) for name, row in rows.items()}
    gaps = {name: float(row["gap"]) for name, row in rows.items()}
    proven = {name for name, gap in gaps.items() if gap <= 0.002}
    assert proven == {*LAYERS.values(), "vgg16", "mobilenet_v1"}
    assert f"it proves VGG-16 and MobileNet ({over['mobilenet_v1']:.1f} % overhead)" in TEXT
    said = "{} at 16 GB ends at {:.1f} % with a gap of {:.1f} %".format
    assert said("U-Net", over["unet"], 100 * gaps["unet"]) in TEXT
    figure_1 = f"ResNet-32 at {over['resnet32']:.1f} % with one of {100 * gaps['resnet32']:.1f} %"
    assert figure_1 in TEXT


def test_rounding_with_the_paper_s_epsilon_and_threshold() -> None:
    means: dict[str, list[float]] = {}
    shares: dict[str, list[float]] = {}
    for row in programs():
        kind = row["strategy"], row["cost_unit"], row["status"]
        if kind == ("checkmate_rounding", "flop", "ok"):
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


QUICK = quoted("quick")


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
    program = {
        row["model"]: 100 * float(row["overhead"])
        for row in programs()
        if row["strategy"] == "checkmate_ilp" and row["budget_bytes"] == "16000000000"
    }
    assert (
        f"| `anytime`: {over[layers]:.1f} % by Keras' layers; {over[ops]:.1f} %; `checkmate_ilp` "
        f"{program[layers]:.1f} % by Keras' layers (proven), {program[ops]:.1f} % of PyTorch's "
    ) in PAGE
    assert f"needs {whole(ops):.1f} GB at batch 32 here, 23 GB there" in TEXT
    assert f"layer by layer: {whole(layers):.1f} GB" in TEXT


def test_our_search_is_on_or_below_every_curve() -> None:
    """But for the search's own gap, of 0.01 %; at two budgets nobody else has a plan."""
    budgets, compared = [], 0
    for model in ("vgg16", "mobilenet_v1", "unet", "keras_vgg16", "keras_mobilenet", "keras_unet"):
        data = tradeoff_table([row for row in of("checkmate_fig5", model) if row["budget_bytes"]])
        groups = [mine for _, mine in data[data["slowdown"].notna()].groupby("budget_GB")]
        budgets.append(len(groups))
        for mine in groups:
            found = dict(zip(mine["strategy"], mine["slowdown"], strict=True))
            best = found["anytime"]
            others = [found[name] for name in LINE_UP & found.keys()]
            assert all(best <= other * (1 + 1e-4) for other in others), (model, found)
            compared += bool(others)
    assert compared == sum(budgets) - 2
    (line,) = [line for line in claims() if line["claim"].startswith("the ILP is on or below")]
    said = "yes, at {} + {} + {} budgets, and by Keras' layers at {} + {} + {}"
    assert line["ours"] == f"anytime (ours): {said.format(*budgets)}"


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
    steps = figures("causes")[
        "keras_unet, largest batch of linearized_greedy in 16 GB, of 4, 12, 20, ..."
    ]
    assert f"and the ratio {found['keras_unet']['anytime'] / steps:.2f}x" in TEXT


def test_rounded_plans_of_figure_7() -> None:
    (line,) = [each for each in claims() if each["where"].startswith("checkmate_fig7")]
    for title, model in (("VGG-16", "vgg16"), ("MobileNet", "mobilenet_v1")):
        table = rounding_table(of("checkmate_fig7", model))
        fitting = table[table["memory_GB"] <= 16].groupby("kind")["cost_ms"]
        best, fits, tried = (
            fitting.min().round().astype(int),
            fitting.size(),
            table["kind"].value_counts(),
        )
        kinds = ("deterministic", "randomized")
        assert (
            f"{title} {best[kinds[0]]} ms, {best[kinds[1]]} ms (`anytime`, ours, "
            f"{best['anytime (ours)']}; `checkmate_ilp` {best['ILP']}, proven)"
        ) in PAGE
        numbers = [str(n) for kind in kinds for n in (best[kind], fits[kind], tried[kind])]
        assert numbers == re.findall(r"\d+", line["ours"].split(f"{title}: ")[1])[:6]


def test_gaps_of_relaxations() -> None:
    table = gaps(of("checkmate_appendix_a"))
    found = {(length, form): gap for length, form, gap in
             zip(table["length"], table["form"], table["gap"], strict=True)}  # fmt: skip
    for length, line in ((8, "| {:.4f}; {:.3f} |"), (10, "| {:.2f}; {:.1f} |")):
        said = line.format(found[length, "partitioned"], found[length, "unpartitioned"])
        assert said in PAGE
    solved = table[table["seconds"].notna()].set_index("form")
    assert f"| {solved.loc['partitioned', 'seconds']:.1f} s (the same program" in PAGE
    proven = 26 * solved.loc["unpartitioned", "proven"]
    assert f"(stopped; the plan is the optimum, {proven:.0f} of its 26 are proven)" in PAGE


# Table 2, at all budgets


LONG = quoted("table2")
CLAIMED = {"AP sqrt": "ap_sqrt", "AP greedy": "ap_greedy", "Griewank": "revolve"}
CLAIMED |= {"two-phase rounding": "checkmate_rounding"}


def test_claims_of_table_2_are_the_rows_of_all_budgets() -> None:
    table = ratio_table(LONG).set_index(["model", "strategy"])
    seen = 0
    for line in claims():
        if "checkmate_table2" not in line["where"]:
            continue
        network, _, rest = line["claim"].partition(": ")
        heuristic = CLAIMED.get(rest.removesuffix(" / ILP"))
        name = {"MobileNet": "mobilenet", "U-Net": "unet"}.get(network, network.lower())
        if heuristic is None or "of 32 budgets" in line["ours"]:
            continue  # of several networks, or of the authors' program (test_claims)
        (said,) = re.findall(r"^([\d.]+)x over anytime", line["ours"])
        ops = OPS[network.replace("VGG1", "VGG-1").replace("ResNet", "ResNet-")]
        by_layers = "by Keras' layers" in line["ours"]
        wanted = table.loc[(f"keras_{name}" if by_layers else ops, heuristic), "ratio_anytime"]
        for of_ops in re.findall(r"([\d.]+)x of PyTorch's graph", line["ours"]):
            theirs = table.loc[(ops, heuristic), "ratio_anytime"]
            assert float(of_ops) == pytest.approx(theirs, abs=5.01e-4), line["claim"]
        if (name, heuristic) == ("unet", "checkmate_rounding"):
            (said,) = re.findall(r"\(([\d.]+)x with 0.45\)", line["ours"])
        assert float(said) == pytest.approx(wanted, abs=5.01e-4), line["claim"]
        seen += 1
    assert seen >= 14


OPS = {"VGG-16": "vgg16", "VGG-19": "vgg19", "MobileNet": "mobilenet_v1"}
OPS |= {"U-Net": "unet", "ResNet-50": "resnet50"}
COLUMNS = ("ap_sqrt", "ap_greedy", "revolve", "checkmate_rounding", "checkmate_ilp")


def costs(model: str, strategy: str) -> dict[int, float]:
    """By budget, where the strategy has a plan."""
    return {
        row["budget_bytes"]: row["cost"]
        for row in LONG
        if (row["model"], row["strategy"], row["status"]) == (model, strategy, "ok")
    }


def over_ours(model: str, strategy: str) -> list[float]:
    """Cost over that of ``anytime``, at each budget that both meet."""
    best = costs(model, "anytime")
    return [cost / best[at] for at, cost in costs(model, strategy).items() if at in best]


def ratio_cell(model: str, strategy: str) -> str:
    found = over_ours(model, strategy)
    if not found:
        return "–"
    spread = f"{min(found):.2f}x to {max(found):.2f}x; " if max(found) - min(found) > 0.05 else ""
    return f"{geometric_mean(found):.2f}x ({spread}{len(found)})"


@pytest.mark.parametrize(("kind", "models"), [("by Keras' layers", LAYERS), ("by ops", OPS)])
def test_table_2_at_all_budgets(kind: str, models: dict[str, str]) -> None:
    for title, model in models.items():
        cells = [ratio_cell(model, strategy) for strategy in COLUMNS]
        line = f"| {title}, {kind} ({len(costs(model, 'anytime'))}) | {' | '.join(cells)} |"
        assert line in PAGE, line


def test_what_is_said_of_ratios() -> None:
    griewank = over_ours("keras_mobilenet", "revolve")
    assert f"between {min(griewank):.2f}x and {max(griewank):.2f}x on MobileNet" in TEXT
    roots = {name: over_ours(name, "ap_sqrt") for name in (*LAYERS.values(), *OPS.values())}
    most = max(max(found) for found in roots.values())
    assert f"AP sqrt never costs more than {most:.2f}x" in TEXT
    least = min(
        min(roots[name]) for name in roots if name.endswith("resnet50") or "mobilenet" in name
    )
    assert f"nor less than {least:.2f}x on MobileNet and ResNet-50" in TEXT


def test_where_the_program_has_plans_and_proofs() -> None:
    def counted(title: str, model: str) -> str:
        rows = [row for row in LONG if (row["model"], row["strategy"]) == (model, "checkmate_ilp")]
        proven = sum(row["status"] == "ok" and row["gap"] <= 0.002 for row in rows)
        plans[model] = sum(row["status"] == "ok" for row in rows)
        return f"{proven} of {len(costs(model, 'anytime'))} of {title}"

    plans: dict[str, int] = {}
    layers = [counted(*each) for each in LAYERS.items()]
    ops = [counted(*each) for each in OPS.items()]
    layers[0] = layers[0].replace(" of VGG", " budgets of VGG")
    assert f"by Keras' layers at {', '.join(layers[:4])} and {layers[4]}, and has a plan" in TEXT
    assert all(plans[name] == len(costs(name, "anytime")) for name in LAYERS.values())
    assert f"by PyTorch's ops at {ops[0]}, {ops[1]} and {ops[3]}, and has none of" in TEXT
    assert plans["mobilenet_v1"] == plans["resnet50"] == 0


def test_where_rounding_is_within_1_06() -> None:
    def above(model: str) -> dict[float, float]:
        best = costs(model, "anytime")
        return {
            row["budget_fraction"]: row["cost"] / best[row["budget_bytes"]]
            for row in LONG
            if (row["model"], row["strategy"], row["status"]) == (model, "checkmate_rounding", "ok")
            and row["cost"] / best[row["budget_bytes"]] > 1.06
        }

    unet, resnet = above("keras_unet"), above("keras_resnet50")
    assert (
        f"U-Net at 0.5 of its memory is {unet.pop(0.5):.2f}x, at 0.45 {unet.pop(0.45):.2f}x, "
        f"ResNet-50 at 0.2 {resnet.pop(0.2):.2f}x"
    ) in TEXT
    fine = ("keras_vgg16", "keras_vgg19", "keras_mobilenet", "vgg16", "vgg19", "mobilenet_v1")
    assert not unet
    assert not resnet
    assert not any(map(above, fine))
    assert max(above("unet")) == 0.7
    statuses = {
        row["budget_fraction"]: row["status"]
        for row in LONG
        if (row["model"], row["strategy"]) == ("resnet50", "checkmate_rounding")
    }
    assert {at for at, status in statuses.items() if status == "time_limit"} == {0.3, 0.2}
    assert "ok" not in statuses.values()


def test_claims_on_rounding_of_pytorch_s_graphs_are_the_rows_of_all_budgets() -> None:
    rounding = [line for line in claims() if "two-phase rounding" in line["claim"]]
    quoting = [line for line in rounding if "papers/table2.csv.gz" in line["where"]]
    assert len(quoting) == 4
    found = {title: over_ours(model, "checkmate_rounding") for title, model in OPS.items()}
    said = {title: f"{geometric_mean(each):.3f}x" for title, each in found.items() if each}
    assert set(said) == {"VGG-16", "VGG-19", "MobileNet", "U-Net"}
    for line in quoting:
        of_graphs = line["ours"].split("; ")[-1]
        titles = [title for title in said if title in of_graphs] or [line["claim"].split(":")[0]]
        for title in titles:
            wanted = said.get(title, "no plan of PyTorch's graph (459 ops) in two minutes")
            assert wanted in of_graphs, line["claim"]
