"""Models of Hugging Face's transformers, from a configuration class and its options.

Sequences are of one length, without padding, so attention needs no mask for it. Transformers' own
mask functions find that out by looking at the batch, unless a compiler is reading them, and then
attend by other kernels; :func:`_mask` here decides by shapes alone, so that eager training and
every trace take the same path. It is registered as an implementation of its own. Models that make
something for each type of layer go through a set of words, in the order of hashes that differ
from process to process: :func:`_in_order` lets them go in the order of the layers.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rematbench.base.errors import ConfigError
from rematbench.base.origin import accuse
from rematbench.tracing.workload import Workload
from rematbench.zoo.libraries import LibraryModel
from rematbench.zoo.sequences import masked_loss

_ATTENTION = ("sdpa", "eager", "flex_attention")
_OURS = "rematbench_sdpa"
# Sequence length where neither the user nor conf/model says one.
_LENGTH = 512


Step = tuple[Callable[[], tuple[Tensor, ...]], Callable[..., Tensor]]
"""What makes a batch, and the loss."""


@dataclass(frozen=True)
class _Task:
    """What a model is trained for.

    Attributes:
        auto: name of transformers' class that knows the models with a head for it.
        step: for a configuration and a batch size.
        options: own ones, that are not the configuration's.
    """

    auto: str
    step: Callable[[LibraryModel, Any, int], Step]
    options: tuple[str, ...] = ("sequence_length",)


def workload(asked: LibraryModel) -> Workload:
    """A model with a head for its task, a batch and the loss.

    Raises:
        ConfigError: there is no such configuration, task or option.
    """
    import transformers

    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    of = getattr(transformers, asked.one_of("model.config", asked.what, _configs()))
    task = _task(asked, of)
    own = (*task.options, "experts")
    asked.check_options({*_known(of), *own}, asked.what)
    rest = {key: value for key, value in asked.options.items() if key not in own}
    config = _configured(asked, of, rest)
    if hasattr(config, "use_cache"):
        config.use_cache = False  # it is for generation
    how: dict[str, Any] = {"attn_implementation": _attention(asked), "dtype": asked.dtype}
    if asked.options.get("experts") is not None:
        how["experts_implementation"] = asked.options["experts"]
    make_batch, loss = task.step(asked, config, asked.size(8))
    module = _class(task, of)._from_config(config, **how)
    for name in {type(part).__module__ for part in module.modules()}:
        _in_order(name)
    return Workload(asked.name, module, make_batch, loss)


@cache
def _configs() -> list[str]:
    """The library's configurations by name: to list what it has takes it a fifth of a second."""
    import transformers

    return [name for name in dir(transformers) if name.endswith("Config")]


@cache
def _in_order(name: str) -> None:
    """Let ``set(config.layer_types)`` keep its order, in a Python module with no other ``set``."""
    if name.startswith("transformers.models.") and _of_types(inspect.getsource(sys.modules[name])):
        vars(sys.modules[name])["set"] = _distinct


def _of_types(source: str) -> bool:
    """Is there a ``set``, and each of the types of layers?"""
    nodes = [*ast.walk(ast.parse(source))]
    used = [node for node in nodes if isinstance(node, ast.Name) and node.id == "set"]
    calls = [ast.unparse(node) for node in nodes if isinstance(node, ast.Call)]
    types = [call for call in calls if re.fullmatch(r"set\((self\.)?config\.layer_types\)", call)]
    return 0 < len(used) == len(types)


def _distinct(items: Iterable[Hashable]) -> list[Hashable]:
    return list(dict.fromkeys(items))


def _known(of: Any) -> set[str]:
    return {field.name for field in fields(of)} | set(of.attribute_map) | set(of().to_dict())


def _configured(asked: LibraryModel, of: Any, options: dict[str, Any]) -> Any:
    try:
        return of(**options)
    except Exception as error:  # its own validation's, of several types
        said = " ".join(str(error).split())
        raise ConfigError(f"{asked.where}: {asked.what} says: {said or accuse(error)}") from error


def _attention(asked: LibraryModel) -> str:
    given = asked.attention_or(_ATTENTION[0])
    asked.one_of("model.options.attention", given, _ATTENTION)
    return _registered() if given == _ATTENTION[0] else given


@cache
def _registered() -> str:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    AttentionInterface.register(_OURS, sdpa_attention_forward)
    AttentionMaskInterface.register(_OURS, _mask)
    return _OURS


def _mask(
    *,
    kv_length: int,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    **rest: Any,
) -> Tensor | None:
    """The mask of scaled dot product attention; None where its own flag for causality does.

    Args:
        kv_length: of the sequences.
        attention_mask: of the padding, of which there is none.
        local_size: tokens that each may see, or None for all.
        allow_is_causal_skip, allow_is_bidirectional_skip: is it a plain mask?
        rest: as transformers' own function takes it.
    """
    from transformers.masking_utils import sdpa_mask

    sees_all = local_size is None or kv_length < local_size
    if sees_all and (allow_is_causal_skip or allow_is_bidirectional_skip):
        return None
    return sdpa_mask(kv_length=kv_length, allow_is_causal_skip=False, **rest)


def _class(task: _Task, of: Any) -> Any:
    import transformers

    found = getattr(transformers, task.auto)._model_mapping.get(of, None)
    return found[0] if isinstance(found, tuple) else found


def _task(asked: LibraryModel, of: Any) -> _Task:
    if asked.task is not None:
        task = TASKS[asked.one_of("model.task", asked.task, TASKS)]
        if _class(task, of) is None:
            raise ConfigError(f"{asked.where} model.task={asked.task}: {asked.what} has no model")
        return task
    for task in TASKS.values():
        if _class(task, of) is not None:
            return task
    raise ConfigError(
        f"{asked.where} model.config={asked.what}: transformers has no model for a task that is "
        f"known here ({', '.join(TASKS)}); use model=python"
    )


def _length(asked: LibraryModel, config: Any, key: str, default: int, *limits: str) -> int:
    """A sequence's length, which the model's positions allow.

    Args:
        limits: what the configuration may call the longest.
    """
    length = asked.length(key, default)
    for name in limits or ("max_position_embeddings",):
        most = getattr(config, name, None)
        if isinstance(most, int) and 0 < most < length:
            own = config.attribute_map.get(name, name)
            is_given = asked.options.get(key) is not None
            said = f"={length}" if is_given else f" is not given, which stands for {length}"
            raise ConfigError(
                f"{asked.where} model.options.{key}{said}: the model takes sequences of up to "
                f"{most} tokens (model.options.{own})"
            )
    return length


def _cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(scores.float().flatten(0, -2), targets.flatten())


def _no_padding(tokens: Tensor) -> Tensor:
    return torch.ones_like(tokens, dtype=torch.bool)


def _causal(asked: LibraryModel, config: Any, size: int) -> Step:
    """Name each next token."""
    length = _length(asked, config, "sequence_length", _LENGTH)
    vocabulary = config.get_text_config().vocab_size

    def make_batch() -> tuple[Tensor, ...]:
        tokens = torch.randint(0, vocabulary, (size, length))
        return tokens, torch.randint(0, vocabulary, (size, length))

    def loss(module: nn.Module, tokens: Tensor, following: Tensor) -> Tensor:
        scores = module(input_ids=tokens, attention_mask=_no_padding(tokens)).logits
        return _cross_entropy(scores, following)

    return make_batch, loss


def _masked(asked: LibraryModel, config: Any, size: int) -> Step:
    """Name the tokens that were masked, 15 % of all."""
    length = _length(asked, config, "sequence_length", _LENGTH)
    shape = size, length

    def make_batch() -> tuple[Tensor, ...]:
        tokens, labels = (torch.randint(0, config.vocab_size, shape) for _ in range(2))
        return tokens, labels, torch.rand(*shape)

    def loss(module: nn.Module, tokens: Tensor, labels: Tensor, draws: Tensor) -> Tensor:
        scores = module(input_ids=tokens, attention_mask=_no_padding(tokens)).logits
        return masked_loss(scores.float(), labels, draws)

    return make_batch, loss


def _translated(asked: LibraryModel, config: Any, size: int) -> Step:
    """Name each next token of the target, having read the source."""
    shapes = [
        (size, _length(asked, config, key, _LENGTH)) for key in ("sequence_length", "target_length")
    ]

    def make_batch() -> tuple[Tensor, ...]:
        source, target = (torch.randint(0, config.vocab_size, shape) for shape in shapes)
        return source, target, torch.randint(0, config.vocab_size, shapes[1])

    def loss(module: nn.Module, source: Tensor, target: Tensor, following: Tensor) -> Tensor:
        read = {"input_ids": source, "attention_mask": _no_padding(source)}
        masks = {"decoder_attention_mask": _no_padding(target)}
        scores = module(**read, decoder_input_ids=target, **masks).logits
        return _cross_entropy(scores, following)

    return make_batch, loss


def _heard(asked: LibraryModel, config: Any, size: int) -> Step:
    """Name each next token of what is said; two frames of sound for each position."""
    length = _length(asked, config, "target_length", _LENGTH, "max_target_positions")
    sound = size, config.num_mel_bins, 2 * config.max_source_positions

    def make_batch() -> tuple[Tensor, ...]:
        target = torch.randint(0, config.vocab_size, (size, length))
        return torch.randn(sound), target, torch.randint(0, config.vocab_size, (size, length))

    def loss(module: Any, frames: Tensor, target: Tensor, following: Tensor) -> Tensor:
        masks = {"decoder_attention_mask": _no_padding(target)}
        given = frames.to(module.dtype)
        scores = module(input_features=given, decoder_input_ids=target, **masks).logits
        return _cross_entropy(scores, following)

    return make_batch, loss


def _seen(asked: LibraryModel, config: Any, size: int) -> Step:
    """Name what is in the image."""
    asked.check_classes("num_labels", config.num_labels)
    height, width = asked.image_size("image_size", getattr(config, "image_size", None), 224)
    shape = size, getattr(config, "num_channels", 3), height, width

    def make_batch() -> tuple[Tensor, ...]:
        return torch.randn(shape), torch.randint(0, config.num_labels, (size,))

    def loss(module: Any, images: Tensor, labels: Tensor) -> Tensor:
        return _cross_entropy(module(pixel_values=images.to(module.dtype)).logits, labels)

    return make_batch, loss


# A configuration that has models for several takes the first.
TASKS = {
    "speech_to_text": _Task("AutoModelForSpeechSeq2Seq", _heard, ("target_length",)),
    "seq2seq": _Task("AutoModelForSeq2SeqLM", _translated, ("sequence_length", "target_length")),
    "masked_lm": _Task("AutoModelForMaskedLM", _masked),
    "causal_lm": _Task("AutoModelForCausalLM", _causal),
    "image_classification": _Task("AutoModelForImageClassification", _seen, ()),
}
