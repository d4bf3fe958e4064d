"""Benchmarks that say why printed numbers differ, and pages that quote their records."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import pytest
from committed import HOUSE, claims, figures, lines, quoted

from benchmarks.log_costs import evened
from benchmarks.lru_ties import TIES, Touching, additional
from benchmarks.monet_costs import dearer, never_cheaper, saved
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.strategies.revolve.planner import advances
from rematbench.streams.events import Call, EventStream, Release


def test_an_operator_costs_its_median_and_nothing_else_changes() -> None:
    calls = [Call("relu", (), (), cost) for cost in (1, 900, 2)]
    stream = EventStream((*calls, Call("mm", (), (), 7), Release("x")), "log")
    found = evened(stream)
    assert found.events == (*[replace(call, cost=2) for call in calls], *stream.events[3:])
    assert found.name == "log"


def claim_of(record: str, about: str = "") -> dict[str, str]:
    """The one line that quotes a record, of those whose claim begins so."""
    quoting = (line for line in claims() if record in line["where"])
    (line,) = [line for line in quoting if line["claim"].startswith(about)]
    return line


def test_what_gist_s_encodings_cost_is_what_its_record_says() -> None:
    record = "runs/benchmarks/gist_cpu.json"
    found, line = figures(record), claim_of(record)
    modelled, measured = re.findall(r"([\d.]+) %", line["ours"])
    title = "vgg16, 8 images of 96 px, overhead of gist"
    assert modelled == f"""{found[f"{title}: by a V100's roofline"]:.1f}"""
    assert measured == f"{found[f'{title}: measured on a CPU']:.1f}"
    assert f"{modelled} % dearer" in line["verdict"]
    assert f"{measured} % more" in line["verdict"]


def test_what_a_log_s_seconds_do_is_what_its_record_says() -> None:
    record = "runs/benchmarks/log_costs.json"
    found, line = figures(record), claim_of(record)
    said = iter(re.findall(r"(0\.\d) at \+([\d.]+) %", line["ours"])[-6:])
    for form in ("three", "four"):
        for costs in ("as recorded", "by medians", "all alike"):
            title = f"densenet_bc, {form} blocks, {costs}, eqclass: at "
            met = {name.removeprefix(title): of for name, of in found.items() if title in name}
            least = min(met)
            assert next(said) == (least, f"{met[least]:.1f}"), title
    page = (HOUSE / "docs/papers/simrd.md").read_text()
    assert f"at one cost, {float(least):.0%} at {met[least]:.1f} %".replace("%", " %", 1) in page


def test_3d_unet_by_monet_s_program_is_what_its_rows_say() -> None:
    (line,) = [each for each in claims() if each["claim"].startswith("3D-UNet")]
    said = {
        json.loads(row["extra"])["time_limit"]: row["overhead"]
        for row in lines("runs/reference/papers-programs.csv")
        if row["model"] == "unet3d"
    }
    assert said[20] == ""
    started = f"{100 * float(said[200]):.1f} % by monet with 200 s of one core, no plan with 20 s"
    assert line["ours"].startswith(started)


@pytest.mark.parametrize("network", ["ResNet-50", "GoogleNet"])
def test_monet_s_program_as_its_code_has_it_is_what_its_record_says(network: str) -> None:
    record = "runs/benchmarks/monet_sizes.json"
    found, line = figures(record), claim_of(record, network)
    title = f"{network.lower().replace('-', '')}, MONeT as programmed"
    rows, columns = (found[f"{title}: {which} after presolve"] for which in ("rows", "columns"))
    assert f"{int(rows)} x {int(columns)}" in line["ours"]
    printed = [float(number) for number in line["printed"].split(" x ")]
    below = [
        100 * (1 - mine / theirs) for mine, theirs in zip((rows, columns), printed, strict=True)
    ]
    assert f"{below[0]:.0f} % and {below[1]:.0f} % below" in line["verdict"]


@pytest.mark.parametrize(
    "name",
    [
        *("quick", "feng_huang_table2", "table2"),
        *("simrd_logs", "simrd_published", "planners_pages"),
    ],
)
def test_the_rows_that_pages_quote_are_of_clean_commits(name: str) -> None:
    rows = lines(f"runs/reference/papers/{name}.csv.gz")
    assert all(row["commit"] and "dirty" not in row["commit"] for row in rows)
    assert not {row["status"] for row in rows} & {"failed", "oom"}


def test_no_committed_row_names_a_folder_of_who_made_it() -> None:
    places = [path for end in ("csv", "csv.gz") for path in HOME.rglob(f"*.{end}")]
    assert len(places) > 60
    texts = {each: "\n".join(map(str, lines(str(each.relative_to(HOUSE))))) for each in places}
    assert [
        place for place, text in texts.items() if re.search(r"[ '\"]/(tmp|home|root)/", text)
    ] == []


HOME = HOUSE / "runs/reference"


def test_join_networks_with_two_slots_more_than_they_need_are_what_the_rows_say() -> None:
    """One chain's makespan is also the closed form's: advances, the last layer, the backward."""
    (line,) = [each for each in claims() if each["claim"] == "makespan at c_min + 2"]
    least = {
        (*row["extra"]["lengths"], row["extra"]["slots"]): (row["cost"], row["checkpoint_all_cost"])
        for row in quoted("quick")
        if row["strategy"] == "join_dp"
    }
    cm, snn, rnn = least[10, 50, 7], least[20, 20, 20, 9], least[60, 5]
    ratios = {"CM": cm, "SNN": snn, "RNN": rnn}.items()
    said = ", ".join(f"{name} {cost / smallest:.3f}" for name, (cost, smallest) in ratios)
    assert line["ours"] == f"{said} at L = 10"
    assert rnn[0] == advances(60, 3) + 1 + 1 + 60
    assert "{:.0f} of {:.0f}".format(*rnn) in line["verdict"]
    assert f"{line['ours']}; the closed form" in (HOUSE / "docs/papers/joins.md").read_text()


def test_what_ties_do_to_lru_is_what_its_record_says() -> None:
    record = "runs/benchmarks/lru_ties.json"
    found, page = figures(record), (HOUSE / "docs/papers/simrd.md").read_text()
    last, _, chance, none = TIES
    root = "B = ceil(2 sqrt n), ties: "
    more = {ties: found[f"{root}{ties}, n = 4096: per layer"] for ties in (last, chance)}
    growth = {ties: f"n^{found[f'{root}{ties}: exponent']:.2f}" for ties in TIES}
    line = claim_of(record, "LRU, B = ceil(2 sqrt n)")["verdict"]
    assert f"{more[last]:.1f} more computations a layer at n = 4096 and {growth[last]}" in line
    assert f"by chance, {more[chance]:.1f} and {growth[chance]}:" in line
    said = " ".join(page.split())
    assert f"{growth[last]} within ceil(2 sqrt n), from n = 256 to 4096." in said
    assert f"growth is {growth[chance]}, {more[chance]:.1f} more" in said
    assert f"in place of {more[last]:.1f}," in said
    assert f"is {growth[none]} there." in said


def test_lru_s_growth_in_little_memory_is_what_its_record_says() -> None:
    record = "runs/benchmarks/lru_ties.json"
    found, page = figures(record), (HOUSE / "docs/papers/simrd.md").read_text()
    last, _, chance, none = TIES
    little, more = (f"B = {times}ceil(log2 n), ties: " for times in ("", "4 "))
    growth = {ties: f"n^{found[f'{little}{ties}: exponent']:.2f}" for ties in TIES}
    least = min(found[f"{more}{ties}: exponent"] for ties in TIES)
    played = f"{found[f'{little}{none}, n = 2048: per layer']:.1f}"
    arithmetic = f"{2048 / (2 * (math.ceil(math.log2(2048)) - 2)):.1f}"
    line, said = claim_of(record, "LRU, B = ceil(log2 n)")["verdict"], " ".join(page.split())
    assert f"{arithmetic} computations a layer at n = 2048, {played} and {growth[none]} as" in line
    assert f"ties {growth[last]}, by chance {growth[chance]}, and in four times" in line
    assert f"by this {arithmetic} a layer at n = 2048, and {played} as played." in said
    assert f"Growth is {growth[none]} over" in said
    assert f"make it {growth[last]}, ties by chance {growth[chance]}, and" in said
    assert all(f"no rule is below n^{least:.2f}" in each for each in (line, said))


def test_rules_of_ties_differ_where_tensors_are_equally_stale() -> None:
    """The first that goes is the oldest, as where a rematerialization counts as an access."""
    found = [additional(machine, 128, 23, seed=0) for machine in TIES.values()]
    assert found[0] > found[1] == found[3] > found[2]


def test_no_implementation_is_cheaper_than_pytorch_s_own() -> None:
    graph = unit_chain(3)
    (first, *rest), (own, *_) = graph.ops, graph.ops[0].implementations
    others = (replace(own, name=f"at {cost}", cost=cost) for cost in (own.cost / 2, 3 * own.cost))
    graph = replace(graph, ops=(replace(first, implementations=(own, *others)), *rest))
    costs = [each.cost / own.cost for each in never_cheaper(graph).ops[0].implementations]
    assert costs == [1, 1, 3]
    plain = sum(op.implementations[0].cost for op in graph.ops)
    assert saved(graph) == pytest.approx(100 * (own.cost / 2) / plain)
    assert saved(never_cheaper(graph)) == 0


def test_only_convolutions_of_the_named_modules_become_dearer() -> None:
    graph = unit_chain(3)
    named = [
        replace(op, target=target, scope=scope)
        for op, target, scope in zip(
            graph.ops,
            ("aten.convolution.default", "aten.relu.default", "aten.convolution_backward.default"),
            ("layer", "layer", "head"),
            strict=False,
        )
    ]
    graph = replace(graph, ops=(*named, *graph.ops[3:]))
    before, after = (
        [op.implementations[0].cost for op in each.ops]
        for each in (graph, dearer(graph, {"layer"}, 16))
    )
    assert after == [16 * before[0], *before[1:]]


def test_lru_without_ties_computes_each_stretch_of_a_chain_from_its_start() -> None:
    """It keeps the newest of the chain, all slots but two: n^2 / (2 (B - 2)) additional."""
    found, last = additional(Touching, 256, 8, seed=0), 256**2 / (2 * (8 - 2))
    assert 0.9 * last < found < last


NETWORKS = {
    "ResNet-50": ("resnet50", "0.33"),
    "GoogleNet": ("googlenet", "0.33"),
    "MobileNet-V2": ("mobilenet_v2", "0.33"),
    "U-Net": ("unet", "0.33"),
    "VGG-16": ("vgg16", "0.4"),
}


def test_what_implementations_cost_is_what_its_record_says() -> None:
    record = "runs/benchmarks/monet_costs.json"
    found, page = figures(record), " ".join((HOUSE / "docs/papers/monet.md").read_text().split())
    for name, (model, memory) in NETWORKS.items():
        line = claim_of(record, f"{name}: overhead at")
        said = r"([\d.]+) % of a step at most; .*? it is \+([\d.]+) %"
        ((saved_, dear),) = re.findall(said, line["verdict"])
        overhead = found[f"{model} at {memory}: overhead"]
        assert saved_ == f"{found[f'{model}: saved by the cheapest implementations']:.1f}"
        assert dear == f"{overhead:.1f}"
        assert f"+{dear} % ({name})" in page or f"+{dear} % for {name} at {memory};" in page
        paper = float(line["printed"].removesuffix(" %"))
        between = "the paper lies between" in line["verdict"]
        assert between == (paper <= overhead)


def test_what_convolutions_cost_is_what_its_record_says() -> None:
    record = "runs/benchmarks/monet_costs.json"
    found, page = figures(record), " ".join((HOUSE / "docs/papers/monet.md").read_text().split())
    line, ratio = claim_of(record, "MobileNet-V2 at 10 %")["verdict"], "memory / anytime_joint's"
    modelled, both, alone = (
        found[f"mobilenet_v2{which}: {ratio}"]
        for which in (
            ", 10 % overhead",
            ", convolutions 4 times as dear",
            ", depthwise convolutions 16 times as dear",
        )
    )
    share = found["mobilenet_v2, convolutions 4 times as dear: convolutions' share"] / 100
    before = f"{share / (4 - 3 * share):.0%}".replace("%", " %")
    after = f"{share:.0%}".replace("%", " %")
    memory = found["mobilenet_v2, convolutions 4 times as dear: memory of anytime"]
    assert f"gives them {before} of a step, and the ratio is {modelled:.2f} with" in line
    assert f"dear, {after} of a step, Checkmate's memory is {memory:g} (paper 0.40)" in line
    assert f"the ratio {both:.2f}, with depthwise ones alone 16 times as dear {alone:.2f};" in line
    assert f"({after} of a step, not {before}) and" in page
    assert f"it is {both:.2f}, with depthwise ones alone 16 times as dear {alone:.2f};" in page


@pytest.mark.parametrize("name", ["ResNet-50", "U-Net", "VGG-16"])
def test_checkmate_o_beside_monet_is_what_its_rows_say(name: str) -> None:
    (line,) = [each for each in claims() if each["claim"].startswith(f"{name} at 10 % overhead")]
    share, cost, more = re.findall(
        r"takes ([\d.]+) of the memory, at (\S+) %, ([\d.]+) times", line["verdict"]
    )[0]
    ran = {
        (f"{row['peak_bytes'] / row['checkpoint_all_peak_bytes']:.3f}", f"{row['overhead']:+.1%}")
        for row in quoted("quick")
        if (row["model"], row["strategy"]) == (NETWORKS[name][0], "checkmate_o")
        and row["peak_bytes"] is not None
        and row["checkpoint_all_peak_bytes"] is not None
        and row["overhead"] is not None
    }
    assert (share, f"{cost}%") in ran
    joint = figures("monet")[f"{NETWORKS[name][0]}, 10 % overhead: memory of anytime_joint"]
    assert more == f"{float(share) / joint:.2f}"
    (ours,) = re.findall(r"\(ours\): ([\d.]+),", line["ours"])
    assert sorted(map(float, (ours, line["printed"], more)))[1] == float(line["printed"])


def test_what_highs_proves_of_the_papers_programs_is_what_its_record_says() -> None:
    record, page = "runs/benchmarks/monet_proofs.json", (HOUSE / "docs/papers/monet.md").read_text()
    found = figures(record)
    noop = claim_of(record, "MONeT-NoOp proves")["ours"]
    monet = claim_of(record, "budgets at which MONeT proves")["ours"]
    vgg, unet, mobile = "vgg16 at 0.75", "unet at 0.67", "mobilenet_v2 at 0.67"
    proven, gap = "2% proven", "gap after 600 s"
    slow, fast = found[f"{vgg}, Checkmate's (9): {proven}"], found[f"{vgg}, MONeT-NoOp: {proven}"]
    assert f"{slow / fast:.0f} times on VGG-16 at 0.75 ({fast:.1f} and {slow:.0f} CPU s)" in noop
    assert found[f"{unet}, Checkmate's (9): solutions in 600 s"] == 0
    alone = found[f"{unet}, MONeT-NoOp: {proven}"]
    assert f"more than {math.floor(600 / alone)} times on U-Net at 0.67 ({alone:.0f} s;" in noop
    quick, large = found[f"{vgg}, MONeT: {proven}"], found[f"{mobile}, MONeT: {proven}"]
    open_, open_noop = found[f"{unet}, MONeT: {gap}"], found[f"{mobile}, MONeT-NoOp: {gap}"]
    assert f"VGG-16 at 0.75 in {quick:.0f} s, MobileNet-V2 at 0.67 in {large:.0f} s" in monet
    assert f"U-Net at 0.67 not ({open_:.1f} %)" in monet
    assert f"| VGG-16, 0.75 | {slow:.0f} | {fast:.1f} | {quick:.1f} |" in page
    assert f"| U-Net, 0.67 | no solution | {alone:.1f} | not proven: {open_:.1f} % |" in page
    assert f"0.67 | not tried | not proven: {open_noop:.1f} % | {large:.1f} |" in page
