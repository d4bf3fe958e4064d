"""Runs plans on a device, and judges them against eager training."""

from rematbench.validator.check import (
    GradientVerdict,
    Judgement,
    Measurement,
    Validator,
    measure,
    set_aside,
    validator_of,
)
from rematbench.validator.codegen import Program, generate
from rematbench.validator.compare import Comparison, StepResult, compare
from rematbench.validator.rounding import Rounding
from rematbench.validator.sparsity import densities

__all__ = [
    "Comparison",
    "GradientVerdict",
    "Judgement",
    "Measurement",
    "Program",
    "Rounding",
    "StepResult",
    "Validator",
    "compare",
    "densities",
    "generate",
    "measure",
    "set_aside",
    "validator_of",
]
