"""Which module each traced op came from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from torch import nn
from torch.fx import Node
from torch.fx.traceback import annotate, preserve_node_meta

_KEY = "scope"
_STEP = re.compile(r"^L\['\w+'\]\.model\.?")  # the step, and the model in it
# A child of a module that has its own __getattr__, as Dynamo writes it.
_CHILD = re.compile(r"__dict__\['_modules'\]\['(\w+)'\]")


@contextmanager
def marked_scopes(module: nn.Module) -> Iterator[None]:
    """While it lasts, what a trace records of ``module``'s parts says which part it came from.

    Autograd's nodes inherit the mark from the forward ops that they differentiate.

    Args:
        module: its submodules are told apart by their qualified names; itself has none.
    """
    entered: list[AbstractContextManager[None]] = []

    def leave(part: nn.Module, arguments: Any, results: Any) -> None:
        entered.pop().__exit__(None, None, None)

    with ExitStack() as stack:
        stack.enter_context(preserve_node_meta())
        for name, part in module.named_modules():
            if not name:
                continue

            def enter(part: nn.Module, arguments: Any, name: str = name) -> None:
                entered.append(annotate({_KEY: name}))
                entered[-1].__enter__()

            stack.callback(part.register_forward_pre_hook(enter, prepend=True).remove)
            stack.callback(part.register_forward_hook(leave, always_call=True).remove)
        yield


def scope_of(node: Node) -> str:
    """The qualified name of the submodule that a node came from; "" where none is known."""
    marked = node.meta.get("custom", {}).get(_KEY)
    if marked is not None:
        return str(marked)
    # Dynamo's own: from the outermost to the innermost, as it would be written in Python.
    modules = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    paths = [path for path, _ in modules.values()]
    return _CHILD.sub(r"\1", _STEP.sub("", paths[-1])) if paths else ""


def label(node: Node) -> str:
    """An op as messages call it: its name, and the module that it came from."""
    scope = scope_of(node)
    return f"op {node.name} ({scope})" if scope else f"op {node.name}"
