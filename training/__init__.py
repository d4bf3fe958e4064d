"""Training under a memory budget: with plans, and online.

Names stand in ``__init__.pyi``, and each is imported on first use: the online runtime needs no
tracer.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
