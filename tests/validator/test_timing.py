"""Measured times on a machine that does other work, too: turns, spikes, intervals."""

from __future__ import annotations

from math import comb, inf
from pathlib import Path

import numpy as np
import pytest

from rematbench.graphs.plan import program_order
from rematbench.report.collect import collect
from rematbench.tracing.trace import capture
from rematbench.validator import Validator, check, generate, measure
from rematbench.validator.timing import Ratio, Timing, quiet_turns
from rematbench.zoo import make_model

HOUSE = Path(__file__).parents[2]


def test_the_interval_by_hand() -> None:
    """Of ten values, the second and the ninth: 97.9 %; the third and the eighth hold 89.1 %."""
    eager, planned = [1.0] * 10, [1.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8]
    ratio = Ratio.of(planned, eager)
    assert (ratio.median, ratio.low, ratio.high) == (pytest.approx(1.45), 1.1, 1.8)
    assert ratio.overhead == (pytest.approx(0.1), pytest.approx(0.8))
    assert ratio.half_width == pytest.approx(0.35 / 1.45)
    outside = 2 * (comb(10, 0) + comb(10, 1)) / 2**10
    assert outside < 0.05 < outside + 2 * comb(10, 2) / 2**10


@pytest.mark.parametrize("count", [1, 2, 5, 6, 9, 30, 200])
def test_the_interval_has_the_median_in_it(count: int) -> None:
    planned = np.random.default_rng(count).lognormal(size=count).tolist()
    ratio = Ratio.of(planned, [1.0] * count)
    assert ratio.low <= ratio.median <= ratio.high
    assert ratio.turns == count
    assert (ratio.half_width == inf) == (count < 6)


def test_nineteen_of_twenty_intervals_hold_the_true_ratio() -> None:
    """On a machine whose speed drifts, and halves now and then: both steps of a turn feel it."""
    random, held, turns = np.random.default_rng(0), 0, 25
    for _ in range(400):
        speed = np.cumprod(random.lognormal(0, 0.05, turns)) * random.choice([1, 2], turns)
        eager = speed * random.lognormal(0, 0.02, turns)
        planned = 1.2 * speed * random.lognormal(0, 0.02, turns)
        ratio = Ratio.of(planned.tolist(), eager.tolist())
        held += ratio.low <= 1.2 <= ratio.high
    assert held >= 0.93 * 400


def test_a_spike_is_told_by_the_eager_step_beside() -> None:
    eager = [1.0, 1.01, 0.99, 5.0, 1.0, 1.02, 0.98, 1.0]
    planned = [1.2, 1.21, 1.19, 30.0, 1.2, 1.2, 1.2, 1.2]
    assert quiet_turns(eager) == [0, 1, 2, 4, 5, 6, 7]
    ratio = Ratio.of(planned, eager)
    assert (ratio.turns, ratio.spikes) == (7, 1)
    assert ratio.high < 1.25
    assert quiet_turns([1.0, 1.0, 1.0, 1.05, 1.0]) == [0, 1, 2, 3, 4]  # no more than a flutter


def test_turns_go_on_until_the_interval_is_narrow() -> None:
    narrow = [[1.2] * 6], [1.0] * 6
    wide = [[1.0, 1.4] * 3], [1.0] * 6
    assert Timing(5).enough([[1.0, 1.4] * 3], [1.0] * 6)
    assert not Timing(7, 0.03).enough(*narrow)
    assert Timing(6, 0.03).enough(*narrow)
    assert not Timing(3, 0.03).enough([[1.2] * 5], [1.0] * 5)  # no interval of 95 %
    assert not Timing(6, 0.03).enough(*wide)
    assert not Timing(6, 0.03).enough([*narrow[0], *wide[0]], [1.0] * 6)  # every plan's


def test_steps_are_measured_until_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the clock of a machine that is disturbed in every seventh turn."""
    captured = capture(make_model("mobilenet_v1", width=0.25, resolution=32))
    validator = Validator(captured, "cpu", 0)
    program = generate(captured, program_order(captured.graph))
    random, calls = np.random.default_rng(1), []

    def seconds_of(run: object, device: str) -> float:
        turn = len(calls) // 2
        calls.append(run)
        usual = random.lognormal(0, 0.05) * (9.0 if turn % 7 == 3 else 1.0)
        return usual if len(calls) % 2 == 0 else 1.1 * usual

    monkeypatch.setattr(check, "seconds_of", seconds_of)
    (planned,), eager = validator.times([program], Timing(5, 0.03))
    ratio = Ratio.of(planned, eager)
    assert ratio.half_width <= 0.03
    assert ratio.low <= 1.1 <= ratio.high
    assert ratio.spikes == sum(turn % 7 == 3 for turn in range(len(eager)))
    again, _ = validator.times([program], Timing(5, 1e-9, seconds=0.0))
    assert len(again[0]) == 3


def test_a_row_has_the_interval() -> None:
    captured = capture(make_model("mobilenet_v1", width=0.25, resolution=32, batch_size=2))
    order = program_order(captured.graph)
    found = measure(captured, order, device="cpu", repeats=6, within=0.5, seconds=20)
    assert found.measured_overhead_interval is not None
    low, high = found.measured_overhead_interval
    assert low <= found.measured_overhead <= high
    assert found.measured_repeats + found.measured_spikes >= 6


def test_ordinary_training_is_as_long_as_itself_in_the_committed_rows() -> None:
    """The quickstart's: checkpoint-all's interval has 0 in it, on every network."""
    rows = collect([HOUSE / "runs" / "reference" / "quickstart-cpu" / "leaderboard.csv"]).rows
    found = {
        row["model"]: row["extra"]["measured_overhead_interval"]
        for row in rows
        if row["strategy"] == "checkpoint_all"
    }
    assert len(found) == 3
    assert all(low <= 0 <= high for low, high in found.values()), found
