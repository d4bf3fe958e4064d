"""The recorder: what a step does, as events; and the command."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rematbench.cli.record as command
from rematbench.base.errors import CaptureError
from rematbench.costmodel.device import peak_of
from rematbench.streams.events import (
    Annotate,
    Call,
    Constant,
    EventStream,
    Mutate,
    Release,
)
from rematbench.streams.log import read_log, write_log
from rematbench.tracing.recorder import record, record_workload
from rematbench.zoo import make_model

LOGS = Path(__file__).parents[1] / "data"
MODELS = {
    "tree_lstm": {"batch_size": 8, "depth": 3, "hidden": 32, "embedding": 32, "vocabulary": 20},
    "lstm_lm": {"batch_size": 8, "sequence_length": 6, "hidden": 32, "vocabulary": 20},
    "transformer_lm": {
        "batch_size": 2,
        "layers": 2,
        "width": 32,
        "heads": 2,
        "sequence_length": 16,
        "vocabulary": 20,
    },
    "unet": {"batch_size": 1, "resolution": "32x32", "base_channels": 4},
    "resnet18": {"batch_size": 2, "resolution": 32, "num_classes": 10},
    "densenet_bc": {"batch_size": 2, "depth": 22},
}


def replay(stream: EventStream) -> tuple[int, int]:
    """Play with all memory in the world; checks that only live names are read.

    Returns:
        The most live bytes, and those at the end, both above the constants' of the start.
    """
    size: dict[str, int] = {}  # by storage, which the name of its first tensor stands for
    holder: dict[str, str] = {}  # storage of each live name
    live = peak = base = 0
    for event in stream.events:
        if isinstance(event, Constant):
            holder[event.name], size[event.name] = event.name, event.bytes
            live += event.bytes
            base = base if peak else live
        elif isinstance(event, Call):
            assert all(name in holder for name in event.arguments)
            for result in event.results:
                source = None if result.alias is None else event.arguments[result.alias]
                holder[result.name] = result.name if source is None else holder[source]
                if source is None:
                    size[result.name] = result.bytes
                    live += result.bytes
            peak = max(peak, live)
        elif isinstance(event, Mutate):
            assert all(name in holder for name in event.arguments)
        elif isinstance(event, Release):
            storage = holder.pop(event.name)
            if storage not in holder.values():
                live -= size[storage]
    return peak - base, live - base


@pytest.mark.parametrize("name", MODELS)
def test_the_zoo(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    workload = make_model(name, **MODELS[name])
    stream = record_workload(workload)
    write_log(tmp_path / "x.log.gz", stream)
    assert read_log(tmp_path / "x.log.gz").events == stream.events
    assert sum(isinstance(e, Annotate) and e.text == "BACKWARD" for e in stream.events) == 1

    def eager() -> Tensor:
        loss = workload(*batch)
        loss.backward()
        return loss

    batch = workload.make_batch()
    reading = peak_of(eager, "cpu")
    peak, kept = replay(stream)
    assert kept == sum(p.numel() * p.element_size() for p in workload.module.parameters()) + 4
    # Workspaces are not in the stream.
    assert 0.6 * reading.peak_bytes <= peak <= 1.01 * reading.peak_bytes
    if name.endswith(("lstm", "lm")):
        assert peak >= 0.99 * reading.peak_bytes


class _Loop(nn.Module):
    """As many layers as the data says, with writes in place and through a view."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        while x.sum().item() < 100:
            x = x + F.relu_(self.norm(self.layer(x))) + 1
        x = x.clone()
        x[:, 0].add_(1.0)
        return F.dropout(x, 0.5).mean()


def test_dynamic_control_flow_and_mutations() -> None:
    torch.manual_seed(0)
    module = _Loop()
    stream = record(module, [torch.zeros(8, 4)])
    short = record(module, [torch.full((8, 4), 2.5)])
    assert len(stream.events) > len(short.events)
    mutations = [e for e in stream.events if isinstance(e, Mutate)]
    assert {"relu_", "add_", "native_batch_norm"} <= {e.op for e in mutations}
    statistics = next(e for e in mutations if e.op == "native_batch_norm")
    assert len(statistics.mutated) == 2
    # A write through a view: afterwards the other names of that storage are gone.
    base, view = next(
        (e.arguments[0], e.results[0].name)
        for e in stream.events
        if isinstance(e, Call) and e.op == "select"
    )
    write = next(e for e in mutations if e.arguments[0] == view)
    place = stream.events.index(write)
    assert stream.events[place + 1] == Release(base)
    assert any(isinstance(e, Call) and e.op == "_local_scalar_dense" for e in stream.events)
    replay(stream)


def test_the_module_is_left_as_it_was() -> None:
    torch.manual_seed(0)
    module = _Loop()
    module.layer.weight.grad = torch.ones(4, 4)
    state = {name: t.clone() for name, t in module.state_dict().items()}
    generator = torch.get_rng_state()
    record(module, [torch.full((8, 4), 1.0)])
    assert torch.equal(torch.get_rng_state(), generator)
    assert torch.equal(module.layer.weight.grad, torch.ones(4, 4))
    assert module.layer.bias.grad is None
    assert all(torch.equal(t, state[name]) for name, t in module.state_dict().items())


def test_a_step_without_a_scalar_loss() -> None:
    with pytest.raises(CaptureError, match="not a scalar"):
        record(nn.Linear(2, 2), [torch.ones(3, 2)])


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.log")), ids=lambda path: path.stem)
def test_the_committed_logs(path: Path) -> None:
    peak, kept = replay(read_log(path))
    assert peak > kept > 0


def run_command(monkeypatch: pytest.MonkeyPatch, *overrides: str) -> int:
    monkeypatch.setattr("sys.argv", ["rematbench-record", *overrides])
    try:
        command.main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "x.log.gz"
    tiny = ["batch_size=2", "model.options.depth=1", "model.options.hidden=4"]
    assert run_command(monkeypatch, "model=tree_lstm", *tiny, f"out={out}") == 0
    assert "calls" in capsys.readouterr().out
    assert replay(read_log(out))[0] > 0
    for override, says in {
        "out=x.txt": "ends in .log",
        "seed=-1": "whole number",
        "model=unit_chain": "not a PyTorch model",
        "device=none": "use cpu, cuda",
    }.items():
        given = ["out=/tmp/never.log", override] if not override.startswith("out") else [override]
        assert run_command(monkeypatch, *given) == 2
        error = capsys.readouterr().err
        assert says in error
        assert error.count("\n") == 1


def test_an_interrupted_recording_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "the_worker", interrupt)
    assert run_command(monkeypatch, f"out={tmp_path / 'x.log'}") == 130
    assert list(tmp_path.iterdir()) == []
