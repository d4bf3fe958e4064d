"""From a torch module and a batch to a graph, and the code that runs each op.

Names stand in ``__init__.pyi``, and each is imported on first use: a recorded step needs no
tracer, and the zoo neither. A PyTorch that we do not run with is refused before anything is.
"""

import lazy_loader

from rematbench.tracing import releases as releases

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
