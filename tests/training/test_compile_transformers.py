"""transformers' models under ``backend="rematbench"``: whose bits the gradients are."""

from __future__ import annotations

import copy
from typing import Any

import compiling
import pytest
import torch
import torch.nn.functional as F
from compiling import compile_it
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from rematbench.training.compiled import backend as compiled
from rematbench.zoo.vision import import_torchvision

_fresh = pytest.fixture(autouse=True)(compiling.fresh)
SMALL = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "use_cache": False,
}


@pytest.fixture(scope="module")
def transformers() -> Any:
    import_torchvision()
    return pytest.importorskip("transformers", reason="its models; extra: models")


class KeyHeads(TorchDispatchMode):
    """The heads that attention's keys have where it goes back."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "attention" in str(func):
            self.seen.add(args[2].shape[1])
        return func(*args, **(kwargs or {}))


def step(run: Any) -> set[int]:
    """Leaves gradients; returns the heads of attention's keys."""
    torch.manual_seed(1)
    tokens = torch.randint(64, (4, 48))
    loss = F.cross_entropy(run(tokens).logits.flatten(0, 1), tokens.flatten())
    with KeyHeads() as heads:
        loss.backward()
    return heads.seen


def gradients(model: nn.Module) -> list[Tensor]:
    return [p.grad for p in model.parameters() if p.grad is not None]


def language_model(transformers: Any, kind: str, **given: Any) -> nn.Module:
    more = {} if kind == "Gemma3Text" else {"max_position_embeddings": 64}
    config = getattr(transformers, f"{kind}Config")(**SMALL, **more, **given)
    model: nn.Module = getattr(transformers, f"{kind.removesuffix('Text')}ForCausalLM")(config)
    return model


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("Qwen3", {"head_dim": 16}),
        ("Gemma3Text", {"head_dim": 16}),
        ("Mixtral", {"num_local_experts": 4}),
    ],
    ids=lambda text: text if isinstance(text, str) else "",
)
def test_grouped_attention_has_the_bits_of_its_trace(
    transformers: Any, kind: str, given: dict[str, Any]
) -> None:
    """Compiled, transformers makes a mask, and with a mask it repeats keys and values: the trace
    adds up gradients that one kernel of eager training adds up itself."""
    model = language_model(transformers, kind, num_key_value_heads=2, **given)
    twin, traced = copy.deepcopy(model), copy.deepcopy(model)
    assert step(twin) == {2}
    assert step(torch.compile(traced, backend="aot_eager")) == {4}
    torch._dynamo.reset()
    assert step(compile_it(model, budget=0.9)) == {4}
    assert all(map(torch.equal, gradients(model), gradients(traced)))
    for one, other in zip(gradients(model), gradients(twin), strict=True):
        assert float((one - other).abs().max() / other.abs().max()) < 4e-6


@pytest.mark.parametrize(
    "given",
    [{"num_key_value_heads": 4}, {"num_key_value_heads": 2, "attn_implementation": "eager"}],
    ids=["a key for each head", "attention written out"],
)
def test_other_attention_has_eagers_bits(transformers: Any, given: dict[str, Any]) -> None:
    model = language_model(transformers, "Qwen3", head_dim=16, **given)
    twin = copy.deepcopy(model)
    step(twin)
    step(compile_it(model, budget=0.9))
    assert all(map(torch.equal, gradients(model), gradients(twin)))


class Translates(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        loss: Tensor = self.model(input_ids=tokens, labels=tokens).loss
        return loss


def test_t5_within_a_budget(transformers: Any) -> None:
    """Encoder and decoder at 0.85, by the default strategy."""
    sizes = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
    config = transformers.T5Config(
        vocab_size=64, decoder_start_token_id=0, use_cache=False, **sizes
    )
    model = Translates(transformers.T5ForConditionalGeneration(config))
    twin, tokens = copy.deepcopy(model), torch.randint(64, (8, 32))
    for run in (twin, compile_it(model, budget=0.85, strategy="anytime", time_limit=5.0)):
        torch.manual_seed(1)
        run(tokens).backward()
    assert all(map(torch.equal, gradients(model), gradients(twin)))
    (planned,) = (each.planned for each in compiled.regions if each.planned is not None)
    assert planned.trace.recomputations > 0
    assert planned.share.peak <= 0.85 * planned.base.peak_bytes
