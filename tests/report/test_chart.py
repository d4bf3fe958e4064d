"""The small chart: where things lie, by hand."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from rematbench.report.chart import ChartAxis, ChartCurve, chart, mark, percent_axis

UNIT = ChartAxis("n & m", 0.0, 1.0, [(0.0, "0"), (1.0, "1")])


def test_places() -> None:
    assert [UNIT.place(at, 100.0, 200.0) for at in (0.0, 0.25, 1.0, 7.0)] == [100, 125, 200, 200]
    assert ChartAxis("", 3.0, 3.0, []).place(3.0, 10.0, 20.0) == 10  # no width


def test_ticks_are_whole_steps() -> None:
    assert [text for _, text in percent_axis("", -0.05, 0.3).ticks] == [
        *("0 %", "10 %", "20 %", "30 %"),
    ]
    small = percent_axis("", 0.0, 0.004).ticks
    assert [text for _, text in small] == ["0.0 %", "0.1 %", "0.2 %", "0.3 %", "0.4 %"]


def test_a_chart_is_xml_and_says_what_it_shows() -> None:
    curves = [
        ChartCurve("a < b", [(0.0, 0.0), (1.0, 1.0)], "#123456", "s"),
        ChartCurve("c", [], marker="*"),
    ]
    for alone in (True, False):
        text = chart(curves, UNIT, UNIT, "what <it> shows", alone)
        root = ET.fromstring(text)
        assert root.get("aria-label") == "what <it> shows"
        assert "n & m" in [each.text for each in root.iter() if each.text]
        assert text.count("#123456") == (4 if alone else 2)  # line and marks; and in the legend


def test_each_mark_is_closed() -> None:
    found = {kind: mark(kind, 10, 10) for kind in "os^Dv<>phPX*"}
    assert all(path.startswith("M") and path.endswith("z") for path in found.values())
    assert len({*found.values()}) == len(found)
