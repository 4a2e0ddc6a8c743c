"""Every program in `examples/` runs unchanged and exits with 0, also when it is run again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    for time in ("first", "second"):  # in the same folder: people run an example more than once
        done = subprocess.run(
            [sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"the {time} time: {done.stderr}"
