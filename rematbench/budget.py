"""Budgets on the command line; see :mod:`graphs.budget`."""

from graphs.budget import Budget, parse_budget

__all__ = ["Budget", "parse_budget"]
