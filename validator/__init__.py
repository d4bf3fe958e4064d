"""Runs plans on a device, and judges them against eager training."""

from rematbench.validator.check import (
    Judgement,
    Measurement,
    Validator,
    Verdict,
    measure,
    validator_of,
)
from rematbench.validator.codegen import Program, generate
from rematbench.validator.compare import Comparison, StepResult, compare
from rematbench.validator.rounding import Rounding
from rematbench.validator.sparsity import densities

__all__ = [
    "Comparison",
    "Judgement",
    "Measurement",
    "Program",
    "Rounding",
    "StepResult",
    "Validator",
    "Verdict",
    "compare",
    "densities",
    "generate",
    "measure",
    "validator_of",
]
