"""PyTorch's own list of ops, captured and executed: the committed survey, and some of it anew."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from typing import Any

import pytest
import torch

from benchmarks import ops

HOUSE = ops.HOUSE
AGAIN = (
    *("H", "__getitem__", "addmm", "as_strided", "bernoulli", "cat", "cholesky_solve", "cummax"),
    *("einsum", "fft.fft", "index_add", "linalg.svd", "masked_fill", "max.reduction_with_dim"),
    *("nn.functional.batch_norm", "nn.functional.conv_transpose2d", "nn.functional.ctc_loss"),
    *("nn.functional.embedding_bag", "nn.functional.interpolate.bilinear"),
    *("nn.functional.max_unpool2d", "nn.functional.rrelu"),
    *("nn.functional.scaled_dot_product_attention", "put", "sort", "stft", "unbind"),
)
"""Ops of every kind: views, random ones, with effects, in place, complex, decomposed, composed."""


@pytest.fixture(scope="module")
def record() -> list[ops.Surveyed]:
    with ops.RECORD.open(newline="") as file:
        return ops.read(file)


def test_the_survey_has_nothing_wrong(record: list[ops.Surveyed]) -> None:
    assert len(record) > 500
    figures = ops.figures_of(record)
    assert [each.name for each in figures if not each.kept] == []
    known = {"exact", "rounding", "refused"}
    for each in record:
        assert bool(each.samples) or each.reason
        for front in ops.BOTH:
            verdicts = each.verdicts(front)
            assert sum(verdicts.values()) == each.samples
            assert set(verdicts) <= known, each
            assert each.reason or set(verdicts) <= {"exact"}


def ops_record() -> dict[str, Any]:
    record: dict[str, Any] = json.loads((HOUSE / "runs/benchmarks/ops.json").read_text())
    return record


def test_the_benchmark_counts_the_survey(record: list[ops.Surveyed]) -> None:
    counted = ops_record()["figures"]
    assert {row["figure"]: row["value"] for row in counted} == {
        each.name: each.value for each in ops.figures_of(record)
    }


def test_some_of_it_again(record: list[ops.Surveyed]) -> None:
    """In a process of its own: PyTorch's tests change PyTorch when they are imported."""
    pytest.importorskip("expecttest", reason="PyTorch's samples of its ops; extra: dev")
    command = [sys.executable, "-m", "benchmarks.ops", "--samples", "1", *AGAIN]
    done = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = ops.read(done.stdout.splitlines())
    assert [each.op for each in found] == list(AGAIN)
    recorded = {each.op: each for each in record}
    of_record = f"torch {torch.__version__};" in ops_record()["versions"]
    for each in found:  # the one sample is among those of the record
        for front in ops.BOTH:
            (verdict,) = each.verdicts(front)
            known = {*recorded[each.op].verdicts(front)}
            # TorchDynamo of another release may refuse what that of the record takes.
            assert verdict in (known if of_record else known | {"refused"}), each


def test_what_is_no_op() -> None:
    pytest.importorskip("expecttest", reason="PyTorch's samples of its ops; extra: dev")
    command = [sys.executable, "-m", "benchmarks.ops", "conv4d"]
    done = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "conv4d: no differentiable op of that name" in done.stderr


def test_verdicts_are_read_as_they_were_written() -> None:
    lines = "op,samples,trace,dynamo,reason\nprod,8,exact=6 rounding=2,exact=7 refused=1,why\n"
    (found,) = ops.read(lines.splitlines())
    assert found.verdicts("trace") == {"exact": 6, "rounding": 2}
    assert found.is_captured("trace")
    assert not found.is_captured("dynamo")
    assert next(csv.reader(lines.splitlines()[1:]))[0] == found.op
