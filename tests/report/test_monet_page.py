"""docs/papers/monet.md: its numbers of ours are those of committed records and rows."""

from __future__ import annotations

import json
import math
import re

import pytest
from committed import HOUSE, claims, figures, lines, quoted

from rematbench.report.papers.monet_tables import size_table

PAGE = (HOUSE / "docs/papers/monet.md").read_text()
TEXT = " ".join(PAGE.split())
NETWORKS = ("resnet50", "googlenet", "mobilenet_v2", "unet", "vgg16")
TITLES = {"ResNet-50": "resnet50", "GoogleNet": "googlenet", "MobileNet-V2": "mobilenet_v2"}
TITLES |= {"U-Net": "unet", "VGG-16": "vgg16", "3D-UNet": "unet3d"}
FORMS = ("MONeT-NoOp", "MONeT")
OTHERS = ("densenet121", "densenet161", "densenet169", "inception_v3", "plain unet")


FOUND = figures("monet")


def programs() -> dict[tuple[str, str, int], dict[str, str]]:
    """Rows of the published program, by network, share of the memory, and seconds."""
    return {
        (row["model"], row["budget_fraction"], json.loads(row["extra"])["time_limit"]): row
        for row in lines("runs/reference/papers-programs.csv")
        if row["strategy"] == "monet"
    }


def outcome(row: dict[str, str]) -> str:
    """What the page says of a row."""
    if row["status"] == "ok":
        return f"{100 * float(row['overhead']):+.1f} %"
    return {"time_limit": "no plan", "infeasible": "its program has no solution"}[row["status"]]


def test_the_published_program_s_outcomes() -> None:
    rows = programs()
    for title, name in TITLES.items():
        shares = [share for model, share, seconds in rows if (model, seconds) == (name, 20)]
        said = [outcome(rows[name, share, 20]) for share in shares]
        assert f"| {title} | {', '.join(shares)} | {', '.join(said)} |" in PAGE
    longer = rows["unet3d", "0.54", 200]
    assert f"With 200 s 3D-UNet comes to {outcome(longer)}" in TEXT


def test_which_budgets_are_how_many_bytes() -> None:
    rows = programs()
    of = {name: int(rows[name, share, 20]["budget_bytes"])
          for name, share in (("unet", "0.33"), ("vgg16", "0.4"))}  # fmt: skip
    assert f"**U-Net at a third of its memory** ({of['unet'] / 1e9:.1f} GB)" in TEXT
    assert f"VGG-16 fits 0.4 of its memory ({of['vgg16'] / 1e9:.1f} GB" in TEXT


@pytest.mark.parametrize(
    ("networks", "shares"), [(NETWORKS, ("0.7", "0.5", "0.33")), (OTHERS, ("0.5", "0.33"))]
)
def test_gaps_and_overheads(networks: tuple[str, ...], shares: tuple[str, ...]) -> None:
    for share in shares:
        cells = []
        for name in networks:
            at = "0.4" if (name, share) == ("vgg16", "0.33") else share
            gap, over = (FOUND[f"{name} at {at}: {what}"] for what in ("gap", "overhead"))
            wide = f"**{gap:.1f} %**" if gap > 10 else f"{gap:.1f} %"
            moved = "below its floor; at 0.4 " if at != share else ""
            cells.append(f"{moved}{wide}, {over:+.1f} %")
        assert f"| {share} | {' | '.join(cells)} |" in PAGE
    assert "vgg16 at 0.33: overhead" not in FOUND


def test_what_the_searches_took() -> None:
    ended = {
        name: value
        for name, value in FOUND.items()
        if name.endswith("planning, CPU") and name.split(" at ")[0] in NETWORKS
    }
    longest = {ended.pop(f"{name}: planning, CPU") for name in ("unet at 0.33", "vgg16 at 0.4")}
    said = f"({min(ended.values()):.0f} to {max(ended.values()):.0f} CPU s, but "
    said += " and ".join(f"{value:.0f}" for value in sorted(longest, reverse=True))
    assert said in TEXT


def test_what_operators_by_parts_are_worth() -> None:
    parts = {
        name.removesuffix(": cost with ops by parts / without"): value
        for name, value in FOUND.items()
        if "by parts" in name
    }
    assert {value for name, value in parts.items() if "densenet121" in name} == {1.0}
    dearer = 100 * (1 / parts["plain unet at 0.5"] - 1)
    assert f"the plain U-Net {dearer:.0f} % more at 0.5, and it has no plan at 0.33" in TEXT
    assert parts["plain unet at 0.33"] == 0


def test_memory_at_ten_per_cent_of_overhead() -> None:
    ratios = {}
    for name in NETWORKS:
        joint, plain = (
            FOUND[f"{name}, 10 % overhead: memory of {which}"]
            for which in ("anytime_joint", "anytime")
        )
        ratios[name] = plain / joint
    least, most = (of(ratios, key=ratios.__getitem__) for of in (min, max))
    assert (least, most) == ("vgg16", "mobilenet_v2")
    said = f"{ratios[least]:.1f} (VGG-16) to {ratios[most]:.1f} (MobileNet-V2) times"
    assert said in TEXT


def test_the_code_s_sizes_beside_the_printed_ones() -> None:
    small, large = figures("causes"), figures("monet_sizes")
    lines = re.findall(
        r"\| (VGG-16|ResNet-50|GoogleNet) \|.*\| (\d+) x (\d+) \| [^|]*\|$", PAGE, re.M
    )
    printed = {name: (int(rows), int(columns)) for name, rows, columns in lines}
    for title, record in (("VGG-16", small), ("ResNet-50", large), ("GoogleNet", large)):
        head = f"{title.lower().replace('-', '')}, MONeT as programmed: "
        mine = [int(record[f"{head}{of} after presolve"]) for of in ("rows", "columns")]
        assert f"{mine[0]} x {mine[1]}" in TEXT
        if title != "VGG-16":
            below = [100 * (1 - m / p) for m, p in zip(mine, printed[title], strict=True)]
            assert f"{mine[0]} x {mine[1]}, {below[0]:.0f} and {below[1]:.0f} % below" in TEXT


# Table 7, of the quick profile's rows


SIZES = size_table(
    [row for row in quoted("quick") if row["extra"].get("experiment") == "monet_table7"]
).set_index(["model", "form"])


def size(model: str, form: str, ending: str = "") -> str:
    each = SIZES.loc[(model, form)]
    return f"{each['rows' + ending]:.0f} x {each['columns' + ending]:.0f}"


@pytest.mark.parametrize("title", [title for title, name in TITLES.items() if name in NETWORKS])
def test_sizes_of_the_published_programs(title: str) -> None:
    model = TITLES[title]
    ops = SIZES.loc[(model, "MONeT"), "forward_ops"]
    cells = [size(model, form, end) for form in FORMS for end in ("_paper", "")]
    assert f"| {title} | {ops:.0f} | {' | '.join(cells)} |\n" in PAGE
    said = {line["claim"]: line for line in claims()}
    for form in FORMS:
        line = said.get(f"{title}, {form}: rows x columns after presolve")
        if line is not None:
            assert line["printed"] == size(model, form, "_paper")
            assert line["ours"].startswith(size(model, form))


def test_two_lines_of_table_7_fit_when_they_are_exchanged() -> None:
    ours, theirs = (
        SIZES.xs(FORMS[0], level="form")[[f"rows{end}", f"columns{end}"]] for end in ("", "_paper")
    )
    pairs = (("resnet50", "googlenet"), ("googlenet", "resnet50"))
    away = [ours.loc[a].to_numpy() / theirs.loc[b].to_numpy() - 1 for a, b in pairs]
    most = math.ceil(100 * max(abs(each).max() for each in away))
    assert f"fit ours within {most} % when they are exchanged" in TEXT
