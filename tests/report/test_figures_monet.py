"""MONeT's figures, from golden rows."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest
from golden import expected, records
from omegaconf import OmegaConf

from rematbench.base.errors import ConfigError
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.files import write_graph, write_plan
from rematbench.graphs.plan import program_order
from rematbench.report import figures
from rematbench.report.collect import Record
from rematbench.report.papers import monet, monet_tables
from rematbench.report.papers.monet import ranked, tradeoffs
from rematbench.report.papers.monet_cases import algorithm_table, case_table
from rematbench.report.papers.monet_tables import (
    gist_table,
    memory_table,
    seconds_table,
    size_table,
)
from rematbench.rows.row import make_row

EXPERIMENTS = Path(__file__).parents[2] / "conf/experiment"


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
    for row in rows:
        row["extra"]["experiment"] = "monet_fig4"
    drawn = [Record(row, tmp_path / f"{i}/row.json", str(i)) for i, row in enumerate(rows)]
    text = figures.draw("monet_fig4", drawn, tmp_path)[3].read_text()
    assert "VGG-16 ours, none (recomputation only)" in text
    assert "VGG-16 ours, conv" not in text


def _words(name: str, rows: list[dict]) -> list[str]:
    """What a picture, its title and its notes say."""
    made = [Record(row, Path(f"{i}/row.json"), str(i)) for i, row in enumerate(rows)]
    module = monet if name.startswith("monet_fig") else monet_tables
    drawing = module.draw(name, made)
    assert drawing is not None
    texts = [text.get_text() for text in drawing.figure.findobj(mpl.text.Text)]
    claims = [part for note in drawing.comparisons for part in (note.claim, note.ours)]
    return [drawing.title, *texts, *claims]


@pytest.mark.parametrize(
    "name",
    [*(f"monet_fig{i}" for i in (3, 4, 6, 8)), *(f"monet_table{i}" for i in (1, 2, 3, 5, 6))],
)
def test_the_published_program_stands_beside_ours_and_ours_says_so(name: str) -> None:
    ours = [_job("anytime_joint", 53, 0.05, each) for each in ("full", "noop")]
    rows = [*ours, _job("monet", 53, 0.08), _job("gist", 60, 0.3), _job("anytime", 53, 0.1)]
    rows += [_job("checkmate_ilp", 53, 0.1), _job("checkmate_o", 53, 0.09)]
    words = _words(name, rows)
    assert any("monet" in word for word in words)
    assert any("ours" in word and "anytime_joint" in word for word in words)
    bare = {"anytime", "anytime_joint", "anytime_joint noop", "anytime_joint\nhere", "MONeT\nours"}
    assert not bare & {word.strip() for word in words}


def test_seconds_of_the_papers_programs() -> None:
    """Their rows note no second; one that ended with the gap took at most its planning time."""
    rows = [_job("monet", 53, 0.1), _job("monet", 53, 0.1), _job("checkmate_ilp", 53, 0.2)]
    rows[0] |= {"gap": 0.04, "plan_seconds": 7.0}
    rows[1] |= {"gap": 0.04, "plan_seconds": 8.0, "extra": {"operators": False}}
    rows[2] |= {"gap": 0.06, "plan_seconds": 9.0}
    found = seconds_table(rows, 5).set_index("system")["seconds"]
    assert found.dropna().to_dict() == {"monet": 7.0, "monet noop": 8.0}
    assert set(found.index) == {"monet", "monet noop", "checkmate_ilp"}


OURS = {
    "checkmate": {"anytime": "checkmate_ilp"},
    "monet": {"anytime_joint": "monet", "anytime": ("checkmate_o", "checkmate_ilp")},
}
"""Of a paper: our search, and the paper's program that stands beside it."""


@pytest.mark.parametrize("profile", ["quick", "full", "gpu"])
def test_experiments_of_papers_run_the_papers_programs(profile: str) -> None:
    seen = 0
    for path in sorted(EXPERIMENTS.glob("*.yaml")):
        paper = path.stem.partition("_")[0]
        text = OmegaConf.load(path)
        if paper not in OURS or "profile" not in text or path.stem == "monet_fig7":
            continue  # Figure 7 is of a convolution's algorithms, whatever the plan
        text["profile"] = profile
        sweeps = OmegaConf.to_container(text.hydra.sweeper, resolve=False)["sweeps"]
        if "sweeps_of" in text:
            sweeps = OmegaConf.to_container(text.sweeps_of, resolve=False)[profile]
        run = str(sweeps) + str(OmegaConf.to_container(text, resolve=False).get("line_up", ""))
        names = set(re.findall(r"\w+", run))
        for ours, program in OURS[paper].items():
            wanted = {program} if isinstance(program, str) else {*program}
            assert ours not in names or wanted & names, (path.stem, profile, ours)
            seen += ours in names
    assert seen > 10


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
