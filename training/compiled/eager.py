"""``lower="eager"``: a plan's two halves as our generated statements, inside AOTAutograd.

AOTAutograd asks its partitioner for two FX modules, and a compiler for a function of each. The
modules here are shells: inputs, one call, outputs, each with the stand-in that AOTAutograd looks
at; the functions are those of :mod:`rematbench.validator.halves`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Node

from rematbench.base.errors import ExecutionError
from rematbench.tracing.captured import Ref
from rematbench.tracing.halves import Halves
from rematbench.training.compiled.fxhalves import fake_state
from rematbench.validator.halves import TwoPrograms

Half = Callable[[list[Any]], Any]


def shells(halves: Halves, programs: TwoPrograms) -> tuple[GraphModule, GraphModule]:
    """The forward and the backward module for AOTAutograd."""
    fakes = halves.fakes

    def ends(returned: Sequence[Any]) -> list[Any]:
        return [fakes[end.name] if isinstance(end, Ref) else end for end in returned]

    handed = [fakes[name] for name in (*programs.saved, *programs.copied)]
    handed += [fake_state(halves) for _ in programs.states]
    primals = [(name, fakes[name]) for name in halves.primals]
    tangents = [(name, fakes[name]) for name in halves.tangents]
    given = [(f"handed_{i}", fake) for i, fake in enumerate(handed)]
    forward = _shell(primals, [*ends(halves.results), *handed])
    return forward, _shell([*given, *tangents], ends(halves.gradients))


def half_of_a_plan(*inputs: Any) -> Any:
    """What the one call of a shell names; the compiler gives a function in its place."""
    raise AssertionError("a shell is compiled, and never run")


def _shell(inputs: Sequence[tuple[str, Any]], outputs: Sequence[Any]) -> GraphModule:
    graph = Graph()
    places: list[Node] = []
    for name, fake in inputs:
        node = graph.placeholder(name)
        node.meta["val"] = fake
        places.append(node)
    call = graph.call_function(half_of_a_plan, tuple(places))
    ends: list[Any] = []
    for position, fake in enumerate(outputs):
        if not isinstance(fake, Tensor):
            ends.append(fake)
            continue
        node = graph.call_function(operator.getitem, (call, position))
        node.meta["val"] = fake
        ends.append(node)
    graph.output(tuple(ends))
    return GraphModule(nn.Module(), graph)


def boxed(run: Half) -> Half:
    """A function that AOTAutograd calls with one list, which the callee may empty."""
    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def check_once() -> None:
    """Raises ExecutionError in a backward pass that would keep what the plan releases."""
    if torch._C._autograd._get_current_graph_task_keep_graph():
        raise ExecutionError(
            "backward(retain_graph=True) or create_graph=True keeps what the plan has to release, "
            'and a graph compiled with backend="rematbench" goes backward once: leave them out, '
            "or use the model uncompiled for this step"
        )
