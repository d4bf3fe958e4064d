"""What a GPU will run: the tests, and what is carried to its machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

HOUSE = Path(__file__).parents[2]
MARKED = re.compile(r"\bmark\.gpu\b|^(from|import) devices\b", re.M)


def test_every_test_for_a_gpu_is_collected() -> None:
    asked = ["make", "-n", "gpu", "TOOLS="]
    said = subprocess.run(asked, cwd=HOUSE, capture_output=True, text=True, check=True).stdout
    collected = set(re.findall(r"tests/\S+\.py", said))
    tests = (path for path in (HOUSE / "tests").rglob("test_*.py") if path != Path(__file__))
    marked = {str(p.relative_to(HOUSE)) for p in tests if MARKED.search(p.read_text())}
    assert "tests/rematbench/test_fit.py" in marked
    assert collected == marked
