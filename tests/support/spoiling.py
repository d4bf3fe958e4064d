"""Plans that run chosen implementations, and implementations that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from rematbench import validator
from rematbench.graphs.plan import Compute, Plan
from rematbench.tracing.captured import Captured
from rematbench.validator import Judgement, Validator


def plan_with(captured: Captured, implementations: dict[str, str]) -> Plan:
    """Program order, with these implementations and the optional ops that they read."""
    graph, chosen = captured.graph, []
    needed = set(graph.outputs)
    for op in reversed(graph.ops):
        if not needed.intersection(op.writes):
            continue
        by_name = {implementation.name: implementation for implementation in op.implementations}
        implementation = by_name[implementations.get(op.name, op.implementations[0].name)]
        again = {*implementation.reads} & {*op.writes}  # it can only recompute
        chosen += [Compute(op.name, implementation.name)] if op.name in implementations else []
        chosen += [Compute(op.name)] if again or op.name not in implementations else []
        needed |= {*implementation.reads, *op.implementations[0].reads}
    return Plan(chosen[::-1])


def judged(checker: Validator, captured: Captured, implementations: dict[str, str]) -> Judgement:
    checker.use(captured)
    return checker.check(validator.generate(captured, plan_with(captured, implementations)))


Change = Callable[[Tensor], Tensor]


def spoilt(captured: Captured, op: str, implementation: str, change: Change) -> Captured:
    """One implementation's floating-point results changed."""
    first, *rest = captured.code[op][implementation]

    def target(*args: Any, **kwargs: Any) -> Any:
        made = first.target(*args, **kwargs)
        parts = list(made) if isinstance(made, (tuple, list)) else [made]
        for i, part in enumerate(parts):
            if isinstance(part, Tensor) and part.is_floating_point():
                parts[i] = change(part)
        return tuple(parts) if isinstance(made, (tuple, list)) else parts[0]

    code = {**captured.code[op], implementation: (replace(first, target=target), *rest)}
    return replace(captured, code={**captured.code, op: code})


def negative(x: Tensor) -> Tensor:
    return -x


def missing_term(x: Tensor) -> Tensor:
    """Without what the first image (or channel) adds."""
    x = x.clone()
    x[:1] = 0
    return x


def larger(x: Tensor) -> Tensor:
    return x * 1.05
