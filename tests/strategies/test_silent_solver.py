"""HiGHS says nothing on the console."""

from __future__ import annotations

import os

import highspy
import pytest

from rematbench.engines.lp import solver


def test_the_banner_of_the_first_object_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As 1.16 prints it, past Python."""
    real, made = highspy.Highs, []

    class Announced(real):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            if not made:
                os.write(1, b"Running HiGHS\n")
            made.append(self)
            super().__init__()

    monkeypatch.setattr(highspy, "Highs", Announced)
    solver._take_banner.cache_clear()
    for _ in range(2):
        solver._silent(1, 0)
    print("ours", flush=True)
    assert capfd.readouterr().out == "ours\n"
    assert len(made) == 3
