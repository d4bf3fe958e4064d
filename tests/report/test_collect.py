"""What a report is drawn from, when a results folder holds all kinds of things."""

from __future__ import annotations

import codecs
import gzip
import json
import sys
from pathlib import Path

import pytest

from rematbench.base.errors import ConfigError
from rematbench.report.app import main
from rematbench.report.collect import collect
from rematbench.rows.extra import GROUPS
from rematbench.rows.row import Row, make_row, write_leaderboard, write_row
from rematbench.strategies.registry import facts


def row(**known: object) -> Row:
    plain = {"model": "vgg16", "strategy": "ap_sqrt", "status": "ok", "costmodel": "roofline"}
    plain |= {"budget_fraction": 0.5, "budget_bytes": 50, "cost": 11.0, "overhead": 0.1}
    return make_row(**plain | {"checkpoint_all_cost": 10.0, "plan_seconds": 0.5} | known)


def write(folder: Path, made: object) -> None:
    folder.mkdir(parents=True)
    (folder / "row.json").write_text(made if isinstance(made, str) else json.dumps(made))


BAD = {
    "truncated": (json.dumps(row())[:200], "not valid JSON"),
    "empty": ("", "not valid JSON"),
    "nan": (json.dumps(row(cost=float("nan"))), "NaN"),
    "list": ("[1]", "no JSON object"),
    "lacking": ({"model": "a", "status": "ok"}, "lacks batch_size, resolution, graph_hash and"),
    "unknown": (row() | {"novel": 1}, "another version (unknown: novel)"),
    "status": (row(status="fine"), "status is 'fine'"),
    "text": (row(overhead="much"), "overhead is 'much'; it must be a number"),
    "flag": (row(cost=True), "cost is 'True'"),
    "infinite": (json.dumps(row(cost=0.25)).replace("0.25", "1e999"), "cost is inf; it must be"),
    "too large": (row(peak_bytes=10**400), "it must be finite"),
    "infinite within": (json.dumps(row(extra={"curve": [0.25]})).replace("0.25", "1e999"), "extra"),
    "no flag": (row(gradient_bitwise=3), "gradient_bitwise is '3'; it must be true, false"),
    "table": (row(model=["a"]), "model is a list"),
    "a number as model": (row(model=7), "model is '7'; it must be text"),
    "a list": (row(extra={"length": [1, 2]}), "extra.length is '[1, 2]'; it must be a number"),
    "a pair of one": (row(extra={"measured_overhead_interval": [1]}), "must be a list of 2"),
    "no triple": (row(extra={"incumbents": [[1, 2]]}), "a list, each a list of 3"),
    "a share of nothing": (row(budget_bytes=None), "budget_fraction is set and budget_bytes is"),
    "a floor and no bytes": (
        row(status="infeasible", budget_bytes=None, extra={"once_floor_bytes": 5}),
        "budget_bytes is null",
    ),
    "a cost below 0": (row(cost=-11.0, overhead=-2.1), "cost is -11.0; it must not be below 0"),
    "another overhead": (
        row(overhead=0.2),
        "overhead is 0.2; it must be cost / checkpoint_all_cost - 1, 0.1",
    ),
    "above its budget": (row(peak_bytes=51), "peak_bytes is 51; it must not be above budget_bytes"),
    "another gap": (row(bound=9.9, gap=0.2), "gap is 0.2; it must be (cost - bound) / cost, 0.1"),
    "a gap of nothing": (
        row(cost=0, overhead=-1, bound=0.0, gap=0.5),
        "gap is 0.5; it must be (cost - bound) / cost, 0",
    ),
    "a bound above the cost": (row(bound=11.1), "bound is 11.1; it must not be above the cost"),
    "half a byte": (row(peak_bytes=40.5), "peak_bytes is 40.5; it must be a whole number or null"),
    "half a character": (row(model="x\ud800"), "lone surrogate"),
    "extra": (row(extra=None), "extra is no JSON object"),
}


ALIKE: dict[str, dict[str, object]] = {
    "a bound by rounding above": {"bound": 11.000000000000002, "gap": 0.0},
    "ten digits": {"cost": 13.0 / 3, "overhead": -0.5666666667, "bound": 4.3, "gap": 0.00769230769},
    "a large overhead": {"cost": 10.0e9 / 7, "overhead": 142857141.9},
    "no limit": {"budget_bytes": None, "budget_fraction": None, "peak_bytes": 51},
    "just the budget, as a float": {"peak_bytes": 50.0},
    "nothing costs anything": {"cost": 0, "checkpoint_all_cost": 0, "overhead": None, "gap": None},
    "a bound of nothing": {"cost": 0, "overhead": -1, "bound": 0, "gap": 0},
    "an overhead alone": {"cost": None, "checkpoint_all_cost": None},
    "a peak that failed": {"status": "infeasible", "cost": None, "peak_bytes": 51},
    "a plan that failed": {"status": "time_limit", "peak_bytes": 51, "overhead": 0.2},
}
"""Rows whose numbers agree, rounding aside, or are not held against each other."""


OTHERS: dict[str, object] = {
    **{"list": [1], "object": {"a": 1}, "number": 7, "text": "x", "true": True}
}
KEYS = {key for group in (*GROUPS, *facts()) for key in group.__annotations__}
"""Of every strategy, too."""
BOTH = {"checkpoint_vertices", "relaxation_costs"}
"""Keys of two kinds, or of any."""
ENDED_THE_REPORT: list[tuple[str, object]] = [
    *(("accounting", ["full"]), ("accounting", {"full": 1}), ("preset", ["h100"])),
    *(("options", 7), ("options", ["a"]), ("measured_overhead_interval", 0.1)),
    *(("lengths", 7), ("incumbents", [1]), ("bounds", 7), ("time_limit", "long")),
]


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_is_named_and_the_rest_is_there(tmp_path: Path, name: str) -> None:
    made, said = BAD[name]
    write(tmp_path / "good", row())
    write(tmp_path / "bad", made)
    found = collect([tmp_path])
    assert found.rows == [row()]
    (problem,) = found.problems
    assert problem.path == tmp_path / "bad" / "row.json"
    assert said in problem.reason


@pytest.mark.parametrize("name", ALIKE)
def test_rows_whose_numbers_agree_are_sound(tmp_path: Path, name: str) -> None:
    made = row(**ALIKE[name])
    write(tmp_path / "good", made)
    found = collect([tmp_path])
    assert (found.rows, found.problems) == ([made], ())


@pytest.mark.parametrize("what", OTHERS)
def test_every_key_of_extra_is_held_against_its_type(tmp_path: Path, what: str) -> None:
    """What has another type is named; what is left is what the type says."""
    write(tmp_path / "good", row())
    for seed, key in enumerate(KEYS):
        write(tmp_path / key, row(seed=seed, extra={key: OTHERS[what]}))
    found = collect([tmp_path])
    named = {problem.path.parent.name for problem in found.problems}
    kept = {key for made in found.rows for key in made["extra"]}
    assert named | kept == KEYS
    assert all(f"extra.{p.path.parent.name} is" in p.reason for p in found.problems)
    right = {
        "list": {"branches", "lengths", "checkpoint_vertices", "relaxation_costs"},
        "object": {
            *("options", "memory", "rounding", "native", "lowered", "checkpointed", "max_batch"),
            *("paper_setting", "ways", "sparsity", "discarded", "bounds", "dtr_at_addresses"),
            *("fit", "relaxation_costs", "link", "waiting", "measured_link", "strategy_options"),
            "measured_waiting",
        },
        "true": {
            *(
                "cached",
                "bad_config",
                "stopped",
                "master_weights",
                "in_program_order",
                "lossy",
                "states_cut",
            ),
            *("steady_allocator", "measurement_reused", "interrupted", "costs_rounded", "proven"),
            *("staleness", "size", "trace_omitted", "operators", "relaxation_costs"),
        },
    }
    if what in right:
        assert kept == right[what]
    else:
        assert kept > {"number": {"slots", "time_limit"}, "text": {"preset", "machine"}}[what]
        assert not kept & {*right["list"], *right["object"], *right["true"]} - BOTH


def test_the_keys_of_an_object_are_held_against_their_types(tmp_path: Path) -> None:
    write(tmp_path / "good", row(extra={"lowered": {"aot": {"status": "ok", "reason": None}}}))
    write(tmp_path / "bad", row(extra={"lowered": {"aot": {"measured_seconds": "long"}}}))
    found = collect([tmp_path])
    assert [p.reason.partition(" is ")[0] for p in found.problems] == ["extra.lowered"]
    assert len(found.rows) == 1


def test_bad_rows_take_no_page_with_them(tmp_path: Path, monkeypatch, capsys) -> None:
    """Each was once the end of the whole report."""
    write(tmp_path / "runs" / "good", row())
    for i, (key, value) in enumerate(ENDED_THE_REPORT):
        write(tmp_path / "runs" / f"bad{i}", row(extra={key: value}))
    write(tmp_path / "runs" / "bad", row(budget_bytes=None, extra={"once_floor_bytes": 3}))
    for flags in ([], ["--leaderboard"], ["--all"], ["--figure", "overhead"]):
        out = tmp_path / "-".join(["out", *flags])
        monkeypatch.setattr(
            sys, "argv", ["rematbench-report", str(tmp_path / "runs"), *flags, "--out", str(out)]
        )
        main()
        text = capsys.readouterr().err
        for key, _ in ENDED_THE_REPORT:
            assert f": extra.{key} is " in text
        assert "bad/row.json: budget_fraction is set and budget_bytes is null" in text
        assert "vgg16" in (out / "index.html").read_text()
        assert (out / "leaderboard.csv").read_text().count("\n") == 2
    assert (out / "overhead.png").exists()


def test_one_figure_that_lacks_something_is_one_figure(tmp_path: Path, monkeypatch, capsys) -> None:
    """What a key holds inside is no column: a figure says so, and the next one is drawn."""
    write(tmp_path / "runs" / "1", row())
    write(
        tmp_path / "runs" / "2",
        row(seed=2, extra={"experiment": "checkmate_fig6", "max_batch": {"a": 1}}),
    )
    write(tmp_path / "runs" / "3", row(seed=3, strategy="b", cost=0.0, overhead=None))
    command = ["rematbench-report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", [*command, "--all", "--leaderboard"])
    main()
    text = capsys.readouterr().err
    assert "figure checkmate_fig6: a row of its experiment lacks what it shows" in text
    assert "1 ok rows have no cost or no overhead, and are not on the leaderboard" in text
    assert (tmp_path / "out" / "overhead.png").exists()


def test_a_repeated_row_is_there_once(tmp_path: Path) -> None:
    write(tmp_path / "1", row())
    write(
        tmp_path / "2", row(extra={"cached": True})
    )  # from the cache, as sweeps that share jobs do
    write(tmp_path / "3", row())  # copied by hand
    write(tmp_path / "10", row(seed=1))
    found = collect([tmp_path, tmp_path / "10" / "row.json"])
    assert [r["seed"] for r in found.rows] == [None, 1]
    assert [str(p) for p in found.problems] == [
        f"{tmp_path}/3/row.json: the same row as {tmp_path}/1/row.json",
        f"{tmp_path}/10/row.json: the same row as {tmp_path}/10/row.json",
    ]


def test_two_jobs_that_failed_alike_are_two(tmp_path: Path) -> None:
    for name in ("1", "2"):
        write(tmp_path / name, row(status="failed", extra={"bad_config": True}))
    found = collect([tmp_path])
    assert len({record.id for record in found.records}) == 2
    assert not found.problems


def test_rows_of_another_version_stay_out(tmp_path: Path) -> None:
    versions = ["rematbench 0.1.0; torch 2", "rematbench 0.2.0", "python 3; rematbench 0.2.0", None]
    for i, version in enumerate(versions):
        write(tmp_path / str(i), row(versions=version, seed=i))
    found = collect([tmp_path])
    assert [r["seed"] for r in found.rows] == [1, 2, 3]  # those that do not tell theirs as well
    assert "of rematbench 0.1.0, most rows are of 0.2.0" in str(found.problems[0])


def test_foreign_files_and_folders_without_rows(tmp_path: Path) -> None:
    write(tmp_path / "runs" / "1", row())
    (tmp_path / "empty").mkdir()
    (tmp_path / "runs" / "theirs.csv").write_text("a,b\n1,2\n")
    (tmp_path / "runs" / "1" / "trace.csv").write_text("")
    for ending in ("csv", "png"):
        (tmp_path / "runs" / f"overhead.{ending}").write_text("")  # a figure of ours
    (tmp_path / "runs" / "report").mkdir()
    for name in ("index.html", "leaderboard.csv", "table2.csv"):
        (tmp_path / "runs" / "report" / name).write_text("")
    found = collect([tmp_path / "runs", tmp_path / "empty", tmp_path / "runs" / "theirs.csv"])
    assert len(found.rows) == 1
    assert [str(p) for p in found.problems] == [
        f"{tmp_path}/runs/theirs.csv: not a file of a run, not read",
        f"{tmp_path}/empty: holds no row.json; give a run or sweep folder",
        f"{tmp_path}/runs/theirs.csv: not a leaderboard of this program (its columns differ)",
    ]


def test_a_leaderboard_gives_its_rows_back(tmp_path: Path) -> None:
    rows = [
        row(resolution="224", batch_size=8, cost=10.5, overhead=0.05, extra={"lengths": [1, 2]}),
        row(status="failed", reason="no, 'really'\nnot", gradient_bitwise=False),
    ]
    path = tmp_path / "leaderboard.csv"
    write_leaderboard(path, rows)
    assert collect([path]).rows == rows
    path.write_text(path.read_text() + "half,a,line\n")
    found = collect([path])
    assert found.rows == rows
    assert "has 3 cells of 41" in str(found.problems[0])
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read as CSV"):
        collect([path])


@pytest.mark.parametrize("packed", [False, True])
def test_a_leaderboard_that_excel_saved(tmp_path: Path, packed: bool) -> None:
    """A byte order mark comes first, and lines end as on Windows."""
    plain, saved = tmp_path / "plain.csv", tmp_path / ("saved.csv.gz" if packed else "saved.csv")
    write_leaderboard(plain, [row(), row(seed=1, reason="größer")])
    text = codecs.BOM_UTF8 + plain.read_bytes().replace(b"\n", b"\r\n")
    saved.write_bytes(gzip.compress(text) if packed else text)
    found = collect([saved])
    assert (found.rows, found.problems) == (collect([plain]).rows, ())


def test_nothing_to_report(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no row to report .*holds no row\.json"):
        collect([tmp_path])
    with pytest.raises(ConfigError, match="no such folder"):
        collect([tmp_path / "nix"])


def test_the_command_names_what_it_skips(tmp_path: Path, monkeypatch, capsys) -> None:
    write_row(tmp_path / "runs" / "1" / "row.json", row())
    for i in range(25):
        write(tmp_path / "runs" / f"bad{i}", "{")
    monkeypatch.setattr(
        sys, "argv", ["rematbench-report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    )
    main()
    text = capsys.readouterr().err.splitlines()
    assert "bad0/row.json: not valid JSON" in text[0]
    assert text[20:] == ["rematbench-report: and 5 more: see index.html"]
    page = (tmp_path / "out" / "index.html").read_text()
    assert "25 problems with the input" in page
    assert "bad24/row.json" in page
