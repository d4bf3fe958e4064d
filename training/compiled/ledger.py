"""What several compiled calls hold at once: a budget is kept, or an error says why it cannot be."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from rematbench.base.errors import ExecutionError
from rematbench.training.compiled.options import Options
from rematbench.training.compiled.sharing import Share


@dataclass(frozen=True)
class Pending:
    """A call whose backward half has not run.

    Attributes:
        alive: a tensor that it keeps, one that the caller does not hold, too, where there is one:
            gone, the call is over, by its backward half or without.
        parameters: bytes of each parameter, by place.
    """

    share: Share
    alive: StorageWeakRef
    parameters: dict[int, int]


class Ledger:
    """The calls that are pending under one budget."""

    def __init__(self) -> None:
        self._pending: list[Pending] = []

    def pending(self) -> list[Pending]:
        """Those that still keep something, the latest last."""
        self._pending = [each for each in self._pending if not each.alive.expired()]
        return self._pending

    def held(self, inputs: Sequence[Any]) -> int:
        """Bytes that pending calls hold, apart from parameters among ``inputs``."""
        if self.pending():
            gc.collect()  # an exception that was caught may hold a call's tensors in a circle
        own = _parameters(inputs)
        others: dict[int, int] = {}
        for each in self.pending():
            others |= each.parameters
        kept = sum(each.share.kept for each in self._pending)
        return kept + sum(size for place, size in others.items() if place not in own)

    def admit(self, name: str, share: Share, args: Sequence[Any], most: int, wanted: str) -> None:
        """Let a call begin, if the budget is kept until the last backward half has run.

        Args:
            most: bytes of the budget for all of them.
            wanted: the budget as it was given.

        Raises:
            ExecutionError: it would not be; says what to do.
        """
        if not self.pending():
            return
        needed = self._needed(share, args)
        if needed > most:
            gc.collect()
            needed = self._needed(share, args)
        calls = len(self.pending()) + 1
        if calls > 1 and needed > most:
            raise ExecutionError(
                f"{name}: {calls} compiled calls wait for their backward pass at once, and would "
                f"hold {needed} bytes, above budget={wanted}; give options={{'graphs': n}} with as "
                f"many as the step has ({calls} so far, and there may be more: graph breaks, "
                "blocks, forward passes), so that each plan leaves room for the others, or a "
                "larger budget; a loss that never goes backward waits until you let go of it"
            )

    def _needed(self, share: Share, args: Sequence[Any]) -> int:
        """The most bytes that pending calls and this one take, until the last of them is over."""
        pending, parameters = self.pending(), _parameters(args)
        for each in pending:
            parameters |= each.parameters
        owned = sum(parameters.values())
        needed = owned + share.inputs + max(share.forward, share.backward)
        needed += sum(each.share.kept for each in pending)
        before, gradients = 0, share.gradients + sum(each.share.gradients for each in pending)
        for each in pending:  # its own backward half, when later ones have left their gradients
            gradients -= each.share.gradients
            mine = owned + before + each.share.inputs + each.share.backward + gradients
            needed = max(needed, mine)
            before += each.share.kept
        return needed

    def note(
        self, share: Share, args: Sequence[Any], results: Sequence[Any], kept: Sequence[Any]
    ) -> None:
        """A call's forward half has run.

        Args:
            results: what it returned to the caller.
            kept: what it handed over.
        """
        given, returned = _places(args), _places(results)
        own = [t for t in _tensors(kept) if t.untyped_storage().data_ptr() not in given]
        # What the caller was given may outlive the call: predictions that it collects.
        own.sort(key=lambda t: t.untyped_storage().data_ptr() in returned)
        if own:
            alive = StorageWeakRef(own[0].untyped_storage())
            self._pending.append(Pending(share, alive, _parameters(args)))

    def over(self, handed: Sequence[Any]) -> None:
        """A call's backward half begins.

        Args:
            handed: what its forward half handed over.
        """
        mine = [StorageWeakRef(t.untyped_storage()) for t in _tensors(handed)]
        self._pending = [each for each in self._pending if each.alive not in mine]


def ledger_of(options: Options) -> Ledger:
    """The ledger of everything that is compiled under the same budget and reserve."""
    return _ledgers.setdefault((options.budget, options.reserve), Ledger())


_ledgers: dict[Any, Ledger] = {}


def _tensors(things: Sequence[Any]) -> list[Tensor]:
    return [t for t in things if isinstance(t, Tensor) and t.layout is torch.strided]


def _places(things: Sequence[Any]) -> set[int]:
    return {t.untyped_storage().data_ptr() for t in _tensors(things)}


def _parameters(args: Sequence[Any]) -> dict[int, int]:
    """Bytes by place. A half gets them detached: leaves that need a gradient are parameters."""
    return {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
        for t in args
        if isinstance(t, nn.Parameter)
    }
