"""``torch.utils.checkpoint``: segments that run forward again, as a whole or selectively."""

from rematbench.strategies.torch_checkpoint.planner import TorchCheckpoint

__all__ = ["TorchCheckpoint"]
