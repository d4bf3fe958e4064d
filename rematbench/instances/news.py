"""``instances/NEWS.md``: what was improved or closed, when and by whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    better = [step for step in steps if _is_known(step.old)]
    lines = [f"- {today}: {tell(step)}." for step in better]
    if len(better) > MOST_NEWS:
        lines = [f"- {today}: {counted(better)}"]
    fresh = [step for step in steps if step not in better]
    if fresh:
        lines.append(f"- {today}: {counted(fresh, 'first records of ')}")
    write_bytes(path, (head + "\n".join(lines) + "\n" + old).encode())


def _is_known(record: BestKnown) -> bool:
    return record.value is not None or record.bound is not None or is_without_plan(record)


def tell(step: RecordStep) -> str:
    """A step in words."""
    old, new = step.old, step.new
    parts = []
    if _has_new_value(step):
        was = "" if old.value is None else f", was {old.value} by {old.by}"
        parts.append(f"value {new.value} by {new.by}{was}")
    if _has_new_bound(step):
        was = "" if old.bound is None else f", was {old.bound}"
        parts.append(f"bound {new.bound} ({new.bound_of}) by {new.bound_by}{was}")
    if _is_evidence(step):
        what = "that it has no plan" if is_without_plan(new) else f"of its bound {new.bound}"
        parts.append(f"evidence {what} ({new.bound_of}) by {new.bound_by}")
    if _is_new_proof(step):
        parts.append(f"no plan ({new.bound_of}) by {new.bound_by}")
    gap = "no gap known" if new.gap is None else f"gap {new.gap:.3%}"
    return f"{new.instance}: {'; '.join(parts) or 'closed by one quick run'}; {gap}, {new.status}"


def _has_new_value(step: RecordStep) -> bool:
    return step.new.value != step.old.value


def _has_new_bound(step: RecordStep) -> bool:
    of = (step.new.bound, step.new.bound_of)
    return step.new.bound is not None and of != (step.old.bound, step.old.bound_of)


def _is_evidence(step: RecordStep) -> bool:
    """Is the bound, or that there is no plan, as it was, and proven again?"""
    kept = step.new.bound_of is not None and step.new.bound_date != step.old.bound_date
    return kept and not _has_new_bound(step) and not _is_new_proof(step)


def _is_new_proof(step: RecordStep) -> bool:
    return is_without_plan(step.new) and not is_without_plan(step.old)


def _is_now_closed(step: RecordStep) -> bool:
    return is_closed(step.new) and not is_closed(step.old)


_KINDS: Mapping[str, Callable[[RecordStep], bool]] = {
    "value": _has_new_value,
    "bound": _has_new_bound,
    "no plan": _is_new_proof,
    "evidence": _is_evidence,
    "closed": _is_now_closed,
}


def _kinds(step: RecordStep) -> str:
    """What is new, in few words."""
    return ", ".join(word for word, is_so in _KINDS.items() if is_so(step)) or "easy"


def _credited(step: RecordStep) -> set[str | None]:
    """Who made what is new, and nobody else."""
    by = {step.new.by} if _has_new_value(step) else set()
    proven = _has_new_bound(step) or _is_new_proof(step) or _is_evidence(step)
    return by | ({step.new.bound_by} if proven else set())


def many(count: int, noun: str) -> str:
    """A count with its noun.

    >>> many(1, "record"), many(2, "record")
    ('1 record', '2 records')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


def counted(steps: Sequence[RecordStep], what: str = "") -> str:
    """Many steps in a line, with those alone who made what changed; the problems, folded."""
    values, bounds, proofs, again, closed = (sum(map(is_so, steps)) for is_so in _KINDS.values())
    without = f", {proofs} without a plan" if proofs else ""
    without += f", {many(again, 'bound')} proven again" if again else ""
    by = sorted(filter(None, set().union(*map(_credited, steps))))
    credited = f", by {', '.join(by)}" if by else ""
    names = ", ".join(f"{step.new.instance} ({_kinds(step)})" for step in steps)
    return (
        f"{what}{many(len(steps), 'problem')}: {many(values, 'value')}, {many(bounds, 'bound')}"
        f"{without}, {closed} of them now closed{credited}."
        f"\n  <details><summary>which</summary>{names}</details>"
    )
