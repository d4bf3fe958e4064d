"""One budget for the whole step under ``torch.compile(model, backend="rematbench")``.

``python -m benchmarks.step`` prints figures beside their targets and writes them, with provenance,
to ``runs/benchmarks/step.json``. Each peak is measured over the whole step, optimizer included, by
PyTorch's profiler; what is there before the step (parameters, optimizer state, batch) is added.
``--only forms`` measures one part; the record keeps the others, each with its own commit.
"""

from __future__ import annotations

import argparse
import copy
import gc
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.figures import Figure, commit, publish, record_of
from benchmarks.step_models import MODELS, WholeStep, gpt2, twice
from rematbench.base.errors import ExecutionError, Infeasible
from rematbench.costmodel.device import peak_of, steady_allocator
from rematbench.rows.provenance import now
from rematbench.strategies.anytime.planner import Anytime
from rematbench.tracing.workload import Workload
from rematbench.training.compiled import backend, beyond, calls, dynamo, sizes
from rematbench.training.compiled.background import BACKGROUND
from rematbench.training.compiled.judging import Judge
from rematbench.training.compiled.options import read_options
from rematbench.training.compiled.planning import Planned

SHARES = (0.7, 0.5, 0.35)
BUDGETS = 15
STEPS = 4
"""The first records, the second counts, the third is planned."""
MOST_REFUSALS = 8
SHORTEST, LONGEST, BATCHES, TRIED = 32, 256, 50, 10
HALF, MINUTE, TURNS = 0.5, 60.0, 2


@dataclass(frozen=True)
class Trained:
    """What some steps of a loop came to.

    Attributes:
        peak_bytes: of the last one.
        cost, ordinary_cost: seconds of its compiled ops as planned, and in ordinary training;
            simulated.
        state: parameters and buffers in the end.
    """

    peak_bytes: int
    cost: float
    ordinary_cost: float
    state: dict[str, Tensor]

    @property
    def more(self) -> float:
        """Seconds that are computed again."""
        return self.cost - self.ordinary_cost

    def same_bits(self, other: Trained) -> bool:
        """Do both end with the same parameters?"""
        return all(torch.equal(each, other.state[name]) for name, each in self.state.items())


def forget() -> None:
    """Nothing is compiled, recorded or known."""
    torch._dynamo.reset()
    dynamo.listen()
    backend.regions.clear()
    sizes.forget()
    beyond.forget()
    calls.forget()
    gc.collect()


def trained(
    workload: Workload, compile_it: Callable[[nn.Module], Any] = lambda module: None
) -> Trained:
    """Train a copy of a model for :data:`STEPS` steps, each with a new batch.

    Args:
        compile_it: compiles the copy in place.
    """
    forget()
    module = copy.deepcopy(workload.module).train()
    compile_it(module)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    torch.manual_seed(0)

    def step(batch: tuple[Tensor, ...]) -> None:
        optimizer.zero_grad()
        workload.loss(module, *batch).backward()
        optimizer.step()

    for number in range(STEPS):
        batch = workload.make_batch()
        if number < STEPS - 1:
            step(batch)
    optimizer.zero_grad()
    states = (t for each in optimizer.state.values() for t in each.values())
    held = (*module.parameters(), *module.buffers(), *states, *batch)
    own = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in held}
    peak = peak_of(lambda: step(batch), "cpu").peak_bytes + sum(own.values())
    named = ((name.replace(".block.", "."), each) for name, each in module.state_dict().items())
    state = {name: each.detach().clone() for name, each in named}
    return Trained(peak, *_costs(), state)


def _costs() -> tuple[float, float]:
    """Seconds of the last step's compiled ops as planned, and in ordinary training."""
    steps = {id(each): each for region in backend.regions for each in region.steps}
    if steps:
        (step,) = steps.values()
        return step.cost, step.ordinary_cost
    plans = [each for region in backend.regions for each in region.plans]
    return sum(each.trace.cost for each in plans), sum(each.base.cost for each in plans)


def options(budget: int | float, cache: Path, **others: Any) -> dict[str, Any]:
    """What ``torch.compile`` is told."""
    text = {"time_limit": 10.0, "progress": False, "cache": cache}
    return {"budget": budget} | text | others


class Breaking(nn.Module):
    """A block after which Dynamo's graph breaks."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("block"), name)

    def forward(self, *args: Any, **others: Any) -> Any:
        """The block's results."""
        found = self.block(*args, **others)
        torch._dynamo.graph_break()
        return found


def one_by_one(module: Any, given: dict[str, Any]) -> None:
    """Compile each block by itself."""
    for block in module.transformer.h:
        block.compile(backend="rematbench", options=given)


def with_breaks(module: Any, given: dict[str, Any]) -> None:
    """Compile the model, whose graph breaks after each block."""
    blocks = module.transformer.h
    for number, block in enumerate(blocks):
        blocks[number] = Breaking(block)
    whole(module, given)


def whole(module: Any, given: dict[str, Any]) -> None:
    """Compile the model."""
    module.compile(backend="rematbench", options=given)


FORMS = {"one by one": one_by_one, "with breaks": with_breaks, "whole": whole}


def forms(cache: Path) -> Iterator[Figure]:
    """Twelve blocks of GPT-2, compiled in three ways."""
    workload = gpt2(12)
    plain = trained(workload)
    for share in SHARES:
        budget = int(share * plain.peak_bytes)
        done = {
            name: trained(workload, partial(compiled, given=options(budget, cache)))
            for name, compiled in FORMS.items()
        }
        overheads = [each.more / done["whole"].ordinary_cost for each in done.values()]
        for (name, found), overhead in zip(done.items(), overheads, strict=True):
            what = f"12 blocks {name}, {share} of the peak"
            yield Figure(f"{what}: peak / budget", found.peak_bytes / budget, 1.0, "x")
            yield Figure(f"{what}: off by a bit", not found.same_bits(plain), 0, "")
            yield Figure(f"{what}: overhead, simulated", 100 * overhead, None, "%")
        most = 100 * (max(overheads) - min(overheads))
        yield Figure(f"12 blocks, {share} of the peak: overheads apart", most, 1.0, "points")


def at_budgets(name: str, cache: Path) -> Iterator[Figure]:
    """One model at fifteen budgets, from the floor to the peak."""
    workload = MODELS[name]()
    plain = trained(workload)
    low = _least(workload, cache, plain.peak_bytes)
    step = (plain.peak_bytes - low) / (BUDGETS - 1)
    ratios, overheads, other_bits = list[float](), list[float](), 0
    for number in range(BUDGETS):
        budget = int(low + number * step)
        try:
            found = trained(workload, partial(whole, given=options(budget, cache)))
        except (Infeasible, ExecutionError):
            continue
        ratios.append(found.peak_bytes / budget)
        overheads.append(100 * found.more / found.ordinary_cost)
        other_bits += not found.same_bits(plain)
    rises = (b - a for a, b in pairwise(overheads))
    yield Figure(f"{name}: budgets with a plan, of {BUDGETS}", len(ratios), None, "")
    yield Figure(f"{name}: peak / budget, the most", max(ratios), 1.0, "x")
    yield Figure(f"{name}: off by a bit", other_bits, 0, f"of {len(ratios)}")
    yield Figure(f"{name}: overhead, the most", max(overheads), None, "%")
    yield Figure(f"{name}: overhead rises with the budget", max(rises), 0.5, "points")


def _least(workload: Workload, cache: Path, peak: int) -> int:
    """The least budget, in bytes, that a refusal of a smaller one says would do."""
    budget = peak // 100
    for _ in range(MOST_REFUSALS):
        try:
            trained(workload, partial(whole, given=options(budget, cache)))
        except Infeasible as error:
            budget = error.smallest_peak_found or peak
        except ExecutionError:
            budget += peak // 10
        else:
            break
    return budget


def lengths(cache: Path) -> Iterator[Figure]:
    """Fifty batches of random lengths; ten of them are planned for a minute, too."""
    forget()
    dice, workload = random.Random(0), gpt2(12, batch_size=4)
    drawn = [LONGEST, *(dice.randint(SHORTEST, LONGEST) for _ in range(BATCHES - 1))]
    torch.manual_seed(0)
    batches = [tuple(torch.randint(500, (4, length)) for _ in range(2)) for length in drawn]
    step = WholeStep(workload)
    budget = int(HALF * _peak(step, batches[0]))
    step.compile(backend="rematbench", options=options(budget, cache))
    most, spent = 0.0, dict[int, float]()
    for batch in batches:
        most = max(most, _peak(step, batch) / budget)
        for each in _by_number():
            spent.setdefault(each.number, each.planned.seconds[1])
    further = [*spent.values()][1:]
    yield Figure(f"lengths: different ones, of {BATCHES}", len(set(drawn)), None, "")
    yield Figure("lengths: peak / budget, the most", most, 1.0, "x")
    yield Figure("lengths: planning a further one, the most", max(further), 0.3, "s")
    yield Figure("lengths: planning all further ones", sum(further), 5.0, "s")
    yield from _improved()


def _improved() -> Iterator[Figure]:
    """What became of the plans in the background."""
    BACKGROUND.wait()
    BACKGROUND.collect()
    found = [each.planned for each in _by_number()]
    behind = sum(each.seconds[1] for each in found if each.source == "improved")
    yield Figure("lengths: ops of a step", len(found[0].graph.ops), None, "")
    yield Figure("lengths: improving plans in the background", behind, None, "s")
    apart = [100 * (each.overhead - _overhead_of_a_minute(each)) for each in found[1 : TRIED + 1]]
    yield Figure(f"lengths: overhead above a minute's plan, of {TRIED}", max(apart), 1.0, "points")
    yield Figure("lengths: overhead, the most", 100 * max(e.overhead for e in found), None, "%")


def _by_number() -> list[Any]:
    """Compiled graphs that train, in order."""
    found = (each for each in backend.regions if each.planned is not None)
    return sorted(found, key=lambda each: each.number)


def _overhead_of_a_minute(found: Planned) -> float:
    """Of the plan that a minute's search from nothing comes to."""
    judge = Judge(found.halves, read_options({"budget": found.most, "progress": False}))
    if judge.ordinary_fits:
        return 0.0
    assert judge.allowed is not None
    made = judge.asked(Anytime(), judge.allowed, MINUTE)
    return judge.overhead(made) if judge.fits(made) else inf


def _peak(step: WholeStep, batch: tuple[Tensor, ...]) -> int:
    """Bytes of forward and backward pass, parameters and batch included."""
    step.zero_grad()
    taken = peak_of(lambda: step(*batch).backward(), "cpu").peak_bytes
    held = (*step.parameters(), *step.buffers(), *batch)
    return taken + sum({t.data_ptr(): t.untyped_storage().nbytes() for t in held}.values())


def first_step(cache: Path) -> Iterator[Figure]:
    """CPU seconds of the first step, beyond those of ``aot_eager``."""
    workload = gpt2(12)
    plain = WholeStep(workload)
    budget = int(HALF * _peak(plain, workload.make_batch()))
    spent: dict[str, list[float]] = {"aot_eager": [], "empty": [], "full": []}
    for turn in range(TURNS):
        own = cache / f"first{turn}"
        for name, taken in spent.items():
            forget()
            step = WholeStep(workload)
            how: dict[str, Any] = {"backend": "aot_eager"}
            if name != "aot_eager":
                how = {"backend": "rematbench", "options": options(budget, own)}
            step.compile(**how)
            batch = workload.make_batch()
            began = time.process_time()
            step(*batch).backward()
            taken.append(time.process_time() - began)
    base = min(spent["aot_eager"])
    yield Figure("first step: aot_eager's, CPU seconds", base, None, "s")
    for name, bound in (("empty", 10.0), ("full", 1.0)):
        yield Figure(
            f"first step: CPU seconds more with an {name} cache",
            min(spent[name]) - base,
            bound,
            "s",
        )


def checkpointed(cache: Path) -> Iterator[Figure]:
    """A graph that passes checkpointed blocks twice (pytorch#193193)."""
    workload = twice()
    torch.manual_seed(0)
    batch = workload.make_batch()
    forget()
    peaks = []
    for compiles in (False, True):
        step = WholeStep(workload)
        if compiles:
            step.compile(backend="rematbench", options=options(1.0, cache))
        _peak(step, batch)
        peaks.append(_peak(step, batch))
    yield Figure("checkpointed blocks passed twice: peak / eager's", peaks[1] / peaks[0], 1.05, "x")


PARTS: dict[str, Callable[[Path], Iterator[Figure]]] = {
    "forms": forms,
    **{name: partial(at_budgets, name) for name in MODELS},
    "lengths": lengths,
    "first": first_step,
    "checkpointed": checkpointed,
}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    only = parser.parse_args().only
    steady_allocator()
    parts: dict[str, Any] = (record_of("step") or {}).get("parts", {})
    for name in only:
        print(name, flush=True)
        with tempfile.TemporaryDirectory() as cache:
            found = []
            for figure in PARTS[name](Path(cache)):
                print(f"  {figure.name}: {figure.value:.4g} {figure.unit}", flush=True)
                found.append(asdict(figure))
        parts[name] = {"commit": commit(), "utc": now(), "figures": found}
        measured = [parts[part]["figures"] for part in PARTS if part in parts]
        figures = [Figure(**each) for part in measured for each in part]
        publish("step", figures, parts=parts)


if __name__ == "__main__":
    main()
