"""A graph that Dynamo makes for any size: each that comes gets a plan, and code, of its own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch

from rematbench.training.compiled.sizes import MOST_SIZES


class BySize:
    """Runs a graph by the code of the size that it is given.

    Those that have not come for the longest go.

    Args:
        make: compiles the graph for the size of some inputs.
    """

    def __init__(self, make: Callable[[Sequence[Any]], Any]) -> None:
        self._make = make
        self._made: OrderedDict[tuple[Any, ...], Any] = OrderedDict()

    def __call__(self, *args: Any) -> Any:
        sizes = tuple(each for each in args if isinstance(each, (int, float)))
        if sizes not in self._made:
            with torch._dynamo.config.patch(disable=True):
                self._made[sizes] = self._make(args)
            if len(self._made) > MOST_SIZES:
                self._made.popitem(last=False)
        self._made.move_to_end(sizes)
        return self._made[sizes](*args)
