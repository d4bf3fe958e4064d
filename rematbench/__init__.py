"""The public face of rematbench: graphs, plans, the simulator, capture, and training with plans.

Names stand in ``__init__.pyi``, and each is imported on first use: PyTorch, numba and networkx only
by what needs them.
"""

from rematbench.base.start import demote_current_folder, leave_at_interrupts

leave_at_interrupts()
demote_current_folder()  # before anything that a file of the user's could stand in for

import lazy_loader  # noqa: E402

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
