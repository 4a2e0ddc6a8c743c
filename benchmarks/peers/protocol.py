"""What a contestant is asked and what it replies. Standard library only: every environment can import it.

    python -m benchmarks.peers.NAME '{"tools": 1, "steps": 50, "database": "x.db", "resume": false}'

The model is instant: it calls `tools` tools for `steps` steps, then says "Done.". The time of a step is the time
between two model calls. With `resume`, the conversation is in the database already, and `first_call_ms` says how long
it took until the model was called for the next turn. Importing is not timed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple


class Task(NamedTuple):
    """What to run."""

    tools: int
    steps: int
    database: str | None = None
    """A file for SQLite, or the URL of a Postgres server."""
    resume: bool = False
    session: str = "s"


class Clock:
    """When the model was called."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.calls: list[float] = []

    def tick(self) -> int:
        """Note a call of the model; return how many came before it."""
        self.calls.append(time.perf_counter())
        return len(self.calls) - 1


def serve(run: Callable[[Task, Clock], Any], packages: list[str]) -> None:
    """Run the task of the command line, and print what was measured."""
    task = Task(**json.loads(sys.argv[1]))
    clock = Clock()
    run(task, clock)
    steps = [(after - before) * 1000 for before, after in zip(clock.calls, clock.calls[1:], strict=False)]
    figures = {
        "step_ms": steps,
        "first_call_ms": (clock.calls[0] - clock.started) * 1000,
        "versions": {name: version(name) for name in packages},
    }
    print(json.dumps(figures))
