"""What a field says, in sentences; each with the query that its number comes from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rematbench.report.leaderboard.board import Board


@dataclass(frozen=True)
class Finding:
    """A sentence with a number.

    Attributes:
        text: with one ``{}`` and its format for the number, and ``{of}`` for that of ``of``.
        query: Python, of ``entries`` and ``problems`` (:class:`Board`), that gives the number.
        of: the same for the number of problems that it is of.
        zero: what is said instead where the number is zero.
    """

    text: str
    query: str
    of: str = "problems.shape[0]"
    zero: str = ""

    def number(self, board: Board) -> float:
        """What the query gives; NaN where the field has nothing for it."""
        return _asked(self.query, board)

    def sentence(self, board: Board) -> str | None:
        """The sentence, with its number; None where the field has nothing for it."""
        number = self.number(board)
        if np.isnan(number):
            return None
        text = self.zero if self.zero and number == 0 else self.text
        words = text.format(number, of=f"{_asked(self.of, board):.0f}")
        return re.sub(r"(?<=\d)%", " %", words)


def _asked(query: str, board: Board) -> float:
    known = {"entries": board.entries, "problems": board.problems, "np": np, "pd": pd}
    return float(eval(query, {"__builtins__": {}}, known))  # our own strings, below


_MINE = "entries[(entries.strategy == '{0}') & np.isfinite(entries.ratio)]"
_WITH_SOLVER = "anytime, checkmate_*, hierarchical, hybrid, monet, moccasin, rockmate, sac_ilp"
_SOLVERS = _WITH_SOLVER.replace("*", "").replace(", ", "|")
_LAYERS, _PYTORCH = _MINE.format("every_layer"), _MINE.format("torch_budget")

FINDINGS = (
    Finding("The field has {:.0f} problems.", "problems.shape[0]"),
    Finding(
        "On {:.0%} of the {of} the best known plan is proven optimal (within 0.01 %) among the "
        "schedules of Checkmate's problem (9), at least.",
        "problems.optimal.mean()",
    ),
    Finding(
        "On the {of} that have a bound, the best known plan is at the median within {:.2%} of the "
        "best plan in program order, or of the best schedule of Checkmate's problem (9).",
        "problems.gap.median()",
        of="problems.gap.count()",
    ),
    Finding(
        "On {:.0%} of the {of} no strategy has a plan of the captured ops.",
        "1 - entries.groupby('problem').best.any().mean()",
        zero="Each of the {of} problems has a plan of the captured ops, by some strategy.",
    ),
    Finding(
        "Of those {of}, {:.0%} have a budget within which every plan in program order computes "
        "some gradient twice (`extra.once_floor_bytes`).",
        "problems[~problems.problem.isin(entries[entries.best].problem)].below.mean()",
        of="(~problems.problem.isin(entries[entries.best].problem)).sum()",
    ),
    Finding(
        "`anytime`, our own search, has a best plan on {:.0%} of the {of}.",
        "entries[entries.strategy == 'anytime'].best.mean()",
        of="entries[entries.strategy == 'anytime'].shape[0]",
        zero="`anytime`, our own search, has a best plan on none of the {of}.",
    ),
    Finding(
        "Some published method, without our search, has a best plan on {:.0%} of the {of}.",
        "entries.best.where(~entries.ours, False).groupby(entries.problem).any().mean()",
        zero="No published method without our search has a best plan on any of the {of}.",
    ),
    Finding(
        "`dtr`, which knows no future, is within 5 % of the best cost on {:.0%} of the {of}.",
        "entries[entries.strategy == 'dtr'].ratio.le(1.05).mean()",
        of="entries[entries.strategy == 'dtr'].shape[0]",
        zero="`dtr`, which knows no future, is within 5 % of the best cost on none of the {of}.",
    ),
    Finding(
        "After a second some planner has a plan of the captured ops within 5 % of the best cost on "
        "{:.0%} of the {of} problems.",
        "(entries[~entries.other].groupby('problem').ratio_1.min()"
        ".reindex(problems.problem).fillna(np.inf) <= 1.05).mean()",
        zero="After a second no planner has a plan of the captured ops within 5 % of the best cost "
        "on any of the {of} problems.",
    ),
    Finding(
        f"A plan of some strategy without a solver (not {_WITH_SOLVER}) is optimal on {{:.0%}} of "
        "the {of} problems whose optimum is proven.",
        f"entries[entries.optimal & ~entries.strategy.str.match('{_SOLVERS}')]"
        ".groupby('problem').best.any().mean()",
        of="problems.optimal.sum()",
        zero="On none of the {of} problems whose optimum is proven is a plan of a strategy without "
        f"a solver (not {_WITH_SOLVER}) optimal.",
    ),
    Finding(
        "Checkpointing every layer (`every_layer`) costs at the median {:.2f} times the best plan "
        "of the same budget, on the {of} problems where it meets the budget.",
        f"{_LAYERS}.ratio.median()",
        of=f"{_LAYERS}.shape[0]",
    ),
    Finding(
        "`torch_budget`, PyTorch's own planner swept for a true peak, costs at the median {:.2f} "
        "times the best plan, on the {of} problems where it has a plan.",
        f"{_PYTORCH}.ratio.median()",
        of=f"{_PYTORCH}.shape[0]",
    ),
    Finding(
        "`torch_budget` has no plan on {:.0%} of the {of}.",
        "1 - np.isfinite(entries[entries.strategy == 'torch_budget'].ratio).mean()",
        of="entries[entries.strategy == 'torch_budget'].shape[0]",
        zero="`torch_budget` has a plan on each of the {of}.",
    ),
)


def sentences(board: Board) -> Sequence[tuple[str, str]]:
    """(sentence, query) of each finding that the field has a number for."""
    found = [(finding.sentence(board), finding.query) for finding in FINDINGS]
    return [(text, query) for text, query in found if text is not None]
