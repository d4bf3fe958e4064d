"""One plan for all ranks of ``torch.distributed``: rank 0 makes it, the others get it.

Ranks meet in the store of their process group, by the number of the plan that is asked for. Each
sends the hash of its graph; where all are equal, rank 0 measures and plans, and sends costs,
statements and the plan's hash. None waits for a rank that is not heard of. The one place that
looks at PyTorch's store, which is private.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, replace
from functools import reduce
from typing import Any, TypeVar

import torch.distributed as dist

from rematbench.base.errors import ExecutionError, Infeasible, RematbenchError
from rematbench.costmodel.costs import with_costs
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Plan
from rematbench.tracing.halves import Halves
from rematbench.training.compiled import planning
from rematbench.training.compiled.options import Options
from rematbench.training.compiled.outside import Outside
from rematbench.training.compiled.planning import Planned, PlannedStep
from rematbench.training.compiled.record import CallRecord
from rematbench.training.compiled.together import StepJudge, name_of, outside_of

SILENCE = 45.0
"""Seconds without a sign of another rank after which it is taken to be gone."""
BEAT = 1.0
"""Seconds between two signs of rank 0 while it plans."""
_LOOK = 0.02
_numbers = itertools.count()
T = TypeVar("T")
Say = Callable[[str], None]


def planned(halves: Halves, options: Options, say: Say, make: Callable[[], Planned]) -> Planned:
    """What rank 0 makes, on each rank.

    Raises:
        ExecutionError: another rank has another graph, or is gone.
        RematbenchError: as rank 0's ``make`` does.
    """
    if not shares_plans(options):
        return make()

    def pack(found: Planned) -> Any:
        ways = (i for op in found.graph.ops for i in op.implementations)
        costs = [(way.cost, way.workspace_bytes) for way in ways]
        return {
            "costs": costs,
            "unit": found.graph.cost_unit,
            "plan": _packed(found.graph, found.plan),
            "source": found.source,
        }

    def unpack(sent: Any) -> Planned:
        captured = halves.captured
        graph = captured.graph
        names = [(op.name, way.name) for op in graph.ops for way in op.implementations]
        pairs = zip(names, map(tuple, sent["costs"]), strict=True)
        graph = with_costs(graph, dict(pairs), sent["unit"])
        here = replace(halves, captured=captured.with_graph(graph))
        return planning.received(here, options, _unpacked(graph, sent["plan"]), sent["source"])

    graph = halves.captured.graph
    return _Talk(graph.name, graph.hash).agreed(say, make, pack, unpack)


def planned_together(record: CallRecord, options: Options, say: Say) -> PlannedStep | None:
    """The plan of a sequence of calls, of rank 0's making; see :func:`planning.planned_together`.

    Raises:
        ExecutionError: another rank has another sequence, or is gone.
        Infeasible: as rank 0 says.
    """
    outside = outside_of(record)
    if not all(shares_plans(call.region.options) for call in record.calls):
        return planning.planned_together(StepJudge(record, options, outside), say)
    graphs = [call.region.planned.graph for call in record.calls]
    text = json.dumps([[graph.hash for graph in graphs], record.events])

    def make() -> PlannedStep | None:
        found = [Outside(*map(tuple, told)) for told in talk.told if told is not None]
        most = reduce(Outside.most, found) if found else None
        return planning.planned_together(StepJudge(record, options, most), say)

    def pack(found: PlannedStep | None) -> Any:
        if found is None:
            return None
        together, _ = found
        pairs = zip(graphs, together.parts, strict=True)
        return {
            "parts": [_packed(*pair) for pair in pairs],
            "source": together.source,
            "outside": together.outside and astuple(together.outside),
        }

    def unpack(sent: Any) -> PlannedStep | None:
        if sent is None:
            return None
        parts = [_unpacked(*pair) for pair in zip(graphs, sent["parts"], strict=True)]
        most = sent["outside"] and Outside(*map(tuple, sent["outside"]))
        judge = StepJudge(record, options, most)
        return planning.planned_step(judge, judge.of_parts(parts), sent["source"])

    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    talk = _Talk(name_of(record), digest, outside and astuple(outside))
    return talk.agreed(say, make, pack, unpack)


def shares_plans(options: Options) -> bool:
    """Are there other ranks, and do they run the same plan?"""
    if not (options.one_plan and dist.is_available() and dist.is_initialized()):
        return False
    return bool(dist.get_world_size() > 1 and dist.get_backend() != "fake")


def _packed(graph: Graph, plan: Plan) -> list[Any]:
    budget, codes = plan.budget_bytes, plan.codes(graph).tolist()
    return [codes, plan.strategy, budget, plan.hash(graph)]


def _unpacked(graph: Graph, sent: list[Any]) -> Plan:
    codes, strategy, budget, expected = sent
    plan = Plan.from_codes(graph, codes, strategy, budget)
    if plan.hash(graph) != expected:
        raise ExecutionError(
            f"{graph.name}: the plan of rank 0 has hash {expected[:16]} there and "
            f"{plan.hash(graph)[:16]} here; run the same rematbench on all ranks"
        )
    return plan


class _Talk:
    """What ranks say to each other about one plan.

    Args:
        name: of the graph.
        digest: of it.
        facts: what rank 0 is to know of this rank.

    Attributes:
        told: the facts of all ranks, once rank 0 makes the plan.
    """

    def __init__(self, name: str, digest: str, facts: Any = None) -> None:
        self.name, self.digest, self.told = name, digest, [facts]
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        store = dist.distributed_c10d._get_default_store()
        self.store = dist.PrefixStore(f"rematbench/{next(_numbers)}", store)

    def agreed(
        self,
        say: Say,
        make: Callable[[], T],
        pack: Callable[[T], Any],
        unpack: Callable[[Any], T],
    ) -> T:
        """What rank 0 makes, which the others unpack."""
        try:
            if self.rank == 0:
                return self._leads(make, pack)
            say("gets the plan of rank 0")
            return unpack(self._follows())
        except dist.DistError as error:
            words = str(error).splitlines()[0]
            raise ExecutionError(
                f"{self.name}: rank {self.rank} reaches the other ranks no more, while they make "
                f"one plan: {words}; see what the first rank that ended has said"
            ) from None

    def _leads(self, make: Callable[[], T], pack: Callable[[T], Any]) -> T:
        with self._beating():
            try:
                self._compare()
                found = make()
                sent = {"found": pack(found)}
            except BaseException as error:
                peak = getattr(error, "smallest_peak_found", None)
                text = [type(error).__name__, str(error), peak]
                with suppress(dist.DistError):
                    self.store.set("sent", json.dumps({"error": text}))
                raise
            self.store.set("sent", json.dumps(sent))
        return found

    def _compare(self) -> None:
        """Wait for the hashes of all other ranks."""
        last = time.monotonic() + SILENCE
        for rank in range(1, self.count):
            while not self.store.check([f"hash/{rank}"]):
                if time.monotonic() > last:
                    raise self._gone(f"rank {rank}")
                time.sleep(_LOOK)
            other, facts = json.loads(self.store.get(f"hash/{rank}"))
            self.told.append(facts)
            if other != self.digest:
                raise ExecutionError(
                    f"{self.name}: ranks have different graphs, and cannot run one plan: rank 0 "
                    f"has {self.digest}, rank {rank} has {other}; give all the same model and "
                    'sizes, or options={"one_plan": False}, by which each rank plans for itself'
                )

    def _follows(self) -> Any:
        """What rank 0 has sent."""
        self.store.set(f"hash/{self.rank}", json.dumps([self.digest, *self.told]))
        heard, last = b"", time.monotonic() + SILENCE
        while not self.store.check(["sent"]):
            beat = self.store.get("beat") if self.store.check(["beat"]) else heard
            if beat != heard:
                heard, last = beat, time.monotonic() + SILENCE
            if time.monotonic() > last:
                raise self._gone("rank 0")
            time.sleep(_LOOK)
        sent = json.loads(self.store.get("sent"))
        if "error" in sent:
            raise _of_rank_0(*sent["error"])
        return sent["found"]

    def _gone(self, whom: str) -> ExecutionError:
        return ExecutionError(
            f"{self.name}: rank {self.rank} has waited {SILENCE:g} s for a plan of all ranks, and "
            f"{whom} is gone, or does not compile this graph; let all ranks begin their steps "
            'together (dist.barrier()), or give options={"one_plan": False}'
        )

    @contextmanager
    def _beating(self) -> Iterator[None]:
        """Meanwhile the others hear that this rank lives."""
        over = threading.Event()

        def beat() -> None:
            with suppress(dist.DistError):
                for number in itertools.count():
                    self.store.set("beat", str(number))
                    if over.wait(BEAT):
                        return

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _of_rank_0(kind: str, text: str, peak: int | None) -> RematbenchError:
    """The error that rank 0 met."""
    if kind == Infeasible.__name__:
        return Infeasible(text, smallest_peak_found=peak)
    return ExecutionError(text if kind == ExecutionError.__name__ else f"rank 0: {text}")
