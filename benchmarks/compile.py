"""``torch.compile(model, backend="rematbench")`` beside PyTorch's own: time, peak, gradients.

``python -m benchmarks.compile`` prints figures beside their targets and writes them, with
provenance, to ``runs/benchmarks/compile.json``; all that was measured is in ``compile.rows.json``
beside it. The steps of one network are timed in turns, so that a busy machine slows all alike. Some
twenty minutes on two cores that do nothing else. What is there is written after each network, to
``compile-part.json`` until all of them are there.

Ours plans for budgets that are shares of the uncompiled step's measured peak. PyTorch's
``activation_memory_budget`` knows no peak: each of its ratios runs, and the fastest whose measured
peak is within the same budget is what we are held against. One whose gradients differ from those
of the step without recomputation is no rival: it is printed beside, with time and difference.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.figures import RECORDS, Figure, publish
from rematbench.costmodel.device import peak_of, steady_allocator
from rematbench.graphs.files import write_json
from rematbench.rows.provenance import now
from rematbench.tracing.workload import Workload
from rematbench.training.compiled.backend import MOST_TRIES, regions
from rematbench.zoo import make_model
from rematbench.zoo.vision import import_torchvision

SHARES = (0.7, 0.5)
RATIOS = {"eager": (0.75, 0.5, 0.25, 0.0), "inductor": (0.9, 0.75, 0.6, 0.5, 0.25, 0.0)}
OWN_DRAWS = "inductor, its own draws"
"""What Inductor's ratios are judged against: given to draw as eager training does, it draws other
numbers where it recomputes a dropout; with its own seeds it does not."""
AGAIN = "aot_eager, again"  # its time over its own is what noise makes of 1
TOLERANCE = 1e-4  # of a gradient whose parameter Inductor's kernels touch, over its largest entry


def gpt2() -> Workload:
    """GPT-2's layers, narrower and fewer."""
    sizes = {"n_layer": 4, "n_embd": 192, "n_head": 6, "n_positions": 128, "vocab_size": 1000}
    return make_model("gpt2", size="small", batch_size=8, sequence_length=128, **sizes)


def vit_b_16() -> Workload:
    """ViT-B/16's layers, narrower and fewer."""
    transformer = import_torchvision().models.VisionTransformer
    module = transformer(128, 16, 6, 4, 192, 768, num_classes=100)

    def batch() -> tuple[Tensor, ...]:
        return torch.randn(16, 3, 128, 128), torch.randint(100, (16,))

    return Workload("vit_b_16", module, batch, _classify)


def _classify(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(images), labels)


# The floor is at most 0.4 of the peak.
NETWORKS: dict[str, Callable[[], Workload]] = {
    "gpt2": gpt2,
    "mobilenet_v2": partial(make_model, "mobilenet_v2", batch_size=16, resolution=96),
    "vit_b_16": vit_b_16,
    "resnet50": partial(make_model, "resnet50", batch_size=16, resolution=128),
}


@dataclass
class Contender:
    """One way to run a step, and what was measured of it.

    Attributes:
        peak_bytes: of a warm step, parameters, buffers and batch included.
        bitwise, error: of the gradients, against the uncompiled step; the error is relative.
        compile_seconds: of the first step (of Inductor's leaner plans, too), less profiling and
            planning and a warm step.
        ops, floor_bytes: of the compiled graph, where it is ours.
        wall, cpu: seconds of warm steps, in turns with all others.
        beside, beside_cpu: seconds of a warm step over those of the step of ``aot_eager`` next to
            it, in rounds of these alone (whose ratios a busy moment does not change).
    """

    network: str
    name: str
    budget_bytes: int | None = None
    peak_bytes: int = 0
    bitwise: bool | None = None
    error: float = 0.0
    compile_seconds: float = 0.0
    ops: int = 0
    floor_bytes: int = 0
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    beside_cpu: list[float] = field(default_factory=list)
    failed: str | None = None

    @property
    def seconds(self) -> float:
        """Median seconds of a warm step."""
        return statistics.median(self.wall)


class CompiledSteps:
    """A network's step, uncompiled and compiled in several ways, on one batch."""

    def __init__(self, name: str, workload: Workload) -> None:
        self.name, self.workload = name, workload
        self.module = workload.module.train()
        torch.manual_seed(0)
        self.batch = workload.make_batch()
        self.buffers = [(b, b.clone()) for b in self.module.buffers()]
        self.steps: list[tuple[Contender, Callable[..., Tensor]]] = []
        self.expected: dict[str, dict[str, Tensor]] = {}  # gradients, by whose random numbers

    def step(self, forward: Callable[..., Tensor]) -> None:
        """Forward and backward; gradients stay."""
        torch.manual_seed(1)
        forward(*self.batch).reshape(()).backward()

    def clear(self) -> None:
        """As before the step."""
        self.module.zero_grad(set_to_none=True)
        with torch.no_grad():
            for buffer, before in self.buffers:
                buffer.copy_(before)

    def add(
        self, name: str, budget: int | None = None, draws: str = "eager", **how: Any
    ) -> Contender:
        """Compile in one more way (uncompiled without one), and check its gradients and peak.

        Args:
            draws: whose random numbers; the first contender of each is what others are judged
                against.
        """
        contender = Contender(self.name, name, budget)
        forward = anew(self.workload)
        known = set(regions)
        if how:
            forward = torch.compile(forward, fullgraph=True, **how)
        began = time.perf_counter()
        try:
            for _ in range(MOST_TRIES if budget and "inductor" in name else 0):
                self.step(forward)  # leaner plans, where the first was above the budget
                self.clear()
            self.step(forward)
        except Exception as error:
            contender.failed = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            print(f"  {name}: {contender.failed}", flush=True)
            self.clear()
            return contender
        first = time.perf_counter() - began
        self._judge(contender, draws)
        began = time.perf_counter()
        self.step(forward)
        contender.compile_seconds = first - (time.perf_counter() - began)
        for region in set(regions) - known:
            if region.planned is not None:
                contender.ops = len(region.planned.graph.ops)
                contender.floor_bytes = region.planned.graph.floor_bytes()
                contender.compile_seconds -= sum(region.planned.seconds)
        self.clear()
        held = (*self.module.parameters(), *self.module.buffers(), *self.batch)
        peak = peak_of(lambda: self.step(forward), "cpu").peak_bytes
        contender.peak_bytes = peak + sum(t.nbytes for t in held)
        self.clear()
        self.steps.append((contender, forward))
        seconds = f"compiled in {contender.compile_seconds:.1f} s"
        print(f"  {name}: peak {contender.peak_bytes:,}, {seconds}", flush=True)
        return contender

    def _judge(self, contender: Contender, draws: str) -> None:
        found = {n: p.grad.clone() for n, p in self.module.named_parameters() if p.grad is not None}
        self.clear()
        expected = self.expected.setdefault(draws, found)
        pairs = [(found[name], theirs) for name, theirs in expected.items()]
        contender.bitwise = all(torch.equal(a, b) for a, b in pairs)
        largest = max(float(b.abs().max()) for _, b in pairs)
        contender.error = max(float((a - b).abs().max()) for a, b in pairs) / largest

    def time(self, repeats: int) -> None:
        """All ways in turns."""
        order = itertools.cycle((self.steps, self.steps[::-1]))
        for _ in range(repeats):
            for contender, forward in next(order):
                wall, cpu = time.perf_counter(), time.process_time()
                self.step(forward)
                contender.wall.append(time.perf_counter() - wall)
                contender.cpu.append(time.process_time() - cpu)
                self.clear()

    def pair(self, base: str, others: Sequence[str], repeats: int = 15) -> None:
        """Each of ``others`` next to ``base``, which goes first in every other round."""
        steps = {contender.name: (contender, forward) for contender, forward in self.steps}
        for repeat, other in itertools.product(range(repeats), others):
            taken: dict[str, tuple[float, float]] = {}
            for name in (base, other) if repeat % 2 else (other, base):
                wall, cpu = time.perf_counter(), time.process_time()
                self.step(steps[name][1])
                taken[name] = (time.perf_counter() - wall, time.process_time() - cpu)
                self.clear()
            contender = steps[other][0]
            contender.beside.append(taken[other][0] / taken[base][0])
            contender.beside_cpu.append(taken[other][1] / taken[base][1])


def anew(workload: Workload) -> Callable[..., Tensor]:
    """A function of its own code: Dynamo keeps what it compiled by code."""
    scope = {"workload": workload}
    exec("def forward(*batch):\n    return workload(*batch)", scope)
    return scope["forward"]  # type: ignore[return-value]


def measured(name: str, lowerings: list[str], time_limit: float, repeats: int) -> CompiledSteps:
    """One network in all ways."""
    from torch._functorch import config

    print(name, flush=True)
    torch._dynamo.reset()
    bench = CompiledSteps(name, NETWORKS[name]())
    plain = bench.add("uncompiled")
    theirs = {"eager": "aot_eager", "inductor": "inductor"}
    for lower in lowerings:
        given = {"lower": lower, "time_limit": time_limit, "progress": False}
        bench.add(theirs[lower], backend=theirs[lower])
        if lower == "eager":
            bench.add("ours, eager", backend="rematbench", options=given)
            bench.add(AGAIN, backend="aot_eager")
        for share in SHARES:
            budget = int(share * plain.peak_bytes)
            asked = {**given, "budget": budget}
            bench.add(f"ours, {lower}, {share}", budget, backend="rematbench", options=asked)
        own = lower == "inductor"
        with torch._inductor.config.patch(fallback_random=not own):
            if own:
                bench.add(OWN_DRAWS, draws=OWN_DRAWS, backend=lower)
            for ratio in RATIOS[lower]:
                with config.patch(activation_memory_budget=ratio):
                    draws = OWN_DRAWS if own else "eager"
                    bench.add(f"{theirs[lower]}, ratio {ratio}", draws=draws, backend=theirs[lower])
    bench.time(repeats)
    if "eager" in lowerings:
        bench.pair("aot_eager", ("ours, eager", AGAIN))
    return bench


def judged(bench: CompiledSteps, lower: str) -> Iterator[Figure]:
    """One network's figures in one lowering."""
    contenders = {contender.name: contender for contender, _ in bench.steps}
    name, backend = bench.name, {"eager": "aot_eager"}.get(lower, lower)
    base, ours = contenders.get(backend), contenders.get(f"ours, {lower}")
    if base is not None and ours is not None:
        what = f"{name}, {lower}, checkpoint-all"
        yield Figure(f"{what}: time / {backend}", statistics.median(ours.beside), 1.05, "x")
        yield Figure(
            f"{what}: CPU seconds / {backend}", statistics.median(ours.beside_cpu), 1.05, "x"
        )
        noise = statistics.median(contenders[AGAIN].beside)
        yield Figure(f"{name}: {backend}'s time / its own", noise, None, "x")
        floor = ours.floor_bytes / contenders["uncompiled"].peak_bytes
        yield Figure(f"{name}: floor / peak", floor, 0.4, "x")
    allowed = TOLERANCE if base is None else max(TOLERANCE, 2 * base.error)
    for share in SHARES:
        what = f"{name}, {lower}, {share} of the peak"
        found = contenders.get(f"ours, {lower}, {share}")
        yield Figure(f"{what}: no plan", found is None, 0, "")
        if found is None or found.budget_bytes is None:
            continue
        yield Figure(f"{what}: peak / budget", found.peak_bytes / found.budget_bytes, 1.0, "x")
        if lower == "eager":
            yield Figure(f"{what}: gradients off by a bit", not found.bitwise, 0, "")
        else:
            yield Figure(f"{what}: error of the gradients", found.error, allowed, "")
        rivals = [contenders.get(f"{backend}, ratio {ratio}") for ratio in RATIOS[lower]]
        yield from beside(what, found, [rival for rival in rivals if rival], allowed)


def beside(
    what: str, ours: Contender, rivals: Sequence[Contender], allowed: float
) -> Iterator[Figure]:
    """Our time over that of each rival that keeps the budget, if its gradients are right."""
    within = [rival for rival in rivals if rival.peak_bytes <= (ours.budget_bytes or 0)]
    fit = [rival for rival in within if rival.error <= allowed]
    for rival in within:
        if rival not in fit:
            title = f"{what}: time / {rival.name}'s, whose gradients are off by {rival.error:.2g}"
            yield Figure(title, ours.seconds / rival.seconds, None, "x")
    if fit:
        ratio = ours.seconds / min(fit, key=lambda rival: rival.seconds).seconds
        yield Figure(f"{what}: time / best ratio's that fits", ratio, 1.0, "x")
        cpu = statistics.median(ours.cpu) / min(statistics.median(r.cpu) for r in fit)
        yield Figure(f"{what}: CPU seconds / best ratio's that fits", cpu, 1.0, "x")
    yield Figure(f"{what}: PyTorch's ratios that fit", len(fit), None, f"of {len(rivals)}")


def broken(rows: Sequence[Contender], lower: str) -> Iterator[Figure]:
    """How often a budget was not kept, all networks together: Inductor may once in eight."""
    asked = [
        contender
        for contender in rows
        if contender.name.startswith(f"ours, {lower}") and contender.budget_bytes
    ]
    if asked:
        count = sum(contender.peak_bytes > (contender.budget_bytes or 0) for contender in asked)
        allowed = len(asked) // 8 if lower == "inductor" else 0
        yield Figure(f"{lower}: budgets broken, of {len(asked)}", count, allowed, "")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--lower", nargs="+", default=["eager", "inductor"])
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds for a plan")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, help="fewer than there are cores: they are busy")
    parser.add_argument("--note", default="", help="goes into the file: what else ran, say")
    given = parser.parse_args()
    steady_allocator()
    if given.threads:
        torch.set_num_threads(given.threads)
    figures: list[Figure] = []
    rows: list[Contender] = []
    with torch._inductor.config.patch(fallback_random=True):  # the same random draws
        for name in given.networks:
            bench = measured(name, given.lower, given.time_limit, given.repeats)
            rows += [contender for contender, _ in bench.steps]
            for lower in given.lower:
                figures += judged(bench, lower)
            facts = {"note": given.note, "utc": now(), "threads": torch.get_num_threads()}
            record = facts | {"rows": [asdict(contender) for contender in rows]}
            write_json(Path("runs/benchmarks/compile.rows.json"), record)
            overall = [figure for lower in given.lower for figure in broken(rows, lower)]
            left = sorted(set(NETWORKS) - {contender.network for contender in rows})
            part = RECORDS / "compile-part.json"
            if left:  # so far
                publish(part.stem, [*figures, *overall], networks_left=left)
            else:
                publish("compile", [*figures, *overall], networks=list(NETWORKS))
                part.unlink(missing_ok=True)
            del bench
            gc.collect()


if __name__ == "__main__":
    main()
