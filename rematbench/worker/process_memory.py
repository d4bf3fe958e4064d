"""What memory a process holds, what is left, and whether the system killed for the lack of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def resident_bytes(pid: int) -> int:
    """Memory that a process holds; 0 where it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process, of those that it waited for, and of those that it started.

    Of these a solver's, say, while it runs; 0 where the system does not say.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(cpu_seconds, _started(pid)))


def _started(pid: int) -> list[int]:
    """The processes that a process has started; none where the system does not say."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # a thread, or all of it, has ended meanwhile
        for each in Path(f"/proc/{pid}/task").glob("*/children"):
            found += map(int, each.read_text().split())
    return found


def available_bytes() -> int | None:
    """Memory that a new process could have, of the system and of our control group."""
    found = [system] if (system := _fields(Path("/proc/meminfo")).get("MemAvailable:")) else []
    found = [kib * 1024 for kib in found]
    for folder in _groups():
        limit = _number(folder, "memory.max", "memory.limit_in_bytes")
        used = _number(folder, "memory.current", "memory.usage_in_bytes")
        if limit is not None and used is not None:
            stat = _fields(folder / "memory.stat")
            cached = stat.get("inactive_file", stat.get("total_inactive_file", 0))
            found.append(max(0, limit - used + cached))
    return min(found) if found else None


def kills() -> int | None:
    """How often the kernel has killed for lack of memory; None where it does not say."""
    counts = [_fields(folder / "memory.events").get("oom_kill") for folder in _groups()]
    counts += [_fields(folder / "memory.oom_control").get("oom_kill") for folder in _groups()]
    counts.append(_fields(Path("/proc/vmstat")).get("oom_kill"))
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _groups() -> Iterator[Path]:
    """Our memory control groups' folders, where they are mounted."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "memory"):
                yield _CGROUPS / controllers / path.lstrip("/")


def _number(folder: Path, *names: str) -> int | None:
    for name in names:
        with contextlib.suppress(OSError, ValueError):  # "max": no limit
            return int((folder / name).read_text())
    return None


def _fields(path: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {line[0]: int(line[1]) for line in lines if len(line) > 1 and line[1].isdigit()}
