"""The Checkmate paper's figures, from golden rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from golden import expected, records

from rematbench.graphs.files import write_graph, write_plan
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.graphs.synthetic import unit_chain
from rematbench.job import trace_csv
from rematbench.report import figures
from rematbench.report.checkmate import above_all, draw, ratio_table
from rematbench.report.checkmate_memory import timeline
from rematbench.report.collect import Record
from rematbench.report.tables import geometric_mean
from rematbench.row import make_row


@pytest.mark.parametrize("name", ["checkmate_fig5c", "checkmate_fig7", "checkmate_table2"])
def test_golden(name: str, tmp_path: Path) -> None:
    paths = figures.draw(name, records(name), tmp_path)
    assert [path.suffix for path in paths] == [".png", ".pdf", ".csv", ".md"]
    assert paths[2].read_text() == expected(name)


def test_the_paper_stands_beside_ours(tmp_path: Path) -> None:
    text = figures.draw("checkmate_fig5c", records("checkmate_fig5c"), tmp_path)[3].read_text()
    assert "| linearized_greedy / ILP at 16 GB | 1.20x | 1.14x (modelled)" in text
    assert "linearized_greedy 4 of 5, down to 15.73 GB" in text


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
    assert above_all(data) == ["revolve at 2.00 GB", "revolve at 1.00 GB"]
    # Strategies of later years are no part of the paper's statement.
    later = data.assign(strategy=data["strategy"].replace("revolve", "chain_dp"))
    assert above_all(later) == []
    assert above_all(later, line_up=False) == ["chain_dp at 2.00 GB", "chain_dp at 1.00 GB"]


def gap_row(length: int, variant: str, seconds: float, bound: float, **extra: object) -> Record:
    known = {"model": "unit_chain", "strategy": "checkmate_ilp", "status": "ok", "cost": 26.0}
    row = make_row(
        **known,
        **{"variant": variant, "budget_bytes": 4, "plan_seconds": seconds, "bound": bound},
        extra={"length": length, **extra},
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
