"""Processes that tests start: none is waited for without a limit."""

from __future__ import annotations

import datetime
import faulthandler
import functools
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from forked import begin_server

PATIENCE = 240.0
"""Seconds after which processes are ended, and their test fails."""


def side_by_side(function: Callable[..., None], folder: Path, *args: Any, ranks: int = 2) -> None:
    """Run ``function(rank, *args)`` in processes that talk by gloo.

    Args:
        folder: where they meet, empty.
        ranks: how many processes.

    Raises:
        TimeoutError: they did not end in time; their stacks are on standard error.
    """
    begin_server()
    group = mp.start_processes(
        _begin,
        (ranks, function, str(folder), args),
        nprocs=ranks,
        join=False,
        start_method="forkserver",
    )
    assert group is not None
    deadline = monotonic() + PATIENCE
    try:
        while not group.join(timeout=1.0):
            if monotonic() > deadline:
                raise TimeoutError(f"{function}: still running after {PATIENCE:g} s")
    finally:
        for process in group.processes:
            if process.is_alive():
                process.kill()


def _begin(
    rank: int, ranks: int, function: Callable[..., None], folder: str, args: Sequence[Any]
) -> None:
    faulthandler.dump_traceback_later(0.9 * PATIENCE)
    torch.set_num_threads(1)
    if sys.platform == "linux":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # whatever the host's name resolves to
    dist.init_process_group(
        "gloo",
        f"file://{folder}/meet",
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(seconds=PATIENCE / 2),
    )
    _see_what_goes()
    function(rank, *args)
    _leave(rank, ranks, Path(folder))


def _see_what_goes() -> None:
    """Let this thread be the last to let go of what is gathered and reduced.

    PyTorch's profiler does not see what gloo's threads let go, and on a busy machine they are late.
    """
    for name in ("all_gather_into_tensor", "reduce_scatter_tensor"):
        setattr(dist, name, _patient(getattr(dist, name)))


def _patient(collective: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(collective)
    def run(*args: Any, **facts: Any) -> Any:
        given = [each for each in (*args, *facts.values()) if isinstance(each, torch.Tensor)]
        before = [each._use_count() for each in given]
        made = collective(*args, **facts)
        deadline = monotonic() + 1.0
        while _more(given, before) and monotonic() < deadline:
            sleep(0.0001)
        return made

    return run


def _more(tensors: Sequence[torch.Tensor], holders: Sequence[int]) -> bool:
    pairs = zip(tensors, holders, strict=True)
    return any(each._use_count() > before for each, before in pairs)


def _leave(rank: int, ranks: int, folder: Path) -> None:
    """End the process once the others are done, too, and leave its group as it is.

    PyTorch joins gloo's threads with the interpreter's lock held when a group goes, while one of
    them may wait for that lock, to let go of its last reduction: now and then, for ever.
    """
    (folder / f"done{rank}").touch()
    others = [folder / f"done{number}" for number in range(ranks)]
    while not all(each.exists() for each in others):  # side_by_side sets the limit
        sleep(0.01)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process printed, on both its streams, until it ended; it is killed where it lasts."""
    try:
        return process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate(timeout=PATIENCE)
        raise
