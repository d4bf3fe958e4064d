"""The other way round: any strategy as the knapsack solver inside PyTorch's partitioner."""

from rematbench.strategies.torch_knapsack.planner import TorchKnapsack, recomputed

__all__ = ["TorchKnapsack", "recomputed"]
