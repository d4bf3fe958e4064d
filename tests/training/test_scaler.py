"""A gradient scaler's ``scale``, ``unscale_``, ``step`` and ``update`` around a compiled step."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compiling import compile_it, fresh
from torch import Tensor, nn

from rematbench.training.compiled import backend as compiled

_fresh = pytest.fixture(autouse=True)(fresh)


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [m for _ in range(6) for m in (nn.Linear(32, 32), nn.GELU(), nn.Dropout(0.1))]
    return nn.Sequential(*layers, nn.Linear(32, 4))


def train(
    model: nn.Module, run: Any, overflow: int, autocast: bool
) -> tuple[list[Tensor], list[float]]:
    """Losses and scales of six steps; the gradient of one overflows."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    losses, scales = [], []
    for number in range(6):
        torch.manual_seed(number)
        x, y = torch.randn(512, 32), torch.randint(4, (512,))
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = F.cross_entropy(run(x), y)
        optimizer.zero_grad()
        scaler.scale(loss * (float("inf") if number == overflow else 1)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
        scales.append(scaler.get_scale())
    return losses, scales


@pytest.mark.parametrize("autocast", [False, True])
def test_steps_of_a_scaler(autocast: bool) -> None:
    """In float32 those of the uncompiled loop, under autocast those of ``aot_eager``: traced, it
    casts each weight once per use, and the last bits are others than the uncompiled ones."""
    model = network()
    twin = copy.deepcopy(model)
    other = torch.compile(twin, backend="aot_eager") if autocast else twin
    losses, scales = train(twin, other, 3, autocast)
    torch._dynamo.reset()
    run = compile_it(model, budget=0.8)
    found, found_scales = train(model, run, 3, autocast)
    assert all(map(torch.equal, found, losses))
    assert found_scales == scales
    assert scales[3] < scales[2]  # the step that overflowed was left out
    assert scales[5] > scales[4]
    assert all(map(torch.equal, model.parameters(), twin.parameters()))
    planned = [each.planned for each in compiled.regions if each.planned is not None]
    assert any(each.trace.recomputations for each in planned)
