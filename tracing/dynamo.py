"""The second front end: TorchDynamo reads the step's Python before autograd is traced.

The plain trace (:mod:`rematbench.tracing.trace`) runs the step on fake tensors, and ends where
Python looks at a tensor's data. Dynamo interprets the bytecode instead: what depends on shapes and
types only is decided once, and what depends on data is a graph break, which names its line.
"""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.exc import TorchDynamoException
from torch._dynamo.functional_export import dynamo_graph_capture_for_export
from torch._guards import tracing

from rematbench.base.errors import CaptureError
from rematbench.base.origin import one_line, own, shown
from rematbench.tracing.costless import in_place_of, named
from rematbench.tracing.export import export_joint

# How Dynamo tells of an exception that the step raises.
_RAISED = re.compile(r"raised exception (?P<what>.*?)(?: For more details |$)")


def joint_by_dynamo(
    stack: contextlib.ExitStack, name: str, step: nn.Module, batch: Sequence[Tensor]
) -> Any:
    """Forward and backward of ``step(*batch)`` as one functional ATen graph.

    Args:
        stack: keeps what the export patched until its graph has been read.
        name: of the model, for errors.
        step: its forward returns the scalar loss.
        batch: fake tensors; parameters and buffers may be real or fake.

    Returns:
        As ``aot_export_joint_with_descriptors`` does.

    Raises:
        CaptureError: Dynamo cannot make one graph of the step; names the line.
    """
    torch._dynamo.reset()
    # An nn.LSTM is read like any other layer.
    options = {"allow_rnn": True, "ignore_logging_functions": set(_loggers())}
    with warnings.catch_warnings(), torch._dynamo.config.patch(options):
        # Side effects on Python objects (a collector of hidden states) do not belong to the step.
        warnings.filterwarnings("ignore", "While compiling, we found certain side effects")
        warnings.filterwarnings("ignore", "Dynamo detected a call to a `functools.lru_cache`")
        stack.enter_context(_untied(step))
        try:
            captured = dynamo_graph_capture_for_export(step)(*batch)
        except TorchDynamoException as error:
            raise CaptureError(f"model {name!r} is not one graph: {_label(error)}") from error
    stack.enter_context(tracing(captured.meta.get("tracing_context")))
    mode = stack.enter_context(captured.meta["fake_mode"])
    fakes = tuple(mode.from_tensor(item) for item in batch)
    return export_joint(stack, captured, fakes)


@contextlib.contextmanager
def _untied(step: nn.Module) -> Iterator[None]:
    """A tensor for each name of a tied one, of which Dynamo would make a single input."""
    seen: set[int] = set()
    tied = []
    for part, name, tensor in named(step):
        if id(tensor) in seen:
            tied.append((part, name, tensor))
        seen.add(id(tensor))
    try:
        for part, name, tensor in tied:
            setattr(part, name, in_place_of(tensor, tensor.detach()))  # recurrent layers listen
        yield
    finally:
        for part, name, tensor in tied:
            setattr(part, name, tensor)


def _loggers() -> Iterator[Callable[..., Any]]:
    """What writes to logs, libraries' own methods included: a step is one graph without it."""
    for each in (*vars(logging.Logger).values(), logging.debug, logging.info, logging.warning):
        if callable(each) and getattr(each, "__hash__", None):
            yield each


def _label(error: TorchDynamoException) -> str:
    """What broke the graph, and the innermost line of the user's, or of a library's."""
    frames = [frame for frame in getattr(error, "real_stack", None) or () if frame.filename]
    mine = [frame for frame in frames if own(frame.filename)] or frames
    where = f" at {_place(mine[-1])}" if mine else ""
    inside = f" (in {_place(frames[-1])})" if mine[-1:] != frames[-1:] else ""
    reason, _, more = one_line(error).partition(" Developer debug context: ")
    raised = _RAISED.match(more)
    text = raised["what"] if raised else reason.partition(" Hint:")[0]
    return f"{type(error).__name__}{where}{inside}: {text.replace(' Explanation:', ':')}"


def _place(frame: Any) -> str:
    return f"{shown(frame.filename)}:{frame.lineno} in {frame.name}"
