"""Sentences of the documents that quote committed records: a new record asks for a new sentence."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from committed import HOUSE, figures, lines, quoted

from rematbench.report.papers.checkmate_ratios import ratio_table
from rematbench.suite.summary import THEIRS

SUITE = "intel-xeon-processor-2.50ghz"
H200 = "nvidia-h200"
FORMER = {"anytime_joint": "monet", "anytime": "checkmate_ilp"}
"""Names of before, in the records of then."""


def captures() -> tuple[str, ...]:
    """Milliseconds per op, the least and the most; ops of the smallest and the largest graph."""
    found = [
        (int(match[1]), seconds)
        for name, seconds in figures("capture").items()
        if (match := re.fullmatch(r"\w+, (\d+) ops", name))
    ]
    each = [1000 * seconds / ops for ops, seconds in found]
    ops = [ops for ops, _ in found]
    return f"{min(each):.1f}", f"{max(each):.1f}", f"{min(ops):,}", f"{max(ops):,}"


def capture_of(network: str, ops: int) -> Callable[[], tuple[str, ...]]:
    return lambda: (f"{ops:,}", f"{figures('capture')[f'{network}, {ops} ops']:.1f}")


def resident(network: str) -> Callable[[], tuple[str, ...]]:
    return lambda: (f"{figures('capture')[f'{network}, resident']:.1f}",)


def searches() -> tuple[str, ...]:
    found, head = figures("engines"), "intervals beside stages: "
    kinds = ("no plan by intervals", "a plan by intervals only", "equal, within 0.1 %")
    counts = [int(found[head + kind]) for kind in kinds]
    dearer, cheaper = (int(found[f"{head}{kind} by intervals"]) for kind in ("dearer", "cheaper"))
    assert (dearer, cheaper) == (2, 0)
    ratios = {k: v for k, v in found.items() if k.endswith("/ by stages")}
    first, second = sorted(ratios, key=lambda name: -ratios[name])[:2]
    assert first.startswith("unet, layers")
    assert second.startswith("resnet50, ops")
    dear = (f"{100 * (ratios[name] - 1):.1f}" for name in (first, second))
    return str(sum(counts) + dearer), str(counts[0]), str(dearer), *dear, *map(str, counts[1:])


def joint_searches() -> tuple[str, ...]:
    found = figures("engines")
    assert found["intervals beside the joint search: no plan by intervals"] == 1
    end = "implementations at 0.5: cost by intervals / by the joint search"
    assert f"vgg16, {end}" not in found
    dear, cheap = (found[f"{name}, {end}"] - 1 for name in ("resnet50", "mobilenet_v2"))
    return f"{100 * dear:.1f}", f"{-100 * cheap:.1f}"


def beside_aot_eager() -> tuple[str, ...]:
    found = figures("compile")
    said: list[str] = []
    for what in ("CPU seconds", "time"):
        end = f", eager, checkpoint-all: {what} / aot_eager"
        ratios = [value for name, value in found.items() if name.endswith(end)]
        assert len(ratios) == 4
        said += [f"{least:.2f}" for least in (min(ratios), max(ratios))]
    return tuple(said)


def quickstart() -> tuple[str, ...]:
    plain = yaml.safe_load((HOUSE / "conf/experiment/quickstart.yaml").read_text())
    rows = lines("runs/reference/quickstart-cpu/leaderboard.csv")
    assert {json.loads(row["extra"])["time_limit"] for row in rows} == {plain["time_limit"]}
    return str(plain["device"]["seconds"]), str(plain["time_limit"])


def hundred() -> tuple[str, ...]:
    return (
        str(len({row["strategy"] for row in lines("runs/reference/library/rematlib-100.csv.gz")})),
    )


def suite_rows() -> tuple[str, ...]:
    rows = lines(f"runs/reference/{SUITE}/leaderboard.csv")
    ran = [row for row in rows if row["status"] == "ok"]
    assert all(row["gradient_bitwise"] == "true" for row in ran)
    (commit,) = {row["commit"][:7] for row in rows}
    return commit, str(len(rows)), str(len(ran))


def h200_rows() -> list[dict[str, Any]]:
    """Those that ran, each with its ``extra``."""
    rows = lines(f"runs/reference/{H200}/leaderboard.csv")
    return [row | json.loads(row["extra"]) for row in rows if row["status"] == "ok"]


def h200_counts() -> tuple[str, ...]:
    rows = lines(f"runs/reference/{H200}/leaderboard.csv")
    late = sum("the suite's time was over" in row["reason"] for row in rows)
    (commit,) = {row["commit"][:7] for row in rows}
    ran = h200_rows()
    assert all(row["measured_seconds"] for row in ran)
    return commit, str(len(rows)), str(len(ran)), str(len({row["model"] for row in ran})), str(late)


def h200_reserved() -> tuple[str, ...]:
    """What the caching allocator held above the measured peak, at the median."""
    pairs = [(row["measured_reserved_bytes"], row["measured_peak_bytes"]) for row in h200_rows()]
    return (f"{100 * statistics.median(int(held) / int(peak) - 1 for held, peak in pairs):.0f}",)


def h200_strategies() -> tuple[str, ...]:
    """Strategies with rows on few models, and all."""
    models: dict[str, set[str]] = {}
    for row in lines(f"runs/reference/{H200}/leaderboard.csv"):
        models.setdefault(row["strategy"], set()).add(row["model"])
    return str(sum(len(each) <= 5 for each in models.values())), str(len(models))


def h200_gradients() -> tuple[str, ...]:
    of: dict[str, list[float]] = {"exact": [], "rounding": []}
    for row in h200_rows():
        of[row["verdict"]].append(float(row["gradient_max_error"]))
    exact, rounding = of.values()
    return (
        str(len(exact)),
        f"{max(exact):.1e}".replace("e-05", "e-5"),
        str(len(rounding)),
        (f"{max(rounding):.2f}"),
    )


def h200_peaks() -> tuple[str, ...]:
    rows = h200_rows()
    off = max(abs(int(row["peak_bytes"]) - int(row["requested_bytes"])) for row in rows)
    above = max(1 - int(row["peak_bytes"]) / int(row["measured_peak_bytes"]) for row in rows)
    return str(off), f"{100 * above:.2f}"


def h200_times() -> tuple[str, ...]:
    found = [line for line in lines(f"runs/reference/{H200}/summary.csv") if line["eager_seconds"]]
    points = [100 * float(line["overhead_error"]) for line in found]
    ranks = [float(line["rank_correlation"]) for line in found]
    (row,) = (row for row in h200_rows() if row["model"] == "vit_b_16-bfloat16")
    shares = [100 * float(row[key]) for key in ("overhead", "measured_overhead")]
    shares += [1000 * float(row[key]) for key in ("eager_seconds", "checkpoint_all_cost")]
    return (
        *(f"{min(points):.1f}", f"{max(points):.1f}", f"{min(ranks):.2f}", f"{max(ranks):.2f}"),
        *(f"{share:.0f}" for share in shares),
    )


def h200_batch_norms() -> tuple[str, ...]:
    found = {
        line["model"]: 100 * float(line["checkpoint_all_overhead"])
        for line in lines(f"runs/reference/{H200}/summary.csv")
        if line["eager_seconds"]
    }
    slow = [f"{found.pop(name):.0f}" for name in ("resnet50", "googlenet", "mobilenet_v2")]
    return f"{max(found.values()):.1f}", *slow


def h200_faster() -> tuple[str, ...]:
    rows = [r for r in h200_rows() if (r["model"], r["strategy"]) == ("unet", "anytime_joint")]
    row = min(rows, key=lambda row: float(row["budget_fraction"]))
    return f"{100 + 100 * float(row['measured_overhead']):.0f}", (
        f"{100 * float(row['budget_fraction']):.0f}"
    )


def suite_summary() -> tuple[str, ...]:
    found = lines(f"runs/reference/{SUITE}/summary.csv")
    peak = max(float(line["worst_peak_error"]) for line in found)
    points = [100 * float(line["overhead_error"]) for line in found]
    ranks = [float(line["rank_correlation"]) for line in found]
    eager = {line["model"]: abs(float(line["checkpoint_all_overhead"])) for line in found}
    double = eager.pop("mobilenet_v2-float64")
    return (
        *(f"{100 * peak:.2f}", f"{min(points):.0f}", f"{max(points):.0f}"),
        *(f"{min(ranks):.2f}", f"{max(ranks):.2f}"),
        *(f"{math.ceil(100 * max(eager.values()))}", f"{100 * double:.0f}"),
    )


def monet_headlines(model: str) -> Callable[[], tuple[str, ...]]:
    def cells() -> tuple[str, ...]:
        rows = lines(f"runs/reference/{SUITE}-monet/headlines.csv")
        shares = {
            row["strategy"]: row["peak_at_10_percent"] for row in rows if row["model"] == model
        }
        found = [shares[FORMER[name]] for name in FORMER]
        ours = [f"{float(share):.2f}" if share else "above 0.8" for share in found]
        return (*ours, *(f"{THEIRS[model, name]:.2f}" for name in FORMER))

    return cells


def on_the_board(part: int, budget: str, *strategies: str) -> Callable[[], tuple[str, ...]]:
    """Overheads of a network of the leaderboard, in per cent."""

    def cells() -> tuple[str, ...]:
        rows = lines(f"runs/reference/leaderboard/full-{part:02}.csv.gz")
        found = {r["strategy"]: r["overhead"] for r in rows if r["budget_fraction"] == budget}
        assert all("roofline" in row["costmodel"] and "h100" in row["extra"] for row in rows)
        return rows[0]["batch_size"], *(f"{100 * float(found[name]):.1f}" for name in strategies)

    return cells


def griewank(model: str) -> Callable[[], tuple[str, ...]]:
    """Over the ILP's cost, in Checkmate's table 2 by ops: the mean, the least and the most."""

    def cells() -> tuple[str, ...]:
        table = ratio_table(quoted("table2")).set_index(["model", "strategy"])
        costs: dict[str, dict[float, float]] = {"revolve": {}, "anytime": {}}
        for row in quoted("table2"):
            name = str(row["strategy"])
            if row["model"] == model and name in costs and row["status"] == "ok":
                costs[name][row["budget_fraction"] or 0.0] = row["cost"] or 0.0
        ratios = [cost / costs["anytime"][at] for at, cost in costs["revolve"].items()]
        mean = table.loc[(model, "revolve"), "ratio_anytime"]
        return f"{mean:.3f}", f"{min(ratios):.3f}", f"{max(ratios):.3f}"

    return cells


def startup() -> tuple[str, ...]:
    found = figures("startup")
    share = found["a cached job: over those of 4f1d762"]
    return f"{found['a cached job: CPU seconds']:.2f}", f"{100 * share:.0f}"


FIRST_RUN = "make bench, nothing compiled: sweep, and figure"
GUIDE, TRAIN, GPU, DECISIONS = (
    f"docs/{name}.md" for name in ("guide", "train", "gpu", "decisions")
)
NUMBER = r"([\d.,]*\d)"
TABLES = {"ResNet-50, 32 x 96 px": "resnet50", "GoogleNet, 32 x 96 px": "googlenet"}
TABLES |= {"MobileNet-V2, 12 x 96 px": "mobilenet_v2", "U-Net, 16 channels, 160 x 224 px": "unet"}
SENTENCES: list[tuple[str, str, Callable[[], tuple[str, ...]]]] = [
    (GUIDE, "capture takes # to # ms of one core per op, for graphs of # to # ops", captures),
    (GUIDE, r"\| `llama3_1b`, 2,048 tokens \| # \| # \|", capture_of("llama3_1b", 1791)),
    (GUIDE, r"\| `llama3_8b`, 2,048 tokens \| # \| # \|", capture_of("llama3_8b", 3534)),
    (GUIDE, r"\| `sdxl_unet` \| # \| # \|", capture_of("sdxl_unet", 4949)),
    (GUIDE, r"\| `transformer_lm`, 192 layers \| # \| # \|", capture_of("transformer_lm", 10000)),
    (GUIDE, r"`llama3_1b`, 2,048 tokens \|[^|]*\|[^|]*\| # GB", resident("llama3_1b")),
    (GUIDE, r"`llama3_8b`, 2,048 tokens \|[^|]*\|[^|]*\| # GB", resident("llama3_8b")),
    (GUIDE, r"`sdxl_unet` \|[^|]*\|[^|]*\| # GB", resident("sdxl_unet")),
    (DECISIONS, "Of # problems intervals find no plan for #, and dearer ones for # \\(# % for the "
     "U-Net by layers, # % for ResNet-50 by ops\\); stages find none for #, a layered graph of 500 "
     "ops without a backward pass; the other # are equal", searches),
    (DECISIONS, "no plan for VGG-16 and one # % dearer for ResNet-50; for MobileNet-v2 one # % "
     "cheaper", joint_searches),
    (TRAIN, "a step takes # to # of `aot_eager`'s CPU seconds, # to # of its time",
     beside_aot_eager),
    ("CHANGELOG.md", r"the quickstart measures each row for # s \(3 s before\) and plans for # s",
     quickstart),
    ("CHANGELOG.md", "REMATLIB-100 has rows of # strategies", hundred),
    ("CHANGELOG.md", "A cached job takes # CPU seconds, # % of what it took at", startup),
    ("README.md", r"`make bench` takes \[# s\]\(runs/benchmarks/commands.json\)", lambda: (
        f"{figures('commands')[FIRST_RUN]:.0f}",)),
    ("CHANGELOG.md", r"The quickstart takes # of its time", lambda: (
        f"{figures('commands')[f'{FIRST_RUN}: over that of 2815b6c6']:.2f}",)),
    ("docs/papers/chain_dp.md", r"MobileNet \(batch #\) at 0.5 .*? # % overhead \(Chen greedy #, "
     r"Revolve #\)", on_the_board(16, "0.5", "chain_dp", "ap_greedy", "revolve")),
    ("docs/papers/chain_dp.md", r"ResNet-50 \(batch #\) at 0.7, .*? # % \(articulation points: "
     r"Chen greedy #, Revolve #\)", on_the_board(1, "0.7", "chain_dp", "ap_greedy", "ap_revolve")),
    ("docs/papers/revolve.md", r"VGG-16 .*? \| #x, from #x at 0.95 of its memory to #x at 0.65",
     griewank("vgg16")),
    ("docs/papers/revolve.md", r"MobileNet, .*? \| #x, from #x at 0.7 of its memory to #x at 0.3",
     griewank("mobilenet_v1")),
    (GPU, r"of commit (\w+) on an Intel Xeon, has # rows; # plans ran, all with eager", suite_rows),
    (GPU, r"peaks are within # % of measured ones, measured overheads within # to # points of "
     r"planned ones \(medians of a model\), and planned costs rank as measured times do \(# to #;"
     r".*?as eager training, within # %, but # % longer in float64", suite_summary),
    ("README.md", "for # plans of # models, of", lambda: h200_counts()[2:4]),
    (GPU, r"commit (\w+), seven .*? has # rows. # plans of # models ran; # more had", h200_counts),
    (GPU, "allocator held # % more than the measured peak at the median", h200_reserved),
    (GPU, "# of its # strategies have rows of one to five of the models", h200_strategies),
    (GPU, r"None was wrong. # plans .*? differ by ([\d.e-]+) of the largest entry at most .*?"
     "# run other implementations.*? off by up to #, in GoogleNet", h200_gradients),
    (GPU, "from the allocator, to within # bytes.*?at most # % of the measured", h200_peaks),
    (GPU, r"checkpoint-all are within # to # points of .*? do \(# to #;.*?in bfloat16 was planned "
     r"at \+# % and measured at \+# %.*?takes # ms, and its ops, profiled one by one, # ms",
     h200_times),
    (GPU, r"eager training, within # %, where .*?: \+# % on ResNet-50, \+# % on GoogleNet, "
     r"\+# % on MobileNet-V2", h200_batch_norms),
    (GPU, "trains the U-Net in # % of eager training's time, within # % of its peak", h200_faster),
    *((GPU, rf"\| {title} \| # \| (above 0.8|0.[0-9]+) \| # \| # \|", monet_headlines(model))
      for title, model in TABLES.items()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("page", "sentence", "expected"), SENTENCES, ids=[each[1][:40] for each in SENTENCES]
)
def test_sentences_are_their_records(
    page: str, sentence: str, expected: Callable[[], tuple[str, ...]]
) -> None:
    text = " ".join((HOUSE / page).read_text().split())
    found = [match.groups() for match in re.finditer(sentence.replace("#", NUMBER), text)]
    assert found == [expected()]


# The table of PyTorch's own planners, as benchmarks.torch_planners writes it


def planners() -> list[list[str]]:
    text = (HOUSE / "runs/benchmarks/torch_planners.md").read_text().splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text if "%" in line]


def interval(cell: str) -> tuple[float, float]:
    """What a printed per cent may have been before it was rounded."""
    value = float(cell.removesuffix("%"))
    return value - 0.005, value + 0.005


def test_what_is_said_of_pytorch_s_planners_is_their_record() -> None:
    text = " ".join((HOUSE / TRAIN).read_text().split())
    rows = planners()
    assert {row[-1] for row in rows} == {"anytime"}
    assert "sets them beside `anytime`, `linearized_greedy` and `ap_greedy`" in text
    met = [row for row in rows if "no plan" not in row[3]]
    counted = f"meets the budget in {len(met)} of {len(rows)} cases, ours in all {len(rows)}; "
    assert f"`torch_budget` {counted}in those {len(met)} our best plan costs less" in text
    bounds = [
        (interval(row[7])[0] / interval(row[3])[1], interval(row[7])[1] / interval(row[3])[0])
        for row in met
    ]
    (said,) = re.findall(r"being ([\d.]+) to ([\d.]+) \(median ([\d.]+)\) of PyTorch's", text)
    for number, of in zip(said, (min, max, statistics.median), strict=True):
        low, high = (of(each) for each in zip(*bounds, strict=True))
        assert low - 0.005 <= float(number) <= high + 0.005
    assert not any(high < 0 for _, high in bounds)


def test_the_rows_of_pytorch_s_planners_are_their_record_s() -> None:
    kept = [[*row[:2], *row[3:8]] for row in planners()]
    known = {" | ".join(row).replace("no plan below", "none below") for row in kept}
    shown = re.findall(r"^\| (\w+, \d+ \| 0\.\d+ \| .*) \|$", (HOUSE / TRAIN).read_text(), re.M)
    assert len(shown) >= 2
    assert set(shown) <= known


# Plans of ours, by our statements and through torch.compile


def run_of(told: dict[str, Any]) -> str:
    return f"{told['measured_peak_bytes']:,}, {1000 * told['measured_seconds']:.0f} ms"


def test_what_is_said_of_one_plan_run_three_ways_is_its_rows() -> None:
    page = (HOUSE / "docs/peers.md").read_text()
    rows = lines("runs/reference/peers.csv")
    assert {row["gradient_bitwise"] for row in rows} == {"true"}
    assert not any("dirty" in row["commit"] for row in rows)
    first, small = rows[0], [row for row in rows if row["batch_size"] == "8"]
    assert "24,470,020 bytes" in page
    assert {row["budget_bytes"] for row in rows} == {"24470020", small[0]["budget_bytes"]}
    eager = json.loads(first["extra"])
    seconds = 1000 * eager["eager_seconds"]
    assert f"| (eager training) | {eager['eager_peak_bytes']:,}, {seconds:.0f} ms | | | |" in page
    for row in rows:
        lowered = json.loads(row["extra"])["lowered"]
        ours = (
            f"{int(row['measured_peak_bytes']):,}, {1000 * float(row['measured_seconds']):.0f} ms"
        )
        aot, inductor = (lowered[how] for how in ("aot", "inductor"))
        errors = [each["gradient_max_error"] for each in (aot, inductor)]
        if row in small:
            peaks = [f"{each['measured_peak_bytes']:,}" for each in (aot, inductor)]
            assert (
                f"which is {int(row['budget_bytes']):,} bytes: ours {ours.split(', ')[0]}, `aot` "
                f"{peaks[0]}, Inductor {peaks[1]}, its gradients within {errors[1]:.0e}"
            ) in " ".join(page.split())
            continue
        said = "bitwise equal; Inductor's within {1:.0e}"
        if aot["status"] == "failed":
            said = "bitwise equal by our statements; by PyTorch itself off by {0:.2f} and {1:.2f}"
        line = f"| `{row['strategy']}` | {ours} | {run_of(aot)} | {run_of(inductor)} | "
        assert line + said.format(*errors) in page
