"""Strategies by name, and their options as the command line has them."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from rematbench.base import imports
from rematbench.base.errors import ConfigError
from rematbench.base.option_types import check_options
from rematbench.base.options import options_of
from rematbench.strategies import registry
from rematbench.strategies.chen import ApGreedy


@pytest.mark.parametrize("name", [n for n in registry.names() if not registry.entry(n).presets])
def test_options_read_from_source_are_those_of_the_class(name: str) -> None:
    kind = registry.class_of(name)
    fields = {
        field.name: list(field.default) if isinstance(field.default, tuple) else field.default
        for field in dataclasses.fields(kind)
    }
    assert registry.entry(name).defaults == fields
    assert all(option.doc and option.type is not None for option in registry.entry(name).options)


def test_reading_options_imports_no_strategy() -> None:
    code = (
        "import sys; from rematbench.strategies import registry\n"
        "[registry.entry(name).options for name in registry.names()]\n"
        "print({'numpy', 'numba', 'networkx', 'highspy', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_aliases_preset_options() -> None:
    assert registry.entry("checkmate_o").defaults == registry.entry("checkmate_d").defaults | {
        "convolutions": "fastest"
    }
    assert registry.make("torch_selective", segments=3).policy == "contractions"


@pytest.mark.parametrize(
    "path", ["ap_greedy", "strategies.chen.ApGreedy", "rematbench.strategies.chen:ApGreedy"]
)
def test_names_and_paths_of_strategies(path: str) -> None:
    assert registry.resolve(path, "here") == ApGreedy()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("ap_gredy", "here: unknown; did you mean ap_greedy?"),
        ("strategies.chen.ApGredy", "here: strategies.chen has no ApGredy; did you mean ApGreedy?"),
        ("nix.Thing", "here: there is no module nix; check the name and PYTHONPATH"),
        ("strategies.nix.Thing", "there is no module rematbench.strategies.nix"),
        ("a b.c", "here: give package.module:name"),
    ],
)
def test_what_is_not_there(path: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        registry.resolve(path, "here")
    assert said in str(caught.value)


def test_a_module_that_fails_says_where(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "failing_import.py").write_text("import no_such_thing_here\n")
    (tmp_path / "broken_syntax.py").write_text("\ndef f(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"ModuleNotFoundError at failing_import.py:1: No module"):
        imports.find("failing_import:f", "here")
    with pytest.raises(ConfigError, match=r"SyntaxError at broken_syntax.py:2"):
        imports.find("broken_syntax:f", "here")


ODD = """
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

How = Literal["fast", "slow"]
MOST = 7

@dataclass(frozen=True)
class Plain:
    '''A strategy.

    Attributes:
        how: in which way,
            and more.
        most, least: of what.
    '''
    traits: ClassVar[int] = 1
    how: How = "fast"
    most: int | None = MOST
    least: float = 1 / 4

    def plan(self): ...

@dataclass(frozen=True)
class Child(Plain):
    names: Sequence[str] = ()

@dataclass(frozen=True)
class Computed:
    size: int = sum((1, 2))
    names: list[str] = field(default_factory=lambda: ["a"])
"""


def test_options_of_any_dataclass(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd_options.py").write_text(ODD)
    monkeypatch.syspath_prepend(tmp_path)
    plain = options_of("odd_options.Plain")
    assert [(o.name, o.default, o.doc) for o in plain] == [
        ("how", "fast", "in which way, and more."),
        ("most", 7, "of what."),
        ("least", 0.25, "of what."),
    ]
    assert "odd_options" not in sys.modules
    child = options_of("odd_options.Child")
    assert [o.name for o in child] == ["how", "most", "least", "names"]
    # What has to be computed is asked of the class.
    found = options_of("odd_options.Computed")
    assert {o.name: o.default for o in found} == {"size": 3, "names": ["a"]}
    check_options("odd", child, {"how": "slow", "most": None, "least": 1, "names": ["a"]})
    for given, said in [
        ({"how": "slwo"}, "strategy.how=slwo: did you mean slow? give fast or slow"),
        ({"most": 1.5}, "strategy.most=1.5: give a whole number or null"),
        ({"least": True}, "strategy.least=true: give a number"),
        ({"names": 3}, "strategy.names=3: give a list"),
        ({"leats": 3}, "strategy=odd has no such option; did you mean strategy.least?"),
    ]:
        with pytest.raises(ConfigError) as caught:
            check_options("odd", child, given)
        assert said in str(caught.value)


def test_names_that_plug_ins_import_stay() -> None:
    """docs/extending.md named them before rooms were sorted."""
    from rematbench.base.clock import planning_seconds as today
    from rematbench.costmodel.costs import with_costs
    from rematbench.costmodel.flops import bytes_moved
    from rematbench.strategies.base import Problem, cheapest_within, check_choice
    from rematbench.strategies.chen import ApGreedy
    from rematbench.strategies.clock import planning_seconds
    from rematbench.strategies.stages import plan_with_checkpoints

    assert planning_seconds is today
    assert all((with_costs, bytes_moved, Problem, cheapest_within, check_choice))
    assert registry.class_of("ap_greedy") is ApGreedy
    assert callable(plan_with_checkpoints)
