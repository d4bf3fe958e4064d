"""The practices against PyTorch's own checkpointing: the peaks agree, the bits are eager's."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rematbench import validator
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem, Strategy
from rematbench.strategies.practice import (
    EveryLayer,
    EveryNLayers,
    SaveDots,
    SelectiveAttention,
    SelectiveOps,
)
from rematbench.tracing.captured import Captured
from rematbench.tracing.trace import capture
from rematbench.tracing.workload import Workload
from rematbench.validator.native import measure_native
from rematbench.zoo import make_model
from rematbench.zoo.vision import import_torchvision

PRACTICES: list[Strategy] = [
    *(EveryLayer(), EveryNLayers(2), SelectiveOps()),
    *(SaveDots(release="late"), SaveDots("dots_saveable", release="late")),
    SelectiveAttention(),
]
OPTIONS = {"layers": 4, "width": 64, "heads": 4, "sequence_length": 64, "vocabulary": 64}


# Hugging Face's at their small sizes: their batches, so that PyTorch's state of the random
# generator per block does not count, and options.
LIBRARIES = {
    "gpt2": (32, {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}),
    "llama3_1b": (8, {}),
}


def vision_transformer() -> Workload:
    sizes = {"image_size": 32, "patch_size": 4, "num_layers": 4, "num_heads": 4, "mlp_dim": 256}
    module = import_torchvision().models.VisionTransformer(**sizes, hidden_dim=64, num_classes=10)
    return Workload(
        "vit",
        module,
        lambda: (torch.randn(16, 3, 32, 32), torch.randint(10, (16,))),
        lambda model, x, y: F.cross_entropy(model(x), y),
    )


@functools.cache
def captured(name: str) -> Captured:
    torch.manual_seed(0)
    if name in LIBRARIES:
        pytest.importorskip("transformers", reason="the extra `models` is not installed")
        import_torchvision()
        batch_size, options = LIBRARIES[name]
        return capture(make_model(name, size="small", batch_size=batch_size, **options))
    workload = (
        make_model("transformer_lm", batch_size=4, dropout=0.0, **OPTIONS)
        if name == "transformer_lm"
        else vision_transformer()
    )
    # Without them, not at 0: eager mode then makes no mask, a trace does.
    for module in list(workload.module.modules()):
        for child, part in list(module.named_children()):
            if isinstance(part, nn.Dropout):
                setattr(module, child, nn.Identity())
    return capture(workload)


@pytest.mark.parametrize("strategy", PRACTICES, ids=lambda s: repr(s).replace(" ", ""))
@pytest.mark.parametrize("name", ["transformer_lm", "vit", *LIBRARIES])
def test_peaks_are_those_of_pytorchs_own_checkpointing(name: str, strategy: Strategy) -> None:
    model = captured(name)
    solution = strategy.plan(Problem(model.graph, captured=model))
    assert solution.plan is not None
    assert solution.native is not None
    found = measure_native(model, solution.native, "cpu", repeats=1)
    assert found.status == "ok"
    assert found.gradient_bitwise
    # Fused attention leaves little to drop, two layers every second one: the generator's state.
    slack = 1.01 if name in LIBRARIES else 1.0
    assert found.measured_peak_bytes < slack * found.eager_peak_bytes
    assert found.wrapped == solution.native.modules
    measured = validator.measure(model, solution.plan, device="cpu", repeats=1)
    assert measured.reason is None
    assert measured.gradient_bitwise
    simulated = simulate(model.graph, solution.plan).peak_bytes
    for peak in (simulated, measured.measured_peak_bytes):
        assert peak == pytest.approx(found.measured_peak_bytes, rel=0.01)
