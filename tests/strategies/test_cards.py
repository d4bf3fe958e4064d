"""Cards: each is complete and true, and a strategy is added by one folder and found everywhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rematbench.base import imports
from rematbench.report import style
from rematbench.strategies import registry
from rematbench.strategies.cards import Card

HOUSE = Path(__file__).parents[2]
PLACES = ("https://arxiv.org/abs/", "https://doi.org/", "https://papers.nips.cc/")
OURS = [card for name, card in registry.cards().items()
        if registry.entry(name).source == "rematbench"]  # fmt: skip
CARD = '''"""The card."""

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card, Paper


class Facts(TypedDict, total=False):
    """every_other."""

    left_in: Annotated[int, Means("ops that stay", "bytes")]


CARDS = (
    Card(
        name="every_other",
        planner="planner.EveryOther",
        paper=Paper("Nobody et al.", 2031, "Every Other Op", "https://example.org/every"),
        problem="keep every other op",
        scope="graphs that sit still",
        golden="a coin",
        implementations=True,
        place=98,
        colour="#abcdef",
        turn="first",
        facts=Facts,
    ),
    Card(name="every_third", planner="planner.EveryOther", presets={"step": 3}, place=99),
)
'''
PLANNER = '''"""The planner."""

from dataclasses import dataclass
from typing import ClassVar

from rematbench.engines.plans.stages import plan_with_checkpoints
from rematbench.graphs.structure import forward_ops
from rematbench.strategies.base import Problem, Solution, Traits, fitted


@dataclass(frozen=True)
class EveryOther:
    """Keeps every other forward op.

    Attributes:
        step: of how many ops one stays.
    """

    traits: ClassVar[Traits] = Traits("yes", "no", "no")
    step: int = 2

    def plan(self, problem: Problem) -> Solution:
        kept = forward_ops(problem.graph)[:: self.step]
        plan = plan_with_checkpoints(problem.graph, set(kept.tolist()))
        return fitted(problem, plan, details={"left_in": len(kept)})
'''


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our packages, by links, with one more folder in ``strategies``."""
    root = tmp_path_factory.mktemp("house")
    package, strategies = root / "rematbench", root / "rematbench" / "strategies"
    strategies.mkdir(parents=True)
    rooms = [p for p in (HOUSE / "rematbench").iterdir() if p.name != "__pycache__"]
    tops = {name.partition(".")[2] for name in _package_dir()} - {"strategies"}
    for source in [*rooms, *(HOUSE / top for top in tops)]:
        (package / source.name).symlink_to(source)
    for source in (HOUSE / "strategies").iterdir():
        (strategies / source.name).symlink_to(source)
    (root / "hydra_plugins").symlink_to(HOUSE / "hydra_plugins")
    added = strategies / "every_other"
    added.mkdir()
    (added / "__init__.py").write_text("")
    (added / "card.py").write_text(CARD)
    (added / "planner.py").write_text(PLANNER)
    return root


def _package_dir() -> dict[str, str]:
    import tomllib

    text = (HOUSE / "pyproject.toml").read_text()
    found: dict[str, str] = tomllib.loads(text)["tool"]["setuptools"]["package-dir"]
    return found


def run(place: Path, folder: Path, *command: str) -> str:
    """What a command prints there."""
    # Kernels, compiled anew for a new place, would take a minute.
    jit = {"NUMBA_DISABLE_JIT": "1"}
    given = {**os.environ, "PYTHONPATH": str(place), "PYTHONSAFEPATH": "1"} | jit
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=given, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("card", OURS, ids=lambda card: card.name)
def test_what_a_card_says(card: Card) -> None:
    assert card.problem
    assert card.golden
    imports.find(registry.entry(card.name).path, card.name)
    if card.page:
        text = (HOUSE / "docs" / "papers" / card.page).read_text()
        assert card.name.split("_")[0] in text, f"{card.page} does not name {card.name}"
    if card.paper:
        assert re.fullmatch(r"(19|20)\d\d", str(card.paper.year))
        assert card.paper.url.startswith(PLACES)
    assert card.colour is None or re.fullmatch("#[0-9a-f]{6}", card.colour)


def test_no_two_have_one_place() -> None:
    places = [card.place for card in OURS if card.place is not None]
    assert len(set(places)) == len(places)
    assert max(places) < style._PLACES


def test_a_strategy_is_one_folder(place: Path, tmp_path: Path) -> None:
    """It is planned with, and stands in the help, the pages, legends, the board and the suite."""
    rematbench = ("-m", "rematbench")
    chosen = run(place, tmp_path, *rematbench, "--cfg", "job", "strategy=every_third")
    assert "_target_: rematbench.strategies.every_other.planner.EveryOther" in chosen
    assert "step: 3" in chosen
    said = run(place, tmp_path, *rematbench, "--help", "strategy=every_other")
    assert "every_other, every_third" in re.sub(r"\s+", " ", said)
    for words in (
        "keep every other op",
        "graphs that sit still",
        "Nobody et al.",
        "strategy.step=2",
    ):
        assert words in said
    (tmp_path / "docs").mkdir()
    run(place, tmp_path, "-m", "rematbench.cli.reference")
    page = (tmp_path / "docs" / "strategies.md").read_text()
    assert "| `every_other` | [Nobody et al. 2031](https://example.org/every) |" in page
    assert "`every_other/` | a coin |" in page
    assert (
        "| `left_in` | integer | bytes | ops that stay |"
        in (tmp_path / "docs" / "rows.md").read_text()
    )

    code = (
        "from rematbench.report import style, faults\n"
        "from rematbench.report.leaderboard.board import OTHER_OPS\n"
        "from rematbench.cli.suite import _by_their_cards\n"
        "print(style.hex_colour('every_other'), style.order({'every_other', 'dtr'})[-1])\n"
        "print('every_other' in OTHER_OPS, 'every_other' in _by_their_cards('first'))\n"
        "print(faults._of_extra({'left_in': 'many'}))\n"
        "from rematbench.graphs.builders.synthetic import unit_chain\n"
        "from rematbench.strategies import base, registry\n"
        "solution = registry.make('every_third').plan(base.Problem(unit_chain(12)))\n"
        "print(solution.details)"
    )
    assert run(place, tmp_path, "-c", code).splitlines() == [
        "#abcdef every_other",
        "True True",
        "extra.left_in is 'many'; it must be a number",
        "{'left_in': 4}",
    ]


def test_a_plug_in_carries_the_same_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "card.py").write_text(CARD)
    (folder / "planner.py").write_text(PLANNER)
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[rematbench.strategies]\nevery_other = theirs.planner:EveryOther\n"
        "bare = theirs.planner:EveryOther\n"
    )
    code = (
        "from rematbench.report.style import hex_colour\n"
        "from rematbench.strategies.registry import cards, facts\n"
        "print(cards()['every_other'].paper.year, hex_colour('every_other'))\n"
        "print(cards()['bare'].problem, any('left_in' in f.__annotations__ for f in facts()))"
    )
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.splitlines() == ["2031 #abcdef", "of theirs True"]
