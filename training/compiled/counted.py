"""Records of sequences of calls whose bytes are counted while they run."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from rematbench.training.compiled.gathered import Gathered
from rematbench.training.compiled.outside import StepMeter
from rematbench.training.compiled.record import CallRecord, CompiledGraph, parameters_of


def can_count(region: CompiledGraph) -> bool:
    """Can a sequence that a graph begins be counted just now?"""
    return StepMeter.can_start(device_of(region))


def device_of(region: CompiledGraph) -> str:
    """The device of a graph that trains."""
    found: str = region.planned.halves.captured.device
    return found


def again(record: CallRecord, counted: str | None) -> CallRecord:
    """A record of the same sequence once more.

    Args:
        counted: the device whose bytes are counted; None: nobody counts.
    """
    gathered = Gathered(record.gathered, _modules(call.region for call in record.calls))
    if counted is None:
        return CallRecord(gathered)
    trained, passing = parameters_of(record.calls), record.gathered.keys
    return CallRecord(gathered, StepMeter(counted, trained, gathered, passing))


def alone(region: CompiledGraph) -> CallRecord:
    """A record of a sequence that a graph begins, whose bytes are counted."""
    gathered = Gathered(None, _modules([region]))
    trained = [each for weak in region.parameters if (each := weak()) is not None]
    return CallRecord(gathered, StepMeter(device_of(region), trained, gathered, frozenset()))


def _modules(regions: Iterable[CompiledGraph]) -> list[nn.Module]:
    return [module for each in regions for weak in each.origin if (module := weak()) is not None]
