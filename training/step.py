"""Train with a plan: a step that leaves what ``loss.backward()`` leaves, within a budget.

>>> step = apply(model, loss, (images, labels), ApGreedy(), budget="8GiB")   # doctest: +SKIP
>>> for images, labels in data:                                              # doctest: +SKIP
...     optimizer.zero_grad()
...     value = step(images, labels)  # instead of loss(model, images, labels).backward()
...     optimizer.step()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rematbench import costmodel as costs
from rematbench.base.cache_dirs import cache_root
from rematbench.base.errors import (
    ConfigError,
    ExecutionError,
    Infeasible,
    InvalidPlan,
    PlanError,
)
from rematbench.costmodel.device import random_state_bytes
from rematbench.graphs.budget import parse_budget, parse_bytes
from rematbench.graphs.files import write_plan
from rematbench.graphs.ir import Graph
from rematbench.graphs.link import NONE, Link
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.planning import Problem, Strategy, SupportsWarmUp
from rematbench.graphs.simulate import Trace, simulate
from rematbench.graphs.states import planned
from rematbench.tracing.captured import Captured
from rematbench.tracing.devices import device_of
from rematbench.tracing.trace import capture
from rematbench.tracing.workload import Workload
from rematbench.training.choice import plan_or_strategy
from rematbench.training.gradients import announce, deliver, unwrap
from rematbench.training.host import HostMemory, check_copies, default_strategy, host_memory
from rematbench.training.signature import Conditions, Look, Place, batch_looks, check_batch
from rematbench.validator.codegen import generate
from rematbench.validator.copier import CopyReading
from rematbench.validator.execute import RandomReplay

Loss = Callable[..., Tensor]


class Step:
    """One training step by a plan; made by :func:`apply`.

    Attributes:
        plan: what it runs; ``save`` writes it to a file that ``apply`` takes.
        trace: the plan as simulated; ``trace.peak_bytes`` is the peak, optimizer state not
            included, ``trace.copies`` what it does with the host.
        link: to the host, of which copies take the time.
        graph: the step, with the costs that the plan was judged by.
        checkpoint_all: ordinary training, as simulated.
        source: the plan as Python source.
    """

    def __init__(
        self,
        model: nn.Module,
        captured: Captured,
        plan: Plan,
        link: Link = NONE,
        paced: bool = True,
    ) -> None:
        self.module, self._parallel = unwrap(model)
        self._captured = captured
        self.graph, self.plan, self.link = captured.graph, plan, link
        self.trace: Trace = simulate(self.graph, plan, link)
        self.checkpoint_all: Trace = simulate(self.graph, program_order(self.graph))
        self._program = generate(captured, plan, link, paced)
        self._has_run = False
        self._looks: tuple[Look, ...] = ()
        self._conditions = Conditions(self.module, captured.device)
        self._places = {
            (kind, str(r.target)): Place(self.module, str(r.target), kind)
            for r in captured.residents
            if (kind := r.kind) in ("parameter", "buffer")
        }
        self._one = torch.ones(
            (), device=captured.device, dtype=captured.tensors[captured.loss].dtype
        )
        self._constants = {n: t.to(captured.device) for n, t in captured.constants.items()}
        self._trained = {n: self._place("parameter", n) for n in captured.gradients}
        self._untrained = [
            Place(self.module, name, "parameter")
            for name, _ in self.module.named_parameters()
            if name not in self._trained and ("parameter", name) not in self._places
        ]
        self._updated = {n: self._place("buffer", n) for n in captured.updates}
        self._shared = _shared(captured)

    def _place(self, kind: str, name: str) -> Place:
        return self._places.get((kind, name)) or Place(self.module, name, kind)

    @property
    def source(self) -> str:
        """The plan as the Python function that runs."""
        return self._program.source

    @property
    def overhead(self) -> float:
        """Simulated cost of the plan over that of ordinary training, minus 1."""
        return self.trace.cost / self.checkpoint_all.cost - 1

    @property
    def copied(self) -> CopyReading | None:
        """What was measured of the last step's copies; None: there were none.

        On CUDA it waits until that step is done.
        """
        copier = self._program.copier if self._has_run else None
        return None if copier is None else copier.reading()

    def save(self, path: str | Path) -> None:
        """Write the plan to a file; ``apply(model, loss, example, path)`` reads it."""
        write_plan(path, self.plan)

    def __call__(self, *batch: Tensor, gradient: Tensor | None = None) -> Tensor:
        """Forward and backward: adds to every ``.grad``, updates buffers, returns the loss.

        Args:
            batch: like the example.
            gradient: of the loss, as in ``loss.backward(gradient)``: ``1 / n`` to average over n
                micro-batches, ``scaler.scale(torch.ones(()))`` for a ``GradScaler``.

        Raises:
            ExecutionError: the batch, the model or its modes are not those that the plan was
                made for; says what changed and what to call. Or what copies to the host has
                failed, and no gradient has changed.
        """
        check_batch(batch, self._looks)
        self._conditions.check()
        for place in self._untrained:
            place.tensor()
        if self._parallel is not None:
            announce(self._parallel, [place.tensor() for place in self._trained.values()])
        with torch.no_grad():
            return self._finish(self._run(batch, gradient))

    def _run(self, batch: Sequence[Tensor], gradient: Tensor | None = None) -> list[Any]:
        """Raw results, in the order of the program's; nothing in the model changes."""
        residents = self._residents(batch, gradient)
        # A plan computes what was traced, casts included: autocast must not add its own.
        with torch.autocast(self._captured.device, enabled=False):
            made = list(self._program.run(residents, RandomReplay(self._captured.device)))
        self._has_run = True
        return made

    def _residents(self, batch: Sequence[Tensor], gradient: Tensor | None) -> tuple[Tensor, ...]:
        if gradient is None:
            gradient = self._one
        elif not isinstance(gradient, Tensor):
            raise ExecutionError(
                f"gradient is a {type(gradient).__name__}; give a tensor, as torch.tensor(0.5)"
            )
        elif gradient.numel() != 1:
            raise ExecutionError(
                f"gradient has {gradient.numel()} entries; the loss is a scalar, so give one"
            )
        found: list[Tensor] = []
        for resident in self._captured.residents:
            if resident.kind == "input":
                assert isinstance(resident.target, int)
                found.append(batch[resident.target])
            elif resident.kind == "tangent":
                found.append(gradient.detach().to(self._one).reshape(()))
            elif resident.kind == "constant":
                found.append(self._constants[resident.tensor])
            else:
                found.append(self._places[resident.kind, str(resident.target)].tensor().detach())
        return tuple(found)

    def _finish(self, results: list[Any]) -> Tensor:
        """Hand the results over, dropping each as soon as it has its place."""
        results.reverse()
        loss: Tensor = results.pop()
        hooked = self._parallel is not None
        for name, place in self._trained.items():
            gradient = results.pop()
            if gradient is None:
                raise ExecutionError(f"the plan leaves no gradient of {name}; call apply() again")
            parameter = place.tensor()
            assert isinstance(parameter, nn.Parameter)
            deliver(parameter, gradient, shared=name in self._shared, hooked=hooked)
            del gradient
        for place in self._updated.values():
            place.tensor().copy_(results.pop())
        return loss

    def __repr__(self) -> str:
        return (
            f"Step({self.plan.graph}, {self.plan.strategy or 'plan'}, simulated peak "
            f"{self.trace.peak_bytes} bytes, overhead {self.overhead:+.1%}{self._of_host()})"
        )

    def _of_host(self) -> str:
        copies = self.trace.copies
        if copies is None:
            return ""
        return f", {copies.out_bytes} bytes to the host, {copies.host_peak_bytes} of them at once"


def _shared(captured: Captured) -> frozenset[str]:
    """The parameters whose gradient lies in the storage of something else that leaves the step."""
    seen = {captured.value_of[captured.loss]}
    found = set()
    resident = {v.name for v in captured.graph.values if v.resident}
    for name, tensor in captured.gradients.items():
        value = captured.value_of[tensor]
        if value in seen or value in resident:
            found.add(name)
        seen.add(value)
    return frozenset(found)


def apply(
    model: nn.Module,
    loss: Loss | None,
    example: Any,
    plan: Plan | Strategy | type[Strategy] | str | Path | None = None,
    budget: Any = None,
    *,
    host: Any = None,
    link: Any = None,
    reserve: Any = None,
    costmodel: str = "profiled",
    time_limit: float = 60.0,
    seed: int = 0,
    check: bool = True,
) -> Step:
    """A training step of ``model`` that keeps to a plan.

    Args:
        model: with its parameters where, and (of each submodule) in the mode, train or eval, in
            which they will be trained; or DistributedDataParallel around it.
        loss: ``loss(model, *batch)`` is the scalar loss; None: ``model(*batch)`` is.
        example: a batch (a tuple of tensors); only what it looks like counts, apart from the
            check.
        plan: a plan, the path of a plan file, or a strategy that makes one: its name, such as
            ``"ap_greedy"`` (where no file has that name), an object, or a class; None: our own,
            ``"hybrid"`` with a host and else ``"anytime"``.
        budget: of the peak (parameters, buffers, batch, activations, gradients, workspaces):
            bytes, ``"8GiB"``, a fraction of ordinary training's peak, or None.
        host: bytes of the host's memory where values may wait, such as ``"64GiB"``.
        link: to it: ``"pcie4"``, ``"25GB/s"``, ``{"out": .., "in": .., "latency": ..}``; None: it
            is measured at first use, and kept. On a CPU copies are slowed to a given one.
        reserve: bytes of the budget for what the step does not see: optimizer state, and, when
            gradients are accumulated, one gradient of each parameter.
        costmodel: what ops cost. ``profiled`` measures each, workspaces included, so that the
            peak is the true one; ``flops`` is instant and knows no workspaces.
        time_limit: seconds for the strategy.
        check: run the plan on ``example`` and compare its loss with the model's own.

    Raises:
        ConfigError, BudgetError: an argument is bad.
        CaptureError: the step cannot be traced: it branches on data, say.
        PlanError: the plan is of another model, batch or PyTorch, or copies without a host.
        Infeasible: no plan within the budget and ``host``, or the given one is above them.
        ExecutionError: the check failed, or the host has no memory left.
    """
    memory = host_memory("host", host, link)
    chosen = plan_or_strategy(default_strategy(memory) if plan is None else plan)
    looks = batch_looks(example)
    captured = _costed(_capture(unwrap(model)[0], loss, looks), costmodel)
    allowed = _allowed(budget, reserve, captured.graph)
    problem = _problem(Problem(captured.graph, allowed, time_limit, seed, captured), memory)
    made = chosen if isinstance(chosen, Plan) else _planned(chosen, problem)
    _check_plan(made, problem)
    paced = memory is not None and memory.is_paced
    return _checked(Step(model, captured, made, problem.link, paced), looks, example, check)


def _checked(step: Step, looks: tuple[Look, ...], example: Any, check: bool) -> Step:
    step._looks = looks
    if check:
        _check_loss(step, example)
    return step


def _own_loss(module: nn.Module, *batch: Tensor) -> Tensor:
    found: Tensor = module(*batch)
    return found


def _capture(module: nn.Module, loss: Loss | None, looks: tuple[Look, ...]) -> Captured:
    """The step as a graph, whose name tells its batch and structure: plan files carry it."""
    devices = {t.device.type for t in module.parameters()} | {look.device for look in looks}
    if len(devices) != 1:
        raise ConfigError(f"model and batch are on {sorted(devices)}; move both to one device")

    def make_batch() -> tuple[Tensor, ...]:
        full = [torch.empty(look.shape, dtype=look.dtype) for look in looks]
        return tuple(
            torch.empty_strided(t.shape, _strides(t, look), dtype=look.dtype).zero_()
            for t, look in zip(full, looks, strict=True)
        )

    workload = Workload(type(module).__name__, module, make_batch, loss or _own_loss)
    captured = capture(workload, devices.pop(), train=False)
    batch = ";".join(
        "x".join(map(str, k.shape)) + f":{str(k.dtype).removeprefix('torch.')}" for k in looks
    )
    name = f"{workload.name}[{batch}]#{captured.graph.hash[:12]}"
    return captured.with_graph(replace(captured.graph, name=name))


def _strides(full: Tensor, look: Look) -> tuple[int, ...]:
    known = iter(look.stride)
    return tuple(
        next(known) if n > 1 else s for s, n in zip(full.stride(), full.shape, strict=True)
    )


def _allowed(budget: Any, reserve: Any, graph: Graph) -> int | None:
    allowed = parse_budget(budget).of(simulate(graph, program_order(graph)).peak_bytes)
    if reserve is None:
        return allowed
    kept = parse_bytes("reserve", reserve)
    if allowed is None or allowed <= kept:
        raise ConfigError(f"reserve={reserve} leaves nothing of budget={budget}; give a larger one")
    return allowed - kept


def _costed(captured: Captured, costmodel: str) -> Captured:
    """With costs, and what saved states of the random generator take."""
    graph = costs.apply(costmodel, captured.graph, captured, device=captured.device)
    return captured.with_graph(
        replace(graph, random_state_bytes=random_state_bytes(captured.device))
    )


def _problem(problem: Problem, memory: HostMemory | None) -> Problem:
    """The problem with two memories, where there are two."""
    if memory is None:
        return problem
    root = cache_root()
    cache = None if root is None else root / "compiled"
    link = memory.link(problem.graph, problem.captured.device, cache)
    return replace(problem, link=link, host=memory.most)


def _planned(strategy: Strategy, problem: Problem) -> Plan:
    if isinstance(strategy, SupportsWarmUp):
        strategy.warm_up()
    made = planned(strategy, problem).plan
    if made is None:
        raise PlanError(f"{type(strategy).__name__} judges itself and makes no plan to train with")
    return made.labelled(type(strategy).__name__, problem.budget)


def _check_plan(plan: Plan, problem: Problem) -> None:
    """Raises PlanError for a foreign plan, Infeasible for one above the budget or the host's."""
    graph, allowed = problem.graph, problem.budget
    if "#" in plan.graph and plan.graph != graph.name:
        raise PlanError(
            f"the plan is for {plan.graph}, this model and batch are {graph.name}; "
            "call apply() with a strategy, and save the new plan"
        )
    try:
        check_copies(graph, plan, problem.link, 'give host="64GiB", say')
        trace = simulate(graph, plan, problem.link)
    except InvalidPlan as error:
        raise PlanError(
            f"the plan (for {plan.graph or 'an unnamed graph'}) does not fit {graph.name}: {error}"
            "; it is of another model, batch or version of PyTorch: call apply() with a strategy"
        ) from error
    peak, host = trace.peak_bytes, trace.host_peak_bytes
    if problem.holds(peak, host):
        return
    what = f"peaks at {peak} bytes, the budget leaves {allowed}; give a larger budget"
    if problem.holds(peak):
        what = f"puts {host} bytes on the host, host={problem.host}; give a larger host"
    raise Infeasible(f"the plan {what} or a strategy", smallest_peak_found=peak)


def _check_loss(step: Step, example: Any) -> None:
    """Compare the plan's loss with the model's own; random state and buffers are left alone."""
    from rematbench.validator.compare import TOLERANCE

    batch = (example,) if isinstance(example, Tensor) else tuple(example)
    device = step._captured.device
    buffers = [(b, b.clone()) for b in step.module.buffers()]
    with device_of(device).forked_random():
        start = RandomReplay(device)
        start.record(0)
        with torch.no_grad():
            found = step._run(batch)[0].double()
            start.replay(0)
            expected = step._captured.workload(*batch).reshape(())
            for buffer, old in buffers:
                buffer.copy_(old)
    allowed = TOLERANCE.get(expected.dtype, 0.0)
    expected = expected.double()
    if not torch.allclose(found, expected, rtol=allowed, atol=allowed, equal_nan=True):
        raise ExecutionError(
            f"the captured loss is {found.item():.6g}, the model's own {expected.item():.6g}: "
            "the trace does not compute what the model does (Python state such as random.random(), "
            "or several layers of nn.LSTM with dropout); remove that, or pass check=False"
        )
