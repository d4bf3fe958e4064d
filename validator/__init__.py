"""Runs plans on a device, and judges them against eager training."""

from rematbench.validator.check import (
    Comparison,
    Measurement,
    Validator,
    compare,
    measure,
    validator_of,
)
from rematbench.validator.codegen import Program, generate
from rematbench.validator.sparsity import densities

__all__ = [
    "Comparison",
    "Measurement",
    "Program",
    "Validator",
    "compare",
    "densities",
    "generate",
    "measure",
    "validator_of",
]
