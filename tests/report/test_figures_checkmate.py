"""The Checkmate paper's figures, from golden rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest
from golden import expected, records

from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.files import write_graph, write_plan
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.jobs.job_files import trace_csv
from rematbench.report import figures
from rematbench.report.collect import Record
from rematbench.report.papers import checkmate, checkmate_memory, checkmate_rounding
from rematbench.report.papers.checkmate import above_all, draw, lowest
from rematbench.report.papers.checkmate_memory import timeline
from rematbench.report.papers.checkmate_ratios import ratio_table
from rematbench.report.tables import geometric_mean
from rematbench.rows.row import make_row


@pytest.mark.parametrize("name", ["checkmate_fig5c", "checkmate_fig7", "checkmate_table2"])
def test_golden(name: str, tmp_path: Path) -> None:
    paths = figures.draw(name, records(name), tmp_path)
    assert [path.suffix for path in paths] == [".png", ".pdf", ".csv", ".md"]
    assert paths[2].read_text() == expected(name)


def test_the_paper_stands_beside_ours(tmp_path: Path) -> None:
    text = figures.draw("checkmate_fig5c", records("checkmate_fig5c"), tmp_path)[3].read_text()
    line = "no plan of checkmate_ilp there; 1.14x over anytime (ours), at 1.089 (modelled)"
    assert f"| linearized_greedy / ILP at 16 GB | 1.20x | {line}" in text
    assert "linearized_greedy 4 of 5, down to 15.73 GB" in text
    assert "| the ILP (checkmate_ilp) lies on or below every curve |" in text
    assert "| no row of checkmate_ilp |" in text
    assert "| anytime (ours) lies on or below every curve | not there | yes" in text


DRAWN = ["checkmate_fig5c", "checkmate_fig7", "checkmate_table2"]


def words_of(drawing: figures.Drawing) -> list[str]:
    """What a picture says, and its title."""
    texts = drawing.figure.findobj(mpl.text.Text)
    return [drawing.title, *(text.get_text() for text in texts if text.get_text())]


def drawn(name: str, rows: Sequence[Record]) -> figures.Drawing:
    module = checkmate_rounding if name == "checkmate_fig7" else checkmate
    drawing = module.draw(name, rows)
    assert drawing is not None
    return drawing


@pytest.mark.parametrize("name", DRAWN)
def test_our_search_is_never_called_the_ilp(name: str) -> None:
    """Rows of ``anytime`` alone: it is drawn as ours, and nothing is drawn as the ILP's."""
    words = words_of(drawn(name, records(name)))
    assert any("anytime (ours)" in word for word in words)
    assert not any(word.strip() in ("anytime", "ILP", "checkmate_ilp") for word in words), words


@pytest.mark.parametrize("name", DRAWN)
def test_the_papers_program_is_drawn_beside_ours(name: str) -> None:
    rows = records(name)
    ours = [r for r in rows if r.row["strategy"] == "anytime"]
    program = [replace(r, row=r.row | {"strategy": "checkmate_ilp"}) for r in ours]
    words = words_of(drawn(name, rows + program))
    for wanted in ("anytime (ours)", "ILP" if name == "checkmate_fig7" else "checkmate_ilp"):
        assert any(wanted in word for word in words), (wanted, words)


def test_table_2_says_where_the_ilp_has_no_plan() -> None:
    rows = [record.row for record in records("checkmate_table2")]
    late = [row | {"strategy": "checkmate_ilp", "status": "time_limit"} for row in rows
            if row["strategy"] == "anytime"]  # fmt: skip
    found = ratio_table(rows + late)
    assert found["ratio"].isna().all()
    assert set(found["budgets"]) == {0}
    assert set(found["asked"]) == {2}
    assert found["ratio_anytime"].notna().any()
    solved = [row | {"status": "ok", "cost": 2 * row["cost"]} for row in late]
    both = ratio_table(rows + solved).dropna(subset="ratio")
    assert both["ratio"].to_list() == pytest.approx((both["ratio_anytime"] / 2).to_list())


def test_figures_1_and_6_have_the_paper_s_program_beside_ours(tmp_path: Path) -> None:
    graph = unit_chain(3)
    plan = program_order(graph)
    write_graph(tmp_path / "graph.json.gz", graph)
    (tmp_path / "trace.csv").write_text(trace_csv(plan, simulate(graph, plan)))
    known = {"model": "resnet32", "status": "ok", "cost": 7.0, "overhead": 0.0, "peak_bytes": 9}
    names = ("checkpoint_all", "checkmate_ilp", "anytime")
    rows = [make_row(strategy=name, **known) for name in names]
    made = [Record(row, tmp_path / "row.json", str(i)) for i, row in enumerate(rows)]
    drawing = checkmate_memory.draw("checkmate_fig1", made)
    assert drawing is not None
    words = words_of(drawing)
    assert {"rematerialize (checkmate_ilp)", "rematerialize (anytime, ours)"} <= {*words}
    late = rows[1] | {"status": "time_limit", "reason": "no plan in 20 s"}
    made[1] = replace(made[1], row=late)
    drawing = checkmate_memory.draw("checkmate_fig1", made)
    assert drawing is not None
    assert drawing.comparisons[0].ours == "no plan: no plan in 20 s"
    batches = [
        row | {"extra": {"max_batch": {"value": 9, "vary": "batch_size"}, "memory_bytes": 1e9}}
        for row in rows
    ]
    drawing = checkmate_memory.draw("checkmate_fig6", [Record(r, tmp_path, "") for r in batches])
    assert drawing is not None
    assert {"checkmate_ilp", "anytime (ours)"} <= {*words_of(drawing)}
    text = [note.claim.partition(": ")[2] for note in drawing.comparisons]
    assert text == ["largest batch of checkmate_ilp", "largest batch of anytime (ours)"]


def test_table_1_is_the_paper_s(tmp_path: Path) -> None:
    paths = figures.draw("checkmate_table1", [], tmp_path)
    text = paths[3].read_text()
    assert text.count("| agrees |") == len(pd.read_csv(paths[2])) == 10


def test_a_strategy_below_the_ilp_is_named() -> None:
    data = pd.DataFrame(
        [
            ("anytime", 2.0, "ok", 1.2),
            ("anytime", 1.0, "time_limit", None),
            ("revolve", 2.0, "ok", 1.1),
            ("revolve", 1.0, "ok", 1.3),
            ("revolve", 3.0, "ok", 1.0),  # the ILP was not asked
        ],
        columns=["strategy", "budget_GB", "status", "slowdown"],
    )
    assert above_all(data, "anytime") == ["revolve at 2.00 GB", "revolve at 1.00 GB"]
    assert lowest(data, "anytime") == "except for revolve at 2.00 GB; no plan at 1 of 2 budgets"
    assert lowest(data, "checkmate_ilp") == "no row of checkmate_ilp"
    # Strategies of later years are no part of the paper's statement.
    later = data.assign(strategy=data["strategy"].replace("revolve", "chain_dp"))
    assert above_all(later, "anytime") == []
    assert above_all(later, "anytime", line_up=False) == [
        "chain_dp at 2.00 GB",
        "chain_dp at 1.00 GB",
    ]


def gap_row(length: int, variant: str, seconds: float, bound: float, **extra: object) -> Record:
    known = {"model": "unit_chain", "strategy": "checkmate_ilp", "status": "ok", "cost": 26.0}
    row = make_row(
        **known,
        **{"variant": variant, "budget_bytes": 4, "plan_seconds": seconds, "bound": bound},
        extra={"length": length, "experiment": "checkmate_appendix_a", **extra},
    )
    return Record(row, Path(variant, str(length)), f"{variant}{length}{extra}")


def test_appendix_a(tmp_path: Path) -> None:
    rows = [
        gap_row(8, "9", 1.4, 25.9999999),
        gap_row(8, "unpartitioned", 60.0, 8.0),
        gap_row(8, "9", 1.5, 26.0, integrality_gap=1.1818),
        gap_row(8, "unpartitioned", 1.6, 26.0, integrality_gap=21.557),
        gap_row(4, "9", 0.1, 26.0, integrality_gap=1.0879),
        gap_row(8, "fast", 0.1, 26.0, integrality_gap=1.01),  # of another program
    ]
    paths = figures.draw("checkmate_appendix_a", rows, tmp_path)
    data = pd.read_csv(paths[2])
    assert data["gap"].tolist() == [1.0879, 1.1818, 21.557]
    assert data["seconds"].dropna().tolist() == [1.4, 60.0]
    text = paths[3].read_text()
    assert "| 8 layers, unpartitioned: integrality gap | 21.56 | 21.56 |" in text
    assert "is proven | 0.23 s | 1.4 s |" in text
    assert "is proven | 9.4 h | more than 60 s: stopped, 31% proven |" in text


def test_timeline(tmp_path: Path) -> None:
    graph = unit_chain(3)
    plan = program_order(graph)
    write_graph(tmp_path / "graph.json.gz", graph)
    write_plan(tmp_path / "plan.json", plan)
    (tmp_path / "trace.csv").write_text(trace_csv(plan, simulate(graph, plan)))
    found = timeline(tmp_path)
    assert found["cost"].tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert (found["memory_GB"] * 1e9).max() == pytest.approx(simulate(graph, plan).peak_bytes)


def test_geometric_mean() -> None:
    assert geometric_mean([]) is None
    assert geometric_mean([2, 8]) == pytest.approx(4)


def test_figure_5_is_its_panels_together() -> None:
    unet = records("checkmate_fig5c")
    vgg = [replace(r, row=r.row | {"model": "vgg16", "batch_size": 256}) for r in unet]
    drawing = draw("checkmate_fig5", unet + vgg)
    assert drawing is not None
    assert [axes.get_title(loc="left") for axes in drawing.figure.axes] == [
        "(a) VGG-16",
        "(c) U-Net",
    ]
    alone = draw("checkmate_fig5c", unet)
    assert alone is not None
    mine = drawing.data[drawing.data["model"] == "unet"].drop(columns="model")
    assert mine.reset_index(drop=True).equals(alone.data)
    assert draw("checkmate_fig5", []) is None


def test_figure_5_has_the_papers_own_kind_of_graph_below() -> None:
    unet = records("checkmate_fig5c")
    names = ("vgg16", "mobilenet_v1", "keras_vgg16", "keras_unet")
    others = [replace(r, row=r.row | {"model": name}) for name in names for r in unet]
    drawing = draw("checkmate_fig5", unet + others)
    assert drawing is not None
    titles = [axes.get_title(loc="left") for axes in drawing.figure.axes]
    assert titles[3:] == ["(a) VGG-16 by Keras' layers", "(c) U-Net by Keras' layers", ""]
    own = [note for note in drawing.comparisons if "U-Net by Keras' layers: memory" in note.claim]
    assert [note.paper for note in own] == ["23 GB (section 6.3)"]


def test_layered_networks_are_held_against_the_same_printed_numbers() -> None:
    rows = [r.row for r in records("checkmate_table2")]
    both = rows + [row | {"model": f"keras_{row['model']}"} for row in rows]
    found = ratio_table(both).set_index(["model", "strategy"])["ratio_paper"]
    for model in {str(row["model"]) for row in rows}:
        assert found[f"keras_{model}"].equals(found[model])
