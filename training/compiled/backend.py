"""The backend itself: what ``torch.compile(model, backend="rematbench")`` calls for each graph."""

from __future__ import annotations

import itertools
import logging
import sys
import weakref
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
from rematbench.training.compiled.around import Around
from rematbench.training.compiled.background import BACKGROUND
from rematbench.training.compiled.beyond import NEWS, learn
from rematbench.training.compiled.by_size import BySize
from rematbench.training.compiled.calls import PendingCall, loop_of, sign_of_life
from rematbench.training.compiled.errors import unwrapped
from rematbench.training.compiled.fxhalves import graphs_of
from rematbench.training.compiled.gathered import weak_of
from rematbench.training.compiled.options import INDUCTOR, PLAN, Options, read_options
from rematbench.training.compiled.planning import FIRST_STEP, Planned, planned, planned_lean
from rematbench.training.compiled.record import sizes_of
from rematbench.training.compiled.together import Together
from rematbench.training.compiled.told import above, label
from rematbench.training.compiled.variants import Variants
from rematbench.training.compiled.within import note, options_now, runs
from rematbench.validator.halves import TwoPrograms

if TYPE_CHECKING:
    from rematbench.training.compiled.inductor import PlanPartitioner

_warn = logging.getLogger(FOR_THE_USER)
MOST_TRIES = 3
"""Plans of a graph after the first that Inductor's own bytes may ask for."""

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
            read = replace(read, one_plan=False)  # sizes differ between ranks
            around, name = Around(), dynamo.graph_name(module)
            return BySize(lambda args: Region(module, read, name, around).compile(args))
        return Region(module, read).compile(inputs)
    except RematbenchError as error:
        raise unwrapped(error) from None


class Region:
    """One graph that Dynamo found, compiled.

    Attributes:
        options: as given, with the budget that holds.
        name: of the module that it came from.
        number: in the order in which they were compiled.
        is_whole: it is all that its model trains by, as far as Dynamo tells.
        halves, planned: once a backward pass is asked for; None of a graph that only infers.
        meter, has_measured: what was measured, by its latest plan; was it, by any?
        around: what lies outside of it, if it is of many sizes.
        parameters, origin: weak references to those that it reads, and to the module that it came
            from, whose own may be others while it does not run (FSDP's).
    """

    def __init__(
        self,
        module: GraphModule,
        options: Options,
        name: str | None = None,
        around: Around | None = None,
    ) -> None:
        self.name, self.number = name or dynamo.graph_name(module), next(_numbers)
        self._given, self.options = options, options_now(options, self.name)
        self.around, self._version = around, 0
        self.sources = [
            dynamo.source_of(node) for node in module.graph.nodes if node.op == "placeholder"
        ]
        self.module: GraphModule = module
        self.is_whole = True
        self.halves: Halves | None = None
        self.planned: Planned | None = None
        self.programs: TwoPrograms | None = None
        self.meter, self.has_measured = meters.Meter(), False
        self._meters: dict[int, meters.Meter] = {}
        self.parameters: list[weakref.ref[nn.Parameter]] = []
        self.origin: list[weakref.ref[nn.Module]] = []
        self.run: Any = None
        self.loop = loop_of(self.options)
        self._partitioner: PlanPartitioner | None = None
        self._stale, self._tries = False, 0
        self._lean: Planned | None = None
        self._variants = Variants(self)
        self._asked: Planned | None = None
        self._parts: list[Planned] = []
        self._call_now: PendingCall | None = None

    def compile(self, inputs: Sequence[Any]) -> Any:
        """A function of the graph's inputs."""
        if self.around is not None:
            self.loop.stop()  # what measures ops counts, too
        own = [each for each in inputs if isinstance(each, nn.Parameter)]
        self.parameters, found = [weakref.ref(each) for each in own], dynamo.compiling()
        self.origin = [weakref.ref(found.module)] if found and found.module is not None else []
        self.is_whole = not self.loop.pending() and dynamo.is_whole({id(each) for each in own})
        self.run = self.compiled_by(None, inputs)
        regions.add(self)
        # The function that Dynamo keeps keeps the region.
        return self._call

    def plans_steps_of(self, calls: int) -> bool:
        """Is a step that begins here, of so many calls, planned as one?"""
        return self.shares and (calls > 1 or not self.is_whole or self.around is None)

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
        self._parts, inductor = parts, self.options.lower == INDUCTOR
        measured = parts if len(parts) == 1 or inductor else []
        self._meters = {id(each): meters.Meter() for each in measured}
        if len(parts) == 1:
            self.meter = self._meters[id(parts[0])]

    def _meter_of(self, plan: Planned) -> meters.Meter | None:
        """What measures a call by a plan; None: nothing does."""
        own = self.meter if plan is self.planned and not self._parts else None
        return self._meters.get(id(plan), own)

    @property
    def lean(self) -> Planned:
        """A plan that keeps little between the halves."""
        if self._lean is None:
            own = self.planned
            assert own is not None
            is_lean = own.source == FIRST_STEP
            self._lean = own if is_lean else planned_lean(own.halves, self.options, known=True)
        return self._lean

    def _better(self, found: Planned) -> None:
        """Run by a cheaper plan from the next call on."""
        if not self._parts:
            self.planned = found
            self.say(label(found))

    def _call(self, *args: Any) -> Any:
        BACKGROUND.collect()
        if self.planned is None:
            self.loop.stop()  # training may be over
            return self.run(*args)
        self._follows(args)
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
        if self._asked is None:
            with unset_fake_temporarily(), _disable_current_modes():
                self._adopts(self._planned(halves))
        found = self._asked or self.planned
        assert found is not None
        self.programs = self._variants.programs_of(found)
        if self._partitioner is None:
            return eager.shells(found.halves)
        self._partitioner.hash = found.plan.hash(found.graph)
        # The plan's names are those of this trace, which is like the first one.
        return graphs_of(replace(halves, captured=found.halves.captured), found.plan, self.programs)

    def _planned(self, halves: Halves) -> Planned:
        self._version = 0 if self.around is None else self.around.version

        def make() -> Planned:
            if self.is_whole or not self.shares:
                return planned(halves, self.options, self.say, self.around)
            return planned_lean(halves, self.options, self.say)

        return ranks.planned(halves, self.options, self.say, make)

    def _adopts(self, found: Planned) -> None:
        """Run by a plan of its own, which may be improved."""
        self.halves, self.planned = found.halves, found
        self.say(label(found))
        # Ranks keep to one plan.
        if found.improve is not None and not ranks.shares_plans(self.options):
            BACKGROUND.submit(found.improve, self._better)
            self.planned = replace(found, improve=None)

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
        if (meter := self._meter_of(call.planned)) is not None and meter.wants_forward:
            new = set(halves.captured.updates.values())
            ends = enumerate(halves.results)
            passing = [i for i, end in ends if getattr(end, "name", None) in new]
            made = meter.forward(half, args, passing)
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
            meter = None if call is None else self._meter_of(call.planned)
            if call is not None and meter is not None and meter.wants_backward:
                try:
                    made = meter.backward(half, given, tangents, copied)
                finally:
                    self._judge(call.planned, meter)
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
            call.handed = frozenset(sizes_of(made[results:]))
            self.loop.waits(call, sign_of_life(given, made[:results], made[results:]))
            return made

        return eager.boxed(forward)

    def _judge(self, found: Planned, meter: meters.Meter) -> None:
        """Learn what was measured; where Inductor broke the budget, plan anew for less."""
        peak = meter.peak_bytes
        if peak is None:
            return
        note(peak)
        self.has_measured = True
        more = learn(found.halves, self.options, above(found, meter))
        of_a_step = self.options.lower == INDUCTOR and bool(self._parts)
        if found.limit is None or peak <= found.limit + NEWS or of_a_step:
            return
        text = f"{self.name}: measured peak {peak:,} bytes, the budget leaves {found.limit:,}"
        if self._tries == MOST_TRIES or not more or ranks.shares_plans(self.options):
            _warn.warning("rematbench: %s; the plan stays", text)
            return
        self._tries, self._stale = self._tries + 1, True
        _warn.warning("rematbench: %s; what Inductor takes is left to it from now on", text)

    def _follows(self, args: Sequence[Any]) -> None:
        """Take the budget that holds just now, and what was learnt meanwhile."""
        options = options_now(self._given, self.name)
        runs(self.loop.leave)
        if options.budget != self.options.budget:
            self._takes_budget(options, args)
            runs(self.loop.leave)
        elif self._stale:
            self._stale = False
            try:
                self._replans(args)
            except Infeasible as error:
                text = "rematbench: %s: no leaner plan, the last one stays: %s"
                _warn.warning(text, self.name, error)
        elif self.around is not None and self.around.version != self._version:
            self._replans(args)

    def _takes_budget(self, options: Options, args: Sequence[Any]) -> None:
        """Train within another budget from now on."""
        before = self.options, self.loop, self._parts, self._lean
        self.options, self.loop, self._lean = options, loop_of(options), None
        self._parts, self._stale, self._tries = self.loop.parts_of(self), False, 0
        try:
            self._replans(args)
        except RematbenchError:
            self.options, self.loop, self._parts, self._lean = before
            raise

    def _replans(self, args: Sequence[Any]) -> None:
        """Plan anew; on an error all stays as it was."""
        before = self.run, self.halves, self.planned, self.programs
        assert self.halves is not None
        try:
            if self.options.lower == INDUCTOR:
                self.run = self.compiled_by(None, args)
            else:
                self._adopts(self._planned(self.halves))
        except RematbenchError:
            self.run, self.halves, self.planned, self.programs = before
            raise
        self.meter.restart()

    def _inference(self, module: GraphModule, inputs: Any) -> Any:
        from torch.fx.graph import _BoxedCodeGen

        module.graph.set_codegen(_BoxedCodeGen())
        module.recompile()
        forward = module.forward
        return eager.boxed(lambda args: forward(args))
