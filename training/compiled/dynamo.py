"""What TorchDynamo compiles just now: whose code it is, and what it leaves uncompiled.

The one place that looks at TorchDynamo's own frames; where another version has others, names are
less telling and nothing is said of what is left out.
"""

from __future__ import annotations

import logging
import sys
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch._dynamo.callback import callback_handler
from torch.fx import GraphModule
from torch.nn.parallel import DistributedDataParallel

from rematbench.base.cache_dirs import FOR_THE_USER
from rematbench.tracing.halves import Source

_warn = logging.getLogger(FOR_THE_USER)
BACKEND = "rematbench"
_RESUMED = "torch_dynamo_resume_in"
"""What TorchDynamo calls what comes after a graph break."""
_TABLES = ("_modules", "_parameters", "_buffers")  # through ``__dict__``, as Dynamo writes it


class Compiling(NamedTuple):
    """A frame that is compiled.

    Attributes:
        module: whose forward pass it is; None: a function's.
        function: its name.
        backend: the name of the backend that it is compiled for.
    """

    module: nn.Module | None
    function: str
    backend: str


def compiling() -> Compiling | None:
    """The frame that TorchDynamo compiles, where this is called from within."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        code = frame.f_code
        if code.co_name == "_compile" and code.co_filename.endswith("convert_frame.py"):
            return _read(frame.f_locals)
    return None


def _read(known: dict[str, Any]) -> Compiling | None:
    code, given = known.get("code"), known.get("locals")
    if not isinstance(code, CodeType) or not isinstance(given, dict):
        return None
    wrapper = getattr(known.get("compiler_fn"), "_torchdynamo_orig_backend", None)
    module = next((each for each in given.values() if isinstance(each, nn.Module)), None)
    return Compiling(module, code.co_qualname, str(getattr(wrapper, "compiler_name", "")))


def is_whole(parameters: set[int]) -> bool:
    """Is the graph that is compiled just now all that its model trains by?

    Not after a graph break, nor where a model calls it that has other parameters to train; a model
    that was cut for DistributedDataParallel must have them all.

    Args:
        parameters: addresses of those that the graph reads.
    """
    found = compiling()
    outermost, breaks = _around()
    if found is None or breaks or found.function.rpartition(".")[2].startswith(_RESUMED):
        return found is None
    if found.module is not None and not isinstance(outermost, DistributedDataParallel):
        parameters = parameters | {id(each) for each in found.module.parameters()}
    return outermost is None or all(
        id(each) in parameters for each in outermost.parameters() if each.requires_grad
    )


def _around() -> tuple[nn.Module | None, bool]:
    """The outermost module that is called just now, and: is there a graph break?"""
    outermost, breaks = None, False
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        name, known = frame.f_code.co_name, frame.f_locals
        if name == "_call_impl" and isinstance(known.get("self"), nn.Module):
            outermost = known["self"]
        elif name == "compile_subgraph":
            breaks = breaks or bool(getattr(known.get("reason"), "graph_break", False))
    return outermost, breaks


def name_of(compiled: Compiling | None) -> str | None:
    """What people call it: its module's class, or the function."""
    if compiled is None:
        return None
    if compiled.module is not None:
        return type(compiled.module).__name__
    return compiled.function.rpartition(".")[2]


def graph_name(module: GraphModule) -> str:
    """What people call the graph that is compiled just now."""
    found = name_of(compiling())
    if found is not None:
        return found
    for node in module.graph.nodes:
        stack = node.meta.get("nn_module_stack") or {}
        for _, kind in stack.values():
            return str(getattr(kind, "__name__", kind))
    return "function"


def source_of(node: Any) -> Source:
    """The kind and name of an input that Dynamo lifted."""
    argument = node.meta.get("grapharg")
    if argument is None:
        return Source("input", node.name)
    name = argument.source.name
    text = name if isinstance(name, str) else name()
    if "._buffers[" in text:
        return Source("buffer", _path(text))
    value = argument.example
    return Source("parameter" if isinstance(value, nn.Parameter) else "input", _path(text))


def _path(text: str) -> str:
    """``L['self']._modules['0']._parameters['weight']`` as ``0.weight``."""
    head, *parts = text.split("['")
    names = [name for part in parts if (name := part.partition("']")[0]) not in _TABLES]
    return ".".join(names[1:]) or head or text


class _Listener:
    """Says once of each kind of module that nothing of it is planned.

    Attributes:
        graphs: how many graphs the backend was given.
    """

    def __init__(self) -> None:
        self.graphs = self._before = 0
        self._said: set[str] = set()

    def start(self, args: Any) -> None:
        self._before = self.graphs

    def end(self, args: Any) -> None:
        found = compiling()
        if found is None or found.backend != BACKEND or self.graphs > self._before:
            return
        if found.module is None or not _trains(found.module):
            return
        name = type(found.module).__name__
        if name not in self._said:
            self._said.add(name)
            _warn.warning(
                "rematbench: %s: TorchDynamo left %s as it is%s; no plan holds there, and the "
                "budget is not kept",
                name,
                found.function,
                _why(found.module),
            )


def _trains(module: nn.Module) -> bool:
    return torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters())


def _why(module: nn.Module) -> str:
    recurrent = {type(m).__name__ for m in module.modules() if isinstance(m, nn.RNNBase)}
    if not recurrent:
        return ""
    names = ", ".join(f"nn.{name}" for name in sorted(recurrent))
    return (
        f", since it does not compile {names} "
        "(torch._dynamo.config.allow_rnn = True lets it try; or compile the modules around it)"
    )


LISTENER = _Listener()


def listen() -> None:
    """From now on say what is left out; ``torch._dynamo.reset()`` ends it."""
    for known, call in (
        (callback_handler.start_callbacks, LISTENER.start),
        (callback_handler.end_callbacks, LISTENER.end),
    ):
        if call not in known:
            known.append(call)
