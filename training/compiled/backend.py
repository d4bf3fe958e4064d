"""The backend itself: what ``torch.compile(model, backend="rematbench")`` calls for each graph."""

from __future__ import annotations

import itertools
import logging
import sys
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes

from rematbench.base.cache_dirs import FOR_THE_USER
from rematbench.base.errors import Infeasible, RematbenchError
from rematbench.tracing.halves import Halves, Source, halves_of
from rematbench.training.compiled import dynamo, eager, meters
from rematbench.training.compiled.errors import unwrapped
from rematbench.training.compiled.fxhalves import graphs_of
from rematbench.training.compiled.ledger import ledger_of
from rematbench.training.compiled.options import INDUCTOR, Options, read_options
from rematbench.training.compiled.planning import Planned, planned
from rematbench.training.compiled.sizes import MOST_SIZES
from rematbench.validator.halves import TwoPrograms, generate_halves

if TYPE_CHECKING:
    from rematbench.training.compiled.inductor import PlanPartitioner

_warn = logging.getLogger(FOR_THE_USER)
NEWS = 1024
"""Bytes above the budget that a measurement may find: scalars, which are in no plan."""
MOST_TRIES = 3
"""Leaner plans tried where Inductor broke the budget."""

_numbers = itertools.count()
_TABLES = ("_modules", "_parameters", "_buffers")  # through ``__dict__``, as Dynamo writes it
dynamo.listen()
regions: weakref.WeakSet[Region] = weakref.WeakSet()
"""Every compiled graph that lives."""


def rematbench(
    module: GraphModule, inputs: Sequence[Any], *, options: Any = None, **others: Any
) -> Any:
    """A ``torch.compile`` backend; see :mod:`rematbench.training.compiled.options`.

    Raises:
        RematbenchError: as its kind says, in one line.
    """
    try:
        read = read_options(options, **others)
        dynamo.listen()
        dynamo.LISTENER.graphs += 1
        if any(isinstance(each, torch.SymInt) for each in inputs):
            return BySize(module, read)
        return Region(module, read).compile(inputs)
    except RematbenchError as error:
        raise unwrapped(error) from None


class BySize:
    """A graph of any size: each size that comes gets a plan, and code, of its own.

    Those that have not come for the longest go.
    """

    def __init__(self, module: GraphModule, options: Options) -> None:
        self._module, self._options, self._name = module, options, _name(module)
        self._made: OrderedDict[tuple[Any, ...], Any] = OrderedDict()

    def __call__(self, *args: Any) -> Any:
        sizes = tuple(each for each in args if isinstance(each, (int, float)))
        if sizes not in self._made:
            with torch._dynamo.config.patch(disable=True):
                self._made[sizes] = Region(self._module, self._options, self._name).compile(args)
            if len(self._made) > MOST_SIZES:
                self._made.popitem(last=False)
        self._made.move_to_end(sizes)
        return self._made[sizes](*args)


class Region:
    """One graph that Dynamo found, compiled.

    Attributes:
        options: as given.
        name: of the module that it came from.
        number: in the order in which they were compiled.
        halves, planned: once a backward pass is asked for; None of a graph that only infers.
        meter: what was measured.
        parameters: weak references to the parameters that it reads.
    """

    def __init__(self, module: GraphModule, options: Options, name: str | None = None) -> None:
        self.options = options
        self.name, self.number = name or _name(module), next(_numbers)
        self.sources = [_source(node) for node in module.graph.nodes if node.op == "placeholder"]
        self.module: GraphModule = module
        self.halves: Halves | None = None
        self.planned: Planned | None = None
        self.programs: TwoPrograms | None = None
        self.meter = meters.Meter()
        self.parameters: list[weakref.ref[nn.Parameter]] = []
        self.run: Any = None
        self._partitioner: PlanPartitioner | None = None
        self._stale, self._tries, self._tighter = False, 0, 0
        self._ledger, self._held = ledger_of(options), 0
        self._args: Sequence[Any] = ()

    def compile(self, inputs: Sequence[Any]) -> Any:
        """A function of the graph's inputs."""
        self.parameters = [weakref.ref(each) for each in inputs if isinstance(each, nn.Parameter)]
        if self.options.graphs == 1:
            self._held = self._ledger.held(inputs)
        # What was saved is ours to release: it is not donated to what Inductor writes.
        with functorch.patch(donated_buffer=False, enable_autograd_cache=False):
            self.run = self._compiled(inputs)
        regions.add(self)
        # The function that Dynamo keeps keeps the region.
        return self._call

    def _call(self, *args: Any) -> Any:
        if self._stale:
            self._again(args)
        found = self.planned
        if found is None or found.most is None:
            return self.run(*args)
        self._ledger.admit(self.name, found.share, args, found.most, str(self.options.budget))
        self._args = args
        try:
            return self.run(*args)
        finally:
            self._args = ()

    def _compiled(self, inputs: Sequence[Any]) -> Any:
        if self.options.lower == INDUCTOR:
            from rematbench.training.compiled.inductor import PlanPartitioner, compile_by_inductor

            self._partitioner = PlanPartitioner(self._partition)
            module = GraphModule(self.module, deepcopy(self.module.graph))  # it changes its own
            return compile_by_inductor(
                module, inputs, self._partitioner, self._computes_again, self._metered
            )
        compiler = aot_autograd(
            fw_compiler=lambda module, inputs: self._half(backward=False),
            bw_compiler=lambda module, inputs: self._half(backward=True),
            inference_compiler=self._inference,
            partition_fn=self._partition,
        )
        return compiler(self.module, inputs)

    def _computes_again(self) -> bool:
        return self.planned is not None and self.planned.source != "ordinary"

    def say(self, words: str) -> None:
        """A line of progress."""
        if self.options.progress:
            print(f"rematbench: {self.name}: {words}", file=sys.stderr, flush=True)

    def _partition(
        self, joint: GraphModule, inputs: Any, *, num_fwd_outputs: int, **facts: Any
    ) -> tuple[GraphModule, GraphModule]:
        nodes = list(joint.graph.nodes)
        halves = halves_of(self.name, nodes, num_fwd_outputs, self.sources)
        with unset_fake_temporarily(), _disable_current_modes():
            found = planned(halves, self.options, self.say, self._held, self._tighter)
        self.planned, self.halves = found, found.halves
        self.say(_label(found))
        self.programs = generate_halves(found.halves, found.plan)
        if self._partitioner is None:
            return eager.shells(found.halves, self.programs)
        self._partitioner.hash = found.plan.hash(found.graph)
        return graphs_of(found.halves, found.plan, self.programs)

    def _half(self, backward: bool) -> Any:
        assert self.programs is not None
        return self._metered(
            self.programs.backward if backward else self.programs.forward, backward
        )

    def _metered(self, half: Any, backward: bool) -> Any:
        """A half as AOTAutograd calls it: measured the first time."""
        meter, halves, found = self.meter, self.halves, self.planned
        assert halves is not None
        assert found is not None
        tangents, returned = len(halves.tangents), len(halves.results)
        ledger, share, limited = self._ledger, found.share, found.most is not None
        new = set(halves.captured.updates.values())
        passing = [i for i, end in enumerate(halves.results) if getattr(end, "name", None) in new]
        if not backward:

            def forward(args: list[Any]) -> Any:
                made = meter.forward(half, args, passing) if meter.wants_forward else half(args)
                if limited:
                    ledger.note(share, self._args, made[:returned], made[returned:])
                return made

            return eager.boxed(forward)
        context = TracingContext.try_get()
        if context is not None and context.fw_metadata is not None:
            # Where PyTorch would speak of donated buffers, we say what to do.
            context.fw_metadata.bw_donated_idxs = []

        def back(args: list[Any]) -> Any:
            eager.check_once()
            if limited:
                ledger.over(args[: len(args) - tangents])
            if not meter.wants_backward:
                return half(args)
            try:
                return meter.backward(half, args, tangents)
            finally:
                self._judge()

        return eager.boxed(back)

    def _judge(self) -> None:
        """Compare the measured peak with the budget; where it broke, plan anew for less."""
        found, peak = self.planned, self.meter.peak_bytes
        if found is None or peak is None or found.limit is None or peak <= found.limit + NEWS:
            return
        text = f"{self.name}: measured peak {peak:,} bytes, the budget leaves {found.limit:,}"
        if self._tries == MOST_TRIES or self.options.lower != INDUCTOR:
            _warn.warning("rematbench: %s; the plan stays", text)
            return
        self._tries += 1
        # As much below what the plan was simulated to take as it took too much.
        assert found.allowed is not None
        taken = found.share.together(self.options.graphs)
        self._tighter += found.allowed - taken + int(1.05 * (peak - found.limit)) + 1
        self._stale = True
        _warn.warning(
            "rematbench: %s; a leaner plan is tried at the next call (%d of %d)",
            text,
            self._tries,
            MOST_TRIES,
        )

    def _again(self, args: Sequence[Any]) -> None:
        """Compile with a leaner plan; where there is none, go on as before."""
        self._stale = False
        before = self.run, self.halves, self.planned, self.programs
        try:
            with functorch.patch(donated_buffer=False, enable_autograd_cache=False):
                self.run = self._compiled(args)
        except Infeasible as error:
            self.run, self.halves, self.planned, self.programs = before
            _warn.warning(
                "rematbench: %s: no leaner plan, the last one stays: %s", self.name, error
            )
            return
        self.meter.restart()

    def _inference(self, module: GraphModule, inputs: Any) -> Any:
        from torch.fx.graph import _BoxedCodeGen

        module.graph.set_codegen(_BoxedCodeGen())
        module.recompile()
        forward = module.forward
        return eager.boxed(lambda args: forward(args))


def _label(found: Planned) -> str:
    peak = f"peak {found.share.peak:,} bytes"
    if found.source == "ordinary":
        return f"ordinary training ({peak}): no plan is needed"
    return f"{found.plan.strategy}: {peak}, overhead {found.overhead:+.1%} ({found.source})"


def _name(module: GraphModule) -> str:
    found = dynamo.name_of(dynamo.compiling())
    if found is not None:
        return found
    for node in module.graph.nodes:
        stack = node.meta.get("nn_module_stack") or {}
        for _, kind in stack.values():
            return str(getattr(kind, "__name__", kind))
    return "function"


def _source(node: Any) -> Source:
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
