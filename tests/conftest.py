"""Tests run side by side, so that each process keeps to one thread."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
