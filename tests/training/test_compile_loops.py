"""Other libraries' training loops, with only our line added."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import compiling
import pytest
import torch
import torch.nn.functional as F
from compiling import options
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from rematbench.tracing.releases import RELEASE
from rematbench.training.compiled import backend as compiled
from rematbench.zoo.vision import import_torchvision

_fresh = pytest.fixture(autouse=True)(compiling.fresh)


class Network(nn.Module):
    """A module of one's own: Dynamo does not look into a ``Sequential`` that compiles itself."""

    def __init__(self) -> None:
        super().__init__()
        parts = [m for _ in range(5) for m in (nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.1))]
        self.body = nn.Sequential(*parts, nn.Linear(16, 4))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.body(x)
        return found


def batches(count: int = 4, size: int = 512) -> DataLoader[tuple[Tensor, ...]]:
    rows = count * size
    return DataLoader(TensorDataset(torch.randn(rows, 16), torch.randint(4, (rows,))), size)


def assert_trained_alike(model: nn.Module, twin: nn.Module) -> None:
    """Every parameter, bit for bit, by a plan that computes something again."""
    assert all(map(torch.equal, model.state_dict().values(), twin.state_dict().values()))
    plans = [plan for each in compiled.regions for plan in each.plans]
    assert sum(plan.trace.recomputations for plan in plans) > 0


def plainly(model: nn.Module, data: Any) -> None:
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in data:
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()


def test_plain_loop() -> None:
    model, data = Network(), batches()
    twin = copy.deepcopy(model)
    plainly(twin, data)
    model.compile(backend="rematbench", options=options())
    plainly(model, data)
    assert_trained_alike(model, twin)


def test_a_sequential_that_compiles_itself() -> None:
    """Before 2.15 Dynamo looks into PyTorch's own code only when asked, whatever the backend."""
    body, x = Network().body, torch.randn(512, 16)
    graphs: list[Any] = []
    body.compile(backend=lambda module, inputs: graphs.append(module) or module)
    body(x).sum().backward()
    assert bool(graphs) == RELEASE.sees_sequentials
    torch.compile(Network().body, backend="rematbench", options=options())(x).sum().backward()
    assert [each.name for each in compiled.regions] == ["Sequential"]


def by_accelerate(model: nn.Module, data: Any) -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate's loop; extra: models")
    torch.manual_seed(1)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for x, y in data:
        with accelerator.accumulate(model):
            loss = F.cross_entropy(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


def test_accelerate() -> None:
    model, data = Network(), batches()
    twin = copy.deepcopy(model)
    by_accelerate(twin, data)
    model.compile(backend="rematbench", options=options())
    by_accelerate(model, data)
    assert_trained_alike(model, twin)


def lightning_module(net: nn.Module, logs: bool) -> Any:
    import_torchvision()
    lightning = pytest.importorskip("pytorch_lightning", reason="Lightning's loop; extra: dev")

    class Classifier(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def training_step(self, batch: tuple[Tensor, Tensor], number: int) -> Tensor:
            x, y = batch
            loss = F.cross_entropy(self.net(x), y)
            if logs:
                self.log("loss", loss)
            return loss

        def validation_step(self, batch: tuple[Tensor, Tensor], number: int) -> None:
            self.log("validation", F.cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    return Classifier()


def by_lightning(module: Any, data: Any, folder: Path) -> None:
    import pytorch_lightning as lightning

    torch.manual_seed(1)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", default_root_dir=folder, gradient_clip_val=1.0, **quiet
    )
    trainer.fit(module, data, data)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", ["step", "network"])
def test_lightning(how: str, tmp_path: Path) -> None:
    """The network in it, or all of its step, which Dynamo takes where it logs nothing."""
    net, data, logs = Network(), batches(), how == "network"
    twin = copy.deepcopy(net)
    by_lightning(lightning_module(twin, logs), data, tmp_path)
    module = lightning_module(net, logs)
    if how == "network":
        net.compile(backend="rematbench", options=options())
    else:
        module = torch.compile(module, backend="rematbench", options=options())
    by_lightning(module, data, tmp_path)
    assert_trained_alike(net, twin)


def language_model() -> tuple[Any, nn.Module]:
    """transformers, and a small GPT-2 of its."""
    import_torchvision()
    transformers = pytest.importorskip("transformers", reason="Trainer's loop; extra: models")
    config = transformers.GPT2Config(
        **{"vocab_size": 64, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2},
        use_cache=False,
        attn_implementation="eager",
    )
    return transformers, transformers.GPT2LMHeadModel(config)


def by_trainer(transformers: Any, model: nn.Module, folder: Path, **given: Any) -> Any:
    """As transformers' run_clm.py trains: blocks of one length, evaluated in between."""
    torch.manual_seed(0)
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(64, (32, 32))]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=3,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        **given,
    )
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=rows, eval_dataset=rows[:8]
    )
    trainer.train()
    return trainer


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("regions", [False, True], ids=["as it is", "gradient_checkpointing"])
def test_trainer(regions: bool, tmp_path: Path) -> None:
    transformers, model = language_model()
    twin = copy.deepcopy(model)
    given = {"gradient_checkpointing": True} if regions else {}
    by_trainer(transformers, twin, tmp_path, **given)
    model.compile(backend="rematbench", options=options(budget=1.0 if regions else 0.9))
    by_trainer(transformers, model, tmp_path, **given)
    assert_trained_alike(model, twin)


def test_trainers_own_option_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By accelerate, whose list of backends is closed; the documented line is another."""
    for name in ("BACKEND", "MODE"):
        monkeypatch.setenv(f"ACCELERATE_DYNAMO_{name}", "")  # what it sets is gone afterwards
        monkeypatch.delenv(f"ACCELERATE_DYNAMO_{name}")
    transformers, model = language_model()
    given = {"torch_compile": True, "torch_compile_backend": "rematbench"}
    with pytest.raises(ValueError, match="not a valid DynamoBackend"):
        by_trainer(transformers, model, tmp_path, **given)
