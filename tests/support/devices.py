"""Where tests run: the CPU, and CUDA where there is one (``pytest -m gpu``)."""

from __future__ import annotations

import pytest
import torch

gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
DEVICES = ["cpu", pytest.param("cuda", marks=gpu)]
