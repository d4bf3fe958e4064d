"""The HTML report: its data, the schedule picture, the timeline and the rows' own pages."""

from __future__ import annotations

import json
import re
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import diamond, recompute_everything

from rematbench.base.errors import ConfigError
from rematbench.engines.plans.stages import (
    needed,
    optimal_recomputation,
    plan_from_stages,
    plan_with_checkpoints,
)
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.files import read_graph, read_plan, write_graph, write_plan
from rematbench.graphs.ir import Graph
from rematbench.graphs.link import Link
from rematbench.graphs.plan import Fetch, Free, Offload, Plan, program_order
from rematbench.graphs.simulate import simulate
from rematbench.jobs.job_files import trace_csv
from rematbench.report.collect import Record, collect
from rematbench.report.pages import picture
from rematbench.report.pages.compact import budget_fraction, dump, page_data, problems
from rematbench.report.pages.lanes import lanes_of
from rematbench.report.pages.picture import Painter, png
from rematbench.report.pages.rowpage import readable
from rematbench.report.pages.site import write_pages
from rematbench.report.pages.timeline import read_timeline
from rematbench.rows.row import COLUMNS, Row, make_row, write_row


def run_folder(folder: Path, graph: Graph, plan: Plan, **known: object) -> Row:
    trace = simulate(graph, plan, Link(1.0, 1.0))
    facts = {"model": "chain", "strategy": "ap_sqrt", "status": "ok", "overhead": 0.25}
    facts |= {"budget_fraction": 0.5, "budget_bytes": trace.peak_bytes}
    row = make_row(**facts | {"peak_bytes": trace.peak_bytes} | known)
    folder.mkdir(parents=True)
    write_row(folder / "row.json", row)
    write_graph(folder / "graph.json.gz", graph)
    write_plan(folder / "plan.json", plan)
    (folder / "trace.csv").write_text(trace_csv(plan, trace))
    return row


def data_of(page: Path) -> dict:
    found = re.search(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    return json.loads(found[1])


# The schedule picture.


def test_the_picture_shows_r_and_s_of_a_plan() -> None:
    graph = unit_chain(6)
    n = len(needed(graph))
    kept = np.tril(np.random.default_rng(0).random((n, n)) < 0.4, -1)
    kept[1:] &= np.vstack([kept, np.eye(n, dtype=bool)])[: n - 1] | np.eye(n, dtype=bool)[:-1]
    computed = optimal_recomputation(graph, kept)
    found = Painter(graph).schedule(plan_from_stages(graph, computed))
    assert found.stages == n
    assert found.loss == graph.loss_index
    assert ((found.computed > 0) == computed).all()
    assert (np.diag(found.computed) == 1).all()  # the first computation of each op
    # What a value is kept for is what S says; frees come as early as the plan allows.
    assert not ((found.kept > 0) & ~_alive(graph, computed)).any()
    again = np.argwhere(np.tril(computed, -1))
    assert len(again)
    assert (found.computed[tuple(again.T)] == 2).all()


def _alive(graph: Graph, computed: np.ndarray) -> np.ndarray:
    """S at most: computed before, and the stage begins before its last computation or read."""
    before = np.cumsum(computed, axis=0) > 0
    return np.vstack([np.zeros((1, len(computed)), dtype=bool), before[:-1]])


def test_checkpoint_all_keeps_until_the_last_read() -> None:
    graph = unit_chain(3)  # forward 0 1 2, loss 3, backward 4 5 6
    found = Painter(graph).schedule(program_order(graph))
    assert (found.computed == np.eye(7)).all()
    live = [[i for i in range(7) if line[i]] for line in found.kept.tolist()]
    assert live[3] == [0, 1, 2]  # the loss begins with every layer
    assert live[0] == []
    for row, line in enumerate(live):
        assert all(column < row for column in line)


def test_large_pictures_share_pixels(monkeypatch) -> None:
    graph = unit_chain(40)
    plan = plan_with_checkpoints(graph, range(5, 40, 5))
    whole = Painter(graph).schedule(plan)
    monkeypatch.setattr(picture, "LARGEST", 20)
    small = Painter(graph).schedule(plan)
    assert small.computed.shape == small.kept.shape == (20, 20)
    at = np.arange(whole.stages) * 20 // whole.stages
    for large, little in ((whole.computed, small.computed), (whole.kept, small.kept)):
        expected = np.zeros((20, 20), dtype=np.uint8)
        np.maximum.at(expected, np.ix_(at, at), large)
        assert (little == expected).all()


def test_pictures_are_pngs() -> None:
    content = png(np.array([[0, 1, 2], [3, 0, 0]], dtype=np.uint8))
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", content[16:24]) == (3, 2)
    at = content.index(b"IDAT")
    size = struct.unpack(">I", content[at - 4 : at])[0]
    assert zlib.decompress(content[at + 4 : at + 4 + size]) == b"\0\0\1\2\0\3\0\0"


# The timeline.


def test_a_timeline_keeps_the_peak(tmp_path: Path) -> None:
    graph = unit_chain(500)
    plan = program_order(graph)
    trace = simulate(graph, plan)
    (tmp_path / "trace.csv").write_text(trace_csv(plan, trace))
    found = read_timeline(tmp_path / "trace.csv")
    assert (found.kind, found.count) == ("bytes", len(plan))
    heights = [float(v) for v in re.findall(r"V([\d.]+)", found.curves[0].path)]
    assert min(heights) == pytest.approx(found.height_of(trace.peak_bytes), abs=0.1)
    inside = read_timeline(tmp_path / "trace.csv", [2.0 * trace.peak_bytes])
    assert 0 < inside.height_of(2 * trace.peak_bytes) < inside.height_of(trace.peak_bytes)


def test_a_timeline_of_events(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("event,tensor,clock\ncomputed,a,1\ncomputed,b,3\nevicted,a,3\n")
    found = read_timeline(path)
    assert (found.kind, found.count) == ("events", 3)
    assert [curve.name for curve in found.curves] == ["computed", "evicted"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "damaged"),
        ("statement,action,name,bytes_during,bytes_after\n0,comp", "damaged"),
        ("statement,action,name,bytes_during,bytes_after\n", r"damaged \(no statement\)"),
        ("time,price\n1,2\n", "its columns are"),
    ],
)
def test_a_bad_timeline_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "trace.csv").write_text(text)
    with pytest.raises(ConfigError, match=f"trace.csv: {said}"):
        read_timeline(tmp_path / "trace.csv")


# The main page's data.


def record(**known: object) -> Record:
    row = make_row(**{"status": "ok", "strategy": "ap_sqrt", "model": "vgg16"} | known)
    return Record(row, Path("row.json"), f"{abs(hash(str(known))):012x}"[:12])


def test_page_data_holds_every_cell() -> None:
    records = [record(overhead=i / 7, reason="</script><b>", seed=i % 2) for i in range(9)]
    data = json.loads(dump(page_data(records, {records[2].id})))
    assert "<" not in dump(data)
    columns = {column["name"]: column for column in data["columns"]}
    assert [*columns, "extra"] == list(COLUMNS)
    for i, one in enumerate(records):
        for name, column in columns.items():
            value = column["values"][i]
            value = column["distinct"][value] if "distinct" in column else value
            expected = one.row[name]
            assert value == (pytest.approx(expected) if name == "overhead" else expected)
    assert [bool(page) for page in data["pages"]] == [i == 2 for i in range(9)]
    sources = {name: column["from"] for name, column in columns.items()}
    assert sources["objective"] == "planned"
    assert sources["overhead"] == sources["peak_bytes"] == "simulated"
    assert sources["measured_overhead"] == sources["peak_error"] == "measured"


def test_budgets_in_bytes_become_fractions() -> None:
    assert budget_fraction(record(budget_fraction=0.3, budget_bytes=1).row) == 0.3
    in_bytes = record(budget_bytes=5, checkpoint_all_peak_bytes=10)
    assert budget_fraction(in_bytes.row) == 0.5
    log = {"budget_base": "banishing_peak_bytes", "banishing_peak_bytes": 20}
    row = record(budget_bytes=5, checkpoint_all_peak_bytes=10, extra=log).row
    assert budget_fraction(row) == 0.25
    assert budget_fraction(record().row) is None
    assert budget_fraction(record(budget_bytes=5).row) is None


def test_problems_that_differ_share_no_panel() -> None:
    rows = [
        record(batch_size=8, graph_hash="a", costmodel="flops").row,
        record(batch_size=8, graph_hash="a", costmodel="flops", strategy="dtr").row,
        record(batch_size=8, graph_hash="b", costmodel="flops").row,
        record(batch_size=16, graph_hash="c", costmodel="flops").row,
        record(batch_size=8, graph_hash="a", costmodel="unit").row,
        record(batch_size=8, graph_hash="d", costmodel="profiled").row,
        record(batch_size=8, graph_hash="e", costmodel="profiled").row,
    ]
    labels, members = problems(rows)
    assert members == [0, 0, 1, 2, 3, 4, 4]
    assert labels[:3] == [
        "vgg16 · batch 8 · flops cost · graph a",
        "vgg16 · batch 8 · flops cost · graph b",
        "vgg16 · batch 16 · flops cost",
    ]


def test_cells_for_people() -> None:
    assert readable("peak_bytes", 3 * 2**40) == "3 TiB"
    assert readable("overhead", 0.1234) == "12.3 %"
    assert readable("ops", 12345) == "12,345"
    assert readable("gradient_bitwise", True) == "True"


def in_layers() -> Graph:
    """A chain whose layers 0 and 1 are one block, 2 another, and 3 none."""
    scopes = {"layer0": "body.0.a", "layer1": "body.0.b", "layer2": "body.1", "layer3": "head"}
    scopes |= {f"grad_{name}": scope for name, scope in scopes.items()} | {"loss": ""}
    graph = unit_chain(4)
    return replace(graph, ops=tuple(replace(op, scope=scopes[op.name]) for op in graph.ops))


def test_blocks_are_bands_along_the_ops() -> None:
    graph = in_layers()
    bands = Painter(graph).schedule(program_order(graph)).bands
    # layer0 ... layer3, loss, grad_layer3 ... grad_layer0
    expected = [("body.0", 0, 2), ("body.1", 2, 3), ("body.1", 6, 7), ("body.0", 7, 9)]
    # Ops without a block do not end one.
    expected[1:3] = [("body.1", 2, 7)]
    assert [(b.block, round(b.start * 9), round(b.end * 9)) for b in bands] == expected
    inks = {b.block: b.colour for b in bands}
    assert bands[0].colour == bands[-1].colour == inks["body.0"] != inks["body.1"]
    assert Painter(unit_chain(4)).schedule(program_order(unit_chain(4))).bands == ()


# The files.


def test_a_row_page_shows_blocks_and_what_the_peak_consists_of(tmp_path: Path) -> None:
    graph = in_layers()
    parts = {"parameters": 3, "optimizer": 6, "batch": 0, "activations": 1}
    run_folder(tmp_path / "runs" / "0", graph, program_order(graph), extra={"memory": parts})
    written = write_pages(collect([tmp_path / "runs"]), tmp_path / "out")
    assert written.problems == ()
    (name,) = (found for found in data_of(written.index)["pages"] if found)
    page = (tmp_path / "out" / "rows" / f"{name}.html").read_text()
    assert "<title>body.1</title>" in page
    assert "optimizer: 6 B (60.0 %)" in page
    assert (
        page.index("optimizer: 6 B") < page.index("parameters: 3 B") < page.index("activations: 1")
    )
    assert "batch: 0" not in page


def test_a_report_with_pages(tmp_path: Path) -> None:
    graph = diamond()
    for i, plan in enumerate((program_order(graph), recompute_everything(graph))):
        text = {"extra": {"verdict": "lossy"}, "reason": "lossy: by 0.1"}
        run_folder(tmp_path / "runs" / str(i), graph, plan, seed=i, **text)
    broken = make_row(model="<b>", strategy="a&b", status="failed", reason="it's <i>broken</i>")
    write_row(tmp_path / "runs" / "2" / "row.json", broken)
    collected = collect([tmp_path / "runs"])
    written = write_pages(collected, tmp_path / "out")
    assert (written.row_pages, written.problems) == (2, ())
    main = written.index.read_text()
    assert "<i>broken" not in main
    ours = main.partition("<script>")[0]  # before plotly
    assert not re.search(r'(?:src|href)="(?:https?:)?//', ours)  # nothing from the network
    pages = data_of(written.index)["pages"]
    assert pages[2] == 0
    page = (tmp_path / "out" / "rows" / f"{pages[1]}.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert "Simulated live bytes" in page
    assert "status: ok; gradients: lossy (lossy: by 0.1)" in page
    plan_name, graph_name = re.findall(r'href="([^"]+)" download', page)
    kept_graph = read_graph(tmp_path / "out" / "rows" / graph_name)
    kept_plan = read_plan(tmp_path / "out" / "rows" / plan_name)
    assert simulate(kept_graph, kept_plan).peak_bytes == collected.rows[1]["peak_bytes"]


def test_damaged_files_of_a_run_are_named(tmp_path: Path) -> None:
    graph = unit_chain(4)
    plan = program_order(graph)
    for i, name in enumerate(("plan.json", "graph.json.gz", "trace.csv")):
        run_folder(tmp_path / "runs" / str(i), graph, plan, seed=i)
        path = tmp_path / "runs" / str(i) / name
        path.write_bytes(path.read_bytes()[:20])
    run_folder(tmp_path / "runs" / "3", graph, plan, seed=3, peak_bytes=1)  # of an earlier run
    written = write_pages(collect([tmp_path / "runs"]), tmp_path / "out")
    text = [str(problem) for problem in written.problems]
    assert len(text) == 4
    assert "runs/0: no schedule picture" in text[0]
    assert "runs/1: no schedule picture" in text[1]
    assert "graph.json.gz" in text[1]
    assert "runs/2: no timeline" in text[2]
    assert "its row says 1: it is of an earlier run" in text[3]
    pages = data_of(written.index)["pages"]
    assert [bool(page) for page in pages] == [True, True, True, False]


def test_a_row_whose_plan_copies_has_a_page(tmp_path: Path) -> None:
    graph = unit_chain(2)
    first, second, *rest = program_order(graph).statements
    place = next(i for i, each in enumerate(rest) if getattr(each, "op", "") == "grad_layer0")
    rest[place:place] = [Fetch("layer0")]
    plan = Plan((first, second, Offload("layer0"), Free("layer0"), *rest), graph.name)
    link = {"name": "given", "out": 1.0, "in": 0.5, "latency": 0.0, "shared": False}
    run_folder(tmp_path / "runs" / "a", graph, plan, extra={"link": link})
    written = write_pages(collect([tmp_path / "runs"]), tmp_path / "out")
    assert (written.row_pages, written.problems) == (1, ())
    (page,) = (tmp_path / "out" / "rows").glob("*.html")
    text = page.read_text()
    assert text.count("data:image/png;base64,") == 2
    for engine in ("compute", "link out", "link in"):
        assert f"<title>{engine}: at work" in text
    assert "link=given link.out=1.0 link.in=0.5 link.latency=0.0" in text


def test_three_lanes_of_a_plan_with_copies() -> None:
    graph = unit_chain(2)
    first, second, *rest = program_order(graph).statements
    rest = [each for each in rest if each != Free("layer0")]
    place = next(i for i, each in enumerate(rest) if getattr(each, "op", "") == "grad_layer0")
    copies = (first, second, Offload("layer0"), Free("layer0"))
    plan = Plan([*copies, *rest[:place], Fetch("layer0"), *rest[place:]], graph.name)
    link = Link(1.0, 0.5)
    trace = simulate(graph, plan, link)
    found = lanes_of(graph, trace, link)
    assert found is not None
    compute, out, into = found.lanes
    # Out while the second layer runs; in right before its reader, which waits for all of it.
    assert found.makespan == trace.cost == 7
    assert (compute.busy, out.busy, into.busy) == (5 / 7, 1 / 7, 2 / 7)
    assert compute.waited == 2 / 7
    assert out.paths[0][0] == "M128.57 0H257.14V30H128.57Z"
    assert into.paths[0][0] == "M514.29 0H771.43V30H514.29Z"
    assert compute.paths[0][0].count("M") == 2
    assert lanes_of(graph, simulate(graph, program_order(graph)), link) is None


def test_many_pages_are_drawn_by_several_processes(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("rematbench.report.pages.site._SHARE", 2)
    graph = unit_chain(4)
    for i in range(4):
        run_folder(tmp_path / "runs" / str(i), graph, program_order(graph), seed=i)
    written = write_pages(collect([tmp_path / "runs"]), tmp_path / "out")
    assert written.row_pages == 4
    assert len(list((tmp_path / "out" / "rows").glob("*.html"))) == 4
