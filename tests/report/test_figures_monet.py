"""MONeT's figures, from golden rows."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from golden import expected, records

from rematbench.graphs.errors import ConfigError
from rematbench.graphs.files import write_graph, write_plan
from rematbench.graphs.plan import program_order
from rematbench.graphs.synthetic import unit_chain
from rematbench.report import figures
from rematbench.report.collect import Record
from rematbench.report.monet import ranked, tradeoffs
from rematbench.report.monet_cases import algorithm_table, case_table
from rematbench.report.monet_tables import gist_table, memory_table, seconds_table, size_table
from rematbench.report.select import select
from rematbench.row import make_row


@pytest.mark.parametrize(
    "name", ["monet_fig3", "monet_fig6", "monet_table1", "monet_table5", "monet_table7"]
)
def test_golden(name: str, tmp_path: Path) -> None:
    paths = figures.draw(name, records("monet"), tmp_path)
    assert paths[2].read_text() == expected(name)


def _job(strategy: str, peak: int, overhead: float, variant: str | None = None) -> dict:
    return make_row(
        model="vgg16",
        batch_size=176,
        strategy=strategy,
        variant=variant,
        status="ok",
        budget_fraction=peak / 100,
        cost=1 + overhead,
        overhead=overhead,
        peak_bytes=peak * 10**9,
        checkpoint_all_peak_bytes=100 * 10**9,
        costmodel="roofline",
        extra={"accounting": "full"},
    )


def test_memory_at_ten_percent() -> None:
    rows = [_job("anytime_joint", 50, 0.08, "full"), _job("anytime_joint", 40, 0.2, "full")]
    rows += [_job("checkmate_o", 80, 0.1)]
    found = memory_table(tradeoffs(rows)).to_dict("records")[0]
    assert (found["anytime_joint"], found["checkmate_o"], found["checkmate_d"]) == (50, 80, None)


def test_gist_beside_the_leanest_plan() -> None:
    rows = [
        _job("gist", 60, 0.3),
        _job("anytime_joint", 50, 0.08, "full"),
        _job("anytime_joint", 40, 0.2, "full"),
    ]
    found = gist_table(tradeoffs(rows)).to_dict("records")[0]
    assert (
        found["gist_memory"],
        found["anytime_joint_memory"],
        found["anytime_joint_overhead"],
    ) == (0.6, 0.4, 0.2)


def test_no_plan_counts_as_dearest() -> None:
    costs = {"anytime_joint": 1.0, "anytime_joint conv": 1.1, "anytime_joint noop": None}
    data = pd.DataFrame(
        [{"model": "vgg16", "budget": 0.5, "system": k, "cost": c} for k, c in costs.items()]
    )
    assert ranked(data).ours.startswith("at 1 of 1")


def test_variants_without_a_plan_are_named(tmp_path: Path) -> None:
    rows = [_job("anytime_joint", 53, -0.1, name) for name in ("full", "conv", "noop")]
    rows[2] |= {"status": "infeasible", "cost": None, "overhead": None}
    drawn = [Record(row, tmp_path / f"{i}/row.json", str(i)) for i, row in enumerate(rows)]
    text = figures.draw("monet_fig4", drawn, tmp_path)[3].read_text()
    assert "VGG-16 none (recomputation only)" in text
    assert "VGG-16 conv" not in text


def test_seconds_are_of_budgets_that_every_system_was_asked_for() -> None:
    rows = [_job("anytime_joint", 53, 0.1, "full"), _job("anytime_joint", 50, 0.1, "full")]
    rows += [_job("anytime_joint", 50, 0.2, "noop"), _job("anytime", 50, 0.3, None)]
    drawn = [Record(row, Path(f"{i}/row.json"), str(i)) for i, row in enumerate(rows)]
    found = seconds_table([each.row for each in select("monet_table5", drawn).records], 5)
    assert found["budget"].tolist() == [0.5] * 3


def test_case_and_algorithms(tmp_path: Path) -> None:
    graph = unit_chain(3)
    write_graph(tmp_path / "graph.json.gz", graph)
    write_plan(tmp_path / "plan.json", program_order(graph))
    found = case_table({"checkpoint_all": tmp_path, "anytime_joint": tmp_path})
    assert len(found) == len(graph.ops)
    assert (found["anytime_joint recomputation"] == 0).all()
    with pytest.raises(StopIteration):
        algorithm_table(tmp_path)  # no convolution


def test_table_7_has_checkmates_program() -> None:
    """Plans of problem (9) call their variant so; a row without one has the option's word."""
    known = {"model": "vgg16", "strategy": "checkmate_ilp", "status": "ok"}
    rows = [
        make_row(**known, variant=variant, extra={"rows": 5, "columns": columns})
        for variant, columns in (("fast", 1), ("9", 4))
    ]
    (line,) = size_table(rows).itertuples()
    assert (line.form, line.rows, line.columns, line.rows_paper) == ("Checkmate", 5, 4, 25334)


def test_rows_of_others_draw_nothing(tmp_path: Path) -> None:
    for name in ("monet_fig5", "monet_fig7", "monet_table7"):
        with pytest.raises(ConfigError, match=name):
            figures.draw(name, records("joins_fig8"), tmp_path)
