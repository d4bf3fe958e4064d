"""Which rows a figure is drawn from: by the mark of what made them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from golden import expected, records

from rematbench.base.errors import ConfigError
from rematbench.report import figures
from rematbench.report.collect import Mark, Record, collect
from rematbench.report.select import FED_BY, made_by, select
from rematbench.rows.row import make_row, write_leaderboard, write_row

GOLDEN = {
    **{"simrd_fig2": "simrd_chain", "simrd_fig3": "simrd_chain", "simrd_fig4": "simrd_fig4"},
    **{name: name for name in ("checkmate_fig5c", "checkmate_fig7", "checkmate_table2")},
    **{name: name for name in ("joins_fig8", "joins_fig10")},
    **{f"monet_{name}": "monet" for name in ("fig3", "fig6", "table1", "table5", "table7")},
}


def changed(record: Record, **known: object) -> Record:
    """A record of the same file, of another content."""
    return replace(record, row=record.row | known)


def of(experiment: str, record: Record, **known: object) -> Record:
    """A record as an experiment would have made it, which no other asked for."""
    extra = record.row["extra"] | {"experiment": experiment, "shared_with": []}
    return changed(record, extra=extra, **known)


def odd(name: str, **extra: object) -> Record:
    row = make_row(model="odd", batch_size=7, status="ok", costmodel="unit", extra=extra)
    return Record(row, Path(name, "row.json"), name)


@pytest.mark.parametrize("name", figures.NAMES)
def test_a_figure_takes_the_rows_of_its_experiment_whatever_they_hold(name: str) -> None:
    others = [figure for figure in figures.NAMES if figure != name]
    own = odd("own", experiment=name)
    lookalikes = [of("suite", record) for rows in {*GOLDEN.values()} for record in records(rows)]
    strangers = [odd(other, experiment=other) for other in others]
    found = select(name, [*lookalikes, *strangers, own])
    assert [record.id for record in found.records] == ["own"]
    lenders = FED_BY.get(name, ())
    strangers = [each for each in strangers if each.id not in lenders]
    assert not select(name, [odd("nobody's"), *strangers]).records


@pytest.mark.parametrize("name", GOLDEN)
def test_another_batch_loses_no_row(name: str, tmp_path: Path) -> None:
    rows = select(name, records(GOLDEN[name])).records
    mine = [of(name, record, batch_size=3) for record in rows]
    strangers = [of("suite", record, cost=1.0) for record in rows]
    paths = figures.draw(name, [*strangers, *mine], tmp_path)
    assert paths[2].read_text() == expected(name)


@pytest.mark.parametrize("figure", FED_BY)
def test_an_experiment_of_the_same_jobs_lends_its_rows(figure: str) -> None:
    assert {figure, *FED_BY[figure]} <= {*figures.NAMES}
    if figure not in ("simrd_fig6", "monet_table1"):  # the golden rows hold no other's
        return
    lender = FED_BY[figure][0]
    rows = [of(lender, record) for record in records(GOLDEN[lender])]
    found = select(figure, rows).records
    assert found
    assert made_by(figure, found) == []
    if figure == "simrd_fig6":
        heuristics = {record.row["extra"]["heuristic"] for record in found}
        assert heuristics == {"full", "eqclass", "local"}  # Figure 4 has more


def test_one_curve_shows_one_batch(tmp_path: Path) -> None:
    first = [of("checkmate_fig5c", r, batch_size=2) for r in records("checkmate_fig5c")]
    last = [of("checkmate_fig5c", r, batch_size=4) for r in records("checkmate_fig5c")]
    found = select("checkmate_fig5c", first + last)
    assert found.records == last
    text = figures.draw("checkmate_fig5c", first + last, tmp_path)[3].read_text()
    assert "U-Net, batch 4" in text
    assert f"Left out: unet at batch 2 ({len(first)} rows)." in text


def test_a_copy_for_another_experiment_is_a_row_of_both(tmp_path: Path) -> None:
    made = {"model": "vgg16", "status": "ok"}
    write_row(tmp_path / "1/row.json", make_row(**made, extra={"experiment": "monet_fig3"}))
    copy = {"experiment": "joins_fig8", "group": "RNN", "cached": True}
    write_row(tmp_path / "2/row.json", make_row(**made, extra=copy))
    found = collect([tmp_path])
    (record,) = found.records
    assert record.marks == (Mark("monet_fig3"), Mark("joins_fig8", "RNN"))
    assert not found.problems
    # A report's leaderboard is as good as the rows that it came from.
    write_leaderboard(tmp_path / "out.csv", found.rows)
    (again,) = collect([tmp_path / "out.csv"]).records
    assert (again.marks, again.id) == (record.marks, record.id)


@pytest.mark.parametrize(
    "extra",
    [{"experiment": 3}, {"group": ["a"]}, {"shared_with": {}}, {"shared_with": ["monet_fig3"]}],
)
def test_a_mark_that_is_none(tmp_path: Path, extra: dict[str, object]) -> None:
    write_row(tmp_path / "0/row.json", make_row(status="ok"))
    write_row(tmp_path / "1/row.json", make_row(status="ok", extra=extra))
    found = collect([tmp_path])
    (problem,) = found.problems
    assert f"extra.{next(iter(extra))} is " in problem.reason


@pytest.mark.parametrize("name", figures.NAMES)
def test_a_job_that_failed_does_not_spoil_a_figure(name: str, tmp_path: Path) -> None:
    known = {"model": "odd", "strategy": "monet", "status": "failed", "reason": "it broke"}
    early = make_row(**known, extra={"experiment": name})
    bad = make_row(status="failed", extra={"experiment": name, "bad_config": True})
    late = make_row(
        **known | {"strategy": "checkmate_rounding"},
        **{"batch_size": 3, "budget_bytes": 10, "budget_fraction": 0.5, "costmodel": "flops"},
        **{"checkpoint_all_peak_bytes": 20, "checkpoint_all_cost": 1.0, "graph_hash": "a"},
        extra={"experiment": name, "accounting": "full", "length": 16, "lengths": [1, 5]},
    )
    rows = (
        [of(name, r) for r in select(name, records(GOLDEN[name])).records] if name in GOLDEN else []
    )
    failed = [Record(row, tmp_path / f"{i}/row.json", str(i)) for i, row in enumerate((early, bad))]
    assert len(figures.draw(name, rows + failed, tmp_path)) == 4 if rows else True
    failed.append(Record(late, tmp_path / "late/row.json", "late"))
    with suppress(ConfigError):  # no row for it
        figures.draw(name, failed, tmp_path)
