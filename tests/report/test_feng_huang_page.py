"""docs/papers/feng_huang.md: its numbers of ours are those of committed records and rows."""

from __future__ import annotations

import pandas as pd
from committed import HOUSE, figures, quoted

from rematbench.report.papers.feng_huang import memory_table

PAGE = (HOUSE / "docs/papers/feng_huang.md").read_text()
TEXT = " ".join(PAGE.split())
ROWS = quoted("feng_huang_table2")
TABLE = memory_table(ROWS).set_index("model")
TITLES = {"alexnet": "AlexNet", "inception_v3": "Inception at 300 px", "darts": "DARTS at 32 px"}
TITLES |= {"nasnet": "NASNet at 32 px", "amoebanet": "AmoebaNet at 32 px"}
POINTS = 100 * (TABLE["cut"] - TABLE["cut_paper"])
"""By how many points ours cut off more."""


def title(model: str) -> str:
    """As the page has it: ResNet-50."""
    if model in TITLES:
        return TITLES[model]
    for name in ("VGG", "ResNet", "DenseNet"):
        model = model.replace(name.lower(), f"{name}-")
    return model


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def test_each_network_s_line() -> None:
    assert len(TABLE) == 18
    for model, each in TABLE.iterrows():
        cells = [f"{title(str(model))}, {each['batch']:.0f}"]
        cells += [
            f"{percent(each['cut' + end])}, {percent(each['overhead' + end])}"
            for end in ("_paper", "")
        ]
        cells.append(percent(each["one_more_forward"]))
        assert f"| {' | '.join(cells)} |\n" in PAGE, cells
    chens = TABLE.loc["vgg16", ["chen_paper_MB", "ours_paper_MB", "chen_MB", "ours_MB"]]
    theirs, ours = chens[:2].astype(int), [f"{value:.0f}" for value in chens[2:]]
    assert f"VGG-16, Chen / Feng-Huang: {' / '.join(map(str, theirs))} MB there" in TEXT
    assert f"{' / '.join(ours)} MB here" in TEXT


def test_the_extra_time_is_one_forward_pass() -> None:
    away = 100 * (TABLE["one_more_forward"] - TABLE["overhead_paper"]).abs()
    assert (away.round() <= 1).sum() == 9
    assert "within a point on nine networks" in TEXT
    assert set(away.index[away > 5.5]) == {"densenet201", "darts"}
    ours = TABLE["overhead"]
    assert f"Our plans need less, {100 * ours.min():.0f} to {percent(ours.max())}" in TEXT


def test_where_the_memory_agrees() -> None:
    within = {*POINTS.index[POINTS.abs() <= 5.5]}
    searched = {"nasnet", "amoebanet", "darts"}
    assert within == {"vgg11", "resnet50", "resnet101", "resnet152", "inception_v3", *searched}


def test_what_pytorch_s_checkpointing_and_whole_segments_cut_off() -> None:
    found, causes = figures("segments"), figures("causes")
    by_torch = {name: found[f"{name}: cut off by PyTorch"] for name in
                ("resnet18", "resnet34", "vgg13", "vgg16", "vgg19")}  # fmt: skip
    cut = TABLE["cut"]
    vggs = [by_torch[name] for name in ("vgg13", "vgg16", "vgg19")]
    ours = [100 * cut[name] for name in ("vgg13", "vgg16", "vgg19")]
    assert (
        f"PyTorch's own checkpointing cuts off {by_torch['resnet18']:.0f} % on ResNet-18 (the "
        f"paper 35 %, our plan {percent(cut['resnet18'])}), {by_torch['resnet34']:.0f} % on "
        f"ResNet-34 (55, {100 * cut['resnet34']:.0f}), {min(vggs):.0f} to {max(vggs):.0f} % on "
        f"VGG-13 to 19 (31, "
        f"{min(ours):.0f} to {max(ours):.0f})"
    ) in TEXT
    end = "64: cut off, recomputed in whole segments"
    whole = [f"{causes[f'{name}, {end}']:.0f}" for name in ("vgg13", "vgg16", "vgg19")]
    assert f"cut off {whole[0]}, {whole[1]} and {whole[2]} % on VGG-13, 16 and 19" in TEXT


def test_dense_blocks_as_chains_and_as_lists() -> None:
    found = figures("segments")
    names = [f"densenet{depth}" for depth in (121, 161, 169, 201)]
    chains, lists = (
        [found[f"{name}, {form}: cut off by the objective"] for name in names]
        for form in ("chains", "lists")
    )
    shown = [f"{value:.0f}" for value in chains]
    peaks = 100 * TABLE.loc[names, "cut"]
    assert (
        f"By the objective DenseNets are at {', '.join(shown[:3])} and {shown[3]} % (78, 82, 82, "
        f"85) as chains of concatenations, at {min(lists):.0f} to {max(lists):.0f} % as "
        f"torchvision's lists, at {peaks.min():.0f} to {peaks.max():.0f} % of the simulated peak"
    ) in TEXT


def test_random_checkpoints_on_searched_networks() -> None:
    drawn = {row["model"]: row for row in ROWS if row["strategy"] == "random_checkpoints"}
    for model in ("nasnet", "amoebanet", "darts"):
        valid, wrong = (drawn[model]["extra"][f"{kind}_draws"] for kind in ("valid", "invalid"))
        assert f"{valid} valid draw of {valid + wrong}, which saves nothing" in TEXT
        assert pd.isna(TABLE.loc[model, "random_MB"]) or (
            TABLE.loc[model, "random_MB"] == TABLE.loc[model, "regular_MB"]
        )
