"""The shop of the examples under kill -9, on SQLite, Postgres and Redis. `HELIX_SOAK=1`: a thousand kills on each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOAKING = os.environ.get("HELIX_SOAK") == "1"
ROUNDS = 700
"""Each kills one process or two."""


def kill_the_shop(url: str | None, folder: Path, short: int) -> int:
    """Kill the shop in rounds of one or two deaths each; `short`: how many in the short form. Return the kills."""
    rounds = ROUNDS if SOAKING else short
    options = [] if url is None else ["--url", url]
    done = subprocess.run(
        [sys.executable, "-m", "helix_agents.cli", "crashtest", "examples.shop:make_executor", "--agent", "clerk",
         "--reset", "examples.shop:reset", "--kill", "--rounds", str(rounds), "--json", *options],
        cwd=ROOT, env={**os.environ, "SHOP_BOOKS": str(folder / "books.jsonl")},
        capture_output=True, text=True, timeout=3600 if SOAKING else 300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    print(report)
    assert report["endings"] == {}
    once = [row for row in report["tools"].values() if row["effect"] == "once"]
    assert len(once) >= 2
    assert [row for row in once if row["doubled"] or row["lost"]] == []
    return int(report["kills"])


def test_sqlite(tmp_path: Path) -> None:
    assert kill_the_shop(None, tmp_path, 14) >= 14


def test_postgres(postgres_url: str, tmp_path: Path) -> None:
    assert kill_the_shop(postgres_url, tmp_path, 5) >= 5


def test_redis(redis_url: str, tmp_path: Path) -> None:
    assert kill_the_shop(redis_url, tmp_path, 5) >= 5
