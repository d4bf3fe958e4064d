"""What a planner leaves in its run directory, should its process be killed."""

from __future__ import annotations

from pathlib import Path
from time import sleep

from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.plan import program_order
from rematbench.graphs.planning import Solution
from rematbench.jobs.handed_over import HandedOver, is_there, taken


def test_what_comes_soon_after_another_is_written_later(tmp_path: Path) -> None:
    plan, kept = program_order(unit_chain(3)), HandedOver(tmp_path)
    for number in (1, 2, 3):
        kept.take(Solution(plan, details={"handed": number}))
    while taken_copy(tmp_path).details["handed"] != 3:  # the first is there at once
        sleep(0.1)
    kept.take(Solution(plan, details={"handed": 4}))
    kept.remove()
    assert not is_there(tmp_path)
    sleep(1.2)  # nor does it come when the planner has ended
    assert not is_there(tmp_path)


def taken_copy(folder: Path) -> Solution:
    """What a process that takes over would have now."""
    copy = folder / "copy"
    copy.mkdir(exist_ok=True)
    for path in folder.glob("handed_over*"):
        (copy / path.name).write_bytes(path.read_bytes())
    return taken(copy)
