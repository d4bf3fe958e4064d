"""Optimal checkpointing for heterogeneous chains (Beaumont, Eyraud-Dubois, Herrmann, Joly,
Shilova: RR-9302, 2019; ACM TOMS, 2024), the program known as rotor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from rematbench.base.errors import ConfigError, NotApplicable
from rematbench.engines.chain.chain import Chain, chain_of
from rematbench.engines.chain.segments import Segments, segments_of
from rematbench.engines.chain.table import Table, build
from rematbench.strategies.chain_dp.planner import ChainDp

__all__ = ["Chain", "ChainDp", "Segments", "Table", "build", "segments_of", "solve_chain"]


def solve_chain(
    case: Mapping[str, Any], variant: Literal["exact", "published"] = "exact"
) -> int | float | None:
    """The least time of a persistent schedule of one chain within its limit.

    Args:
        case: lists per stage ``u_f``, ``u_b`` (times), ``abar``, ``o_f``, ``o_b`` (bytes of what
            backward needs, the output included; temporaries), ``a`` (bytes of the input and of
            each output); ``limit``, and ``loss_time`` and ``loss_overhead`` (default 0).
        variant: ``published``: the authors' recurrence, which at a few limits is too strict, and
            at fewer not strict enough.

    Returns:
        The makespan, an int where all times are; None where no schedule fits the limit.

    Raises:
        ConfigError: a key is missing or malformed, or the variant is unknown.
        NotApplicable: the exact answer has too many trade-offs to be kept.
    """
    if variant not in ("exact", "published"):
        raise ConfigError(f"variant is {variant!r}; choose exact or published")
    chain, limit = chain_of(case)
    table = build(chain, limit, published=variant == "published")
    if table is None:
        raise NotApplicable("this chain has too many trade-offs; round its sizes to larger units")
    found = table.time_within(limit)
    whole = all(isinstance(t, int) for t in (*case["u_f"], *case["u_b"], case.get("loss_time", 0)))
    return round(found) if found is not None and whole else found
