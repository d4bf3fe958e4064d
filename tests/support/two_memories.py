"""A second simulator of plans with copies: three queues of tasks, run by events; and random cases.

It knows no clocks: a task begins when the one before it in its queue has ended and all that it
waits for has, and a heap of ends says what happens next.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from random import Random

from naive import Rejected

from rematbench.graphs.ir import Graph, Implementation, Op, Phase, Value, match_overwrites
from rematbench.graphs.link import Link
from rematbench.graphs.plan import Compute, Drop, Fetch, Free, Offload, Plan, Statement


@dataclass
class Task:
    """Something on a queue."""

    queue: str
    time: float
    waits: list[Task]
    begin: float | None = None
    end: float | None = None


@dataclass
class Machine:
    """What has been issued so far."""

    graph: Graph
    link: Link
    tasks: list[Task] = field(default_factory=list)
    last: dict[str, Task] = field(default_factory=dict)
    made: dict[str, Task] = field(default_factory=dict)  # what puts a value on the device
    out: dict[str, Task] = field(default_factory=dict)  # the last copy out of a device's block
    copy: dict[str, Task] = field(default_factory=dict)  # what makes the host's copy
    back: dict[str, Task] = field(default_factory=dict)  # the last fetch of it

    def issue(self, queue: str, time: float, *waits: Task | None) -> Task:
        queue = "out" if self.link.shared and queue == "in" else queue
        task = Task(queue, time, [each for each in waits if each is not None])
        self.tasks.append(task)
        self.last[queue] = task
        return task

    def run(self) -> None:
        """All tasks, by events."""
        queues: dict[str, deque[Task]] = {}
        for task in self.tasks:
            queues.setdefault(task.queue, deque()).append(task)
        now, busy, done = 0.0, [], 0
        free = dict.fromkeys(queues, True)
        while done < len(self.tasks):
            moved = True
            while moved:
                moved = False
                for name, queue in queues.items():
                    ready = free[name] and queue
                    if ready and all(w.end is not None and w.end <= now for w in queue[0].waits):
                        task = queue.popleft()
                        task.begin, free[name], moved = now, False, True
                        heapq.heappush(busy, (now + task.time, id(task), task))
            now, _, task = heapq.heappop(busy)
            task.end, free[task.queue] = now, True
            done += 1


@dataclass
class Outcome:
    """What came of a plan."""

    peak: int
    host: int
    makespan: float
    after: list[int]
    moved: tuple[int, int]


def run_by_events(graph: Graph, plan: Plan, link: Link) -> Outcome:
    """Replay a plan.

    Raises:
        Rejected: where ``simulate`` must raise InvalidPlan.
    """
    machine = Machine(graph, link)
    size = {v.name: v.bytes for v in graph.values}
    resident = {v.name for v in graph.values if v.resident}
    live, hosted = set(resident), set()
    peak, host, after, moved = sum(size[n] for n in live), 0, [], [0, 0]
    for index, statement in enumerate(plan.statements):
        if isinstance(statement, Compute):
            op = graph.ops[graph.op_index[statement.op]]
            named = statement.implementation or op.implementations[0].name
            chosen = next(i for i in op.implementations if i.name == named)
            if not set(chosen.reads) <= live:
                raise Rejected(index)
            matched = match_overwrites(graph, op, chosen)
            taken = {graph.values[v].name for v in matched if v >= 0}
            fresh = [w for w, v in zip(op.writes, matched, strict=True) if v < 0]
            running = sum(size[n] for n in live) + sum(size[n] for n in fresh)
            peak = max(peak, running + chosen.workspace_bytes)
            waits = [machine.made.get(n) for n in chosen.reads]
            waits += [machine.out.get(n) for n in chosen.overwrites]
            old = [each for n in op.writes if n in live
                   for each in (machine.made.get(n), machine.out.get(n))]  # fmt: skip
            task = machine.issue("compute", chosen.cost, *waits)
            if old:
                machine.issue("compute", 0.0, *old)
            for name in op.writes:
                machine.made[name] = task
                machine.out.pop(name, None)
            live = (live - taken) | set(op.writes)
        else:
            name = statement.value
            refused = {
                Free: name not in live or name in resident,
                Offload: not link.out or name not in live or name in resident or name in hosted,
                Fetch: not link.into or name not in hosted or name in live,
                Drop: name not in hosted,
            }
            if refused[type(statement)]:
                raise Rejected(index)
            _move(machine, statement, size[name], live, hosted, moved)
        peak = max(peak, sum(size[n] for n in live))
        host = max(host, sum(size[n] for n in hosted))
        after.append(sum(size[n] for n in live))
    if not set(graph.outputs) <= live:
        raise Rejected(len(plan.statements))
    end = machine.issue("compute", 0.0, *(machine.made.get(n) for n in graph.outputs))
    machine.run()
    assert end.end is not None
    return Outcome(peak, host, end.end, after, (moved[0], moved[1]))


def _move(
    machine: Machine, statement: Statement, size: int, live: set[str], hosted: set[str], moved
) -> None:
    assert not isinstance(statement, Compute)
    name, link = statement.value, machine.link
    if isinstance(statement, Free):
        live.remove(name)
        machine.issue("compute", 0.0, machine.made.get(name), machine.out.get(name))
    elif isinstance(statement, Offload):
        hosted.add(name)
        moved[0] += size
        task = machine.issue("out", link.latency + size / link.out, machine.made.get(name))
        machine.copy[name] = machine.out[name] = task
        machine.back.pop(name, None)
    elif isinstance(statement, Fetch):
        live.add(name)
        moved[1] += size
        waits = machine.last.get("compute"), machine.copy[name]
        task = machine.issue("in", link.latency + size / link.into, *waits)
        machine.made[name] = machine.back[name] = task
        machine.out.pop(name, None)
    else:
        hosted.remove(name)
        machine.issue("out", 0.0, machine.copy[name], machine.back.get(name))


def random_case(random: Random) -> tuple[Graph, Plan, Link]:
    """A graph with several outputs, workspaces and in-place ops; a valid plan; a link."""
    graph = _graph(random)
    link = Link(
        random.choice([0.25, 1.0, 3.0, 40.0]),
        random.choice([0.25, 1.0, 3.0, 40.0]),
        random.choice([0.0, 0.5]),
        random.random() < 0.3,
    )
    live = {v.name for v in graph.values if v.resident}
    stay, hosted, found = frozenset(live), set(), []
    for _ in range(random.randrange(4, 40)):
        options: list[Statement] = [
            Compute(op.name, None if i == op.implementations[0] else i.name)
            for op in graph.ops
            for i in op.implementations
            if set(i.reads) <= live
        ]
        options = random.sample(options, min(3, len(options)))
        options += [Free(n) for n in sorted(live - stay)][:2]
        options += [Offload(n) for n in sorted(live - stay - hosted)]
        options += [Fetch(n) for n in sorted(hosted - live)] * 2
        options += [Drop(n) for n in sorted(hosted)][:1]
        if not options:
            break
        found.append(random.choice(options))
        _apply(graph, found[-1], live, hosted)
    for op in graph.ops:  # so that the outputs are there at the end
        for name in op.implementations[0].reads:
            if name in hosted - live:
                found.append(Fetch(name))
                live.add(name)
        found.append(Compute(op.name))
        live |= set(op.writes)
    return graph, Plan(found, graph.name), link


def _apply(graph: Graph, statement: Statement, live: set[str], hosted: set[str]) -> None:
    if isinstance(statement, Compute):
        op = graph.ops[graph.op_index[statement.op]]
        named = statement.implementation or op.implementations[0].name
        live -= set(next(i for i in op.implementations if i.name == named).overwrites)
        live |= set(op.writes)
    elif isinstance(statement, Free):
        live.remove(statement.value)
    elif isinstance(statement, Offload):
        hosted.add(statement.value)
    elif isinstance(statement, Fetch):
        live.add(statement.value)
    else:
        hosted.remove(statement.value)


def _graph(random: Random) -> Graph:
    values, ops = [Value("x", random.randrange(6), resident=True)], []
    for i in range(random.randrange(1, 8)):
        names = [v.name for v in values]
        reads = tuple(random.sample(names, min(len(names), random.randrange(4))))
        new = [Value(f"v{i}_{k}", random.randrange(6)) for k in range(random.choice([1, 1, 2]))]
        cost, workspace = random.choice([0.0, 1.0, 2.5, 7.0]), random.randrange(4)
        implementations = [Implementation("default", reads, cost, workspace)]
        same = [v for v in values if v.name in reads and not v.resident]
        same = [v for v in same if v.bytes == new[0].bytes]
        if same:
            implementations.append(Implementation("in_place", reads, 1.0, 0, (same[0].name,)))
        values += new
        ops.append(Op(f"op{i}", Phase.FORWARD, tuple(v.name for v in new), tuple(implementations)))
    taken = {name for op in ops for each in op.implementations for name in each.overwrites}
    free = [v.name for v in values[1:] if v.name not in taken]
    return Graph("random", tuple(values), tuple(ops), tuple(random.sample(free, len(free) // 2)))
