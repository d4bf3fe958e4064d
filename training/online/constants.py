"""Ordinary tensors that a step under the online runtime reads: counted, and never evicted."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from rematbench.tracing.storages import storage_key
from rematbench.training.online.cells import Cell, CellPool
from rematbench.training.online.profiles import form_of, rounded

_FIRST_SWEEP = 1024


class Constants:
    """The cells of ordinary tensors, by storage.

    Args:
        memory: where they are counted.
        device: whose memory; tensors elsewhere take none.
        settle: called with each leaf that the step reads once its gradient is accumulated.

    Attributes:
        due: are there so many that a sweep is worth its time?
    """

    def __init__(self, memory: CellPool, device: str, settle: Callable[[Tensor], None]) -> None:
        self.memory, self.device, self._settle = memory, device, settle
        self._cells: dict[int, tuple[Cell, StorageWeakRef]] = {}
        self._hooks: dict[int, Any] = {}
        self._sweep_at = _FIRST_SWEEP
        self.due = False

    def __contains__(self, tensor: Tensor) -> bool:
        """Is the tensor in the storage of a known constant?"""
        return storage_key(tensor) in self._cells

    def cell(self, tensor: Tensor) -> Cell:
        """The cell of an ordinary tensor."""
        key = storage_key(tensor)
        if tensor.requires_grad and tensor.is_leaf and id(tensor) not in self._hooks:
            hook = tensor.register_post_accumulate_grad_hook(self._settle)
            self._hooks[id(tensor)] = hook
        known = self._cells.get(key)
        if known is not None:
            cell = known[0]
            if cell.data is None:  # it was swept: its bytes are still counted
                cell.data, cell.form = tensor, form_of(tensor)
            return cell
        here = tensor.device.type == self.device
        size = rounded(tensor.untyped_storage().nbytes(), self.device) if here else 0
        cell = Cell(self.memory, size, None)
        cell.form = form_of(tensor)
        self.memory.hold(cell, tensor)
        self._cells[key] = cell, StorageWeakRef(tensor.untyped_storage())
        self.due = len(self._cells) > self._sweep_at
        return cell

    def adopt(self, cell: Cell, tensor: Tensor) -> None:
        """``cell`` is from now on a constant's, and ``tensor`` is in its storage."""
        self._cells[cell.key] = cell, StorageWeakRef(tensor.untyped_storage())

    def replace(self, cell: Cell) -> None:
        """``cell`` is from now on that of the constant in its storage."""
        self._cells[cell.key] = cell, self._cells[cell.key][1]

    def sweep(self, owned: Container[Cell]) -> bool:
        """Let go of those that no op would need again; True when that freed memory.

        Args:
            owned: cells that a tensor of the runtime is in.
        """
        before = self.memory.live
        for key, (cell, weak) in list(self._cells.items()):
            if cell.users or cell.locks or cell in owned:
                continue
            cell.data = cell.views = None
            if weak.expired():
                self.memory.live -= cell.bytes
                del self._cells[key]
        return self.memory.live < before

    def rest(self) -> None:
        """After a sweep: the next one is due when there are twice as many."""
        self._sweep_at, self.due = 2 * len(self._cells) + _FIRST_SWEEP, False

    def clear(self) -> None:
        """Forget all, and listen to no gradient any longer."""
        for handle in self._hooks.values():
            handle.remove()
        self._hooks.clear()
        self._cells.clear()
