"""Models of Hugging Face's transformers, from a configuration class and its options.

Sequences are of one length, without padding, so attention needs no mask for it. Transformers' own
mask functions find that out by looking at the batch, unless a compiler is reading them, and then
attend by other kernels; :func:`_mask` here decides by shapes alone, so that eager training and
every trace take the same path. It is registered as an implementation of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rematbench.graphs.errors import ConfigError
from rematbench.tracing.workload import Workload
from rematbench.zoo.libraries import Asked

_ATTENTION = ("sdpa", "eager", "flex_attention")
_OURS = "rematbench_sdpa"
# Sequence length where neither the user nor conf/model says one.
_LENGTH = 512


@dataclass(frozen=True)
class _Task:
    """What a model is trained for.

    Attributes:
        classes: names of transformers' auto classes that have its head.
        make: from configuration, batch and own options to a batch and a loss.
        options: own ones, that are not the configuration's.
    """

    classes: tuple[str, ...]
    make: Callable[[Asked, Any, int, dict[str, Any]], tuple[Callable[[], Any], Any]]
    options: tuple[str, ...] = ("sequence_length",)


def workload(asked: Asked) -> Workload:
    """A model with a head for its task, a batch and the loss.

    Raises:
        ConfigError: there is no such configuration, task or option.
    """
    import transformers

    transformers.logging.set_verbosity_error()
    names = [name for name in dir(transformers) if name.endswith("Config")]
    of = getattr(transformers, asked.one_of("model.config", asked.what, names))
    task = _task(asked, of)
    own = {key: asked.options[key] for key in task.options if asked.options.get(key) is not None}
    asked.check_options({*_known(of), *task.options, "experts"}, asked.what)
    rest = {k: v for k, v in asked.options.items() if k not in (*task.options, "experts")}
    config = _configured(asked, of, rest)
    if hasattr(config, "use_cache"):
        config.use_cache = False  # it is for generation
    how: dict[str, Any] = {"attn_implementation": _attention(asked), "dtype": asked.dtype}
    if asked.options.get("experts") is not None:
        how["experts_implementation"] = asked.options["experts"]
    make_batch, loss = task.make(asked, config, asked.batch_size or 8, own)
    module = _class(task, of)._from_config(config, **how)
    return Workload(asked.name, module, make_batch, loss)


def _known(of: Any) -> set[str]:
    return {field.name for field in fields(of)} | set(of.attribute_map)


def _configured(asked: Asked, of: Any, options: dict[str, Any]) -> Any:
    try:
        return of(**options)
    except Exception as error:  # its own validation's, of several types
        said = " ".join(str(error).split())
        raise ConfigError(f"{asked.where}: {asked.what} says: {said}") from error


def _attention(asked: Asked) -> str:
    given = asked.attention or _ATTENTION[0]
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

    for name in task.classes:
        mapping = getattr(transformers, name)._model_mapping
        if of in mapping:
            found = mapping[of]
            return found[0] if isinstance(found, tuple) else found
    return None


def _task(asked: Asked, of: Any) -> _Task:
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


def _length(asked: Asked, config: Any, given: dict[str, Any], key: str, default: int) -> int:
    """A sequence's length, which the model's positions allow."""
    length = given.get(key, default)
    if type(length) is not int or length < 1:
        raise ConfigError(f"{asked.where} model.options.{key}={length}: give a whole number")
    for name in ("max_position_embeddings", "max_target_positions"):
        most = getattr(config, name, None)
        if isinstance(most, int) and 0 < most < length:
            raise ConfigError(
                f"{asked.where} model.options.{key}={length}: the model takes sequences of up to "
                f"{most} tokens (model.options.{name})"
            )
    return length


def _cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(scores.float().flatten(0, 1), targets.flatten())


def _no_padding(tokens: Tensor) -> Tensor:
    return torch.ones_like(tokens, dtype=torch.bool)


def _causal(asked: Asked, config: Any, size: int, given: dict[str, Any]) -> Any:
    """Name each next token."""
    length = _length(asked, config, given, "sequence_length", _LENGTH)
    vocabulary = config.get_text_config().vocab_size

    def make_batch() -> tuple[Tensor, ...]:
        tokens = torch.randint(0, vocabulary, (size, length))
        return tokens, torch.randint(0, vocabulary, (size, length))

    def loss(module: nn.Module, tokens: Tensor, following: Tensor) -> Tensor:
        scores = module(input_ids=tokens, attention_mask=_no_padding(tokens)).logits
        return _cross_entropy(scores, following)

    return make_batch, loss


TASKS = {
    "causal_lm": _Task(("AutoModelForCausalLM",), _causal),
}
