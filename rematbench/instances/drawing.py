"""Candidates out of torchvision, timm, transformers and diffusers, by a fixed draw.

A library's models are grouped (by the module that defines them; in transformers by task), and from
each group a number is drawn, each with a batch, and where it has them with a depth, a length or
widths. The draw is random with a fixed seed, so that a library's version decides it. Nothing is
known of the graphs at this point; which ones are kept is for
:mod:`rematbench.instances.choosing` to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from random import Random
from typing import Any

from rematbench.instances.families import H100, Candidate

PER_MODULE = {"torchvision": 3, "timm": 2}
PER_TASK = {
    "causal_lm": 44,
    "masked_lm": 18,
    "seq2seq": 12,
    "speech_to_text": 4,
    "image_classification": 16,
}
NETWORKS = {"UNet2DModel": 11, "UNet2DConditionModel": 13, "DiTTransformer2DModel": 6}
_DETECTS = ("rcnn", "fcos", "retinanet", "ssd", "raft", "quantized")
"""In names of torchvision whose steps depend on what is in the images, or that do not train."""


def drawn() -> list[Candidate]:
    """All candidates, library by library."""
    return [*torchvision(), *timm(), *transformers(), *diffusers()]


def _sampled(random: Random, names: Sequence[str], count: int) -> list[str]:
    return sorted(random.sample(sorted(names), min(count, len(names))))


def torchvision() -> Iterator[Candidate]:
    """Classifiers, segmentation and video; three of each module."""
    from rematbench.zoo.vision import import_torchvision

    models, random = import_torchvision().models, Random("rematlib torchvision")
    modules: dict[str, list[str]] = {}
    for name in models.list_models():
        if not any(part in name for part in _DETECTS):
            modules.setdefault(models.get_model_builder(name).__module__, []).append(name)
    for module in sorted(modules):
        for name in _sampled(random, modules[module], PER_MODULE["torchvision"]):
            classifies = ".video" not in module and ".segmentation" not in module
            batch = random.choice((16, 64, 256) if classifies else (2, 4, 8))
            words = (
                "model=python",
                "model.target=rematbench.instances.vision:torchvision_model",
                f"++model.options.arch={name}",
                f"batch_size={batch}",
                f"resolution={_resolution(name, module)}",
            )
            yield Candidate("torchvision", f"tv_{name}_b{batch}", (*words, *H100))


def _resolution(name: str, module: str) -> int:
    if "segmentation" in module:
        return 512
    if name.startswith(("r3d", "mc3", "r2plus1d")):
        return 112
    return 299 if name == "inception_v3" else 224


def timm() -> Iterator[Candidate]:
    """Image classifiers; two of each module."""
    from rematbench.zoo.libraries import import_library

    library: Any = import_library("timm", "timm")
    random = Random("rematlib timm")
    for module in sorted(library.list_modules()):
        for name in _sampled(random, library.list_models(module=module), PER_MODULE["timm"]):
            batch = random.choice((16, 64, 128))
            words = ("model=timm", f"model.arch={name}", f"batch_size={batch}", *H100)
            yield Candidate("timm", f"timm_{name}_b{batch}", words)


def transformers() -> Iterator[Candidate]:
    """Configurations that have a model for a task, each for the first task that it has."""
    from rematbench.zoo.libraries import import_library
    from rematbench.zoo.transformers_models import TASKS

    library: Any = import_library("transformers", "transformers")
    names = import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING_NAMES
    random, taken = Random("rematlib transformers"), set[str]()
    for task, of in TASKS.items():
        mapping = getattr(library, of.auto)._model_mapping._model_mapping
        fitting = {names[kind] for kind in mapping if kind in names} - taken
        taken |= fitting
        for config in _sampled(random, [*fitting], PER_TASK[task]):
            yield _transformer(random, library, config, task)


def _transformer(random: Random, library: Any, config: str, task: str) -> Candidate:
    depth, batch = random.choice((2, 6, 12, 24)), random.choice((2, 8, 16))
    length, attention = random.choice((128, 256, 512)), random.choice(("sdpa", "sdpa", "eager"))
    words = ["model=transformers", f"model.config={config}", f"model.task={task}"]
    name = f"hf_{re.sub('config$', '', config.lower())}_b{batch}"
    if _has_depth(library, config):
        words.append(f"++model.options.num_hidden_layers={depth}")
        name += f"_l{depth}"
    if task in ("causal_lm", "masked_lm", "seq2seq"):
        words.append(f"++model.options.sequence_length={length}")
        name += f"_s{length}"
    if task in ("seq2seq", "speech_to_text"):
        words.append(f"++model.options.target_length={length // 2}")
    if attention == "eager":
        words.append("++model.options.attention=eager")
        name += "_eager"
    return Candidate("transformers", name, (*words, f"batch_size={batch}", *H100))


def _has_depth(library: Any, config: str) -> bool:
    try:
        of = getattr(library, config)
        return "num_hidden_layers" in {*of.attribute_map, *of().to_dict()}
    except Exception:  # a configuration without defaults; that it cannot be made, measuring says
        return False


_WIDTHS = (
    *((64, 128), (128, 256, 512), (320, 640, 1280, 1280), (224, 448, 672, 896)),
    *((32, 64, 128, 256, 512), (128, 128, 256, 256, 512, 512)),
)


def diffusers() -> Iterator[Candidate]:
    """U-nets with and without text, of drawn widths, depths and blocks; diffusion transformers."""
    random = Random("rematlib diffusers")
    for network, count in NETWORKS.items():
        seen = set[str]()
        while len(seen) < count:
            batch = random.choice((2, 8, 32))
            make = _transformer_2d if network.startswith("DiT") else _unet
            name, options = make(random, network)
            if name not in seen:
                seen.add(name)
                given = (f"++model.options.{k}={_listed(v)}" for k, v in options.items())
                words = ("model=diffusers", f"model.config={network}", *given)
                words = (*words, f"batch_size={batch}", *H100)
                yield Candidate("diffusers", f"diff_{name}_b{batch}", words)


def _listed(value: Any) -> str:
    return f"[{','.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def _unet(random: Random, network: str) -> tuple[str, dict[str, Any]]:
    widths, layers = random.choice(_WIDTHS), random.choice((1, 2, 3, 4))
    side = random.choice((32, 64, 96))
    told = "Condition" in network
    text, cross = ("_text", "CrossAttn") if told else ("", "Attn")
    attends = [random.random() < 0.5 for _ in widths]
    blocks = [cross if attending else "" for attending in attends]
    options: dict[str, Any] = {
        "block_out_channels": widths,
        "layers_per_block": layers,
        "sample_size": side,
        "down_block_types": tuple(f"{block}DownBlock2D" for block in blocks),
        "up_block_types": tuple(f"{block}UpBlock2D" for block in reversed(blocks)),
    }
    if told:
        options["cross_attention_dim"] = 768
    shape = "".join("a" if attending else "r" for attending in attends)
    return f"unet{text}_{widths[0]}{shape}_l{layers}_s{side}", options


def _transformer_2d(random: Random, network: str) -> tuple[str, dict[str, Any]]:
    layers, heads = random.choice((4, 12, 28)), random.choice((6, 12, 16))
    patch, side = random.choice((2, 4, 8)), random.choice((32, 64))
    options = {
        "num_layers": layers,
        "num_attention_heads": heads,
        "patch_size": patch,
        "sample_size": side,
    }
    return f"dit_l{layers}_h{heads}_p{patch}_s{side}", options
