"""The adapters on the oldest clients that the extras allow. It downloads them, so it runs only with `-m soak`."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = [f"tests/llm/test_{name}.py" for name in ("anthropic", "responses", "gemini", "openai", "round_trips")]


@pytest.mark.soak
def test_the_oldest_clients(tmp_path: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    oldest = [each.replace(">=", "==") for extra in ("anthropic", "openai", "google") for each in extras[extra]]
    python = str(getattr(sys, "_base_executable", None) or sys.executable)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--target", str(tmp_path), *oldest], check=True)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", *TESTS],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
