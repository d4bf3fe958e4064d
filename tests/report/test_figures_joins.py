"""The join paper's and Feng and Huang's figures, from golden rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import expected, records

from rematbench.report import figures
from rematbench.report.papers.feng_huang import memory_table
from rematbench.report.papers.joins import shape
from rematbench.report.papers.joins_tables import resnet_table
from rematbench.rows.row import make_row


@pytest.mark.parametrize("name", ["joins_fig8", "joins_fig10"])
def test_golden(name: str, tmp_path: Path) -> None:
    paths = figures.draw(name, records(name), tmp_path)
    assert paths[2].read_text() == expected(name)


def test_shapes() -> None:
    assert shape([5, 25]) == ("CM", 5)
    assert shape([10, 10, 10]) == ("SNN", 5)
    assert shape([30]) == ("RNN", 5)
    assert shape([4, 10, 12]) is None


def _row(**known: object) -> dict:
    return make_row(status="ok", **known)


def test_weights_of_a_resnet() -> None:
    images = 3 * 224 * 224 * 4 + 8
    row = _row(
        model="resnet18",
        batch_size=1,
        resolution=224,
        strategy="checkpoint_all",
        peak_bytes=3 * 2**20 + images,
        extra={"accounting": "checkmate", "resident_bytes": 2 * 2**20 + images},
    )
    found = resnet_table([row]).to_dict("records")[0]
    assert found["weights_MB"] == 1
    assert found["weights_4_copies_MB"] == 4
    assert found["peak_paper_MB"] == 230.05


def test_memory_cut_off() -> None:
    peaks = {"checkpoint_all": 200, "feng_huang": 50}
    rows = [
        _row(
            model="vgg16",
            batch_size=64,
            strategy=strategy,
            peak_bytes=peak * 2**20,
            objective=30.0 * 2**20,
            overhead=0.3,
            checkpoint_all_cost=60.0,
            extra={
                "accounting": "activations",
                "forward_cost": 21.0,
                "no_checkpoint_bytes": 120 * 2**20,
            },
        )
        for strategy, peak in peaks.items()
    ]
    found = memory_table(rows).to_dict("records")[0]
    assert found["cut"] == 0.75
    assert found["cut_by_objective"] == 0.75
    assert found["one_more_forward"] == 0.35
    assert found["chen_MB"] is None
    assert (found["cut_paper"], found["chen_paper_MB"]) == (0.31, 3957)
