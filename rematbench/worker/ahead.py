"""Kernels of a sweep's strategies, compiled side by side before its first job on a new machine.

``python -m rematbench.worker.ahead NAME`` compiles those of one strategy.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed

from rematbench.base.cache_dirs import cache_root


def compile_ahead(names: Iterable[str], say: Callable[[str], None]) -> None:
    """Where no kernel was ever compiled, compile those of strategies, by a process for each.

    As many run at once as there are cores. What fails here fails again in its job, which says why.

    Args:
        names: of strategies, as in ``strategy=NAME``.
        say: told how far it is.
    """
    root, names = cache_root(), list(dict.fromkeys(names))
    if len(names) < 2 or root is None or any(root.iterdir()):
        return
    (root / "ahead").touch()  # once, whatever comes of it

    def compile_one(name: str) -> None:
        asked = [sys.executable, "-P", "-m", __name__, name]
        subprocess.run(asked, capture_output=True, check=False)

    say(f"compiles kernels of {len(names)} strategies, once on this machine")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        # The last first: searches that begin from others' plans stand there, and compile longest.
        under_way = [pool.submit(compile_one, name) for name in reversed(names)]
        try:
            for done, _ in enumerate(as_completed(under_way), 1):
                say(f"compiles kernels, once on this machine: {done} of {len(names)} strategies")
        except KeyboardInterrupt:  # which ends the processes, too
            pool.shutdown(cancel_futures=True)
            raise


def main() -> None:
    """Compile the kernels of the strategy that is named."""
    from rematbench.engines.warm_up import warm_up
    from rematbench.strategies.registry import make

    warm_up(make(sys.argv[1]))


if __name__ == "__main__":
    main()
