"""The backend itself: what ``torch.compile(model, backend="rematbench")`` calls for each graph."""

from __future__ import annotations

import itertools
import logging
import sys
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
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
from rematbench.graphs.budget import Budget
from rematbench.graphs.plan import Plan
from rematbench.tracing.halves import Halves, halves_of
from rematbench.training.compiled import dynamo, eager, meters, ranks
from rematbench.training.compiled.background import BACKGROUND
from rematbench.training.compiled.calls import PendingCall, loop_of, sign_of_life
from rematbench.training.compiled.errors import unwrapped
from rematbench.training.compiled.fxhalves import graphs_of
from rematbench.training.compiled.gathered import weak_of
from rematbench.training.compiled.options import INDUCTOR, PLAN, Options, read_options
from rematbench.training.compiled.planning import Planned, planned, planned_lean
from rematbench.training.compiled.sizes import MOST_SIZES
from rematbench.training.compiled.together import Together
from rematbench.training.compiled.variants import Variants
from rematbench.validator.halves import TwoPrograms

if TYPE_CHECKING:
    from rematbench.training.compiled.inductor import PlanPartitioner

_warn = logging.getLogger(FOR_THE_USER)
NEWS = 1024
"""Bytes above the budget that a measurement may find: scalars, which are in no plan."""
MOST_TRIES = 3
"""Leaner plans tried where Inductor broke the budget."""

_numbers = itertools.count()
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
            # Sizes differ between ranks.
            return BySize(module, replace(read, one_plan=False))
        return Region(module, read).compile(inputs)
    except RematbenchError as error:
        raise unwrapped(error) from None


class BySize:
    """A graph of any size: each size that comes gets a plan, and code, of its own.

    Those that have not come for the longest go.
    """

    def __init__(self, module: GraphModule, options: Options) -> None:
        self._module, self._options, self._name = module, options, dynamo.graph_name(module)
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
        is_whole: it is all that its model trains by, as far as Dynamo tells.
        halves, planned: once a backward pass is asked for; None of a graph that only infers.
        meter: what was measured.
        parameters, origin: weak references to those that it reads, and to the module that it came
            from, whose own may be others while it does not run (FSDP's).
    """

    def __init__(self, module: GraphModule, options: Options, name: str | None = None) -> None:
        self.options, self._of_many_sizes = options, name is not None
        self.name, self.number = name or dynamo.graph_name(module), next(_numbers)
        self.sources = [
            dynamo.source_of(node) for node in module.graph.nodes if node.op == "placeholder"
        ]
        self.module: GraphModule = module
        self.is_whole = True
        self.halves: Halves | None = None
        self.planned: Planned | None = None
        self.programs: TwoPrograms | None = None
        self.meter = meters.Meter()
        self.parameters: list[weakref.ref[nn.Parameter]] = []
        self.origin: list[weakref.ref[nn.Module]] = []
        self.run: Any = None
        self.loop = loop_of(options)
        self._partitioner: PlanPartitioner | None = None
        self._stale, self._tries, self._tighter = False, 0, 0
        self._lean: Planned | None = None
        self._variants = Variants(self)
        self._asked: Planned | None = None
        self._parts: list[Planned] = []
        self._call_now: PendingCall | None = None

    def compile(self, inputs: Sequence[Any]) -> Any:
        """A function of the graph's inputs."""
        own = [each for each in inputs if isinstance(each, nn.Parameter)]
        found = dynamo.compiling()
        self.origin = [weakref.ref(found.module)] if found and found.module is not None else []
        self.parameters = [weakref.ref(each) for each in own]
        self.is_whole = not self.loop.pending() and dynamo.is_whole({id(each) for each in own})
        self.run = self.compiled_by(None, inputs)
        regions.add(self)
        # The function that Dynamo keeps keeps the region.
        return self._call

    def plans_steps_of(self, calls: int) -> bool:
        """Is a step that begins here, of so many calls, planned as one?"""
        counted = self.options.budget.bytes is not None and not self._of_many_sizes
        return self.shares and (calls > 1 or not self.is_whole or counted)

    @property
    def shares(self) -> bool:
        """May a step of several calls give it another plan?"""
        return not isinstance(self.options.plan, Plan) and self.options.budget != Budget()

    @property
    def plans(self) -> list[Planned]:
        """What its calls run by, each once."""
        parts: list[Planned | None] = [*self._parts] or [self.planned]
        return list({each.plan.hash(each.graph): each for each in parts if each}.values())

    def host_peak_of(self, plan: Planned) -> int | None:
        """Measured bytes on the host, of the latest call by a plan; None: it copied nothing."""
        if plan.trace.copies is None:
            return None
        copies = self._variants.programs_of(plan).copies
        reading = None if copies is None else copies.reading
        return None if reading is None else reading.host_peak_bytes

    @property
    def settled(self) -> Planned | None:
        """The plan that its calls run by; of several, the one that it began with."""
        return self._parts[0] if len(self._parts) == 1 else self.planned

    @property
    def steps(self) -> list[Together]:
        """The plans of sequences that begin with it."""
        found = self.loop.planned_from(self)
        return [] if found is None else [found]

    def takes(self, parts: list[Planned]) -> None:
        """Its calls are planned together with others."""
        self._parts = parts
        if len(parts) == 1:
            self.meter.restart()

    @property
    def lean(self) -> Planned:
        """A plan that keeps little between the halves."""
        if self._lean is None:
            assert self.planned is not None
            self._lean = planned_lean(self.planned.halves, self.options, known=True)
        return self._lean

    def _better(self, found: Planned) -> None:
        """Run by a cheaper plan from the next call on."""
        if not self._parts:
            self.planned = found
            self.say(_label(found))

    def _call(self, *args: Any) -> Any:
        BACKGROUND.collect()
        if self._stale:
            self._again(args)
        if self.planned is None:
            self.loop.stop()  # training may be over
            return self.run(*args)
        call = self._call_now = self.loop.begin(self, args)
        try:
            return self._variants.run_by(call.planned, args)(*args)
        finally:
            self._call_now = None

    def compiled_by(self, plan: Planned | None, inputs: Sequence[Any]) -> Any:
        """The graph compiled for a plan; None: for one that is made on the way."""
        self._asked = plan
        # What was saved is ours to release: not donated to what Inductor writes.
        with functorch.patch(donated_buffer=False, enable_autograd_cache=False):
            return self._compiled(inputs)

    def _compiled(self, inputs: Sequence[Any]) -> Any:
        if self.options.lower == INDUCTOR:
            from rematbench.training.compiled.inductor import PlanPartitioner, compile_by_inductor

            self._partitioner = PlanPartitioner(self._partition)
            module = GraphModule(self.module, deepcopy(self.module.graph))  # it changes its own
            return compile_by_inductor(
                module, inputs, self._partitioner, self._computes_again, self._metered
            )
        compiler = aot_autograd(
            fw_compiler=lambda module, inputs: eager.boxed(lambda args: self._forward(args)),
            bw_compiler=lambda module, inputs: self._backward(self._tokened),
            inference_compiler=self._inference,
            partition_fn=self._partition,
        )
        return compiler(self.module, inputs)

    def _computes_again(self) -> bool:
        found = self._asked or self.planned
        return found is not None and found.trace.recomputations > 0

    def say(self, words: str) -> None:
        """A line of progress."""
        if self.options.progress:
            print(f"rematbench: {self.name}: {words}", file=sys.stderr, flush=True)

    def _partition(
        self, joint: GraphModule, inputs: Any, *, num_fwd_outputs: int, **facts: Any
    ) -> tuple[GraphModule, GraphModule]:
        nodes = list(joint.graph.nodes)
        halves = halves_of(self.name, nodes, num_fwd_outputs, self.sources)
        if self.options.checkpoint == PLAN:
            halves = replace(halves, dropped=frozenset())
        found = self._asked
        if found is None:
            with unset_fake_temporarily(), _disable_current_modes():
                found = self.planned = self._planned(halves)
            self.halves = found.halves
            self.say(_label(found))
            # Ranks keep to one plan.
            if found.improve is not None and not ranks.shares_plans(self.options):
                BACKGROUND.submit(found.improve, self._better)
                found = self.planned = replace(found, improve=None)
        self.programs = self._variants.programs_of(found)
        if self._partitioner is None:
            return eager.shells(found.halves)
        self._partitioner.hash = found.plan.hash(found.graph)
        # The plan's names are those of this trace, which is like the first one.
        return graphs_of(replace(halves, captured=found.halves.captured), found.plan, self.programs)

    def _planned(self, halves: Halves) -> Planned:
        def make() -> Planned:
            if self.is_whole or not self.shares:
                return planned(halves, self.options, self.say, self._tighter)
            return planned_lean(halves, self.options, self.say)

        return ranks.planned(halves, self.options, self.say, make)

    def _forward(self, args: list[Any]) -> Any:
        """The forward half, by our own statements, of the call under way."""
        call, halves = self._call_now, self.halves
        assert call is not None
        assert halves is not None
        programs = self._variants.programs_of(call.planned)
        host = None if programs.copies is None else programs.copies.begin()
        half = programs.forward if host is None else partial(host.forward, programs.forward)
        made = self._metered_forward(half, args, call)
        results = made[: len(halves.results)]
        token = eager.token_of(programs, made[len(halves.results) :], call, host)
        self.loop.waits(call, weak_of(token))
        return (*results, token)

    def _tokened(self, args: list[Any]) -> eager.Taken:
        """The call under way, from the token that autograd has kept of it."""
        handed = eager.handed_by(args[0])
        given = [*handed.tensors, *args[1:]]
        args.clear()
        handed.tensors.clear()
        half, host = handed.programs.backward, handed.host
        if host is None:
            return eager.Taken(handed.call, half, given)
        return eager.Taken(handed.call, partial(host.backward, half), given, host.held_bytes())

    def _metered_forward(self, half: Any, args: list[Any], call: PendingCall) -> Any:
        halves = self.halves
        assert halves is not None
        self.loop.given(call, halves.primals, args)
        if self.meter.wants_forward and call.planned is self.settled:
            new = set(halves.captured.updates.values())
            ends = enumerate(halves.results)
            passing = [i for i, end in ends if getattr(end, "name", None) in new]
            made = self.meter.forward(half, args, passing)
        else:
            made = half(args)
        self.loop.made(call, halves.results, made)
        return made

    def _backward(self, taken: Any) -> Any:
        """A backward half as AOTAutograd calls it: measured the first time.

        Args:
            taken: says of its arguments what is called.
        """
        context = TracingContext.try_get()
        if context is not None and context.fw_metadata is not None:
            # Where PyTorch would speak of donated buffers, we say what to do.
            context.fw_metadata.bw_donated_idxs = []

        def back(args: list[Any]) -> Any:
            halves = self.halves
            assert halves is not None
            eager.check_once()
            call, half, given, copied = taken(args)
            tangents = len(halves.tangents)
            if call is not None:
                self.loop.goes_back(call)
                self.loop.given(call, halves.tangents, given[len(given) - tangents :])
            if self.meter.wants_backward and call is not None and call.planned is self.settled:
                try:
                    made = self.meter.backward(half, given, tangents, copied)
                finally:
                    self._judge()
            else:
                made = half(given)
            if call is not None:
                self.loop.made(call, halves.gradients, made)
            return made

        return eager.boxed(back)

    def _metered(self, half: Any, backward: bool) -> Any:
        """A half of Inductor's as AOTAutograd calls it."""
        if backward:

            def taken(args: list[Any]) -> eager.Taken:
                assert self.halves is not None
                handed = args[: len(args) - len(self.halves.tangents)]
                return eager.Taken(self.loop.call_of(handed), half, args)

            return self._backward(taken)

        def forward(args: list[Any]) -> Any:
            call, halves = self._call_now, self.halves
            assert call is not None
            assert halves is not None
            given = list(args)
            made = self._metered_forward(half, args, call)
            results = len(halves.results)
            self.loop.waits(call, sign_of_life(given, made[:results], made[results:]))
            return made

        return eager.boxed(forward)

    def _judge(self) -> None:
        """Compare the measured peak with the budget; where it broke, plan anew for less."""
        found, peak = self.settled, self.meter.peak_bytes
        if found is None or peak is None or found.limit is None or peak <= found.limit + NEWS:
            return
        text = f"{self.name}: measured peak {peak:,} bytes, the budget leaves {found.limit:,}"
        alone = self.options.lower == INDUCTOR and not ranks.shares_plans(self.options)
        if self._tries == MOST_TRIES or not alone:
            _warn.warning("rematbench: %s; the plan stays", text)
            return
        self._tries += 1
        # As much below what the plan was simulated to take as it took too much.
        assert found.allowed is not None
        self._tighter += found.allowed - found.share.peak + int(1.05 * (peak - found.limit)) + 1
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
            self.run = self.compiled_by(None, args)
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
    moved = "" if found.trace.copies is None else f", {found.trace.copies.out_bytes:,} to the host"
    overhead = f"overhead {found.overhead:+.1%}"
    return f"{found.plan.strategy}: {peak}{moved}, {overhead} ({found.source})"
