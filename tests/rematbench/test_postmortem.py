"""What a dead worker's row says of its death."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from rematbench.worker import process_memory
from rematbench.worker.postmortem import Witness

GIB = 2**30


def witness(most: int, left: float) -> Witness:
    return Witness(1, most=most, least_free=left, killed_before=0)


@pytest.mark.parametrize(
    ("left", "kills", "status", "said"),
    [
        (
            9 * GIB,
            0,
            "failed",
            "not short: it held at most 4.00 GiB, 9.00 GiB were left",
        ),
        (9 * GIB, 1, "out_of_memory", "the kernel killed the worker during 'plan' because memory"),
        (GIB // 64, 0, "out_of_memory", "most likely because memory ran out"),
        (9 * GIB, None, "failed", "signal 9 (SIGKILL), sent by another program"),
    ],
)
def test_killed(
    left: int, kills: int | None, status: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_memory, "kills", lambda: kills)
    row = witness(4 * GIB, left).verdict(-signal.SIGKILL, "", "plan")
    assert row["status"] == status
    assert said in row["reason"]


def test_crashed_and_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = tmp_path / "model.py"
    model.write_text("")
    log = (
        "loading\nFatal Python error: Segmentation fault\n\n"
        "Current thread 0x1 (most recent call first):\n"
        f'  File "{signal.__file__}", line 3 in deep\n  File "{model}", line 7 in make\n'
    )
    row = witness(0, GIB).verdict(-signal.SIGSEGV, log, "capture")
    expected = "the worker was ended by signal 11 (SIGSEGV) during 'capture' at model.py:7 in make"
    assert row == {"status": "failed", "reason": f"{expected}; it last said: loading"}
    row = witness(0, GIB).verdict(0, "", "")
    assert row["reason"].startswith("the worker ended itself with exit code 0: the model's code")
