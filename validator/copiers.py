"""Which copier a device has."""

from __future__ import annotations

from collections.abc import Callable

from rematbench.base.errors import ExecutionError
from rematbench.validator.copier import Copier, ThreadCopier
from rematbench.validator.copies import CopyPlan
from rematbench.validator.cuda_copier import StreamCopier

_COPIERS: dict[str, Callable[[CopyPlan], Copier]] = {"cpu": ThreadCopier, "cuda": StreamCopier}


def make_copier(plan: CopyPlan, device: str) -> Copier:
    """The copier of a device, with its memory on the host.

    Raises:
        ExecutionError: the host has too little, or the device no copier.
    """
    if device not in _COPIERS:
        raise ExecutionError(
            f"device={device}: a plan that copies to the host runs on {' and '.join(_COPIERS)} only"
        )
    return _COPIERS[device](plan)
