"""Frameworks in environments of their own, which take turns on the same task."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".cache" / "bench"
LIMIT_SECONDS = 600
OURS = "Helix Agents"
SQLITE, POSTGRES = "SQLite", "Postgres"


class Contestant(NamedTuple):
    """A framework: its module below `benchmarks.peers`, and its environment."""

    title: str
    module: str
    environment: str | None
    databases: tuple[str, ...] = (SQLITE,)
    """Where it can store a session."""
    only_stored: bool = False
    """A variant that differs only where it stores something."""

    @property
    def python(self) -> Path:
        """Return the interpreter that has the framework."""
        return Path(sys.executable) if self.environment is None else ENVIRONMENTS / self.environment / "bin" / "python"


CONTESTANTS = (
    Contestant(OURS, "ours", None, (SQLITE, POSTGRES)),
    Contestant("LangGraph", "langgraph", "langgraph", (SQLITE, POSTGRES)),
    Contestant("LangGraph (sync)", "langgraph_sync", "langgraph", (SQLITE, POSTGRES), only_stored=True),
    Contestant("OpenAI Agents SDK", "openai_agents", "openai-agents"),
    Contestant("pydantic-ai", "pydantic_ai", "pydantic-ai"),
)


def ask(contestant: Contestant, **task: Any) -> dict[str, Any]:
    """Run one task in the contestant's environment; return what it measured."""
    command = [str(contestant.python), "-m", f"benchmarks.peers.{contestant.module}", json.dumps(task)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "none"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"{contestant.title} failed: {done.stderr[-1000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def in_turns(contestants: Sequence[Contestant], rounds: int) -> Iterator[Contestant]:
    """Return every contestant once per round, in changing order."""
    order, chance = list(contestants), random.Random(20)
    for _ in range(rounds):
        chance.shuffle(order)
        yield from order


@contextmanager
def scratch() -> Iterator[Path]:
    """Open a folder on the disk of the checkout: temporary folders are memory on some systems."""
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ENVIRONMENTS, prefix="scratch-") as folder:
        yield Path(folder)


def available() -> list[Contestant]:
    """Return the contestants whose environment exists."""
    return [each for each in CONTESTANTS if each.python.exists()]


def versions(contestants: Sequence[Contestant]) -> dict[str, str]:
    """Return the versions of all packages that take part."""
    found: dict[str, str] = {}
    for each in contestants:
        found |= ask(each, tools=1, steps=1)["versions"]
    return found
