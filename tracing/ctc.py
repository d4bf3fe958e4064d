"""How the CTC loss is traced: by tables as large as the longest target that its arguments allow.

PyTorch has no rule for it, since its table of log-likelihoods is as long as the longest target of
the batch. A plan needs sizes that hold for every batch: the width of a padded batch of targets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch._ops import OpOverload

aten = torch.ops.aten
_MEAN, _SUM = 1, 2
_Lengths: TypeAlias = Tensor | Sequence[int]


def _ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: _Lengths,
    target_lengths: _Lengths,
    blank: int = 0,
    reduction: int = _MEAN,
    zero_infinity: bool = False,
) -> Tensor:
    """``aten::ctc_loss``, op by op as PyTorch does it without cuDNN."""
    batched = log_probs.dim() == 3
    log_probs = log_probs if batched else log_probs.unsqueeze(1)
    targets = targets.to(log_probs.device, torch.int64)
    lengths = (input_lengths, target_lengths)
    result: Tensor = aten._ctc_loss(log_probs, targets, *lengths, blank, zero_infinity)[0]
    if zero_infinity:
        result = torch.where(result == float("inf"), result.new_zeros(()), result)
    if reduction == _MEAN:
        if not isinstance(target_lengths, Tensor):
            target_lengths = torch.tensor(target_lengths, dtype=result.dtype, device=result.device)
        return (result / target_lengths.clamp_min(1)).mean()
    if reduction == _SUM:
        return result.sum()
    return result if batched else result.squeeze(0)


def _losses(_mode: Any, _op: OpOverload, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """Shapes of the loss of each sequence and of the table of log-likelihoods."""
    log_probs, targets, _, lengths = args[:4]
    time, batch, _ = log_probs.shape
    padded = isinstance(lengths, Tensor)
    longest = targets.shape[-1] if padded else max(lengths, default=0)
    return log_probs.new_empty(batch), log_probs.new_empty(batch, time, 2 * longest + 1)


def _gradient(_mode: Any, _op: OpOverload, *args: Any, **kwargs: Any) -> Tensor:
    return torch.empty_like(args[1], memory_format=torch.contiguous_format)


CTC_RULES: dict[OpOverload, Callable[..., Any]] = {
    aten._ctc_loss.default: _losses,
    aten._ctc_loss.Tensor: _losses,
    aten._ctc_loss_backward.default: _gradient,
    aten._ctc_loss_backward.Tensor: _gradient,
}
"""What fake tensors make of PyTorch's kernels."""
CTC_KERNELS: dict[OpOverload, Callable[..., Any]] = {
    aten.ctc_loss.IntList: _ctc_loss,
    aten.ctc_loss.Tensor: _ctc_loss,
}
"""What a trace runs in place of functions that read their tensors' data."""
