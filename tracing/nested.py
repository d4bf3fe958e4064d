"""Nested arguments and results of operators, for what runs at each operator.

``torch.utils._pytree`` does the same for any container, and takes two to ten times as long: too
much for the recorder, whose own time the log must not show, and for the online runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor


def tensors_in(*arguments: Any) -> Iterator[Tensor]:
    """The tensors among an operator's arguments or results, in order, repeats included."""
    for argument in arguments:
        if isinstance(argument, Tensor):
            yield argument
        elif isinstance(argument, (tuple, list)):
            yield from tensors_in(*argument)
        elif isinstance(argument, Mapping):
            yield from tensors_in(*argument.values())


def mapped(nested: Any, change: Callable[[Any], Any]) -> Any:
    """The same tuples, lists and dictionaries with ``change(item)`` in place of each other item."""
    if isinstance(nested, (tuple, list)):
        items = [
            mapped(item, change) if isinstance(item, (tuple, list, dict)) else change(item)
            for item in nested
        ]
        kind = type(nested)
        return items if kind is list else getattr(kind, "_make", kind)(items)  # named: by fields
    if isinstance(nested, dict):
        return {key: mapped(item, change) for key, item in nested.items()}
    return change(nested)
