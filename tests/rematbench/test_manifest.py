"""What a result depends on: every module of ours is found, in a checkout and as it is installed."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rematbench.base.errors import RematbenchError
from rematbench.worker import manifest
from rematbench.worker.manifest import HOUSE, ROOMS, Loaded, house, house_hash

CHECKOUT = Path(__file__).parents[2]
# What no result depends on: what is drawn of rows, and Hydra's files.
OTHERS = ("report", "conf")


def test_rooms_are_all_packages() -> None:
    listed = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["setuptools"]
    tops = {name.partition(".")[2] for name in listed["package-dir"]}
    assert {"", *tops} == {*ROOMS, *OTHERS}
    found = house()
    for room in filter(None, ROOMS):
        # But a strategy's card: no plan depends on what is said of it.
        files = {p for p in (CHECKOUT / room).rglob("*.py") if p.name != "card.py"}
        assert files == {
            Path(p) for n, p in found.items() if f"{n}.".startswith(f"{HOUSE}.{room}.")
        }


def test_a_room_that_is_missing_is_no_empty_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "ROOMS", (*ROOMS, "attic"))
    with pytest.raises(RematbenchError, match=r"rematbench\.attic is missing; install"):
        house_hash()


def test_an_installed_copy_is_hashed_itself(tmp_path: Path) -> None:
    """As a wheel lays it out: all rooms below the one package."""
    shutil.copytree(CHECKOUT / HOUSE, tmp_path / HOUSE)
    for room in filter(None, ROOMS):
        shutil.copytree(CHECKOUT / room, tmp_path / HOUSE / room)
    code = (
        "from rematbench.worker.manifest import house, house_hash; "
        f"here = {str(tmp_path)!r}; "
        "print(len(house()), all(p.startswith(here) for p in house().values()), house_hash())"
    )

    def text() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    first = text()
    assert first == [str(len(house())), "True", house_hash()]
    changed = tmp_path / HOUSE / "strategies" / "chen" / "planner.py"
    changed.write_text(changed.read_text() + "\n\nMORE = 1\n")
    assert text()[:2] == first[:2]
    assert text()[2] != first[2]


def test_a_manifest_holds_while_nothing_changes(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("SIZE = 1\n")
    of = Loaded(
        {"not_to_be_found": str(own), f"{HOUSE}.rows.row": locate_ours("rows.row")}, ["numpy"]
    )
    later = own.stat().st_ctime_ns + 1
    made = manifest.manifest(of, later)
    assert made is not None
    assert made.holds()
    assert manifest.manifest(of, later - 2) is None  # the file has changed since
    assert manifest.read_manifest(vars(made)) == made
    own.write_text("SIZE = 2\n")
    assert not made.holds()
    own.unlink()
    assert not made.holds()
    assert manifest.manifest(of, later) is None


def locate_ours(name: str) -> str:
    return house()[f"{HOUSE}.{name}"]


def test_an_installed_plug_in_counts_by_its_code_and_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site-packages"
    (site / "plug_in_of_a_test-1.0.dist-info").mkdir(parents=True)
    facts = "Metadata-Version: 2.1\nName: plug-in-of-a-test\nVersion: 1.0\n"
    (site / "plug_in_of_a_test-1.0.dist-info" / "METADATA").write_text(facts)
    (site / "plug_in_of_a_test-1.0.dist-info" / "RECORD").write_text("plug_in_of_a_test.py,,\n")
    plug_in = site / "plug_in_of_a_test.py"
    plug_in.write_text("SIZE = 1\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setitem(sys.modules, "plug_in_of_a_test", None)
    del sys.modules["plug_in_of_a_test"]
    importlib.import_module("plug_in_of_a_test")
    assert "plug_in_of_a_test" not in manifest.loaded([]).modules
    of = manifest.loaded(["plug_in_of_a_test.Planner"])
    assert of.modules["plug_in_of_a_test"] == str(plug_in)
    assert "plug-in-of-a-test" in of.packages
    assert manifest.installed_version("plug-in-of-a-test") == "1.0"
    made = manifest.manifest(
        Loaded({"plug_in_of_a_test": str(plug_in)}, ["plug-in-of-a-test"]),
        plug_in.stat().st_ctime_ns + 1,
    )
    assert made is not None
    assert made.packages == {"plug-in-of-a-test": "1.0"}
    assert made.holds()
    plug_in.write_text("SIZE = 2\n")
    assert not made.holds()
