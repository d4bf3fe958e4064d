"""An event stream with every name resolved: tensors, storages and ops, numbered by creation.

Constants are ops without arguments and cost; a mutation makes new tensors; copies and releases
count references (simrd, sections 4.1, 4.4 and 4.6). What is wrong with a stream as a whole (a
release too many, a name that nothing defines) shows here, with the event's place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from rematbench.base.errors import GraphError
from rematbench.streams.events import (
    Annotate,
    Call,
    Constant,
    Copy,
    CopyFrom,
    Event,
    EventStream,
    Mutate,
    Release,
    Result,
)


class StepKind(IntEnum):
    """What a step of a program does: compute an op, or something with one tensor."""

    COMPUTE = 0
    TAKE = 1  # one reference more
    RELEASE = 2  # one reference less
    KEEP = 3  # make it resident, for good


@dataclass(frozen=True, slots=True)
class StreamTensor:
    """A view of a storage.

    Attributes:
        op: the one that makes it.
        storage: what it views.
        bytes: of its storage, or 0 where the op found the storage there (an alias).
    """

    op: int
    storage: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StreamStorage:
    """A buffer, made by the op of its root tensor.

    Attributes:
        bytes: its size.
        root: the first tensor that views it.
    """

    bytes: int
    root: int


@dataclass(frozen=True, slots=True)
class StreamOp:
    """One computation.

    Attributes:
        name: of the operator; None for a constant.
        arguments: tensors, in order, with repeats.
        outputs: tensors.
        cost, workspace_bytes: as in the event.
        event: index of the event.
    """

    name: str | None
    arguments: tuple[int, ...]
    outputs: range
    cost: int
    workspace_bytes: int
    event: int


@dataclass(frozen=True, eq=False)
class Resolved:
    """A stream in numbers.

    Attributes:
        stream: what was resolved.
        ops, tensors, storages: by number.
        steps: what happens, in order.
        names: of each tensor, the first one.
        backward_op: the first op of the backward pass, or None where nothing marks it.
    """

    stream: EventStream
    ops: tuple[StreamOp, ...]
    tensors: tuple[StreamTensor, ...]
    storages: tuple[StreamStorage, ...]
    steps: tuple[tuple[StepKind, int], ...]
    names: tuple[str, ...]
    backward_op: int | None

    @property
    def cost(self) -> int:
        """Of every op once."""
        return sum(op.cost for op in self.ops)

    def sizes(self) -> dict[str, int]:
        """What no budget can undercut (the shaded areas of simrd's figure 4).

        ``constant_bytes``: of all constants. ``largest_op_bytes``: of the op that needs the
        most, its arguments, results and workspace, without constants.
        """
        constants = {op.outputs[0] for op in self.ops if op.name is None}
        fixed = {self.tensors[t].storage for t in constants}
        largest = 0
        for op in self.ops:
            moving = {self.tensors[t].storage for t in (*op.arguments, *op.outputs)} - fixed
            needs = sum(self.storages[s].bytes for s in moving) + op.workspace_bytes
            largest = max(largest, needs)
        constant = sum(self.storages[s].bytes for s in fixed)
        return {"constant_bytes": constant, "largest_op_bytes": largest}

    def kept(self) -> list[int]:
        """Tensors with references at the end, that are no constants; simrd's output condition."""
        last = [what for kind, what in self.steps if kind == StepKind.KEEP]
        return [t for t in dict.fromkeys(last) if self.ops[self.tensors[t].op].name is not None]


def resolve(stream: EventStream) -> Resolved:
    """Number everything in ``stream``.

    Raises:
        GraphError: a name is used before it is defined, defined twice, or released more often
            than it was taken; names the event.
    """
    draft = _Draft(stream)
    for number, event in enumerate(stream.events):
        draft.take(number, event)
    draft.steps += [(StepKind.KEEP, t) for t in draft.tensor_of.values() if draft.references[t] > 0]
    return Resolved(
        stream,
        tuple(draft.ops),
        tuple(draft.tensors),
        tuple(draft.storages),
        tuple(draft.steps),
        tuple(draft.names),
        draft.backward_op,
    )


@dataclass
class _Draft:
    stream: EventStream
    number: int = 0
    tensor_of: dict[str, int] = field(default_factory=dict)
    references: list[int] = field(default_factory=list)
    ops: list[StreamOp] = field(default_factory=list)
    tensors: list[StreamTensor] = field(default_factory=list)
    storages: list[StreamStorage] = field(default_factory=list)
    steps: list[tuple[StepKind, int]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    backward_op: int | None = None

    def take(self, number: int, event: Event) -> None:
        self.number = number
        match event:
            case Constant(name, size):
                (made,) = self.op(None, (), [Result(name, size)])
                self.steps.append((StepKind.KEEP, self.define(name, made)))
            case Call(op, names, results, cost, workspace):
                new = self.op(op, [self.find(n) for n in names], results, cost, workspace)
                for result, tensor in zip(results, new, strict=True):
                    self.define(result.name, tensor)
            case Mutate():
                self.mutate(event)
            case Copy(target, source):
                self.reference(self.define(target, self.find(source)), source)
            case CopyFrom(target, source):
                before, after = self.find(target), self.find(source)
                self.tensor_of[target] = after
                self.release(before, target)
                self.reference(after, source, might_be_released=after == before)
            case Release(name) if name in self.tensor_of:  # names from before START are not ours
                self.release(self.tensor_of[name], name)
            case Annotate("BACKWARD") if self.backward_op is None:
                self.backward_op = len(self.ops)

    def fail(self, message: str) -> GraphError:
        return GraphError(f"{self.stream.place(self.number)}: {message}")

    def find(self, name: str) -> int:
        if name not in self.tensor_of:
            raise self.fail(f"{name!r} is used, but nothing before defines it; define it first")
        return self.tensor_of[name]

    def define(self, name: str, tensor: int) -> int:
        if name in self.tensor_of:
            raise self.fail(f"{name!r} is defined already; rename it")
        self.tensor_of[name] = tensor
        return tensor

    def reference(self, tensor: int, name: str, might_be_released: bool = False) -> None:
        if self.references[tensor] <= 0 and not might_be_released:
            raise self.fail(f"{name!r} is copied, but has no references left; copy it earlier")
        self.references[tensor] += 1
        self.steps.append((StepKind.TAKE, tensor))

    def release(self, tensor: int, name: str) -> None:
        if self.references[tensor] <= 0:
            raise self.fail(f"{name!r} is released, but has no references left; drop this line")
        self.references[tensor] -= 1
        self.steps.append((StepKind.RELEASE, tensor))

    def mutate(self, event: Mutate) -> None:
        """New tensors, each of its old storage's full size; the old ones lose a reference."""
        arguments = [self.find(name) for name in event.arguments]
        old = [(event.arguments[index], arguments[index]) for index in event.mutated]
        results = [Result(name, self.storages[self.tensors[t].storage].bytes) for name, t in old]
        new = self.op(event.op, arguments, results, event.cost)
        for (name, before), after in zip(old, new, strict=True):
            self.tensor_of[name] = after
            self.release(before, name)

    def op(
        self,
        name: str | None,
        arguments: Sequence[int],
        results: Sequence[Result],
        cost: int = 0,
        workspace: int = 0,
    ) -> range:
        """Add an op and the tensors that it makes, with one reference each."""
        first = len(self.tensors)
        for result in results:
            size, alias = result.bytes, result.alias
            if alias is None:
                storage = len(self.storages)
                self.storages.append(StreamStorage(size, len(self.tensors)))
            elif 0 <= alias < len(arguments):
                storage, size = self.tensors[arguments[alias]].storage, 0
            else:
                raise self.fail(f"alias {alias} is no argument; give an index into them")
            self.tensors.append(StreamTensor(len(self.ops), storage, size))
            self.names.append(result.name)
            self.references.append(1)
        made = range(first, len(self.tensors))
        self.steps.append((StepKind.COMPUTE, len(self.ops)))
        self.ops.append(StreamOp(name, tuple(arguments), made, cost, workspace, self.number))
        return made
