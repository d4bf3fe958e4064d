"""Cost models: what they cost, what they keep, what they refuse."""

from __future__ import annotations

import gc
import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from rematbench import costmodel
from rematbench.base.errors import ConfigError
from rematbench.costmodel import device as meter, profiled
from rematbench.costmodel.device import peak_of, require, seconds_of, spread
from rematbench.costmodel.machines import MACHINES
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.tracing.alternatives import norms
from rematbench.tracing.captured import Captured
from rematbench.tracing.trace import capture
from rematbench.tracing.workload import Workload


@pytest.fixture(scope="module")
def conv() -> Captured:
    module = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU())
    return capture(
        Workload("conv", module, lambda: (torch.randn(2, 4, 16, 16),), lambda m, x: m(x).sum())
    )


def cost_of(captured: Captured, name: str, op: str) -> float:
    graph = costmodel.apply(name, captured.graph, captured)
    return graph.ops[graph.op_index[op]].cost


def test_flops_of_a_convolution(conv: Captured) -> None:
    multiply_adds = 2 * 8 * 16 * 16 * 4 * 3 * 3
    assert cost_of(conv, "flops", "convolution") == 2 * multiply_adds
    # An op without a formula counts the bytes that it moves.
    relu = 2 * 8 * 16 * 16 * 4
    assert cost_of(conv, "flops", "relu") == 2 * relu


def test_flops_of_a_grouped_convolution() -> None:
    module = nn.Conv2d(8, 8, 3, padding=1, groups=8)
    image = torch.randn(2, 8, 16, 16)
    depthwise = capture(
        Workload("depthwise", nn.Sequential(nn.BatchNorm2d(8), module), lambda: (image,),
                 lambda m, x: m(x).sum())
    )  # fmt: skip
    once = 2 * 2 * 8 * 16 * 16 * 3 * 3
    for op in ("convolution", "convolution_backward_input", "convolution_backward_weight"):
        assert cost_of(depthwise, "flops", op) == once


def test_an_op_does_not_find_its_inputs_in_the_caches(
    conv: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other data is used before each timed run, on a CPU alone."""
    used: list[str] = []
    timed: list[int] = []
    seconds_of = profiled.seconds_of

    def count(run: Callable[[], object], device: str) -> float:
        timed.append(len(used))
        return seconds_of(run, device)

    monkeypatch.setattr(profiled, "use_other_data", used.append)
    monkeypatch.setattr(profiled, "seconds_of", count)
    costmodel.apply("profiled", conv.graph, conv)
    assert len(timed) >= profiled.FEWEST_RUNS
    assert timed == [*range(1, len(timed) + 1)]
    assert {*used} == {"cpu"}


@pytest.fixture
def other_data() -> Iterator[None]:
    for function in (meter._other_data, meter._last_cache_bytes):
        function.cache_clear()
    yield
    meter._other_data.cache_clear()


@pytest.mark.parametrize(("cache", "expected"), [(2**20, 2**19), (300 * 2**20, 2**24)])
def test_other_data_is_half_of_the_last_cache_or_less(
    other_data: None, monkeypatch: pytest.MonkeyPatch, cache: int, expected: int
) -> None:
    assert meter._last_cache_bytes() > 2**17
    monkeypatch.setattr(meter, "_last_cache_bytes", lambda: cache)
    before = int(meter._other_data()[0])
    meter.use_other_data("cpu")
    assert int(meter._other_data()[-1]) == before + 1
    assert meter._other_data().nbytes == expected
    meter.use_other_data("cuda")  # nothing
    assert int(meter._other_data()[0]) == before + 1


def test_roofline_is_the_slower_of_two_limits(conv: Captured) -> None:
    for preset, machine in MACHINES.items():
        graph = costmodel.apply("roofline", conv.graph, conv, preset=preset)
        assert graph.cost_unit == "second"
        relu = graph.ops[graph.op_index["relu"]].cost
        assert relu == pytest.approx(2 * 2 * 8 * 16 * 16 * 4 / machine.bandwidth)
    with pytest.raises(ConfigError, match="cray"):
        costmodel.apply("roofline", conv.graph, conv, preset="cray")


def test_profiles_are_kept_and_used_again(conv: Captured, tmp_path: Path) -> None:
    first = costmodel.apply("profiled", conv.graph, conv, cache=tmp_path)
    assert all(op.cost > 0 for op in first.ops)
    (path,) = (tmp_path / "profiles").iterdir()
    known = json.loads(path.read_text())
    path.write_text(json.dumps({key: [7.0, 64] for key in known}))
    second = costmodel.apply("profiled", conv.graph, conv, cache=tmp_path)
    assert {(op.cost, op.implementations[0].workspace_bytes) for op in second.ops} == {(7.0, 64)}


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[1]", b'{"a": 1}', b'{"a": [-1, 0]}', b'{"a": ["x", 0]}']
)
def test_damaged_profiles_go_with_one_warning(
    conv: Captured,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    damage: bytes,
) -> None:
    # A command that Hydra ran in this process before may have switched it off.
    monkeypatch.setattr(logging.getLogger("rematbench.user"), "disabled", False)
    caplog.set_level(logging.WARNING, "rematbench.user")
    costmodel.apply("profiled", conv.graph, conv, cache=tmp_path)
    (path,) = (tmp_path / "profiles").iterdir()
    whole = set(json.loads(path.read_text()))
    path.write_bytes(damage)
    costmodel.apply("profiled", conv.graph, conv, cache=tmp_path)
    (said,) = [each for each in caplog.records if each.name == "rematbench.user"]
    assert "dropped from the cache" in said.getMessage()
    assert str(path) in said.getMessage()
    assert set(json.loads(path.read_text())) == whole


def test_profiles_that_cannot_be_written_are_not_kept(
    conv: Captured,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging.getLogger("rematbench.user"), "disabled", False)
    caplog.set_level(logging.WARNING, "rematbench.user")
    (tmp_path / "profiles").write_text("a file")
    graph = costmodel.apply("profiled", conv.graph, conv, cache=tmp_path)
    assert all(op.cost > 0 for op in graph.ops)
    text = [each.getMessage() for each in caplog.records if each.name == "rematbench.user"]
    assert ["cannot be written" in each for each in text] == [True]


def test_profiles_of_code_that_may_change_are_told_apart_or_not_kept() -> None:
    """Of PyTorch's ops the file's key says the version; of other people's nothing does."""
    assert profiled._code_of(torch.ops.aten.relu.default) == ""
    ours = profiled._code_of(norms.batch_norm_again_inplace)
    assert re.fullmatch("[0-9a-f]{16} ", ours)

    @torch.library.custom_op("test_costs::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    for target in (torch.ops.test_costs.twice.default, test_unit_and_given):
        assert profiled._code_of(target) == profiled._FLEETING


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 32, 16, dtype=torch.bfloat16))

    def forward(self, x: Tensor, ends: Tensor) -> Tensor:
        return torch._grouped_mm(x, self.weight, offs=ends)


def test_a_grouped_product_is_measured_with_all_rows_in_one_group() -> None:
    """With groups of no rows, as zeros would have it, it is free and takes nothing."""
    rows = torch.randn(64, 32, dtype=torch.bfloat16)
    batch = rows, torch.arange(16, 65, 16, dtype=torch.int32)
    captured = capture(
        Workload("experts", Experts(), lambda: batch, lambda m, *given: m(*given).square().sum())
    )
    graph = costmodel.apply("profiled", captured.graph, captured, device="cpu", cache=None)
    products = [op for op in graph.ops if op.operator == "_grouped_mm"]
    call = captured.code[products[0].name]["default"][0]
    _, given = profiled.stand_in(captured, call, "cpu")
    (ends,) = [each for each in given if not each.is_floating_point()]
    assert ends.tolist() == [64] * 4
    assert len(products) == 2  # and of the weights
    # oneDNN's product, which a processor without AVX-512 does not get, has a workspace.
    spaces = [op.implementations[0].workspace_bytes for op in products]
    assert all(space > 0 for space in spaces) == torch.ops.mkldnn._is_mkldnn_bf16_supported()


def test_unit_and_given() -> None:
    graph = unit_chain(3)
    assert costmodel.apply("given", graph, None) is graph
    assert {op.cost for op in costmodel.apply("unit", graph, None).ops} == {1}
    with pytest.raises(ConfigError, match="needs a captured model"):
        costmodel.apply("flops", graph, None)
    with pytest.raises(ConfigError, match="unknown; use one of"):
        costmodel.apply("guess", graph, None)


def test_meter_counts_what_is_live() -> None:
    def run() -> torch.Tensor:
        kept = torch.ones(1000)
        gone = torch.ones(5000)
        del gone
        return kept

    reading = peak_of(run, "cpu")
    assert reading.peak_bytes == 24_000
    assert reading.reserved_bytes is None
    assert seconds_of(run, "cpu") > 0
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == (3.0, 2.0)
    assert spread([2.0]) == (2.0, 0.0)


def test_a_peak_counts_releases_of_what_it_saw_come() -> None:
    """PyTorch's profiler tells of a release only where an earlier reading saw the allocation."""
    held: list[Tensor] = []

    def replace_it() -> None:
        held.clear()
        held.append(torch.zeros(500))

    peak_of(lambda: held.append(torch.zeros(1000)), "cpu")
    reading = peak_of(replace_it, "cpu")
    assert (reading.peak_bytes, reading.kept_bytes) == (2000, 2000)
    held.clear()
    peak_of(lambda: held.append(torch.zeros(1000)), "cpu")
    own = {held[0].untyped_storage().data_ptr(): 4000}
    reading = peak_of(replace_it, "cpu", own)
    assert (reading.peak_bytes, reading.kept_bytes) == (0, -2000)


def test_measuring_keeps_nothing() -> None:
    """A measurement's events do not wait for the collector of cycles: they may be many."""
    gc.collect()
    gc.disable()
    try:
        peak_of(lambda: torch.ones(1000).add(1), "cpu")
        assert not [
            each for each in gc.get_objects() if type(each) is torch.autograd.profiler.profile
        ]
    finally:
        gc.enable()


def test_devices() -> None:
    require("cpu")
    with pytest.raises(ConfigError, match="unknown"):
        require("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="no CUDA device"):
            require("cuda")
