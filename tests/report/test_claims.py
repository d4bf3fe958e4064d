"""docs/claims.csv: a difference names what shows its cause, and quoted records say the same."""

from __future__ import annotations

import json
import re

import pytest
from committed import HOUSE, claims, figures, lines

from rematbench.report.tables import geometric_mean

EXPERIMENTS = {path.stem for path in (HOUSE / "conf/experiment").glob("*.yaml")}
RENAMED = {"anytime_joint": "monet", "anytime": "checkmate_ilp"}
"""In records of before these had names of their own."""


def unfounded(line: dict[str, str]) -> str | None:
    """Why a difference's cause does not count: nobody tried it, and it does not say so.

    Of unknown cause is only what is not reproduced: who says that something differs knows why.
    """
    verdict = line["verdict"]
    if not verdict.startswith(("differs", "not reproduced")):
        return None
    if "cause unknown" in verdict:
        return None if verdict.startswith("not reproduced") else "it differs, and nobody knows why"
    shown = re.search(r"shown by ([\w./-]*\w)", verdict)
    if shown is None:
        return "neither 'cause unknown' nor 'shown by ...'"
    place = shown[1]
    if place not in line["where"].split("; "):
        return f"{place} is not in its column 'where'"
    exists = place in EXPERIMENTS or (HOUSE / place).exists()
    return None if exists else f"{place} does not exist"


def test_a_difference_names_what_shows_its_cause_or_says_that_it_is_unknown() -> None:
    found = [(line["claim"], unfounded(line)) for line in claims()]
    assert [each for each in found if each[1]] == []


@pytest.mark.parametrize(
    ("verdict", "where", "why"),
    [
        ("differs (a roofline)", "monet_fig8", "neither"),
        ("differs (shown by monet_fig8)", "monet_table1", "not in its column"),
        ("not reproduced (shown by runs/nowhere.csv)", "runs/nowhere.csv", "does not exist"),
        ("not reproduced (RNN; shown by monet_fig8)", "monet_fig8", None),
        ("differs (cause unknown)", "monet_fig8", "nobody knows why"),
        ("not reproduced (cause unknown)", "monet_fig8", None),
        ("near (a roofline)", "monet_fig8", None),
    ],
)
def test_what_counts_as_a_cause(verdict: str, where: str, why: str | None) -> None:
    found = unfounded({"verdict": verdict, "where": where})
    assert found is None if why is None else why in str(found)


# Records that lines quote, as PATH::FIGURE in their column "where"


def value_of(record: str, name: str) -> float:
    """A record's figure, also under the name that it had before."""
    found = figures(record)
    head, last = name.rpartition(" ")[::2]
    old = f"{head} {RENAMED[last]}" if last in RENAMED else name
    return found[name] if name in found else found[old]


def quoted(line: dict[str, str]) -> list[float]:
    """The values of the figures that a line names, in its order."""
    places = (place.split("::") for place in line["where"].split("; ") if ".json::" in place)
    return [value_of(record, name) for record, name in places]


def is_rounded(text: str, value: float) -> bool:
    """Is a printed number the value, rounded to its digits?"""
    digits = len(text.partition(".")[2])
    return abs(float(text) - value) <= 0.5 * 10**-digits * (1 + 1e-9)


def test_lines_that_quote_a_record_have_its_numbers() -> None:
    seen = 0
    for line in claims():
        values = quoted(line)
        if not values:
            continue
        seen += 1
        ours = re.search(r"anytime_joint \(ours\): ([-+]?[\d.]*\d)", line["ours"])
        assert ours is not None, line
        wanted = values[0] / values[1] if len(values) == 2 else values[0]
        assert is_rounded(ours[1], wanted), (line["claim"], ours[1], wanted)
    assert seen >= 10


def test_lines_that_quote_section_6_2_have_its_record_s_numbers() -> None:
    record = HOUSE / "runs/benchmarks/baselines62.json"
    trial = {
        (x["network"], x["strategy"], x["schedule"]): geometric_mean([r for r in x["ratios"] if r])
        for x in json.loads(record.read_text())["trial"]
    }
    seen = 0
    for line in claims():
        if "runs/benchmarks/baselines62.json" not in line["where"]:
            continue
        network, heuristic = re.findall(r"^(\w+): AP (\w+)", line["claim"])[0]
        key = (f"keras_{network.lower()}", f"ap_{heuristic}")
        (text,) = re.findall(r"checkpoints would be ([\d.]+)x", line["verdict"])
        assert is_rounded(text, trial[*key, "S of checkpoints"]), line
        assert (
            "not the R of least cost of section 6.2, with which ours are the same"
            in line["verdict"]
        )
        ours, least = (trial[*key, s] for s in ("ours, before", "S of ours, R of least cost"))
        assert ours == pytest.approx(least, rel=1e-9), line
        seen += 1
    assert seen == 5


CAUSES = {
    "VGG13: memory cut off": ("vgg13, 64: cut off, recomputed in whole segments",
                              "vgg13, 64: cut off, recomputed op by op"),
    "VGG16: memory cut off": ("vgg16, 64: cut off, recomputed in whole segments",),
    "VGG19: memory cut off": ("vgg19, 64: cut off, recomputed in whole segments",),
    "ResNet34: memory cut off": ("resnet34, 128: cut off, recomputed in whole segments",),
    "AlexNet, batch 1024: memory cut off": ("alexnet, 1024: cut off by the objective",
                                            "alexnet, 1024: cut off, recomputed op by op"),
    "8-layer chain: seconds until the optimum is proven, partitioned": (
        "8-layer chain, (9) as printed, optimum proven: HiGHS",
        "8-layer chain, (9) as printed, optimum proven: Gurobi"),
    "ResNet-152 at 500 px, batch 1: weights and activations": (
        "resnet152, 500 pixels: nothing freed",),
    "U-Net: largest batch over the best baseline": (
        "keras_unet, largest batch of linearized_greedy in 16 GB",
        "keras_unet, largest batch of linearized_greedy in 16 GB, of 4, 12, 20, ..."),
    "VGG-16, MONeT: rows x columns after presolve": (
        "vgg16, MONeT: rows after presolve", "vgg16, MONeT: columns after presolve",
        "vgg16, MONeT as programmed: rows after presolve",
        "vgg16, MONeT as programmed: columns after presolve"),
}  # fmt: skip


AUTHORS = {
    "MobileNet: AP sqrt / ILP": ("keras_mobilenet, ap_sqrt, segments kept: least",
                                 "keras_mobilenet, ap_sqrt, segments kept: most",
                                 "keras_mobilenet, ap_sqrt, gradients kept, too: most",
                                 "keras_mobilenet, V100's roofline, ap_sqrt, segments kept: least",
                                 "keras_mobilenet, V100's roofline, ap_sqrt, segments kept: most"),
    "VGG19: AP sqrt / ILP": ("keras_vgg19, ap_sqrt, segments kept: least",
                             "keras_vgg19, ap_sqrt, segments kept: most",
                             "keras_vgg19, V100's roofline, ap_sqrt, segments kept: least",
                             "keras_vgg19, V100's roofline, ap_sqrt, segments kept: most"),
    "VGG19: AP greedy / ILP": ("keras_vgg19, ap_greedy, segments kept: least",
                               "keras_vgg19, ap_greedy, gradients kept, too: most",
                               "keras_vgg19, V100's roofline, ap_greedy, segments kept: least",
                               "keras_vgg19, V100's roofline, ap_greedy, gradients kept, too: most",
                               ),
    "MobileNet: Griewank / ILP": ("keras_mobilenet, Griewank: mean",
                                  "keras_mobilenet, Griewank: least",
                                  "keras_mobilenet, Griewank: most"),
    "VGG19: Griewank / ILP": ("keras_vgg19, Griewank: least", "keras_vgg19, Griewank: most",
                              "keras_vgg19, V100's roofline, Griewank: least",
                              "keras_vgg19, V100's roofline, Griewank: most"),
    "ResNet50: AP sqrt / ILP": ("keras_resnet50, ap_sqrt, segments kept: least",
                                "keras_resnet50, ap_sqrt, segments kept: most",
                                "keras_resnet50, ap_sqrt, gradients kept, too: most",
                                "keras_resnet50, V100's roofline, ap_sqrt, segments kept: least",
                                "keras_resnet50, V100's roofline, ap_sqrt, segments kept: most"),
    "ResNet50: AP greedy / ILP": ("keras_resnet50, ap_greedy, gradients kept, too: mean",
                                  "keras_resnet50, ap_greedy, gradients kept, too: least",
                                  "keras_resnet50, ap_greedy, gradients kept, too: most"),
    "MobileNet: largest batch over the best baseline": (
        "keras_mobilenet, largest batch of linearized_greedy, segments kept",
        "keras_mobilenet, largest batch of linearized_greedy, gradients kept, too"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "causes"), [("causes", CAUSES), ("authors_baselines", AUTHORS)])
def test_lines_whose_cause_was_tried_have_the_record_s_numbers(
    name: str, causes: dict[str, tuple[str, ...]]
) -> None:
    record = f"runs/benchmarks/{name}.json"
    found, lines = figures(record), {x["claim"]: x for x in claims() if record in x["where"]}
    assert set(lines) == set(causes)
    for claim, names in causes.items():
        said = f"{lines[claim]['ours']} {lines[claim]['verdict']}"
        numbers = re.findall(r"\d[\d.]*", said)
        for each in names:
            assert any(is_rounded(n.rstrip("."), found[each]) for n in numbers), (claim, each)


def test_rounding() -> None:
    assert is_rounded("-14.6", -14.597)
    assert is_rounded("1.6", 1.6)
    assert not is_rounded("-6.4", -14.597)


def test_monet_s_lines_name_the_paper_s_program_and_ours_apart() -> None:
    """Overheads and memory of MONeT are its program's; what our search has is labelled so."""
    for line in claims():
        if line["paper"] == "monet" and "monet.json" in line["where"]:
            assert re.search(r"\bmonet:", line["ours"]), line
            assert "papers-programs.csv" in line["where"], line


def programs() -> list[dict[str, str]]:
    return lines("runs/reference/papers-programs.csv")


def test_the_programs_rows_say_what_the_lines_say() -> None:
    """Where a line has no plan of ``monet`` within the papers' budgets, its row has none."""
    rows = programs()
    assert {row["strategy"] for row in rows} >= {"monet", "checkmate_ilp"}
    assert all(row["commit"] and "dirty" not in row["commit"] for row in rows)
    tight = {
        row["model"]: row["status"]
        for row in rows
        if row["strategy"] == "monet" and float(row["budget_fraction"]) <= 0.4
    }
    assert set(tight) == {"vgg16", "resnet50", "googlenet", "mobilenet_v2", "unet"}
    assert "ok" not in tight.values()


def test_why_the_program_of_vgg_16_has_no_solution() -> None:
    (line,) = [x for x in claims() if x["claim"].startswith("VGG-16: overhead at 0.39")]
    (least,) = {
        json.loads(row["extra"])["once_floor_bytes"] / float(row["checkpoint_all_peak_bytes"])
        for row in programs()
        if (row["model"], row["strategy"]) == ("vgg16", "monet")
    }
    assert f"takes {least:.2f} of our memory or more" in line["verdict"]


@pytest.mark.parametrize(
    ("network", "least", "others"), [("MobileNet", 0.4, ()), ("ResNet50", 0.5, (0.3, 0.2))]
)
def test_rounding_by_the_authors_program_is_what_its_rows_say(
    network: str, least: float, others: tuple[float, ...]
) -> None:
    """Costs over the rows' bounds: the most down to a budget, then one by one."""
    costs = {
        float(row["budget_fraction"]): float(row["cost"]) / float(row["bound"])
        for row in programs()
        if (row["model"], row["strategy"]) == (f"keras_{network.lower()}", "checkmate_rounding")
        and (row["cost_unit"], row["status"]) == ("flop", "ok")
    }
    (line,) = [x for x in claims() if x["claim"] == f"{network}: two-phase rounding / ILP"]
    said = re.findall(r"a threshold of 0\.5 it is ([\d.]+)x|([\d.]+)x at", line["verdict"])
    numbers = [first or second for first, second in said]
    most = max(cost for budget, cost in costs.items() if budget >= least)
    wanted = [most, *(costs[budget] for budget in others)]
    assert len(numbers) == len(wanted)
    assert all(map(is_rounded, numbers, wanted)), (numbers, wanted)


def test_rounding_by_a_roofline_is_what_its_rows_say() -> None:
    costs = [
        float(row["cost"]) / float(row["bound"])
        for row in programs()
        if (row["model"], row["strategy"]) == ("keras_mobilenet", "checkmate_rounding")
        and (row["cost_unit"], row["status"]) == ("second", "ok")
    ]
    (line,) = [x for x in claims() if x["claim"] == "MobileNet: two-phase rounding / ILP"]
    said = re.search(r"roofline ([\d.]+)x to ([\d.]+)x, over 0\.9 to 0\.6", line["verdict"])
    assert said is not None
    assert len(costs) == 4
    assert all(map(is_rounded, said.groups(), (min(costs), max(costs))))


def test_what_dense_blocks_cut_off_is_what_its_record_says() -> None:
    found = figures("segments")
    (line,) = [x for x in claims() if x["claim"] == "DenseNet121: memory cut off"]
    for form in ("chains", "lists"):
        share = found[f"densenet121, {form}: cut off by the objective"]
        assert f"{share:.1f} % as {form}" in line["verdict"]
        assert f"{share:.1f} %" in line["ours"]
