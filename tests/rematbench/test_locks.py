"""Two runs in one directory take turns."""

from __future__ import annotations

import os
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from rematbench.worker.locks import alone_in


def _hold(folder: Path, pipe: Connection) -> None:
    with alone_in(folder):
        pipe.send("in")
        pipe.recv()
        (folder / "first").touch()


def test_the_second_waits_and_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    holder = spawn.Process(target=_hold, args=(tmp_path, theirs))
    holder.start()
    assert ours.recv() == "in"
    monkeypatch.setattr("builtins.print", lambda *words, **_: (ours.send("go"), os.write(2, b"w")))
    with alone_in(tmp_path):
        assert (tmp_path / "first").exists()
    holder.join()
    assert capfd.readouterr().err == "w"


def test_it_goes_with_its_process(tmp_path: Path) -> None:
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    holder = spawn.Process(target=_hold, args=(tmp_path, theirs))
    holder.start()
    assert ours.recv() == "in"
    holder.kill()
    holder.join()
    with alone_in(tmp_path):
        assert not (tmp_path / "first").exists()


def test_where_no_folder_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with alone_in(tmp_path / "file" / "below"):
        pass
