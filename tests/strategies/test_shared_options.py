"""Options that several strategies share are refused alike, with what may be given instead."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rematbench.base.errors import ConfigError
from rematbench.strategies.anytime.planner import Anytime
from rematbench.strategies.anytime_joint.planner import AnytimeJoint
from rematbench.strategies.checkmate.compared import CheckmateCompared
from rematbench.strategies.checkmate.ilp import CheckmateIlp
from rematbench.strategies.checkmate.rounding import CheckmateRounding
from rematbench.strategies.feng_huang import FengHuang
from rematbench.strategies.gist import Gist
from rematbench.strategies.monet.planner import Monet


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: CheckmateIlp(variant="fast"), "variant is 'fast'; choose rows, paper or unpart"),
        (lambda: Anytime(minimise="cost"), "minimise is 'cost'; choose null or peak"),
        (lambda: Anytime(threads=3), "threads is 3; choose null, 1 or 2"),
        (lambda: Anytime(gap=1.0), "gap is 1.0; give a number from 0 to below 1"),
        (lambda: CheckmateCompared(convolutions="slow"), "choose default or fastest"),
        (lambda: CheckmateCompared(gap=-0.1), "gap is -0.1; give a number from 0 to below 1"),
        (lambda: CheckmateCompared(threads=0), "threads is 0; choose null, 1 or 2"),
        (lambda: CheckmateRounding(epsilon=float("nan")), "epsilon is nan; give a number"),
        (lambda: FengHuang(solver="dp"), "solver is 'dp'; choose acg or lcg"),
        (lambda: Gist(sparse="coo"), "sparse is 'coo'; choose null, csr"),
        (lambda: AnytimeJoint("fuller"), "variant is 'fuller'; choose full, "),
        (lambda: Monet(locals="none"), "locals is 'none'; choose loose or tight"),
        (lambda: AnytimeJoint(gap=2.0), "gap is 2.0; give a number from 0 to below 1"),
    ],
)
def test_bad_options_are_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ConfigError, match=f"^strategy\\..*{says}"):
        make()
