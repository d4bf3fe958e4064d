"""The public face of rematbench: graphs, plans, the simulator, capture, and training with plans.

Names stand in ``__init__.pyi``, and each is imported on first use: PyTorch, numba and networkx only
by what needs them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
