"""Devices by their names: each call of the interface, on a stand-in and as PyTorch has it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_device import NAME, TOTAL, fake_device

from rematbench.base.errors import ConfigError
from rematbench.cli.conf_keys import choices_of
from rematbench.costmodel.device import PeakReading, free_memory, peak_of, require, seconds_of
from rematbench.jobs.settings import DEVICES
from rematbench.tracing.devices import Accelerator, accelerator_of, device_among, device_of


def test_every_device_can_be_chosen() -> None:
    assert sorted(DEVICES) == choices_of("device")
    assert [device_of(name).name for name in DEVICES if name != "none"] == list(DEVICES[1:])
    with pytest.raises(ConfigError, match=r"device=tpu: unknown; use cpu, cuda, xpu, mps or none"):
        device_of("tpu")


@pytest.mark.parametrize("name", ["cuda", "xpu", "mps"])
def test_pytorch_has_what_is_asked_of_it(name: str) -> None:
    module = torch.get_device_module(name)
    asked = ["Event", "device_count", "get_rng_state", "set_rng_state", "is_available"]
    asked += ["set_per_process_memory_fraction"]
    if name != "mps":  # which has no streams, and one device without a name
        asked += ["get_device_name", "Stream", "current_stream", "set_stream", "stream"]
    assert [each for each in asked if not hasattr(module, each)] == []


def test_every_call_of_an_accelerator() -> None:
    accelerator = accelerator_of(NAME)
    assert accelerator is not None
    with fake_device() as fake:
        require(NAME)
        assert accelerator.hardware() == "Fake Device 9"
        assert accelerator.memory() == (TOTAL // 2, TOTAL)
        assert 0 <= seconds_of(lambda: None, NAME) < 1
        held = torch.zeros(1000, device=NAME)
        kept = []
        assert free_memory(NAME) == TOTAL // 2 + (2 << 20) - 4096
        # 4,000 bytes stay, 40,000 go; the allocator gives multiples of 512 and takes 2 MiB.
        reading = peak_of(lambda: kept.append((held + 1, held.repeat(10).sum())), NAME)
        assert reading == PeakReading(
            4096 + 40448 + 512, 4096 + 512, (2 << 20) - 4096, (2 << 20) - 45056 - 4096, 44004
        )
        accelerator.limit_memory(TOTAL // 4)
        assert fake.share == 0.25
        accelerator.limit_memory(None)
        assert fake.share == 1.0
        state = accelerator.get_state()
        drawn = torch.rand(3, device=NAME)
        with accelerator.forked_random():
            torch.rand(5, device=NAME)
        later = torch.rand(3, device=NAME)
        accelerator.set_state(state)
        assert torch.equal(torch.rand(3, device=NAME), drawn)
        assert torch.equal(torch.rand(3, device=NAME), later)
        stream = accelerator.new_stream()
        with accelerator.on(stream):
            pass
        accelerator.set_stream(stream)
        assert accelerator.current_stream() is stream
        accelerator.empty_cache()
    assert fake.calls == {
        *("current_accelerator", "synchronize", "memory_stats", "reset_peak_memory_stats"),
        *("get_memory_info", "empty_cache", "get_device_name", "set_per_process_memory_fraction"),
        *("get_rng_state", "set_rng_state", "device_count", "current_stream", "set_stream"),
        "stream",
    }


def test_an_accelerator_without_memory_statistics() -> None:
    """PyTorch 2.11 on MPS, whose allocator is none of those that count."""
    with fake_device() as fake:

        def none() -> None:
            raise RuntimeError("Allocator for mps is not a DeviceAllocator.")

        fake.patch.setattr(torch.accelerator, "memory_stats", none)
        with pytest.raises(ConfigError) as caught:
            require(NAME)
    assert str(caught.value) == (
        f"device=xpu: PyTorch {torch.__version__} keeps no memory statistics of it, so that no "
        "peak can be measured; install a later PyTorch, or use device=none"
    )


def test_an_allocator_that_counts_no_requests() -> None:
    with fake_device() as fake:
        counted = fake.allocator.statistics

        def fewer() -> dict[str, int]:
            return {key: size for key, size in counted().items() if "requested" not in key}

        fake.patch.setattr(torch.accelerator, "memory_stats", fewer)
        reading = peak_of(lambda: torch.zeros(128), NAME)
    assert (reading.peak_bytes, reading.requested_bytes) == (512, None)


def test_the_device_of_tensors() -> None:
    plain, meta = torch.zeros(1), torch.zeros(1, device="meta")
    assert device_among([]).name == device_among([plain, meta]).name == "cpu"
    there: Any = SimpleNamespace(device=torch.device("cuda:1"))
    assert device_among([plain, there]) == Accelerator("cuda")


def test_a_device_without_a_name_is_called_by_its_processor() -> None:
    assert device_of("mps").hardware() == f"{device_of('cpu').hardware()}, MPS"
