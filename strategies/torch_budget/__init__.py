"""What ships with PyTorch: the min-cut partitioner's activation budget, with its solvers."""

from rematbench.strategies.torch_budget.planner import SOLVERS, TorchBudget, halvings

__all__ = ["SOLVERS", "TorchBudget", "halvings"]
