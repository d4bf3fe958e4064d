"""Griewank & Walther, "Algorithm 799: Revolve" (2000): optimal binomial checkpointing of chains."""

from rematbench.strategies.revolve.planner import ApRevolve, Revolve, advances, schedule

__all__ = ["ApRevolve", "Revolve", "advances", "schedule"]
