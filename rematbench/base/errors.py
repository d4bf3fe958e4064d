"""The exception tree of rematbench.

Every message says what is wrong, where (file, key, node or statement) and what to do about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class RematbenchError(Exception):
    """Base of every error that rematbench raises on purpose."""


class GraphError(RematbenchError):
    """A graph, or a graph file, is malformed."""


class PlanError(RematbenchError):
    """A plan, or a plan file, is malformed."""


class InvalidPlan(PlanError):
    """The reference simulator rejected a plan.

    Attributes:
        index: position of the offending statement in the plan; the number of statements
            when the fault only shows at the end (a missing output).
        reason: what is wrong with it.
    """

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"statement {index}: {reason}")
        self.index = index
        self.reason = reason


class NotApplicable(RematbenchError):
    """The strategy does not apply to this graph; the message says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Infeasible(RematbenchError):
    """No plan within the budget was found.

    Attributes:
        reason: why, naming the op or value in the way where there is one.
        smallest_peak_found: simulated peak in bytes of the leanest plan seen, or None.
        proven: True only with a proof that no plan can meet the budget.
        details: what is known all the same, for the row's ``extra``.
        status: what its row says.
    """

    status: ClassVar[str] = "infeasible"

    def __init__(
        self,
        reason: str,
        smallest_peak_found: int | None = None,
        proven: bool = False,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.smallest_peak_found = smallest_peak_found
        self.proven = proven
        self.details = {} if details is None else dict(details)


class Thrashed(Infeasible):
    """An online strategy spent more on recomputation than it may."""

    status = "thrashed"


class Stopped(Infeasible):
    """The time limit ended the search before there was a plan."""

    status = "time_limit"


class BudgetError(RematbenchError):
    """A budget that is neither a fraction in (0, 1] nor a positive number of bytes."""


class ConfigError(RematbenchError):
    """A configuration value is unknown, missing or out of range."""


class CaptureError(RematbenchError):
    """A model could not be captured as a graph."""


class ExecutionError(RematbenchError):
    """A plan could not be executed on the device."""


class UnwritableError(RematbenchError, OSError):
    """A file or folder cannot be written: the disk is full, or a file is where a folder must be."""

    def __init__(self, path: object, error: OSError) -> None:
        super().__init__(f"{path}: cannot be written ({_reason(error)}); {WRITABLE}")


WRITABLE = "free space, or give a folder that can be written"


def tell_os_error(error: OSError) -> str:
    """What the system says of a file, for a user."""
    if isinstance(error, UnwritableError) or error.filename is None:
        return str(error)
    return f"{error.filename}: cannot be read or written ({_reason(error)}); {WRITABLE}"


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


# What libraries say instead of raising an error of their own; cuDNN, whose engines all lack memory
# for their workspaces, says that it finds none.
_NO_MEMORY = (
    "can't allocate memory",
    "out of memory",
    "ALLOC_FAILED",
    "ALLOCATION_FAILED",
    "unable to find an engine to execute this computation",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Did memory run out, of the CPU or of a device?"""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)
