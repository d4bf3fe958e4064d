"""Hashes of what files execute, and where modules are found."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rematbench.base import code_hash
from rematbench.base.code_hash import CodeHashes, content_hash, locate

SOURCE = '''"""A module."""
from __future__ import annotations
import os
from pathlib import (
    Path,
)

class Deep:
    """A class."""
    def layers(self, count=3):
        """A function."""
        return [Path(os.curdir)] * count  # so many
'''


def hash_of(folder: Path, source: str) -> str:
    (folder / "m.py").write_text(source)
    return CodeHashes(None).of(folder / "m.py").hash


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""A module."""', '"""Another text,\n\nlonger."""\n\n\n'),
        ('"""A class."""', '"""A type."""'),
        ('"""A function."""', '"""It."""'),
        ('"""A function."""', ""),
        ("  # so many", ""),
        ("[Path(os.curdir)] * count", "[\n            Path(os.curdir)\n        ] * count"),
    ],
)
def test_what_is_not_executed_does_not_count(tmp_path: Path, old: str, new: str) -> None:
    assert old in SOURCE
    assert hash_of(tmp_path, SOURCE) == hash_of(tmp_path, SOURCE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("count=3", "count=4"),
        ("count=3", "count=3.0"),
        ("count=3", "count='3'"),
        ("* count", "+ count"),
        ("os.curdir", "os.pardir"),
        ("layers", "layer"),
        ("        return [", "        assert count\n        return ["),
    ],
)
def test_what_is_executed_counts(tmp_path: Path, old: str, new: str) -> None:
    assert old in SOURCE
    assert hash_of(tmp_path, SOURCE) != hash_of(tmp_path, SOURCE.replace(old, new))


def test_sets_have_no_order(tmp_path: Path) -> None:
    one, other = "is_in = 'c' in {'a', 'b'}\n", "is_in = 'c' in {'b', 'a'}\n"
    assert hash_of(tmp_path, one) == hash_of(tmp_path, other)


def test_imports_are_listed(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(SOURCE + "from . import a\nfrom ..b import c\n")
    found = CodeHashes(None).of(tmp_path / "m.py").imports
    assert found[2:] == ("os", "pathlib", "pathlib.Path", ".", ".a", "..b", "..b.c")


def test_no_python_counts_by_its_bytes(tmp_path: Path) -> None:
    assert hash_of(tmp_path, "def (") != hash_of(tmp_path, "def  (")


def test_a_memo_spares_compiling_and_may_be_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memo = tmp_path / "memo.json"
    (tmp_path / "m.py").write_text(SOURCE)
    hashes = CodeHashes(memo)
    known = hashes.of(tmp_path / "m.py")
    hashes.save()
    for damage in ("", "{", "[]", '{"python": "other", "codes": {"a": 1}}'):
        (tmp_path / "damaged.json").write_text(damage)
        assert CodeHashes(tmp_path / "damaged.json").of(tmp_path / "m.py") == known
    monkeypatch.setattr(code_hash, "_code", None)
    assert CodeHashes(memo).of(tmp_path / "m.py") == known
    # Where it cannot be written it is merely of no use.
    monkeypatch.undo()
    (tmp_path / "file").write_text("")
    unwritable = CodeHashes(tmp_path / "file" / "memo.json")
    assert unwritable.of(tmp_path / "m.py") == known
    unwritable.save()
    assert json.loads(memo.read_text())["codes"]


def test_a_file_that_changes_at_once_is_read_again(tmp_path: Path) -> None:
    """Even where size and times are as before, as within a tick of the file system's clock."""
    path = tmp_path / "m.py"
    path.write_text("depth = 3\n")
    first, found = content_hash(path), path.stat()
    path.write_text("depth = 4\n")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert content_hash(path) != first


def test_modules_are_found_without_importing_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "__init__.py").write_text("1 / 0\n")
    (tmp_path / "there" / "inner.py").write_text("1 / 0\n")
    assert locate("there.inner") is None
    assert locate("there.inner", [str(tmp_path)]) == str(tmp_path / "there" / "inner.py")
    monkeypatch.syspath_prepend(tmp_path)
    assert locate("there") == str(tmp_path / "there" / "__init__.py")
    assert locate("there.inner") == str(tmp_path / "there" / "inner.py")
    assert locate("there.nothing") is None
    assert locate("rematbench.base.code_hash") == os.path.abspath(code_hash.__file__)
