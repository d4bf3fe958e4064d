"""Which copier a device has."""

from __future__ import annotations

from rematbench.validator.copier import Copier, ThreadCopier
from rematbench.validator.copies import CopyPlan
from rematbench.validator.cuda_copier import StreamCopier


def make_copier(plan: CopyPlan, device: str) -> Copier:
    """The copier of a device, with its memory on the host.

    Raises:
        ExecutionError: the host has too little.
    """
    return StreamCopier(plan) if device == "cuda" else ThreadCopier(plan)
