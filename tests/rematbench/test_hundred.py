"""REMATLIB-100's table: by hand, and made again of the committed rows."""

from __future__ import annotations

import math
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import pytest

from rematbench.base.errors import ConfigError
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.instances import hundred
from rematbench.instances.compare import compare, shown
from rematbench.instances.records import Library, LibraryProblem, read_library
from rematbench.instances.selection import HUNDRED, select
from rematbench.instances.strategy_plans import ROUNDING, StrategyRows
from rematbench.report.collect import collect
from rematbench.rows.row import Row, make_row

HOUSE = Path(__file__).parents[2]
ROWS = "runs/reference/library/rematlib-100.csv.gz"
LONGER = sorted((HOUSE / ROWS).parent.glob("rematlib-100-*.csv.gz"))
LIBRARY = read_library(HOUSE / "instances")
SMALL = Library(
    Path("nowhere"),
    {
        f"{name}@1": LibraryProblem(
            f"{name}@1", f"f/{name}.graph.json.gz", 7, "f", 9, 9, 3, 3, 9, in_100
        )
        for name, in_100 in (("a", 1), ("b", 1), ("c", 1), ("elsewhere", 0))
    },
    {},
)


@pytest.fixture(scope="module")
def committed() -> list[Row]:
    return collect([HOUSE / ROWS]).rows


def row(strategy: str, model: str, cost: float | None, **extra: object) -> Row:
    status = str(extra.pop("status", "infeasible" if cost is None else "ok"))
    return make_row(
        model=model,
        strategy=strategy,
        budget_bytes=7,
        status=status,
        cost=cost,
        threads=1,
        extra={"time_limit": 1.0, "plan_cpu_seconds": 0.5} | extra,
    )


TOLD = [
    *(row("dtr", "a", 100.0), row("dtr", "b", 103.0), row("dtr", "c", None)),
    *(row("anytime", "a", 104.0), row("anytime", "b", 100.0, plan_cpu_seconds=1.5)),
    row("anytime", "elsewhere", 1.0),  # not one of the hundred
    row("xla_remat", "a", 50.0, in_program_order=False),
    row("join_dp", "a", None, status="not_applicable"),
]


def test_the_table_by_hand() -> None:
    found = hundred.summary(hundred.field_of(TOLD, SMALL)).set_index("strategy")
    assert [*found.index] == ["dtr", "anytime", "xla_remat", "join_dp"]
    dtr, anytime = found.loc["dtr"], found.loc["anytime"]
    assert [dtr[k] for k in ("applies", "solved", 1.0, 1.01, 1.05, 1.2)] == [3, 2, 1, 1, 2, 2]
    assert [anytime[k] for k in ("applies", "solved", 1.0, 1.01, 1.05)] == [2, 2, 1, 1, 2]
    assert dtr["cost"] == pytest.approx(math.sqrt(1.03))
    assert (dtr["seconds"], anytime["seconds"]) == (0.5, 1.0)
    assert found.loc["xla_remat", "solved"] == 0  # the plan is out of order
    assert found.loc["join_dp", "applies"] == 0
    text = hundred.document({"rows.csv.gz": TOLD}, SMALL)
    assert "7 rows, a planner was given 1 s" in " ".join(text.split())
    assert "1 plans run ops later than program order has them" in text
    assert "On 1 none has a plan: `c@1`." in text
    assert "| `dtr` | 3 | 2 | 1 | 1 | 2 | 2 | 1.015 | 0.5 |" in text
    assert "| `poet` | 0 | – |" in text
    assert "no problem here has a link to one ([others](instances.md#two-memories) have)" in text
    assert "Not run yet: `anytime_joint`, " in text


def test_late_runs_are_told() -> None:
    """By the processor's seconds: more than 5 % over the limit; more than a second, by name."""
    on_time = row("dtr", "c", 100.0, plan_cpu_seconds=1.05)
    assert "*Late*" not in hundred.document({"rows": [on_time]}, SMALL)
    two = [row("dtr", "a", 9.0, plan_cpu_seconds=1.06), row("dtr", "b", 9.0, plan_cpu_seconds=2.5)]
    text = hundred.document({"rows": [on_time, *two]}, SMALL)
    assert "2 runs took more than 5 % longer" in text
    assert "in seconds of the processor: `dtr` 2. 1 took more than a second longer: `dtr`" in text
    assert "longer: `dtr` on `b@1` (2.500 s)." in text


def test_another_time_limit_is_a_section() -> None:
    """With what planners had by 1 and 5 s; costs beside the cheapest of these rows."""
    history = [[0.5, 120.0, 90.0], [4.0, 101.0, 90.0], [15.0, 100.0, 90.0]]
    long = {"time_limit": 20.0, "plan_cpu_seconds": 19.0}
    more = [row("anytime", "a", 100.0, incumbents=history, **long), row("dtr", "a", 120.0, **long)]
    text = hundred.document({"rows": TOLD, "runs/more.csv.gz": more}, SMALL)
    first, _, section = text.partition("## With 20 s\n")
    assert "after 5 s" not in first
    assert "2 rows of 1 problems ([file](../runs/more.csv.gz))" in section
    assert "| within 20 % | after 1 s | after 5 s | cost | seconds |" in section
    assert "| `anytime` (ours) | 1 | 1 | 1 | 1 | 1 | 1 | 0 | 1 | 1.000 | 19 |" in section
    assert "| `dtr` | 1 | 1 | 0 | 0 | 0 | 1 | 0 | 0 | 1.200 | 19 |" in section
    assert "Of the first table's strategies these alone were run: our own searches" in section
    assert "poet" not in section.partition("## Where")[0]
    for each in more:
        each["commit"] = "0123456789ab"
    by_one = hundred.document({"rows": TOLD, "more": more}, SMALL)
    assert "2 rows of 1 problems, by commit 0123456 ([file](../more))" in by_one
    more[0]["commit"] = "ba9876543210"
    assert "problems, by 2 commits (" in hundred.document({"rows": TOLD, "more": more}, SMALL)


def test_rows_of_other_problems_are_refused() -> None:
    with pytest.raises(ConfigError, match="no row is of it"):
        hundred.field_of([row("dtr", "elsewhere", 1.0)], SMALL)


def test_the_page_says_what_the_committed_rows_say(committed: list[Row]) -> None:
    text = (HOUSE / "docs/rematlib-100.md").read_text()
    longer = {str(path.relative_to(HOUSE)): collect([path]).rows for path in LONGER}
    assert text == hundred.document({ROWS: committed} | longer, LIBRARY)


def test_the_comparison_in_docs(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for its profiles, which better records change."""
    monkeypatch.chdir(HOUSE)
    found = compare(LIBRARY, select(LIBRARY, [HUNDRED]), (f"{ROWS}:dtr", f"{ROWS}:anytime"))
    text = shown(found).partition("share within")[0]
    assert f"\n{text}" in (HOUSE / "docs/instances.md").read_text()


def test_no_row_is_cheaper_than_a_record() -> None:
    field = hundred.field_of(collect([HOUSE / ROWS, *LONGER]).rows, LIBRARY)
    for problem, cost in field.groupby("problem")["cost"].min().items():
        value = LIBRARY.record(str(problem)).value
        assert math.isinf(cost) or (value is not None and value <= cost), problem


def test_no_row_of_the_leaderboard_is_cheaper_than_a_record() -> None:
    """Its plans for as many bytes or fewer, of the same ops in program order; costs are rounded."""
    board, seen = sorted((HOUSE / "runs/reference/leaderboard").glob("full-*.csv.gz")), 0
    rows = StrategyRows(collect(board).rows)
    networks = [each for each in LIBRARY.instances.values() if each.family == "networks"]
    for path, problems in groupby(networks, attrgetter("graph")):
        graph = LIBRARY.graph(path)
        base = simulate(graph, program_order(graph))
        plans = rows.of(graph, base.peak_bytes, base.cost)
        for problem in problems:
            most = problem.budget_bytes
            found = [
                base.cost * (1 + plan.overhead)
                for plan in plans
                if plan.overhead is not None and plan.budget_bytes <= most
            ]
            value = LIBRARY.record(problem.instance).value
            assert value is not None or not found
            assert value is None or value <= min(found, default=math.inf) * (1 + ROUNDING), problem
            seen += len(found)
    assert seen > 5000
