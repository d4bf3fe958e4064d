"""A survey of PyTorch's own list of ops: each in a small net, captured, executed and judged.

``python -m benchmarks.ops`` takes every differentiable op of PyTorch's tests (``op_db``, in its
wheel), with up to eight of the samples of arguments that stand beside it. Each is captured by both
front ends and executed on the CPU twice: as checkpoint-all, and with the whole forward pass
computed a second time. It writes one line per op to ``runs/reference/ops.csv`` and the counts to
``runs/benchmarks/ops.json``. ``python -m benchmarks.ops NAME ...`` prints the lines of some.

It needs ``expecttest``, which PyTorch's tests import (among ours, too: ``.[dev]``).
"""

from __future__ import annotations

import argparse
import csv
import itertools
import multiprocessing
import random
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields
from functools import cache, partial
from typing import Any, TextIO

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from benchmarks.figures import Figure, publish
from rematbench import validator
from rematbench.base.errors import CaptureError
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Plan, program_order
from rematbench.rows.provenance import HOUSE
from rematbench.tracing.trace import FRONTS, capture
from rematbench.tracing.workload import Workload

RECORD = HOUSE / "runs" / "reference" / "ops.csv"
SAMPLES = 8
LOOKED_AT = 256
"""Samples of an op among which those are chosen."""
CHUNK = 12
"""Ops that a process takes at a time."""
BOTH = tuple(front for front in FRONTS if front != "auto")
CAPTURED = ("exact", "rounding")


@dataclass(frozen=True)
class Surveyed:
    """What became of an op.

    Attributes:
        samples: samples of its arguments that eager training takes a gradient of.
        trace, dynamo: how many of them ended in which verdict, by each front end.
        reason: of the first that is not exact; or why there is no sample.
    """

    op: str
    samples: int
    trace: str = ""
    dynamo: str = ""
    reason: str = ""

    def verdicts(self, front: str) -> dict[str, int]:
        """Samples by verdict."""
        pairs = (pair.split("=") for pair in getattr(self, front).split())
        return {verdict: int(count) for verdict, count in pairs}

    def is_captured(self, front: str) -> bool:
        """Did this front end take every sample?"""
        return bool(self.samples) and set(self.verdicts(front)) <= set(CAPTURED)


class OneOp(nn.Module):
    """The op between a product and a square: parameters times the batch, its results' squares.

    Tensors of the sample that need a gradient are parameters, others buffers.
    """

    def __init__(self, op: Any, sample: Any) -> None:
        super().__init__()
        self.op = op
        leaves, self.tree = tree_flatten((sample.input, sample.args, sample.kwargs))
        self.leaves: list[tuple[str, Any]] = []
        for i, leaf in enumerate(leaves):
            if not isinstance(leaf, Tensor):
                self.leaves.append(("constant", leaf))
            elif leaf.requires_grad and leaf.layout is torch.strided:
                self.register_parameter(f"parameter{i}", nn.Parameter(leaf.detach().clone()))
                self.leaves.append(("parameter", f"parameter{i}"))
            else:
                self.register_buffer(f"buffer{i}", leaf.detach().clone())
                self.leaves.append(("buffer", f"buffer{i}"))

    def forward(self, one: Tensor) -> Tensor:
        """The loss; ``one`` is the batch, a 1."""
        leaves = []
        for kind, leaf in self.leaves:
            held = leaf if kind == "constant" else getattr(self, leaf)
            leaves.append(held * one if kind == "parameter" else held)
        given, args, kwargs = tree_unflatten(leaves, self.tree)
        loss = torch.zeros(())
        for result in tree_leaves(self.op(given, *args, **kwargs)):
            if isinstance(result, Tensor) and result.requires_grad:
                square = result * result.conj() if result.is_complex() else result.square()
                loss = loss + square.sum().real
        return loss


@cache
def differentiable_ops() -> dict[str, Any]:
    """PyTorch's descriptions of ops that have a gradient in float32 on the CPU, by name."""
    # PyTorch's tests may not set flags of backends, and seed in every call of a random op.
    torch.backends.disable_global_flags = lambda: None
    from torch.testing._internal import common_methods_invocations as known

    known.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    return {
        ".".join(filter(None, (info.name, info.variant_test_name))): info
        for info in known.op_db
        if info.supports_autograd and torch.float32 in info.supported_backward_dtypes("cpu")
    }


def trained_samples(info: Any, count: int = SAMPLES) -> tuple[list[Any], str]:
    """Samples, evenly chosen, of which eager training takes a gradient; else why there is none."""
    _seed()
    made = info.sample_inputs("cpu", torch.float32, requires_grad=True)
    taken, why = [], "no sample has a tensor that needs a gradient"
    for sample in itertools.islice(made, LOOKED_AT):
        net = OneOp(info.op, sample)
        if not any(parameter.numel() for parameter in net.parameters()):
            continue
        try:
            net(torch.ones(())).backward()
        except Exception as error:  # whatever the op's own code raises
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
            continue
        taken.append(sample)
    places = np.unique(np.linspace(0, len(taken) - 1, min(count, len(taken))).astype(int))
    return [taken[place] for place in places], why


def judge(info: Any, sample: Any, front: str) -> tuple[str, str]:
    """The worse verdict on the two plans (or ``refused``), and its reason."""
    _seed()
    net = OneOp(info.op, sample)
    workload = Workload("net", net, lambda: (torch.ones(()),), lambda model, one: model(one))
    try:
        captured = capture(workload, front=front)
    except CaptureError as error:
        return "refused", str(error)
    except Exception as error:  # a fault of ours: the survey goes on, and counts it
        return "crash", f"{type(error).__name__}: {error}"
    worst = ("exact", "")
    for plan in (program_order(captured.graph), forward_twice(captured.graph)):
        found = validator.measure(captured, plan, device="cpu", repeats=1)
        if found.verdict is not validator.GradientVerdict.EXACT:
            worst = (str(found.verdict), found.reason or found.remark or "")
    return worst


def forward_twice(graph: Graph) -> Plan:
    """The forward pass, its loss, the forward pass again, the backward pass."""
    first = graph.tables.op_first[:-1]
    loss = graph.loss_index
    assert loss is not None
    sequence = np.concatenate([first[: loss + 1], first[:loss], first[loss + 1 :]])
    return Plan.of_computes(graph, sequence)


def survey(name: str, count: int = SAMPLES) -> Surveyed:
    """Capture, execute and judge the samples of one op."""
    info = differentiable_ops()[name]
    samples, why = trained_samples(info, count)
    if not samples:
        return Surveyed(name, 0, reason=why)
    found = {front: [judge(info, sample, front) for sample in samples] for front in BOTH}
    judged = (pair for each in found.values() for pair in each)
    reason = next((reason for verdict, reason in judged if verdict != "exact"), "")
    words = {front: _counted(verdict for verdict, _ in each) for front, each in found.items()}
    return Surveyed(name, len(samples), **words, reason=reason)


def _counted(verdicts: Iterable[str]) -> str:
    return " ".join(f"{verdict}={n}" for verdict, n in sorted(Counter(verdicts).items()))


def read(lines: Iterable[str]) -> list[Surveyed]:
    """A survey, from its lines."""
    return [Surveyed(**row | {"samples": int(row["samples"])}) for row in csv.DictReader(lines)]


def figures_of(found: Sequence[Surveyed]) -> list[Figure]:
    """Counts of the survey, and what they are held against."""
    trained = [each for each in found if each.samples]
    samples = sum(each.samples for each in trained)
    figures = [
        Figure("differentiable ops", len(found), None, ""),
        Figure("with a sample that eager training takes", len(trained), None, ""),
    ]
    for front in BOTH:
        whole = sum(each.is_captured(front) for each in trained) / len(trained)
        verdicts: Counter[str] = sum((Counter(e.verdicts(front)) for e in trained), Counter())
        took = sum(verdicts[verdict] for verdict in CAPTURED) / samples
        figures += [
            Figure(f"{front}: ops captured with every sample", whole, 0.95, "", at_least=True),
            Figure(f"{front}: samples captured, of {samples}", took, 0.95, "", at_least=True),
            Figure(f"{front}: samples with eager's bits", verdicts["exact"] / samples, None, ""),
            Figure(f"{front}: samples judged rounding", verdicts["rounding"], None, ""),
            Figure(f"{front}: samples judged wrong", verdicts["wrong"], 0, ""),
            Figure(f"{front}: samples that end in a crash", verdicts["crash"], 0, ""),
        ]
    return figures


def _seed() -> None:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)


def _write(file: TextIO, found: Iterable[Surveyed]) -> None:
    writer = csv.DictWriter(file, [f.name for f in fields(Surveyed)], lineterminator="\n")
    writer.writeheader()
    for each in found:
        writer.writerow(asdict(each))


def _chunk(names: Sequence[str], samples: int) -> list[Surveyed]:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # PyTorch's, of what its samples ask for
    return [survey(name, samples) for name in names]


def _all(workers: int, samples: int) -> Iterator[Surveyed]:
    names = list(differentiable_ops())
    chunks = [names[i : i + CHUNK] for i in range(0, len(names), CHUNK)]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        for made in pool.map(partial(_chunk, samples=samples), chunks):
            yield from made


def main() -> None:
    """Survey all ops, or print some."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ops", nargs="*", metavar="NAME", help="only these, and write nothing")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="of each op, at most")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    given = parser.parse_args()
    if unknown := set(given.ops) - set(differentiable_ops()):
        parser.error(f"{min(unknown)}: no differentiable op of that name in PyTorch's op_db")
    if given.ops:
        _write(sys.stdout, (survey(name, given.samples) for name in given.ops))
        return
    found = sorted(_all(given.workers, given.samples), key=lambda each: each.op)
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    with RECORD.open("w", newline="") as file:
        _write(file, found)
    publish("ops", figures_of(found), table=str(RECORD.relative_to(HOUSE)))


if __name__ == "__main__":
    main()
