"""The field: profiles, winners and gaps, against numbers worked out by hand."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from field_rows import ROWS, entry
from matplotlib.colors import to_rgb

from rematbench.base.errors import ConfigError
from rematbench.report.collect import collect
from rematbench.report.leaderboard import quote, tables
from rematbench.report.leaderboard.board import OTHER_OPS, ROUNDING, Board, board, problem
from rematbench.report.leaderboard.families import family
from rematbench.report.leaderboard.findings import FINDINGS, sentences
from rematbench.report.leaderboard.markdown import front_table, small_table
from rematbench.report.leaderboard.measured import survival
from rematbench.report.leaderboard.names import WITH_OURS, label
from rematbench.report.leaderboard.page import write_leaderboard_pages
from rematbench.report.leaderboard.paired import paired
from rematbench.report.leaderboard.pictures import profile_picture, time_picture
from rematbench.report.leaderboard.quote import document, with_table
from rematbench.report.leaderboard.reading import PROVENANCE
from rematbench.report.leaderboard.shares import CountOf
from rematbench.report.style import ours
from rematbench.rows.row import Row, known, write_leaderboard

HOUSE = Path(__file__).parents[2]
FOLDER = "runs/reference/leaderboard"
PARTS, QUICK = f"{FOLDER}/full-*.csv.gz", f"{FOLDER}/quick.csv.gz"


@cache
def committed(places: str) -> Sequence[Row]:
    """Rows of the repository, read once."""
    return collect(sorted(HOUSE.glob(places))).rows


@pytest.fixture
def field() -> Board:
    return board(ROWS)


def test_the_profile_by_hand(field: Board) -> None:
    found = tables.profile(field, np.array([1.0, 1.2, 1.26, 1.3]))
    assert found["anytime"].tolist() == [0.75] * 4
    assert found["dtr"].tolist() == [0.25, 0.25, 0.5, 0.5]
    assert found["ap_sqrt"].tolist() == [0.25, 0.25, 0.25, 0.5]


def test_ties_are_shared_and_bounds_of_other_spaces_prove_nothing(field: Board) -> None:
    best = field.entries[field.entries["best"]].groupby("problem")["strategy"].agg(list)
    assert [sorted(names) for names in best] == [
        ["anytime"],
        ["anytime", "dtr"],
        ["anytime"],
        ["ap_sqrt"],
    ]
    gaps = dict(zip(field.problems["problem"].str[:8], field.problems["gap"], strict=True))
    assert field.problems["gap"].tolist()[:2] == [0.0, pytest.approx(1 - 100 / 104)]
    assert np.isnan(gaps["unet, ba"])
    assert field.problems["optimal"].tolist() == [True, False, False, False]


def test_tables(field: Board) -> None:
    summary = tables.summary(field)
    assert summary.index[0] == "anytime"
    found = summary.loc["anytime", ["solved", "best", "alone"]].tolist()
    assert found == [CountOf(3, 4, 2), CountOf(3, 4, 2), CountOf(2, 4, 2)]
    assert str(found[0]) == "75 % (3 of 4, on 2 networks)"
    found = summary.loc["dtr", ["solved", "best", "alone"]].tolist()
    assert [each.count for each in found] == [2, 1, 0]
    budgets = tables.smallest_budgets(field)
    assert budgets.loc["resnet50"].to_dict() == {"anytime": 0.5, "dtr": 0.5, "ap_sqrt": 0.7}
    assert np.isnan(budgets.loc["unet", "dtr"])
    overheads = tables.overheads(field).set_index(["family", "fraction", "strategy"])
    assert overheads.loc[("CNN", 0.5, "dtr"), "median"] == pytest.approx(0.3)
    assert overheads.loc[("U-shaped", 0.5, "dtr"), "solved"] == CountOf(0, 1, 1)
    gaps = tables.gaps(field).set_index("family")
    assert gaps.loc["CNN", "proven"] == CountOf(1, 2, 1)
    assert gaps.loc["U-shaped", "bounded"] == CountOf(0, 2, 1)


def test_who_wins_where(field: Board) -> None:
    found = tables.winners(field).set_index(["family", "fraction"])
    assert found.loc[("CNN", 0.7), "best"] == "anytime, dtr"
    assert found.loc[("CNN", 0.7), "quick"] == "dtr"
    assert found.loc[("CNN", 0.5), "best_overhead"] == pytest.approx(0.04)
    assert found.loc[("U-shaped", 0.7), "best"] == "ap_sqrt"
    assert found.loc[("U-shaped", 0.5), "quick"] == ""


def test_who_fails_on_half_of_the_problems_wins_nothing() -> None:
    """The lowest median, a problem without a plan being infinitely dear: not who solves most."""
    costs = {"dear": (130, 140, 150), "cheap": (101, 103, None), "rare": (100, None, None)}
    rows = [
        entry(name, 0.7, strategy, cost)
        for strategy, given in costs.items()
        for name, cost in zip(("resnet50", "vgg16", "vgg19"), given, strict=True)
    ]
    (line,) = tables.winners(board(rows)).to_dict("records")
    assert (line["best"], line["best_overhead"]) == ("cheap", pytest.approx(0.03))
    (line,) = tables.winners(board([row for row in rows if row["strategy"] == "rare"])).to_dict(
        "records"
    )
    assert (line["best"], line["problems"]) == ("", 3)


def test_findings_have_a_number_or_are_left_out(field: Board) -> None:
    found = {query: text for text, query in sentences(field)}
    assert all(query in {finding.query for finding in FINDINGS} for query in found)
    assert "The field has 4 problems." in found.values()
    assert found["problems.optimal.mean()"].startswith(
        "On 25 % of the 4 the best known plan is proven"
    )
    assert not any("every_layer" in text for text in found.values())


def test_findings_leave_out_who_solves_programs_or_runs_other_ops() -> None:
    """Our searches solve programs; Gist is lossy, its cheap plan is none of the captured ops."""
    solving = {*ours(), *WITH_OURS} - {"anytime"} - OTHER_OPS
    assert {"hierarchical", "hybrid"} <= solving
    rows = [
        entry("unet", 0.7, "anytime", 100.0, bound=100.0, bound_of="any", plan_seconds=20.0),
        *(entry("unet", 0.7, name, 100.0, plan_seconds=20.0) for name in solving),
        entry("unet", 0.7, "dtr", 120.0),
        entry("unet", 0.7, "gist", 90.0),
    ]
    text = " ".join(text for text, _ in sentences(board(rows)))
    assert "On none of the 1 problems whose optimum is proven is a plan of a strategy" in text
    assert "within 5 % of the best cost on any of the 1 problems" in text
    assert "Each of the 1 problems has a plan of the captured ops" in text
    assert " 0 %" not in text


def test_what_is_doubled_missing_or_failed_is_named() -> None:
    again = entry("unet", 0.7, "dtr", 145.0, utc="2026-01-02T00:00:00Z")
    broken = entry("vgg16", 0.7, "dtr", None, status="failed", reason="no such thing")
    found = board([*ROWS, again, broken])
    notes = "\n".join(found.notes)
    assert "dtr on unet, batch 4 (roofline) at 0.7: 2 rows; the latest counts" in notes
    assert "dtr on vgg16, batch 4 (roofline) at 0.7: failed (no such thing)" in notes
    assert "ap_sqrt: no row on 1 problems, the first: vgg16" in notes
    mine = found.entries.query("model == 'unet' and fraction == 0.7 and strategy == 'dtr'")
    assert mine["cost"].tolist() == [145.0]


def test_faster_implementations_and_lossy_plans_do_not_set_the_measure() -> None:
    others = {"anytime_joint": 90.0, "gist": 80.0, "checkmate_o": 95.0}
    rows = [*ROWS[:3], *(entry("resnet50", 0.7, *each) for each in others.items())]
    found = board(rows).entries.set_index("strategy")
    assert found.loc["anytime_joint", "ratio"] == pytest.approx(0.9)
    assert found["best"].to_dict() == {
        **{"anytime": True, "dtr": True, "ap_sqrt": False},
        **dict.fromkeys(others, False),
    }


def test_a_bound_of_checkmates_schedules_is_none_of_other_plans() -> None:
    """DTR may compute an op twice in one stage, and so be cheaper than every schedule of (9)."""
    bounds = {"bound": 140.0, "bound_of": "9", "extra": {"bounds": {"any": 110.0, "9": 140.0}}}
    rows = [entry("unet", 0.3, "anytime", 140.0, **bounds), entry("unet", 0.3, "dtr", 115.0)]
    (alone,) = board(rows[:1]).problems.to_dict("records")
    assert alone["optimal"]
    field = board(rows)
    (found,) = field.problems.to_dict("records")
    assert found["gap"] == pytest.approx(1 - 110 / 115)
    assert not found["optimal"]
    assert not field.notes
    assert field.entries.set_index("strategy")["best"].to_dict() == {
        "anytime": False,
        "dtr": True,
    }


def test_a_plan_that_puts_an_op_off_may_undercut_the_bound() -> None:
    """XLA's pass may; bounds are of plans in program order, and then prove nothing."""
    proven = entry("resnet50", 0.7, "anytime", 100.0) | {"bound": 100.0, "bound_of": "any"}
    moved = entry("resnet50", 0.7, "xla_remat", 90.0, extra={"in_program_order": False})
    field = board([proven, moved])
    assert field.entries.set_index("strategy")["best"].to_dict() == {
        "anytime": False,
        "xla_remat": True,
    }
    assert not field.notes
    assert field.problems["gap"].isna().all()


def test_who_prepares_a_network_once_takes_as_long_as_its_slowest() -> None:
    rows = [
        entry("unet", at, "torch_budget", 120.0, plan_seconds=s) for at, s in ((0.7, 9), (0.5, 0))
    ]
    assert board(rows).entries["seconds"].tolist() == [9.0, 9.0]


def test_problems_that_differ_have_names_that_differ() -> None:
    given = [{}, {"optimizer": "adam"}, {"options": {"width": 8}}, {"length": 10}, {"length": 100}]
    rows = [entry("unet", 0.7, "dtr", 110.0, extra=extra) for extra in given]
    assert len(board(rows).problems) == 5


def test_a_model_on_two_machines_is_two_networks() -> None:
    """Nothing is merged by the model's name: neither budgets met nor a partitioner's seconds."""
    given = [(0.5, "h100", 4, 9.0), (0.7, "v100", 4, 0.0), (0.7, "v100", 8, 1.0)]
    rows = [
        entry(
            *("unet", at, "torch_budget", 110.0),
            **{"extra": {"preset": preset}, "batch_size": batch, "plan_seconds": seconds},
        )
        for at, preset, batch, seconds in given
    ]
    rows += [entry("vgg16", 0.7, "torch_budget", 120.0)]
    rows += [rows[-1] | {"budget_fraction": 0.5}]
    rows[-1]["extra"] = rows[-2]["extra"] | {"options": {"width": 8}}
    field = board(rows)
    names = [
        "unet, batch 4 (roofline h100)",
        "unet, batch 4 (roofline v100)",
        "unet, batch 8 (roofline v100)",
        "vgg16, batch 4 (roofline)",
        "vgg16, batch 4, width=8 (roofline)",
    ]
    assert tables.smallest_budgets(field)["torch_budget"].to_dict() == dict(
        zip(names, [0.5, 0.7, 0.7, 0.7, 0.5], strict=True)
    )
    assert field.entries["seconds"].tolist()[:3] == [9.0, 0.0, 1.0]
    assert field.notes == ()
    (alone,) = board(rows[:1]).problems["model"]
    assert alone == "unet"


def test_jobs_that_never_ran_are_no_problems() -> None:
    """What was wrong in their configuration is all that they know."""
    never = entry("unet", 0.7, "mine", None, costmodel=None, status="failed", reason="no such key")
    field = board([*ROWS, never])
    assert len(field.problems) == len(board(ROWS).problems)
    assert field.notes == ("mine on unet at 0.7: never ran (no such key)",)
    assert field.entries["model"].unique().tolist() == ["resnet50", "unet"]


def test_rows_that_disagree_on_checkpoint_all_are_named() -> None:
    """They were planned on different graphs, or machines that the rows do not tell apart."""
    rows = [entry("unet", 0.7, "a", 110.0), entry("unet", 0.7, "b", 110.0, checkpoint_all_cost=99)]
    (note,) = board(rows).notes
    assert note.startswith("unet, batch 4 (roofline) at 0.7: by its rows checkpoint-all costs 99")


def test_commits_are_named_where_they_are_several() -> None:
    rows = [entry("unet", 0.7, name, 110.0, commit=name * 12) for name in "ab"]
    assert board(rows).notes == ("rows are of 2 commits: aaaaaaa (1), bbbbbbb (1)",)


def test_machines_are_named_where_they_are_several() -> None:
    rows = [
        entry("unet", 0.7, name, 110.0, extra={"machine": f"{name.upper()}, 2 cores"})
        for name in "ab"
    ]
    assert board(rows).notes == ("rows are of 2 machines: A with 2 cores (1), B with 2 cores (1)",)


def test_a_plan_below_the_bound_is_named_and_sets_nothing() -> None:
    proven = entry("resnet50", 0.7, "anytime", 100.0) | {"bound": 100.0, "bound_of": "any"}
    other = entry("resnet50", 0.7, "theirs", 90.0)
    found = board([proven, other])
    assert found.entries.set_index("strategy")["best"].to_dict() == {
        "anytime": True,
        "theirs": False,
    }
    assert found.problems["optimal"].tolist() == [True]
    (note,) = found.notes
    assert note.startswith("theirs on resnet50")
    assert "cheaper than is proven possible" in note
    reduced = proven | {"bound_of": "F"}  # a plan outside F may be cheaper
    assert board([reduced, other]).entries.set_index("strategy").loc["theirs", "best"]
    alone = board([reduced]).problems.iloc[0]
    assert (alone["gap_in_F"], alone["optimal"]) == (0.0, False)
    assert np.isnan(alone["gap"])


def test_budgets_that_need_no_plan_are_no_problems() -> None:
    with pytest.raises(ConfigError, match=r"no row has a budget below 1\.0"):
        board([entry("unet", 1.0, "dtr", 100.0)])


def test_families_of_the_zoo() -> None:
    from rematbench.cli.conf_keys import choices_of

    own = {"graph_file", "python", "simrd_log", "transformers", "timm"}
    assert {name for name in choices_of("model") if family(name) == "other"} <= own


def test_the_page_and_its_files(tmp_path: Path) -> None:
    """Of the committed rows."""
    rows = committed(PARTS)
    paths = write_leaderboard_pages(rows, tmp_path, "modelled by a roofline", lacking=True)
    assert all(path.stat().st_size for path in paths)
    page = paths[0].read_text()
    assert "Read with care" not in page  # each row says what it was made with
    assert "rows are of 3 commits" in page
    assert "rows are of 2 machines" in page
    order = ["<h1", "Which strategy should I use?", 'id="winners"']
    order += ["to know of the rows", "What the field says", "<svg", 'id="strategies"']
    places = [page.index(each) for each in order]
    assert places == sorted(places)
    assert page[: places[2]].count("<p") <= 1  # a sentence
    assert "moccasin+anytime" not in page  # of rows from before it could be told apart
    assert "checkmate_d (our search)" in page
    csv = pd.read_csv(tmp_path / "leaderboard/strategies.csv").set_index("strategy")
    found = csv.loc["anytime", ["best", "best_count", "best_of"]].tolist()  # names as they are
    assert found == [pytest.approx(found[1] / 230), found[1], 230]
    assert "costs are modelled by a roofline" in page
    assert "<script src" not in page
    assert 'href="http' not in page
    assert len(page) < 2_000_000
    assert page.count('<div class="wide"') == page.count("<table")  # which scroll by themselves


def test_no_committed_row_took_a_second_more_than_its_limit() -> None:
    """Nor more than a twentieth; of the processor's seconds, of those that say how many."""
    extras = [row["extra"] for row in committed(PARTS)]
    taken = [(each[TAKEN], each["time_limit"]) for each in extras if TAKEN in each]
    assert len(taken) > 8000
    assert [(took, limit) for took, limit in taken if took > limit + max(1, limit / 20)] == []


TAKEN = "plan_cpu_seconds"


def executed(strategy: str, cost: float, overhead: float, plan: str, **known: Any) -> Row:
    peaks = {"peak_bytes": 99, "measured_peak_bytes": 100}
    measured = {"measured_overhead": overhead, "extra": {"plan_hash": plan}}
    return entry("unet", 0.7, strategy, cost, **measured | peaks | known)


MEASURED = (
    executed("a", 110.0, 0.20, "1"),
    executed("b", 120.0, 0.15, "2"),
    executed("c", 130.0, 0.38, "3"),
    executed("d", 130.0, 0.42, "3"),
    executed("e", 90.0, 0.01, "4", status="failed"),
    entry("vgg16", 0.7, "a", 110.0),
)


def test_the_modelled_order_beside_the_measured_one() -> None:
    (line,) = survival(MEASURED).to_dict("records")
    assert line["plans"] == 3
    assert line["rank_correlation"] == pytest.approx(0.5)
    assert (line["modelled_best"], line["modelled_best_overhead"]) == ("a", 0.2)
    assert line["best_overhead"] == 0.15
    assert line["peak_error"] == pytest.approx(0.01)
    assert line["over_budget"] == 0
    over = [row | {"budget_bytes": 99} if row["strategy"] in "ab" else row for row in MEASURED]
    assert survival(over)["over_budget"].tolist() == [2]


def test_rows_at_a_budget_in_bytes_are_no_problem_of_the_field() -> None:
    row = executed("a", 110.0, 0.2, "5") | {"budget_fraction": None}
    assert survival([*MEASURED, row]).equals(survival(MEASURED))


def test_two_plans_have_no_ranking() -> None:
    assert survival(MEASURED[:2]).empty


def test_the_page_compares_what_was_executed(tmp_path: Path) -> None:
    (page, *_) = write_leaderboard_pages(MEASURED, tmp_path, "modelled")
    assert "Does the modelled ranking survive?" in page.read_text()
    assert "0.5" in (tmp_path / "leaderboard/measured.csv").read_text()


GPU = "NVIDIA H100 80GB HBM3"
SLOWER = {"a": 0.52, "b": 0.505, "c": 0.9}
"""By strategy, measured overheads of another device, of which ``b``'s plan is the quickest."""
ACCELERATED = tuple(
    row
    | {"device": GPU, "costmodel": "profiled", "measured_overhead": SLOWER[str(row["strategy"])]}
    for row in MEASURED[:3]
)


def two_devices(folder: Path) -> list[str]:
    """Files of the same plans' rows: of a CPU, and of an accelerator, as the suite writes them."""
    cpu = tuple(row | {"device": "AMD EPYC"} for row in MEASURED)
    for name, rows in (("field", ROWS), ("cpu", cpu), ("gpu", ACCELERATED)):
        whole = [row | {"budget_bytes": 100} for row in rows]
        write_leaderboard(folder / f"{name}.csv", whole)
    return [str(folder / f"{name}.csv") for name in ("cpu", "gpu")]


def test_each_device_has_tables_of_its_own(tmp_path: Path) -> None:
    out = tmp_path / "page.md"
    quote.main(
        [str(tmp_path / "field.csv"), "--executed", *two_devices(tmp_path), "--out", str(out)]
    )
    text = out.read_text()
    assert f"Only the last tables have measured times, of AMD EPYC and of {GPU}." in text
    survives = text.index("## Does the modelled ranking survive?")
    cpu, gpu = text.index("### On AMD EPYC"), text.index(f"### On {GPU}")
    assert survives < cpu < gpu
    parts = {"cpu": text[cpu:gpu], "gpu": text[gpu:]}
    assert "| 3 | 0.50 | – | `a` | +20 % | +15 % |" in parts["cpu"]
    assert "| 3 | 0.50 | – | `a` | +52 % | +50 % |" in parts["gpu"]
    assert "A roofline knows no workspaces" in parts["cpu"]
    assert "planned by profiled costs" in parts["gpu"]
    assert "| `b` | 1 | 1 | 0.0 | 0 |" in parts["cpu"]
    assert "| `a` | 1 | 0 | 5.0 | 0 |" in parts["cpu"]
    assert "| `a` | 1 | 0 | 1.5 | 0 |" in parts["gpu"]
    assert "| `c` | 1 | 0 | 39.5 | 0 |" in parts["gpu"]


def test_the_page_with_figures_mixes_no_devices(tmp_path: Path) -> None:
    rows = collect(map(Path, two_devices(tmp_path))).rows
    text = write_leaderboard_pages(rows, tmp_path, "measured")[0].read_text()
    assert [text.count(f"survive? On {name}") for name in ("AMD EPYC", GPU)] == [1, 1]
    for name, most in (("amd-epyc", 0.15), ("nvidia-h100-80gb-hbm3", 0.505)):
        found = pd.read_csv(tmp_path / f"leaderboard/measured-{name}.csv")
        assert found["best_overhead"].tolist() == [most]


def test_the_page_is_made_with_the_rows_of_accelerators(tmp_path: Path) -> None:
    """``make leaderboard-page`` passes what ``make gpu`` writes, and no suite of a CPU."""
    for name, facts in (("gpu", {"memory_bytes": 80}), ("cpu", {"cores": 2})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "environment.json").write_text(json.dumps(facts, indent=1))
    asked = ["make", "-n", "leaderboard-page", f"REFERENCE={tmp_path}"]
    said = subprocess.run(asked, cwd=HOUSE, capture_output=True, text=True, check=True).stdout
    assert f"measured.csv.gz {tmp_path}/gpu/leaderboard.csv --pictures" in said
    assert "cpu/leaderboard.csv" not in said


def test_the_front_table() -> None:
    """As many names as fit, whoever they are; numbers as on the page."""
    lines = front_table(board(ROWS)).splitlines()
    assert lines[2] == (
        "| convolutional | 0.7 | 1 | `anytime` (ours), `dtr` (of 1) | +0.0 % (of 1) "
        "| `dtr` (of 1) | +0.0 % (of 1) | – |"
    )
    assert lines[5] == (
        "| U-shaped | 0.5 | 1 | `anytime` (ours) (of 1) | +20.0 % (of 1) | none (of 1) | – | – |"
    )
    whole = [entry(f"net{i}", 0.7, "dtr", 110.0) for i in range(4)]
    assert front_table(board(whole)).splitlines()[2] == (
        "| other | 0.7 | 4 | `dtr` | +10.0 % | `dtr` | +10.0 % | – |"
    )


def test_the_small_table() -> None:
    """A line per family; a dash where nobody was asked, or nobody has a plan in a second."""
    head, _, *lines = small_table(board(ROWS)).splitlines()
    assert head.count("after a second") == 3
    assert lines[0].startswith(
        "| convolutional | +0.0 % `anytime` and 1 more (of 1) | +0.0 % `dtr` (of 1)"
    )
    assert lines[-2].startswith("| U-shaped | ")
    assert lines[-2].endswith("| +20.0 % `anytime` (of 1) | – | – | – |")
    assert lines[-1].startswith("| all kinds | ")


def test_the_document() -> None:
    text = document(ROWS, MEASURED, "rows.csv.gz")
    assert "- The field has 4 problems.  \n  `problems.shape[0]`" in text
    few = "(of 2, on 1 network)"
    assert (
        f"| convolutional | 50 % (1 of 2, on 1 network) | 1.9 % {few} | 3.8 % {few} "
        f"| 1.9 % {few} | 3.8 % {few} |" in text
    )
    answer = text.index("| kind of network")
    assert text[:answer].count("\n\n") == 3  # a title, a sentence, a heading
    assert answer < text.index("Networks, 2 of them") < text.index("![Share")
    assert "A planner was given 20 s." in text
    assert "Only the last tables have measured times, of an unnamed device." in text
    assert "Over 1 problems the rank correlation" in text
    assert "| 3 | 0.50 | – | `a` | +20 % | +15 % | – | 1.0 % |" in text
    assert "survive" not in document(ROWS, (), "rows.csv.gz")


def test_joint_plans_and_who_sees_no_workspaces_stand_beside_the_winners() -> None:
    others = {"anytime_joint": 90.0, "gist": 80.0, "checkmate_d": 99.0}
    rows = [*ROWS, *(entry("resnet50", 0.7, *each) for each in others.items())]
    line = tables.winners(board(rows)).set_index(["family", "fraction"]).loc[("CNN", 0.7)]
    assert line["best"] == "anytime, dtr"
    assert line["joint_overhead"] == pytest.approx(-0.1)


def accelerators() -> list[Path]:
    """Rows of the suite that are committed, of other devices than CPUs."""
    found = sorted((HOUSE / "runs/reference").glob("*/environment.json"))
    return [
        path.with_name("leaderboard.csv")
        for path in found
        if "memory_bytes" in json.loads(path.read_text())
    ]


@pytest.mark.parametrize(
    ("page", "places", "executed", "title"),
    [
        ("leaderboard", PARTS, f"{FOLDER}/measured.csv.gz", "The leaderboard"),
        ("leaderboard-quick", QUICK, None, "The leaderboard's quick profile"),
    ],
)
def test_pages_say_what_the_committed_rows_say(
    page: str, places: str, executed: str | None, title: str
) -> None:
    """README and docs are made from them again; the full profile's rows are asked for."""
    lacking = places == PARTS
    rows = committed(places)
    measured = collect([HOUSE / executed, *accelerators()]).rows if executed else ()
    text = (HOUSE / f"docs/{page}.md").read_text()
    assert text == document(rows, measured, places, title, lacking=lacking)
    field = board(rows, lacking=lacking)
    assert not [note for note in field.notes if "proven possible" in note or "failed" in note]
    if executed:
        text = (HOUSE / "README.md").read_text()
        assert small_table(field) in text
        networks = field.problems["model"].nunique()
        assert f"{len(field.problems)} problems: {networks} networks" in " ".join(text.split())


def test_budgets_below_what_gradients_computed_once_need() -> None:
    """One problem of three without a plan: below the floor; of another, no floor is known."""
    floor = {"extra": {"once_floor_bytes": 60}}
    field = board(
        [
            *ROWS[:1],
            entry("unet", 0.3, "dtr", None, budget_bytes=50, **floor),
            entry("unet", 0.4, "dtr", None),
        ]
    )
    assert [finding.number(field) for finding in FINDINGS if "no strategy" in finding.text] == [
        pytest.approx(2 / 3)
    ]
    assert [finding.number(field) for finding in FINDINGS if "twice" in finding.text] == [1.0]
    assert field.problems["below"].tolist()[1] == 1.0
    assert not any("twice" in text for text, _ in sentences(board(ROWS)))


def facts(*incumbents: tuple[float, float | None, float], **known: Any) -> dict[str, Any]:
    return {"incumbents": [list(each) for each in incumbents], **known}


GOES_ON = (
    # Better and better: 130 at once, 110 after 5 s, 100 after 15 s of 20.
    entry(
        "vgg16",
        0.7,
        "ours",
        100.0,
        plan_seconds=20.0,
        extra=facts((0.5, 130.0, 90.0), (0.7, None, 95.0), (5.0, 110.0, 95.0), (15.0, 100.0, 95.0)),
    ),
    entry("vgg16", 0.7, "quick", 120.0),
    # Stopped by a limit of 3 s: nobody knows what it had after five.
    entry("vgg16", 0.7, "short", 115.0, plan_seconds=3.0, extra={"time_limit": 3.0}),
    # Nothing for a second; and what is blind tells of costs that are not its row's.
    entry("vgg16", 0.7, "late", 105.0, plan_seconds=2.0),
    entry("vgg16", 0.7, "broken", None, plan_seconds=2.0, extra=facts((0.1, 90.0, 80.0))),
    entry("vgg16", 0.7, "chains", None, status="not_applicable"),
)


def test_what_a_planner_had_by_when() -> None:
    field = board(GOES_ON)
    lines = field.entries.set_index("strategy")
    assert lines.loc["ours", ["ratio_1", "ratio_5", "ratio_20"]].tolist() == [1.3, 1.1, 1.0]
    assert lines.loc["quick", "ratio_20"] == 1.2  # it was done
    assert lines.loc["late", ["ratio_1", "ratio_5"]].tolist() == [np.inf, 1.05]
    assert lines.loc["broken", ["ratio_1", "ratio_20"]].tolist() == [np.inf, np.inf]
    assert lines.loc["short", "ratio_1"] == np.inf
    assert lines.loc["short", ["ratio_5", "ratio_20"]].isna().all()  # it was given 3
    assert lines["soon"].to_dict() == {
        **{"ours": 15.0, "quick": np.inf, "short": np.inf},
        **{"late": np.inf, "broken": np.inf, "chains": np.inf},
    }
    (line,) = tables.winners(field).to_dict("records")
    assert (line["best"], line["quick"]) == ("ours", "quick")
    assert line["quick_overhead"] == pytest.approx(0.2)
    shares = tables.summary(field).loc["ours"]
    assert [shares[f"within_1{at}"].count for at in ("", "_at_1", "_at_5", "_at_20")] == [
        1,
        0,
        0,
        1,
    ]
    assert str(tables.summary(field).loc["short", "within_1_at_20"]) == "–"
    _, data = time_picture(field)
    assert (data["ours"].iloc[0], data["ours"].iloc[-1]) == (0.0, 1.0)
    assert 15.0 < data.index[-1] < 22.0  # the longest run took 20


def test_where_nobody_has_a_plan_nobody_is_close_to_the_best() -> None:
    rows = [entry("unet", 0.1, "ours", None, plan_seconds=20.0), entry("unet", 0.7, "ours", 110.0)]
    assert board(rows).entries["soon"].tolist() == [np.inf, 0.1]


def test_who_is_not_asked_does_not_fail() -> None:
    summary = tables.summary(board(GOES_ON))
    assert summary.loc["chains", ["problems", "applicable"]].tolist() == [1, CountOf(0, 1, 1)]
    assert str(summary.loc["chains", "solved"]) == "–"
    assert str(summary.loc["chains", "solved_all"]) == "0 % (0 of 1, on 1 network)"
    assert summary.loc["broken", "solved"] == CountOf(0, 1, 1)


def many(strategy: str, *costs: float | None) -> list[Row]:
    """A strategy on so many networks."""
    return [entry(f"net{i}", 0.7, strategy, cost) for i, cost in enumerate(costs)]


FIVE = [
    *many("one", 100.0, 100.0, 100.0, 100.0, 200.0),
    *many("two", 110.0, 110.0, 100.005, 90.0, None),
    *many("bad", 105.0, None, None, None, None),
]


def test_medians_are_of_the_same_problems() -> None:
    """The fifth network, which is dear, would reward who fails on it."""
    field = board(FIVE)
    found = sorted(problem[:4] for problem in tables.common(field))
    assert found == ["net0", "net1", "net2", "net3"]
    summary = tables.summary(field)
    assert summary.loc["one", "overhead"] == pytest.approx(0.0)
    assert summary.loc["two", "overhead"] == pytest.approx(0.050025)
    assert np.isnan(summary.loc["bad", "overhead"])


def test_two_by_two() -> None:
    found = paired(board(FIVE)).set_index("strategy")
    two = found.loc["two"]
    assert two[["problems", "networks", "cheaper", "equal", "dearer"]].tolist() == [4, 4, 1, 1, 2]
    assert two["cost"] == pytest.approx((1.1 * 1.1 * 1.00005 * 0.9) ** 0.25)
    # Four of the four networks (1.1, 1.1, 1.00005, 0.9), 2,000 times. Of the 256 draws, all as
    # likely, 1 has 0.9 four times and 4 have it three times beside 1.00005: 2.0 %. The next 8,
    # three times beside 1.1, go to 5.1 %: the 2.5 % quantile. 16 are of 1.1 alone, 6.3 %: the
    # 97.5 % one.
    assert two["low"] == pytest.approx((0.9**3 * 1.1) ** 0.25)
    assert two["high"] == pytest.approx(1.1)
    assert np.isnan(found.loc["bad", "low"])  # of one network


def test_gaps_by_budget() -> None:
    bounds = {0.9: 100.0, 0.2: 80.0}
    rows = [entry("a", at, "one", 100.0, bound=b, bound_of="any") for at, b in bounds.items()]
    found = tables.gaps_by_budget(board(rows)).set_index("budget")
    assert list(found.index) == ["0.85 and more", "below 0.3"]
    assert found["proven"].tolist() == [CountOf(1, 1, 1), CountOf(0, 1, 1)]
    assert found.loc["below 0.3", "median"] == pytest.approx(0.2)


@pytest.mark.parametrize("key", PROVENANCE)
def test_rows_that_lack_provenance_are_not_read(key: str) -> None:
    """But where they are asked for; and the page says at its head how many there are."""
    whole, other = entry("a", 0.7, "one", 100.0), entry("a", 0.7, "two", 110.0)
    assert board([whole, other]).notes == ()
    bare = other | {"extra": {k: v for k, v in other["extra"].items() if k != key}}
    bare |= {"threads": None} if key == "threads" else {}
    field = board([whole, bare])
    assert field.strategies == ["one"]
    text = f"1 of 2 rows do not say what they were made with ({key} (1)); they are left out"
    assert field.notes == (text,)
    assert board([whole, bare], lacking=True).strategies == ["one", "two"]
    texts = [document([whole, bare], (), "rows.csv.gz", lacking=each) for each in (False, True)]
    heads = [text[: text.index("| kind of network")] for text in texts]
    assert "**1 of 2 rows are left out: they do not say what they were made with.**" in heads[0]
    assert "**Read with care: 1 of 2 rows do not say what they were made with.**" in heads[1]
    assert ["--lacking --html" in text for text in texts] == [False, True]
    assert "Read with care" not in document([whole, other], (), "rows.csv.gz")


def test_rows_that_all_lack_provenance_make_a_page_that_says_so(tmp_path: Path) -> None:
    bare = entry("a", 0.7, "one", None) | {"extra": {}}
    with pytest.raises(ConfigError, match=r"machine \(1\), time_limit \(1\)\).*--lacking"):
        board([bare])
    written = write_leaderboard_pages([bare], tmp_path, "modelled")
    assert written == [tmp_path / "leaderboard.html"]
    text = written[0].read_text()
    assert (
        "<strong>1 of 1 rows are left out: they do not say what they were made with.</strong>"
        in text
    )
    assert "<table" not in text
    assert board([bare], lacking=True).strategies == ["one"]  # without a plan it has no order


def test_plans_that_ran_are_read_by_the_same_rule() -> None:
    bare = [row | {"threads": None} for row in MEASURED[:4]]
    assert "survive" not in document(ROWS, bare, "rows.csv.gz")
    text = document(ROWS, bare, "rows.csv.gz", lacking=True)
    assert (
        "**Read with care:** 4 of 4 rows do not say what they were made with (threads (4))" in text
    )


def test_the_processors_seconds_say_what_a_planner_had() -> None:
    """Beside other work it takes longer by the wall clock; its incumbents are in CPU seconds."""
    cpu = facts((0.4, 104.0, 90.0), plan_cpu_seconds=0.9)
    busy = entry("unet", 0.7, "ours", 100.0, plan_seconds=3.0, extra=cpu)
    lines = board([busy, entry("unet", 0.7, "dtr", 110.0)]).entries.set_index("strategy")
    assert lines.loc["ours", ["seconds", "ratio_1", "soon"]].tolist() == [0.9, 1.0, 0.9]
    wall = [busy | {"threads": 2}, busy | {"strategy": "moccasin"}]
    for row in wall:
        (line,) = board([row]).entries.to_dict("records")
        assert (line["seconds"], line["ratio_1"]) == (3.0, 1.04)


def test_an_unknown_limit_says_nothing_of_later() -> None:
    """Of a row without one, nobody knows whether it was done or cut short."""
    quick = entry("unet", 0.7, "dtr", 100.0)
    slow = entry("unet", 0.7, "ours", 101.0, plan_seconds=20.0, extra=facts((0.5, 102.0, 90.0)))
    rows = [quick, slow]
    for row in rows:
        del row["extra"]["time_limit"]
    lines = board(rows, lacking=True).entries.set_index("strategy")
    assert lines["ratio_1"].to_dict() == {"dtr": 1.0, "ours": 1.02}
    assert lines[["ratio_5", "ratio_20"]].isna().all(axis=None)
    free = board([entry("unet", 0.7, "dtr", 100.0, extra={"time_limit": None})])
    assert free.entries["ratio_20"].tolist() == [1.0]  # none was set: it was done


def test_after_twenty_seconds() -> None:
    """Who had one, or was done before; no share of the easy problems alone."""
    ten = {"time_limit": 10.0}
    cut = [
        entry(f"n{i}", 0.7, "cut", 100.0, plan_seconds=seconds, extra=ten)
        for i, seconds in enumerate((10.0, 2.0))
    ]
    done = [entry(f"n{i}", 0.7, "done", 100.0, plan_seconds=2.0) for i in range(2)]
    late = facts((15.0, 100.5, 90.0), (59.0, 100.0, 95.0), time_limit=60.0)
    given = entry("n0", 0.7, "given", 100.0, plan_seconds=60.0, extra=late)
    found = tables.summary(board([*cut, *done, given]))["within_1_at_20"].map(str)
    assert found.to_dict() == {
        "cut": "–",
        "done": "100 % (2 of 2, on 2 networks)",
        "given": "100 % (1 of 1, on 1 network)",
    }
    head = next(line for line in document([given], (), "r.csv.gz").splitlines() if "20 s |" in line)
    assert "| after 1 s | after 5 s | after 20 s |" in head


def test_who_chooses_other_ops_has_no_share_and_its_place_by_its_plans() -> None:
    others = [entry("resnet50", at, "anytime_joint", 90.0) for at in (0.7, 0.5)]
    others += [entry("unet", 0.7, "anytime_joint", 90.0), entry("unet", 0.7, "a_few", 150.0)]
    field = board([*ROWS, *others])
    line = tables.summary(field).loc["anytime_joint"]
    assert line["solved"] == CountOf(3, 3, 2)
    assert all(line[key] is None for key in tables.QUALITY)
    # Three best plans; one each, and two plans; none, and three plans; none, and one.
    assert field.strategies == ["anytime", "ap_sqrt", "dtr", "anytime_joint", "a_few"]
    assert "anytime_joint" not in profile_picture(field)[1]
    text = document([*ROWS, *others], (), "rows.csv.gz")
    (shown,) = [x for x in text.splitlines() if x.startswith("| `anytime_joint` (ours) | 3 of 3 |")]
    assert shown.count("| – ") == 7


def test_rows_of_our_search_credit_no_published_method_with_our_search() -> None:
    names = ["moccasin+anytime", "rockmate+anytime", "dtr", "moccasin"]
    named = [entry("unet", 0.7, name, 100.0 + (name == "moccasin")) for name in names]
    field = board(named)
    assert field.entries["ours"].tolist() == [True, True, False, False]
    assert any("`moccasin`, 1 of them, were made when our search" in note for note in field.notes)
    text = document(named, (), "rows.csv.gz")
    assert "| `moccasin+anytime` (our search) |" in text
    assert "| `moccasin` |" in text
    assert label("checkmate_o", "`") == "`checkmate_o` (our search)"


def test_the_committed_rows_credit_no_published_method_with_our_search() -> None:
    rows = committed(PARTS)
    published = [row for row in rows if row["strategy"] in ("moccasin", "rockmate")]
    assert len(published) == 2 * 230
    assert all("machine" in row["extra"] for row in published)
    measured = collect([HOUSE / f"{FOLDER}/measured.csv.gz"]).rows  # of today's code, as published
    assert {row["strategy"] for row in measured} & {"rockmate", "rockmate+anytime"} == {"rockmate"}
    assert not {row["strategy"] for row in rows} & {"moccasin+anytime", "rockmate+anytime"}
    text = (HOUSE / "docs/leaderboard.md").read_text()
    for name in ("checkmate_d", "checkmate_o"):
        stands = [
            line for line in text.splitlines() if line.startswith("|") and f"`{name}`" in line
        ]
        assert stands
        assert all(f"`{name}` (our search)" in line for line in stands)


def test_readmes_table_is_made_in_its_place() -> None:
    table = small_table(board(ROWS))
    text = f"before\n\n{table}\n\n| other | table |\n"
    dtr = small_table(board(ROWS[1:2]))
    assert with_table(text, dtr) == text.replace(table, dtr)
    with pytest.raises(ConfigError, match="README: 0 tables"):
        with_table("none", table)


ONCE = (
    *("chen_sqrt", "chen_greedy", "ap_sqrt", "ap_greedy", "linearized_sqrt", "linearized_greedy"),
    *("every_layer", "every_n_layers", "selective_ops", "selective_attention", "save_dots"),
    *("torch_budget", "torch_knapsack", "torch_checkpoint", "torch_selective", "sac_ilp"),
    *("kusumoto", "feng_huang", "random_checkpoints"),
)
"""Keep some values, and compute each of the others once more, in the backward pass: their plans are
in F, and so in (9), and compute no op more than twice."""
IN_SPACE = {
    "F": ONCE,
    "C": (*ONCE, "moccasin"),
    "9": (*ONCE, "moccasin", "checkmate_ilp", "checkmate_rounding"),
}


def bounds_of(row: Row) -> dict[str, float]:
    """What a row proves, by space."""
    found = dict(row["extra"].get("bounds", {}))
    if row["bound"]:
        space = known(row["bound_of"])
        found[space] = max(row["bound"], found.get(space, 0.0))
    return {space: bound for space, bound in found.items() if bound}


def is_in(row: Row, space: str, by: Row) -> bool:
    """Is a row's plan one that a bound of another row holds for?"""
    if space != "any":
        return row["strategy"] in IN_SPACE[space]
    if not row["extra"]["in_program_order"] or row["strategy"] == "gist":
        return False
    return row["strategy"] not in OTHER_OPS or by["strategy"] == "anytime_joint"


def test_no_plan_of_the_quick_profile_is_below_a_bound() -> None:
    """Of any strategy, by any other's bound of a space that it is in, but for rounding."""
    rows = collect([HOUSE / QUICK]).rows
    plans = [row for row in rows if row["status"] == "ok"]
    compared: Counter[str] = Counter()
    for by in rows:
        for space, bound in bounds_of(by).items():
            for row in plans:
                if problem(row) == problem(by) and is_in(row, space, by):
                    compared[space] += 1
                    assert known(row["cost"]) >= bound * (1 - ROUNDING), (by, row)
    assert set(compared) == {space for by in rows for space in bounds_of(by)}
    assert all(compared[space] > 100 for space in ("any", "F"))


def test_the_interval_of_what_was_measured_stands_beside_it() -> None:
    def with_interval(row: Row, low: float, high: float) -> Row:
        return row | {"extra": row["extra"] | {"measured_overhead_interval": [low, high]}}

    rows = [
        with_interval(MEASURED[0], 0.18, 0.22),
        with_interval(MEASURED[1], 0.14, 0.16),
        with_interval(MEASURED[2], 0.35, 0.41),
        *MEASURED[3:],
    ]
    (line,) = survival(rows).to_dict("records")
    assert line["half_width"] == pytest.approx(0.02)
    assert "± 2.0" in document(rows, rows, "rows", "A page")
    assert survival(MEASURED)["half_width"].isna().all()


@pytest.mark.parametrize("places", [PARTS, QUICK])
def test_no_two_curves_of_a_picture_share_a_colour(places: str) -> None:
    """Nor have they colours that are hard to tell apart."""
    field = board(committed(places), lacking=True)
    for picture in (profile_picture, time_picture):
        figure, _ = picture(field)
        inks = [np.array(to_rgb(line.get_color())) for line in figure.axes[0].lines]
        assert len(inks) > 5
        near = min(np.abs(a - b).sum() for i, a in enumerate(inks) for b in inks[:i])
        assert near > 0.2


def test_other_work_on_the_machine_changes_no_winner() -> None:
    """The quick profile on idle cores, and beside two busy loops: limits are in CPU seconds.

    Lines on four networks or more count, as the page has it; they are those of all kinds.
    """
    idle, busy = (
        tables.winners(board(collect([HOUSE / FOLDER / name]).rows)).query("networks >= 4")
        for name in ("quick.csv.gz", "quick-busy.csv.gz")
    )
    assert set(idle["family"]) == {tables.ALL}
    assert len(idle) >= 2
    for column in ("family", "fraction", "best", "quick"):
        assert idle[column].tolist() == busy[column].tolist()


def test_no_planner_of_the_quick_profile_overran_its_limit() -> None:
    """By more than a second of the processor; and threads=1 is one thread."""
    for name in ("quick.csv.gz", "quick-busy.csv.gz"):
        for row in collect([HOUSE / FOLDER / name]).rows:
            cpu, wall = row["extra"].get("plan_cpu_seconds"), row["plan_seconds"]
            if cpu is None or row["strategy"] == "moccasin":  # by the clock: it waits for CP-SAT
                assert wall is None or wall <= row["extra"]["time_limit"] + 1
                continue
            assert cpu <= row["extra"]["time_limit"] + 1
            assert row["threads"] == 1
            assert "threads_used" not in row["extra"]


def test_the_plan_below_the_bound_is_not_in_program_order() -> None:
    """swin_b at 0.9: XLA's pass puts an op off; a bound of plans in program order is none of it."""
    rows = collect([HOUSE / FOLDER / "full-31.csv.gz"]).rows
    mine = {r["strategy"]: r for r in rows if r["budget_fraction"] == 0.9 and r["status"] == "ok"}
    bound = mine["anytime"]["bound"]
    assert mine["anytime"]["bound_of"] == "any"
    assert mine["xla_remat"]["cost"] < bound <= mine["anytime"]["cost"]
    assert mine["xla_remat"]["extra"]["in_program_order"] is False


def test_plans_of_another_graph_are_no_history() -> None:
    """What a planner told on the way must end with its row's own cost."""
    made = {"extra": {"time_limit": 9.0, "incumbents": [[0.5, 120.0, 0.0]]}, "plan_seconds": 8.0}
    rows = [entry("unet", 0.7, name, 110.0, **made) for name in ("checkmate_o", "rockmate")]
    made["extra"] = {"time_limit": 9.0, "incumbents": [[0.5, 110.0, 0.0]]}
    rows[1] = entry("unet", 0.7, "rockmate", 110.0, **made)
    found = board(rows, lacking=True).entries.set_index("strategy")
    assert np.isinf(found.loc["checkmate_o", "overhead_1"])
    assert found.loc["rockmate", "overhead_1"] == pytest.approx(0.1)


def test_what_an_earlier_job_prepared_is_no_plan_made_in_no_time() -> None:
    made = {"extra": {"time_limit": 3.0, "incumbents": [[0.001, 110.0, 0.0]]}, "plan_seconds": 2.0}
    rows = [entry("unet", 0.7, name, 110.0, **made) for name in ("torch_knapsack", "rockmate")]
    found = board(rows, lacking=True).entries.set_index("strategy")
    assert np.isinf(found.loc["torch_knapsack", "overhead_1"])
    assert found.loc["rockmate", "overhead_1"] == pytest.approx(0.1)
