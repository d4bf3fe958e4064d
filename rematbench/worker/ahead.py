"""Kernels of a sweep's strategies, compiled side by side before its first job on a new machine.

``python -m rematbench.worker.ahead NAME ...`` compiles those of some strategies.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from rematbench.base.cache_dirs import cache_root


def compile_ahead(names: Iterable[str], say: Callable[[str], None]) -> None:
    """Where no kernel was ever compiled, compile those of strategies, on all cores.

    What fails here fails again in its job, which says why.

    Args:
        names: of strategies, as in ``strategy=NAME``.
        say: told how far it is.
    """
    root, names = cache_root(), list(dict.fromkeys(names))
    if len(names) < 2 or root is None or any(root.iterdir()):
        return
    (root / "ahead").touch()  # once, whatever comes of it
    say(f"compiles kernels of {len(names)} strategies, once on this machine")
    asked = [sys.executable, "-P", "-m", __name__, *names]
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(
        asked, text=True, stdout=pipe, stderr=nothing, start_new_session=True
    ) as running:
        try:
            for line in running.stdout or ():
                say(f"compiles kernels, once on this machine: {line.strip()} parts")
        except BaseException:
            os.killpg(running.pid, signal.SIGKILL)  # its processes, too
            raise


def main() -> None:
    """Compile the kernels of the strategies that are named, and print how far that is."""
    from rematbench.engines.warm_up import shared

    shared()
    # The last first: searches that begin from others' plans stand there, and compile longest.
    tasks = [(name, part) for name in reversed(sys.argv[1:]) for part in range(len(_parts(name)))]
    # Forked: what is imported and compiled by now is there in each.
    with ProcessPoolExecutor(os.cpu_count(), get_context("fork")) as pool:
        under_way = [pool.submit(_compile, *task) for task in tasks]
        for done, _ in enumerate(as_completed(under_way), 1):
            print(f"{done} of {len(tasks)}", flush=True)


def _parts(name: str) -> list[Callable[[], None]]:
    from rematbench.engines.warm_up import parts
    from rematbench.strategies.registry import make

    with contextlib.suppress(Exception):
        return parts(make(name))
    return []


def _compile(name: str, part: int) -> None:
    _parts(name)[part]()


if __name__ == "__main__":
    main()
