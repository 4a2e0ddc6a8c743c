"""LangGraph's SQLite saver on the session workload, for scale. Installed by `./dev bench`, optional elsewhere."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from benchmarks.workload import Step

try:
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.sqlite import SqliteSaver
except ImportError as error:
    _missing: ImportError | None = error
else:
    _missing = None


def why_not() -> str | None:
    """Why there is nothing to compare with; None if there is."""
    return None if _missing is None else f"{_missing}; install requirements/bench.txt (./dev bench does)"


class LangGraphSession:
    """One thread of a saver: every step stores its channels as they are after it, at the saver's own settings."""

    def __init__(self, path: Path, thread_id: str) -> None:
        self.database = sqlite3.connect(path, check_same_thread=False)
        self.saver: Any = SqliteSaver(self.database)
        self.saver.setup()
        self.config: dict[str, Any] = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
        self.values: dict[str, Any] = {"messages": [], "items": [], "counter": 0}

    async def commit(self, step: Step) -> None:
        self.values["messages"] += step.messages
        self.values["items"].append(step.item)
        self.values["counter"] += 1
        versions = dict.fromkeys(self.values, step.number)
        checkpoint = empty_checkpoint() | {"channel_values": self.values, "channel_versions": versions}
        metadata = {"source": "loop", "step": step.number, "writes": {}}
        self.config = self.saver.put(self.config, checkpoint, metadata, versions)

    def close(self) -> None:
        self.database.close()
