"""Nested arguments: the fast walk equals PyTorch's own, and a call's tensors are found anywhere."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
import torch.utils._pytree as pytree

from rematbench.tracing import Ref, TorchCall
from rematbench.tracing.captured import call_names, call_reads, filled
from rematbench.tracing.nested import mapped, tensors_in


class Pair(NamedTuple):
    """What a model's own function may return."""

    left: Any
    right: Any


ONE, TWO = torch.zeros(1), torch.zeros(2)
NESTED = [
    ONE,
    None,
    (),
    (ONE, [TWO, None, (3, ONE)], {"a": [TWO], "b": "text"}),
    [[[ONE]], (TWO,)],
    {"only": {"inside": (ONE,)}},
    Pair(ONE, [Pair(TWO, None)]),
    torch.return_types.max((ONE, TWO)),
]


@pytest.mark.parametrize("nested", NESTED)
def test_the_fast_walk_is_pytree(nested: Any) -> None:
    def change(item: Any) -> Any:
        return ("changed", item)

    assert mapped(nested, change) == pytree.tree_map(change, nested)
    tensors = [leaf for leaf in pytree.tree_leaves(nested) if isinstance(leaf, torch.Tensor)]
    found = list(tensors_in(nested))
    assert [id(tensor) for tensor in found] == [id(tensor) for tensor in tensors]


def test_the_tensors_of_a_call() -> None:
    args = (Ref("x"), [Ref("y"), None, (Ref("x"), 2)], torch.float32)
    call = TorchCall(torch.add, args, {"out": {"deep": Ref("z")}, "dim": None}, ("o",), False)
    assert call_names(call) == ["x", "y", "x", "z"]
    assert call_reads(call) == {"x", "y", "z"}
    positional, keywords = filled(call, str.upper)
    assert positional == ("X", ["Y", None, ("X", 2)], torch.float32)
    assert keywords == {"out": {"deep": "Z"}, "dim": None}
