"""Models of transformers, diffusers and timm: captured, executed, of the published size."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from executed import check_executed
from fronts import check_same_graph

from rematbench.base.errors import ConfigError
from rematbench.conf.published import LIBRARIES, of_libraries, sized
from rematbench.strategies.chen import LinearizedSqrt
from rematbench.tracing import Workload, capture
from rematbench.zoo import LIBRARY_NAMES, make_model
from rematbench.zoo.vision import import_torchvision

# Millions of parameters, as published.
MILLIONS = {
    "gpt2": 124.4,
    "gpt2_xl": 1557.6,
    "llama3_1b": 1236,
    "llama3_8b": 8030,
    "qwen3_4b": 4022,
    "gemma3_1b": 1000,
    "mixtral": 46703,
    "bert_large": 335,
    "t5_large": 738,
    "whisper_small": 241.7,
    "vit_l_16": 304.3,
    "convnextv2_base": 88.7,
    "swin_b": 87.8,
    "sd15_unet": 860,
    "sdxl_unet": 2567,
    "dit_xl_2": 750,  # the paper's 675, and an embedding of time and class in every block
}


def make(name: str, **options: Any) -> Workload:
    """A model, or the reason why its library is not here."""
    import_torchvision()
    library = of_libraries()[name]["kind"]
    pytest.importorskip(library, reason=f"{library} is not installed (the extra models)")
    torch.manual_seed(0)
    return make_model(name, **options)


def trained(module: torch.nn.Module) -> set[str]:
    return {name for name, parameter in module.named_parameters() if parameter.requires_grad}


def test_every_configuration_is_a_models() -> None:
    assert set(LIBRARY_NAMES) == {*MILLIONS, *LIBRARIES}


@pytest.mark.parametrize("name", MILLIONS)
def test_small(name: str) -> None:
    workload = make(name, size="small")
    captured = check_same_graph(workload)
    assert set(captured.gradients) == trained(workload.module)
    check_executed(LinearizedSqrt(), captured, None)


def test_a_set_of_words_has_the_order_of_its_layers() -> None:
    """By hashes the step's graph would differ from process to process."""
    with torch.device("meta"):
        module = make("gemma3_1b", size="small").module
    (name,) = {type(part).__module__ for part in module.modules() if "gemma3" in str(type(part))}
    words = [*map(str, range(9)), "0"]
    assert [*vars(sys.modules[name])["set"](words)] == words[:-1]


@pytest.mark.parametrize("name", MILLIONS)
def test_published(name: str) -> None:
    with torch.device("meta"):
        module = make(name).module
    found = sum(parameter.numel() for parameter in module.parameters()) / 1e6
    assert found == pytest.approx(MILLIONS[name], rel=0.001)


LLAMA = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "vocab_size": 50}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1}
BLOCKS = {"block_out_channels": [8, 16], "layers_per_block": 1, "norm_num_groups": 4}
IMAGES = {"down_block_types": ["DownBlock2D"] * 2, "up_block_types": ["UpBlock2D"] * 2}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("transformers", {"config": "LlamaConfig", "sequence_length": 8, **LLAMA, **HEADS}),
        ("transformers", {"config": "ViTConfig", "image_size": 32, **LLAMA, "vocab_size": None}),
        ("timm", {"arch": "vit_tiny_patch16_224", "depth": 1, "img_size": 32, "resolution": 32}),
        ("diffusers", {"config": "UNet2DModel", "sample_size": 8, **BLOCKS, **IMAGES}),
        ("gpt2", {"size": "small", "attention": "eager"}),
        ("gpt2", {"size": "small", "autocast": "bfloat16"}),
        ("llama3_1b", {"size": "small", "dtype": "bfloat16", "attention": "eager"}),
        ("gemma3_1b", {"size": "small", "attention": "eager"}),
        ("whisper_small", {"size": "small", "dtype": "bfloat16"}),
        ("swin_b", {"size": "small", "attention": "eager"}),
        ("dit_xl_2", {"size": "small", "attention": "eager", "autocast": "bfloat16"}),
    ],
)
def test_options(name: str, options: dict[str, Any]) -> None:
    given = {key: value for key, value in options.items() if value is not None}
    if options.get("vocab_size", 0) is None:
        given |= {"num_attention_heads": 2}
    captured = capture(make(name, batch_size=2, **given))
    names = [op.name for op in captured.graph.ops]
    assert not ("attention" in options and any("scaled_dot_product" in each for each in names))
    types = {spec.dtype for spec in captured.tensors.values()}
    low = {"dtype", "autocast"} & set(options)
    assert (torch.bfloat16 in types) == bool(low)
    check_executed(LinearizedSqrt(), captured, None)


@pytest.mark.parametrize("name", ["gpt2", "sd15_unet", "vit_l_16"])
def test_lora(name: str) -> None:
    workload = make(name, size="small", lora=4)
    names = trained(workload.module)
    assert names
    assert all(each.endswith((".down", ".up")) for each in names)
    with torch.no_grad():  # zeros at first: half of the gradients would be, too
        for each in names:
            workload.module.get_parameter(each).normal_(std=0.02)
    captured = capture(workload)
    assert set(captured.gradients) == names
    check_executed(LinearizedSqrt(), captured, None)


def test_scores_have_no_adapter() -> None:
    module = make("llama3_1b", size="small", lora=2, tie_word_embeddings=False).module
    assert type(module.lm_head) is torch.nn.Linear
    assert type(module.model.layers[0].self_attn.q_proj) is not torch.nn.Linear


def test_size() -> None:
    """What is given goes before what the size says, and that before what is published."""
    section = {"batch_size": 8, "dtype": "bfloat16", "options": {"a": 1, "b": 2, "c": 3}}
    small = {"batch_size": 2, "dtype": None, "options": {"a": 10, "b": 20}}
    model = {"size": "small", "options": {"a": 100}, "published": section, "small": small}
    found = sized(model)
    assert found["options"] == {"a": 100, "b": 20, "c": 3}
    assert (found["batch_size"], found["own_dtype"]) == (2, None)
    assert sized(found) == found
    plain = sized(model | {"size": "published", "batch_size": 4})
    assert (plain["batch_size"], plain["own_dtype"]) == (4, "bfloat16")


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("transformers", {"config": "LamaConfig"}, "did you mean LlamaConfig"),
        ("transformers", {"config": "LlamaConfig", "task": "seq2seq"}, "LlamaConfig has no model"),
        ("transformers", {"config": "LlamaConfig", "task": "speech"}, "speech_to_text"),
        ("transformers", {"config": "CLIPTextConfig"}, "no model for a task that is known here"),
        ("transformers", {"config": "LlamaConfig", "hidden_size": "wide"}, "expected int"),
        ("diffusers", {"config": "UNet2DConditonModel"}, "did you mean UNet2DConditionModel"),
        ("diffusers", {"config": "UNet2DModel", "layer_per_block": 1}, "did you mean layers_per"),
        ("diffusers", {"config": "UNet2DModel", "down_block_types": ["Down"] * 4}, "Down"),
        ("timm", {"arch": "vit_tiny_patch16_244"}, "did you mean vit_tiny_patch16_224"),
        ("timm", {"arch": "vit_tiny_patch16_224", "dept": 1}, "did you mean depth"),
        ("timm", {"arch": 3}, "model.arch=3: give the name of one"),
        ("gpt2", {"size": "small", "autocast": "int8"}, "give one of bfloat16, float16"),
        ("gpt2", {"size": "small", "lora": 0}, "give a rank"),
        ("gpt2", {"size": "small", "attention": "flash"}, "there are: eager, flex_attention, sdpa"),
        ("gpt2", {"size": "small", "sequence_length": 17}, "of up to 16 tokens .*n_positions"),
        ("whisper_small", {"size": "small", "target_length": 9}, "max_target_positions"),
        ("sd15_unet", {"size": "small", "sequence_length": 0.5}, "give 1 or more"),
        ("sd15_unet", {"size": "small", "sequence_length": 0}, "sequence_length=0: give 1 or more"),
        ("gpt2", {"size": "small", "sequence_length": 0}, "sequence_length=0: give 1 or more"),
        (
            "gpt2",
            {"size": "small", "sequence_length": None},
            "sequence_length is not given, which stands for 512: .* up to 16 tokens .*n_positions",
        ),
        ("gpt2", {"size": "small", "attention": ""}, "there are: eager, flex_attention, sdpa"),
        ("sd15_unet", {"size": "small", "sample_size": 0}, "sample_size=0: give 1 or more"),
        ("sd15_unet", {"size": "small", "sample_size": [8, 0]}, "=.8, 0.: give 1 or more"),
        ("sd15_unet", {"size": "small", "attention": ""}, "there are: eager, sdpa"),
        ("dit_xl_2", {"size": "small", "num_embeds_ada_norm": 0}, "ada_norm=0: its loss needs"),
        ("transformers", {"config": "ResNetConfig", "image_size": 0}, "has no such option"),
        ("transformers", {"config": "ViTConfig", "image_size": 0}, "image_size=0: give 1 or more"),
        ("gpt2", {"size": "small", "activation_function": "sillu"}, "=sillu: KeyError .*'sillu'"),
        ("transformers", {"config": "LlamaConfig", "hidden_act": "sillu"}, "hidden_act=sillu: Key"),
        ("sd15_unet", {"size": "small", "attention_head_dim": 0}, "head_dim=0: ZeroDivisionError"),
        ("timm", {"arch": "vit_tiny_patch16_224", "num_classes": 0}, "its loss needs a class"),
        (
            "timm",
            {"arch": "vit_tiny_patch16_224", "pretrained": True},
            "would load trained weights",
        ),
        ("timm", {"arch": "vit_tiny_patch16_224", "checkpoint_path": "x"}, "checkpoint_path=x: it"),
        ("timm", {"arch": "resnet18", "output_stride": 7}, "resnet18 says: AssertionError at timm"),
    ],
)
def test_refusals(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make(name, **options).make_batch()
