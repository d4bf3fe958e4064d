"""What a field says, in sentences; each with the query that its number comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rematbench.report.leaderboard.board import Board


@dataclass(frozen=True)
class Finding:
    """A sentence with a number.

    Attributes:
        text: with one ``{}`` and its format for the number.
        query: Python, of ``entries`` and ``problems`` (:class:`Board`), that gives the number.
    """

    text: str
    query: str

    def number(self, board: Board) -> float:
        """What the query gives; NaN where the field has nothing for it."""
        known = {"entries": board.entries, "problems": board.problems, "np": np, "pd": pd}
        return float(eval(self.query, {"__builtins__": {}}, known))  # our own strings, below

    def sentence(self, board: Board) -> str | None:
        """The sentence, with its number; None where the field has nothing for it."""
        number = self.number(board)
        return None if np.isnan(number) else self.text.format(number)


FINDINGS = (
    Finding("The field has {:.0f} problems.", "problems.shape[0]"),
    Finding(
        "On {:.0%} of them the best known plan is proven optimal (within 0.01 %) among the "
        "schedules of Checkmate's problem (9), at least.",
        "problems.optimal.mean()",
    ),
    Finding(
        "Where there is a bound, the best known plan is at the median within {:.2%} of the best "
        "plan in program order, or of the best schedule of Checkmate's problem (9).",
        "problems.gap.median()",
    ),
    Finding(
        "On {:.0%} nobody has a plan of the captured ops.",
        "1 - entries.groupby('problem').best.any().mean()",
    ),
    Finding(
        "Of those, {:.0%} have a budget within which every plan in program order computes some "
        "gradient twice (`extra.once_floor_bytes`).",
        "problems[~problems.problem.isin(entries[entries.best].problem)].below.mean()",
    ),
    Finding(
        "`anytime` has a best plan on {:.0%} of the problems.",
        "entries[entries.strategy == 'anytime'].best.mean()",
    ),
    Finding(
        "`dtr`, which knows no future, is within 5 % of the best cost on {:.0%}.",
        "entries[entries.strategy == 'dtr'].ratio.le(1.05).mean()",
    ),
    Finding(
        "After a second some planner has a plan of the captured ops within 5 % of the best cost on "
        "{:.0%} of the problems.",
        "(entries[~entries.other].groupby('problem').ratio_1.min()"
        ".reindex(problems.problem).fillna(np.inf) <= 1.05).mean()",
    ),
    Finding(
        "Some plan that no solver made (not anytime, checkmate_*, hierarchical, monet, moccasin, "
        "rockmate, sac_ilp) equals the optimum on {:.0%} of the problems whose optimum is proven.",
        "entries[entries.optimal & ~entries.strategy.str.match("
        "'anytime|checkmate_|hierarchical|monet|moccasin|rockmate|sac_ilp')]"
        ".groupby('problem').best.any().mean()",
    ),
    Finding(
        "Checkpointing every layer (`every_layer`) costs at the median {:.2f} times the best plan "
        "of the same budget, where it meets the budget.",
        "entries[(entries.strategy == 'every_layer') & np.isfinite(entries.ratio)].ratio.median()",
    ),
    Finding(
        "`torch_budget`, PyTorch's own planner swept for a true peak, costs at the median {:.2f} "
        "times the best plan, where it has a plan.",
        "entries[(entries.strategy == 'torch_budget') & np.isfinite(entries.ratio)].ratio.median()",
    ),
    Finding(
        "`torch_budget` has no plan on {:.0%}.",
        "1 - np.isfinite(entries[entries.strategy == 'torch_budget'].ratio).mean()",
    ),
)


def sentences(board: Board) -> Sequence[tuple[str, str]]:
    """(sentence, query) of each finding that the field has a number for."""
    found = [(finding.sentence(board), finding.query) for finding in FINDINGS]
    return [(text, query) for text, query in found if text is not None]
