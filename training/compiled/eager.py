"""``lower="eager"``: a plan's two halves as our generated statements, inside AOTAutograd.

AOTAutograd asks its partitioner for two FX modules, and a compiler for a function of each. The
modules here are shells: inputs, one call, outputs, each with the stand-in that AOTAutograd looks
at; the functions are those of :mod:`rematbench.validator.halves`. What the forward half hands over
hangs on the storage of one empty tensor, the *token*, which autograd keeps in its place: so each
call may run by another plan, and the shells stay as they are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Node

from rematbench.base.errors import ExecutionError
from rematbench.tracing.captured import Ref
from rematbench.tracing.halves import Halves
from rematbench.validator.call_copies import CallCopier
from rematbench.validator.halves import TwoPrograms

Half = Callable[[list[Any]], Any]


def shells(halves: Halves) -> tuple[GraphModule, GraphModule]:
    """The forward and the backward module for AOTAutograd."""
    fakes = halves.fakes

    def ends(returned: Sequence[Any]) -> list[Any]:
        return [fakes[end.name] if isinstance(end, Ref) else end for end in returned]

    with fakes[halves.tangents[0]].fake_mode:
        token = torch.empty(0)
    primals = [(name, fakes[name]) for name in halves.primals]
    tangents = [(name, fakes[name]) for name in halves.tangents]
    forward = _shell(primals, [*ends(halves.results), token])
    return forward, _shell([("token", token), *tangents], ends(halves.gradients))


@dataclass(frozen=True)
class Handed:
    """What a forward half hands to its backward half.

    Attributes:
        programs: the plan that both run by.
        tensors: without history, so that nothing is held in a circle; and meshes of ranks.
        versions: of each, when it was handed over.
        call: whose it is.
        host: what copies for it; None: nothing does.
    """

    programs: TwoPrograms
    tensors: list[Tensor]
    versions: tuple[int, ...]
    call: Any
    host: CallCopier | None = None


def token_of(
    programs: TwoPrograms, handed: Sequence[Tensor], call: Any, host: CallCopier | None
) -> Tensor:
    """What autograd keeps of a call; gone, the call is over."""
    token = torch.empty(0)
    tensors = [each.detach() if isinstance(each, Tensor) else each for each in handed]
    versions = tuple(getattr(each, "_version", 0) for each in tensors)
    token.untyped_storage().handed = Handed(programs, tensors, versions, call, host)
    if call.record is not None:
        call.record.calls[call.recorded].beside = _beside_values(programs, tensors)
    return token


def _beside_values(programs: TwoPrograms, handed: Sequence[Any]) -> int:
    """Bytes of what is handed over besides a plan's values: copies of inputs, random states.

    An accelerator's random states are on the host.
    """
    values = len(programs.saved)
    device = next((each.device for each in handed if isinstance(each, Tensor)), None)
    more = (each for each in handed[values:] if each.device == device)
    return sum(each.untyped_storage().nbytes() for each in more)


def handed_by(token: Tensor) -> Handed:
    """What hangs on a token.

    Raises:
        ExecutionError: nothing does, or a tensor was changed in the meantime.
    """
    handed = getattr(token.untyped_storage(), "handed", None)
    if not isinstance(handed, Handed):
        raise ExecutionError(
            "saved_tensors_hooks copied what a compiled graph saves (save_on_cpu does), and the "
            "copy lacks what the plan needs: leave them out around what is compiled"
        )
    pairs = zip(handed.tensors, handed.versions, strict=True)
    if any(getattr(each, "_version", 0) != version for each, version in pairs):
        raise ExecutionError(
            "one of the variables needed for gradient computation has been modified by an inplace "
            "operation between the forward and the backward pass of a compiled graph; work on a "
            "copy of it"
        )
    return handed


class Taken(NamedTuple):
    """A backward half that is called.

    Attributes:
        call: of which it is; None: nobody knows.
        half: the function; ``given``: what it is given.
        copied: bytes of storages, by address, that are being copied to the host.
    """

    call: Any
    half: Half
    given: list[Any]
    copied: Mapping[int, int] = MappingProxyType({})


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
        if fake is None or isinstance(fake, (bool, int, float)):
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
