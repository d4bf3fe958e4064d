"""``instances/NEWS.md``: what was improved or closed, when and by whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rematbench.base.json_files import write_bytes
from rematbench.instances.records import BestKnown, is_closed, is_without_plan


@dataclass(frozen=True)
class RecordStep:
    """What a submission makes of a record.

    Attributes:
        old, new: the record before and after.
    """

    old: BestKnown
    new: BestKnown


MOST_NEWS = 20
"""Lines for one submission; of more, the first values and the rest are counted."""


def add_news(path: Path, steps: Sequence[RecordStep], today: str) -> None:
    """Put the news on top of ``NEWS.md``."""
    head = "# News\n\nWhat was improved or closed, when and by whom; the latest first.\n\n"
    old = path.read_text(encoding="utf-8").removeprefix(head) if path.is_file() else ""
    better = [step for step in steps if step.old.value is not None or step.old.bound is not None]
    lines = [f"- {today}: {tell(step)}." for step in better]
    if len(better) > MOST_NEWS:
        lines = [f"- {today}: {_counted(better)}."]
    fresh = [step for step in steps if step not in better]
    if fresh:
        lines.append(f"- {today}: {_counted(fresh, 'first records of ')}.")
    write_bytes(path, (head + "\n".join(lines) + "\n" + old).encode())


def tell(step: RecordStep) -> str:
    """A step in words."""
    old, new = step.old, step.new
    parts = []
    if new.value != old.value:
        was = "" if old.value is None else f", was {old.value} by {old.by}"
        parts.append(f"value {new.value} by {new.by}{was}")
    if (new.bound, new.bound_of) != (old.bound, old.bound_of) and new.bound is not None:
        was = "" if old.bound is None else f", was {old.bound}"
        parts.append(f"bound {new.bound} ({new.bound_of}) by {new.bound_by}{was}")
    if is_without_plan(new) and not is_without_plan(old):
        parts.append(f"no plan ({new.bound_of}) by {new.bound_by}")
    gap = "no gap known" if new.gap is None else f"gap {new.gap:.3%}"
    return f"{new.instance}: {'; '.join(parts) or 'closed by one quick run'}; {gap}, {new.status}"


def _counted(steps: Sequence[RecordStep], what: str = "") -> str:
    values = sum(step.new.value != step.old.value for step in steps)
    bounds = sum(step.new.bound != step.old.bound for step in steps)
    closed = sum(is_closed(step.new) and not is_closed(step.old) for step in steps)
    names = {name for step in steps for name in (step.new.by, step.new.bound_by) if name}
    return (
        f"{what}{len(steps)} problems: {values} values, {bounds} bounds, {closed} of them now "
        f"closed, by {', '.join(sorted(names))}"
    )
