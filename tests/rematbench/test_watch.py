"""What a model reads besides its settings: its rows are not taken for those of something else."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import chain
from pathlib import Path

import pytest

from rematbench.cli.commands import rematbench
from rematbench.rows.row import Row, find_rows
from rematbench.worker.worker import the_worker

MODELS = """
import datetime, os, random, secrets, socket, subprocess, sys, tempfile, time, uuid
from pathlib import Path

import numpy as np
import torch
from torch import nn

def of_width(width):
    network = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 1))
    return network, (torch.randn(2, 4),), lambda module, x: module(x).square().mean()

def by_variable():
    return of_width(int(os.environ.get("WIDTH", "4")))

def by_bytes():
    return of_width(int(os.environb.get(b"WIDTH", b"4")))

def by_file():
    return of_width(int(Path("width.txt").read_text()))

def by_descriptor():
    opened = os.open("width.txt", os.O_RDONLY)
    return of_width(int(os.read(opened, 9)))

def by_tensor():
    return of_width(int(torch.load("width.pt")))

def by_folder():
    return of_width(4 * len(os.listdir("widths")))

def by_clock():
    return of_width(4 + int(time.time()) % 5)

def by_chance():
    return of_width(4 + os.urandom(1)[0] % 5)

def by_getrandom():
    return of_width(4 + os.getrandom(1)[0] % 5)

def by_numpy():
    return of_width(int(np.random.default_rng().integers(4, 9)))

def by_numpys_state():
    return of_width(int(np.random.RandomState().randint(4, 9)))

def by_secrets():
    return of_width(4 + secrets.randbelow(5))

def by_python():
    return of_width(random.Random().randint(4, 8))

def by_the_systems_generator():
    return of_width(random.SystemRandom().randint(4, 8))

def by_seeding():
    random.seed()
    return of_width(random.randint(4, 8))

def by_seeding_one():
    generator = random.Random(0)
    generator.seed()
    return of_width(generator.randint(4, 8))

def by_uuid():
    return of_width(4 + uuid.uuid4().int % 5)

def by_counter():
    return of_width(4 + time.perf_counter_ns() % 5)

def by_monotonic():
    return of_width(4 + int(time.monotonic() * 1e6) % 5)

def by_process_time():
    return of_width(4 + time.process_time_ns() % 5)

def by_one_clock():
    return of_width(4 + time.clock_gettime_ns(time.CLOCK_MONOTONIC) % 5)

def by_process():
    return of_width(int(subprocess.check_output(["expr", "2", "+", "2"])))

def by_network():
    with socket.socket() as line:
        line.connect_ex(("127.0.0.1", 9))
    return of_width(4)

def late():
    network, batch, _ = of_width(4)
    return network, batch, lambda module, x: module(x).square().mean() * time.time()

class Clocked:
    clock = time.perf_counter

def neither():
    # Seeded; what is written; a temporary file's name.
    random.seed(1), np.random.seed(2), random.Random(3), np.random.default_rng(4)
    Path("log.txt").write_text(str(random.random()))
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"scratch")
    return of_width(4)

def bound():
    return of_width(4 + 0 * int(Clocked().clock()))  # a function of Python's binds to no class
"""
DATED = """
from datetime import datetime
from models import of_width

def by_date():
    return of_width(4 + datetime.now().second % 5)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.syspath_prepend(tmp_path)
    the_worker().stop()  # a new one sees the folder
    Path("models.py").write_text(MODELS)
    Path("dated.py").write_text(DATED)
    return tmp_path


def row(target: str) -> Row:
    """The row of a job, which may come from the cache; its model from the worker's memory."""
    sys.argv[:] = ["rematbench", "model=python", f"model.target={target}", "costmodel=flops"]
    sys.argv += ["strategy=checkpoint_all", "cache=kept", "hydra.run.dir=job"]
    rematbench()
    (found,) = find_rows([Path("job")])
    return found


def variable(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("WIDTH", str(width))


def file(_: pytest.MonkeyPatch, width: int) -> None:
    Path("width.txt").write_text(str(width))


def tensor(_: pytest.MonkeyPatch, width: int) -> None:
    import torch

    torch.save(torch.tensor(width), "width.pt")


def folder(_: pytest.MonkeyPatch, width: int) -> None:
    for number in range(3):
        Path("widths").mkdir(exist_ok=True)
        Path(f"widths/{number}").unlink(missing_ok=True)
        if number < width // 4:
            Path(f"widths/{number}").touch()


READ: dict[Callable[[pytest.MonkeyPatch, int], None], tuple[str, ...]] = {
    variable: ("models:by_variable", "models:by_bytes"),
    file: ("models:by_file", "models:by_descriptor"),
    tensor: ("models:by_tensor",),
    folder: ("models:by_folder",),
}
"""What sets a width, and the models that look there."""


def test_what_a_model_reads_is_part_of_its_rows_place(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one worker, which takes seconds to start, as long as nothing that it has read changes."""
    seen: dict[str, list[tuple[int | None, bool]]] = defaultdict(list)

    def look(targets: Iterable[str]) -> None:
        for target in targets:
            found = row(target)
            seen[target].append((found["peak_bytes"], found["extra"].get("cached", False)))

    for give in READ:
        give(monkeypatch, 4)
    for _ in range(2):
        look(chain(*READ.values()))
    for give, targets in READ.items():
        for width in (8, 4):
            give(monkeypatch, width)
            look(targets)
    for target, rows in seen.items():
        (narrow, _), _, (wide, _), _ = rows
        assert narrow != wide, (target, rows)
        assert rows == [(narrow, False), (narrow, True), (wide, False), (narrow, True)], target


NOT_KEPT = {
    "the clock (models.py:": (
        *("models:by_clock", "models:late"),
        *("models:by_counter", "models:by_monotonic"),
        *("models:by_process_time", "models:by_one_clock"),
        *("models:bound",),
    ),
    "the clock (dated.py)": (*("dated:by_date",),),
    "the system's random numbers (models.py:": (
        *("models:by_chance", "models:by_getrandom"),
        *("models:by_numpy", "models:by_numpys_state"),
        *("models:by_secrets", "models:by_python"),
        *("models:by_the_systems_generator", "models:by_seeding"),
        *("models:by_seeding_one", "models:by_uuid"),
    ),
    "another process (models.py:": (*("models:by_process",),),
    "the network (models.py:": (*("models:by_network",),),
}


def test_what_nobody_can_look_up_again_is_not_kept(place: Path) -> None:
    """All in one worker, which takes seconds to start."""
    for why, targets in NOT_KEPT.items():
        for target in targets:
            for _ in range(2):
                found = row(target)
                assert "cached" not in found["extra"], target
                assert why in found["extra"]["uncached"], target


def test_what_a_model_writes_does_not_matter(place: Path) -> None:
    assert "uncached" not in row("models:neither")["extra"]
    assert row("models:neither")["extra"]["cached"]


def test_datetimes_are_whole_in_the_tests_own_process() -> None:
    """Listening happens in workers."""
    assert type(datetime.now()) is datetime
    assert type(os.urandom) is type(os.getpid)
