"""Runs plans on a device, and judges them against eager training."""

from validator.apply import Step, apply
from validator.check import Comparison, Measurement, Validator, compare, measure, validator_of
from validator.codegen import Program, generate
from validator.sparsity import densities

__all__ = [
    "Comparison",
    "Measurement",
    "Program",
    "Step",
    "Validator",
    "apply",
    "compare",
    "densities",
    "generate",
    "measure",
    "validator_of",
]
