"""Imports without looking for garbage."""

from __future__ import annotations

import gc

import pytest

from rematbench.base.imports import uncollected


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_afterwards_what_it_was(enabled: bool) -> None:
    assert gc.isenabled()
    try:
        if not enabled:
            gc.disable()
        with uncollected():
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
        with pytest.raises(ImportError), uncollected():
            raise ImportError
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
