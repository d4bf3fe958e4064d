"""The bound model's rows of the forward pass, which hold in every plan.

The memory rows are those of first computes: what runs, reads, and was retained or is read later.
Before the loss, nothing is claimed about memory while something is computed again.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from rematbench.engines.joint.columns import Columns


def choices(m: Columns) -> None:
    """The first compute of a needed op is in one way, or deferred."""
    for op in np.flatnonzero(m.needed).tolist():
        implementations = [
            *m.implementation[m.implementations.first_implementations(op)],
            m.deferred[op],
        ]
        m.program.at_most(implementations, [], 1.0)
        m.program.at_most([], implementations, -1.0)


def first_store(m: Columns) -> None:
    """What is stored when the loss begins was retained, or computed."""
    for op in m.forward:
        for v in m.weighty(m.tables.writes[op]):
            made = [m.retained[v], m.repeated[op], m.computed[op]]
            m.program.at_most([m.stored[0, v]], made)


def in_place(m: Columns) -> None:
    """A value that was overwritten is not there any more."""
    for op in m.forward:
        if not m.needed[op]:
            continue
        for implementation in m.implementations.first_implementations(op):
            for v in m.weighty(v for v in m.tables.overwritten_by[implementation] if v >= 0):
                if m.retained[v] < 0:
                    continue
                m.program.at_most([m.implementation[implementation], m.retained[v]], [], 1.0)
                if m.last_sure_reader(v) > op:
                    again = m.repeated[m.tables.writer[v]]
                    m.program.at_most([m.implementation[implementation]], [again])


def memory(m: Columns, heavy: Collection[int]) -> None:
    """While a needed forward op first runs.

    Args:
        heavy: forward ops; while these first run, what the rest of the forward pass needs is
            live, or computed again, from what is live.
    """
    last = {v: m.last_sure_reader(v) for v in np.flatnonzero(m.weighs & (m.retained >= 0)).tolist()}
    for op in m.forward:
        if not m.needed[op]:
            continue
        terms, constant = list(m.running(op)), 0.0
        live = _live_columns(m, op) if op in heavy else {}
        reads = set(m.may_read(op))
        for v in reads:
            size = float(m.size[v])
            terms += [(implementation, size) for implementation in m.reading(op, v)]
        for v, reader in last.items():
            writer = int(m.tables.writer[v])
            if writer >= op or v in reads:
                continue
            size = float(m.size[v])
            if v in live:
                terms.append((live[v], size))
            elif reader > op:
                constant += size
                terms.append((m.repeated[writer], -size))
            else:
                terms.append((m.retained[v], size))
        m.fits(terms, constant)


def _live_columns(m: Columns, now: int) -> dict[int, int]:
    """Per forward value of an op before ``now``: is it live while ``now`` first runs?

    What is read between then and the loss is, or is computed again; so is what that reads,
    and what is stored.
    """
    done = [op for op in range(now) if m.needed[op]]
    again = {op: m.program.column() for op in done}
    live: dict[int, int] = {}
    for op in done:
        m.program.at_most([again[op]], [m.repeated[op]])
        for v in m.weighty(m.tables.writes[op]):
            if v in m.always[now]:
                continue
            live[v] = m.program.column()
            there = live[v], again[op]
            if m.last_sure_reader(v) > now:
                m.program.at_most([], there, -1.0)
            m.program.at_most([m.stored[0, v]], there)
            m.program.at_most([m.retained[v]], [live[v]])
    for op in done:
        for v in m.weighty(m.implementations.surely_read(op)):
            if v in live:
                there = live[v], again[int(m.tables.writer[v])]
                m.program.at_most([again[op]], there)
    return live
