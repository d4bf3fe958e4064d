"""Why LRU grows faster on simrd's toy chain than the paper says: ties.

``python -m benchmarks.lru_ties`` writes ``runs/benchmarks/lru_ties.json``, which docs/claims.csv
quotes (simrd, section 5.1: figures 2 and 3). simrd notes when a tensor was last asked for, which is
before what it needs is computed again. All tensors of a chain that runs again are therefore equally
stale, and what LRU evicts is a choice among ties. Four rules play the same program within both
budgets: the published program's (the last in its pool goes), the first in the pool, any one by
chance (mean of several seeds), and no ties, where a rematerialization counts as an access. More
memory, twice and four times figure 3's, shows whether its constant matters. The readable runtime
plays them: lengths end where that takes minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from statistics import mean

from benchmarks.figures import Figure, publish
from rematbench.engines.eviction.compiled import compile_stream
from rematbench.engines.eviction.reference import ReferenceMachine, drive
from rematbench.engines.eviction.reference_costs import StorageState
from rematbench.engines.eviction.rules import Rules
from rematbench.streams.eviction import HEURISTICS
from rematbench.streams.ids import StreamOp
from rematbench.streams.synthetic import toy_chain

SEEDS = 5


class First(ReferenceMachine):
    """Of equally stale tensors the first in the pool goes."""

    def choose(self) -> StorageState:
        return min(self.pool, key=self.score)


class ByChance(ReferenceMachine):
    """Of equally stale tensors any one goes."""

    def choose(self) -> StorageState:
        scores = list(map(self.score, self.pool))
        least = min(scores)
        stalest = [each for each, score in zip(self.pool, scores, strict=True) if score == least]
        return self.random.choice(stalest)


class Touching(ReferenceMachine):
    """A rematerialization is an access: no two tensors are equally stale."""

    def compute(self, op: StreamOp, t: int, need: int, again: bool) -> list[int]:
        made = super().compute(op, t, need, again)
        for each in made:
            self.storage(each).last = self.clock
        return made


TIES = {
    "the last goes, as in simrd": ReferenceMachine,
    "the first goes": First,
    "one by chance": ByChance,
    "none, a rematerialization being an access": Touching,
}
BUDGETS: dict[str, tuple[Callable[[int], int], tuple[int, ...]]] = {
    "ceil(2 sqrt n)": (lambda n: math.ceil(2 * math.sqrt(n)), (256, 512, 1024, 2048, 4096)),
    "ceil(log2 n)": (lambda n: math.ceil(math.log2(n)), (128, 256, 512, 1024, 2048)),
    "2 ceil(log2 n)": (lambda n: 2 * math.ceil(math.log2(n)), (128, 256, 512, 1024)),
    "4 ceil(log2 n)": (lambda n: 4 * math.ceil(math.log2(n)), (128, 256, 512, 1024)),
}


def additional(machine: type[ReferenceMachine], length: int, budget: int, seed: int) -> int:
    """Additional computations of LRU, dead tensors evicted eagerly."""
    rules = Rules(HEURISTICS["lru"], "eager", seed=seed)
    return drive(machine(compile_stream(toy_chain(length)), budget, rules)).remat_compute


def grown(title: str, machine: type[ReferenceMachine]) -> Iterator[Figure]:
    """Additional computations per layer, and the exponent of their growth over all lengths."""
    for name, (budget, lengths) in BUDGETS.items():
        seeds = range(SEEDS if machine is ByChance else 1)
        found = [mean(additional(machine, n, budget(n), s) for s in seeds) for n in lengths]
        for n, more in zip(lengths, found, strict=True):
            yield Figure(f"B = {name}, ties: {title}, n = {n}: per layer", more / n, None, "")
        exponent = math.log(found[-1] / found[0]) / math.log(lengths[-1] / lengths[0])
        yield Figure(f"B = {name}, ties: {title}: exponent", exponent, None, "")


def main() -> None:
    """Play, print, write."""
    publish("lru_ties", [each for pair in TIES.items() for each in grown(*pair)])


if __name__ == "__main__":
    main()
