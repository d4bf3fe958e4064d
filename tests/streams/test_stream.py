"""Operator-event logs: round trips, and one line for each kind of bad input."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from event_streams import streams
from hypothesis import given, settings

from rematbench.base.errors import GraphError
from rematbench.streams.events import EventStream
from rematbench.streams.ids import resolve
from rematbench.streams.log import read_log, write_log

START = '{"ANNOTATION":"START","INSTRUCTION":"ANNOTATE"}'
X = ['{"INSTRUCTION":"CONSTANT","NAME":"x"}', '{"INSTRUCTION":"MEMORY","MEMORY":"4","NAME":"x"}']
CALL = '{"ARGS":["x"],"INSTRUCTION":"CALL","NAME":"f","RESULT":["y"],"TIME":"3"}'
MEMORY = '{"INSTRUCTION":"MEMORY","MEMORY":"4","NAME":"y"}'
ALIAS = '{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"y"}'


@settings(max_examples=50, deadline=None)
@given(stream=streams())
def test_round_trip(stream: EventStream, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("logs")
    for name in ("step.log", "step.log.gz"):
        write_log(folder / name, stream)
        assert read_log(folder / name).events == stream.events


def test_what_stands_before_start_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    early = '{"INSTRUCTION":"RELEASE","NAME":"early"}'
    path.write_text("\n".join([early, START, *X, early, CALL, MEMORY, ALIAS]))
    stream = read_log(path)
    assert stream.lines == (3, 5, 6)
    assert resolve(stream).names == ("x", "y")


@pytest.mark.parametrize(
    ("lines", "line", "text"),
    [
        (["{}"], 1, "the log has no START"),
        ([START, *X, '{"INSTR'], 4, "is the file truncated"),
        ([START, *X, CALL, MEMORY], 5, "the log ends where ALIAS of 'y' must follow"),
        ([START, *X, CALL, ALIAS], 5, "where MEMORY of 'y' must follow"),
        ([START, '{"INSTRUCTION":"JUMP"}'], 2, "INSTRUCTION is 'JUMP'"),
        ([START, CALL], 2, "ARGS holds 'x', which nothing before defines"),
        ([START, X[0], X[1].replace('"4"', '"-4"')], 3, "MEMORY is '-4'"),
        ([START, *X, CALL, MEMORY, ALIAS.replace("-1", "7")], 6, "ALIAS is 7"),
        ([START, *X, *X], 4, "'x', which is defined already"),
        ([START, *X, *['{"INSTRUCTION":"RELEASE","NAME":"x"}'] * 2], 5, "no references left"),
    ],
)
def test_bad_logs(lines: list[str], line: int, text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.log"
    path.write_text("\n".join(lines))
    with pytest.raises(GraphError) as caught:
        resolve(read_log(path))
    assert str(caught.value).startswith(f"{path}: line {line}: ")
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_logs_without_events_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    for log, text in (("", "the file is empty"), (START, "no event follows START")):
        path.write_text(log)
        with pytest.raises(GraphError, match=text):
            read_log(path)
    path.write_text("\n".join([START, *X, CALL, MEMORY, "", ALIAS, "", " ", ""]))
    assert resolve(read_log(path)).names == ("x", "y")


def test_truncated_gzip_and_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.log.gz"
    packed = gzip.compress("\n".join([START, *X * 1]).encode())
    path.write_bytes(packed[:-12])
    with pytest.raises(GraphError, match=r"cut\.log\.gz: damaged or truncated gzip"):
        read_log(path)
    with pytest.raises(GraphError, match="cannot be read"):
        read_log(tmp_path / "none.log")
