"""gist: one plan that stores encodings instead of values (Gist: Jain et al., ISCA 2018)."""

from rematbench.strategies.gist.planner import Gist

__all__ = ["Gist"]
