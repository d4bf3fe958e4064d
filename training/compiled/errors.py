"""Errors that reach the user as they are, past TorchDynamo's own wrapping."""

from __future__ import annotations

import inspect
from typing import Any

from torch._dynamo.exc import ShortenTraceback

from rematbench.base.errors import RematbenchError


def unwrapped(error: RematbenchError) -> Exception:
    """The same error as one that Dynamo hands on instead of ``BackendCompilerFailed``.

    Its traceback begins with the caller.
    """
    frame = inspect.currentframe()
    caller = None if frame is None else frame.f_back
    made: Exception = _kind(type(error))(*error.args, first_useful_frame=caller)
    made.__dict__.update(error.__dict__)
    return made


def _kind(kind: type[RematbenchError]) -> Any:
    def begin(self: Any, *args: Any, first_useful_frame: Any = None) -> None:
        Exception.__init__(self, *args)
        self.first_useful_frame, self.said = first_useful_frame, " ".join(map(str, args))

    names = {
        "__init__": begin,
        "__str__": lambda self: self.said,  # Dynamo appends how to debug Dynamo to ``args``
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
    }
    return type(kind.__name__, (kind, ShortenTraceback), names)
