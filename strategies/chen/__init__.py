"""Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016), and its generalisations."""

from rematbench.strategies.chen.planner import (
    ApGreedy,
    ApSqrt,
    ChenGreedy,
    ChenSqrt,
    LinearizedGreedy,
    LinearizedSqrt,
    every_sqrt,
    greedy,
    segment_sizes,
)

__all__ = [
    "ApGreedy",
    "ApSqrt",
    "ChenGreedy",
    "ChenSqrt",
    "LinearizedGreedy",
    "LinearizedSqrt",
    "every_sqrt",
    "greedy",
    "segment_sizes",
]
