"""The public face of rematbench: graphs, plans, the simulator, and the errors that they raise.

PyTorch is only imported by what needs it (``capture``, ``measure``, the zoo), on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

from graphs.errors import (
    BudgetError,
    CaptureError,
    ConfigError,
    ExecutionError,
    GraphError,
    Infeasible,
    InvalidPlan,
    NotApplicable,
    PlanError,
    RematbenchError,
)
from graphs.files import read_graph, read_plan, write_graph, write_plan
from graphs.ir import Graph, Implementation, Op, Phase, Value
from graphs.plan import Compute, Free, Plan, program_order, with_frees
from graphs.simulate import Trace, simulate
from graphs.synthetic import random_graph, unit_chain, with_backward
from strategies.base import Problem, Solution, Strategy, Traits

_LAZY = {
    "Captured": "graphs.capture",
    "CheckmateIlp": "strategies.checkmate.ilp",
    "CheckmateRounding": "strategies.checkmate.rounding",
    "Dtr": "strategies.dtr",
    "DtrRuntime": "validator.online",
    "EventStream": "graphs.stream",
    "apply": "validator",
    "capture": "graphs.capture",
    "graph_of_stream": "graphs.stream_graph",
    "Workload": "graphs.zoo.workload",
    "make_model": "graphs.zoo",
    "measure": "validator",
    "read_log": "graphs.stream_log",
    "record_workload": "graphs.record",
    "stream_of_graph": "graphs.stream_graph",
    "toy_chain": "graphs.synthetic",
    "write_log": "graphs.stream_log",
}

__all__ = [
    "BudgetError",
    "CaptureError",
    "Compute",
    "ConfigError",
    "ExecutionError",
    "Free",
    "Graph",
    "GraphError",
    "Implementation",
    "Infeasible",
    "InvalidPlan",
    "NotApplicable",
    "Op",
    "Phase",
    "Plan",
    "PlanError",
    "Problem",
    "RematbenchError",
    "Solution",
    "Strategy",
    "Trace",
    "Traits",
    "Value",
    "program_order",
    "random_graph",
    "read_graph",
    "read_plan",
    "simulate",
    "unit_chain",
    "with_backward",
    "with_frees",
    "write_graph",
    "write_plan",
    *_LAZY,
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'rematbench' has no attribute {name!r}")
