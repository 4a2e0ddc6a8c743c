"""The baselines: what a careful programmer would write for this one workload, and nothing more.

No validation, no staging, no history of custom state, no listing. The rows are the same as ours: session, messages, a
counter, a list item, a checkpoint; the durability is the same; a step is one transaction on the calling thread.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from benchmarks.workload import Step, now_ms
from helix_agents.types import SessionState

_SCHEMA = """
CREATE TABLE sessions (session_id TEXT PRIMARY KEY, agent_type TEXT NOT NULL, status TEXT NOT NULL,
  step_count INTEGER NOT NULL, version INTEGER NOT NULL, message_count INTEGER NOT NULL,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL);
CREATE TABLE messages (session_id TEXT NOT NULL, sequence INTEGER NOT NULL, message TEXT NOT NULL,
  PRIMARY KEY (session_id, sequence));
CREATE TABLE counters (session_id TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE items (session_id TEXT NOT NULL, position INTEGER NOT NULL, item TEXT NOT NULL,
  PRIMARY KEY (session_id, position));
CREATE TABLE checkpoints (session_id TEXT NOT NULL, version INTEGER NOT NULL, checkpoint_id TEXT NOT NULL,
  step_count INTEGER NOT NULL, message_count INTEGER NOT NULL, counter INTEGER NOT NULL, created_at INTEGER NOT NULL,
  PRIMARY KEY (session_id, version));
"""


class SqliteByHand:
    """Sessions in a SQLite file, one `BEGIN IMMEDIATE ... COMMIT` a step."""

    def __init__(self, path: Path, *, synchronous: str = "FULL") -> None:
        self.database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.database.execute("PRAGMA journal_mode=WAL")
        self.database.execute(f"PRAGMA synchronous={synchronous}")
        if not self.database.execute("SELECT 1 FROM sqlite_master").fetchone():
            self.database.executescript(_SCHEMA)

    def create(self, session_id: str) -> None:
        now = now_ms()
        self.database.execute(
            "INSERT INTO sessions VALUES (?, 'benchmark', 'active', 0, 1, 0, ?, ?)", (session_id, now, now)
        )
        self.database.execute("INSERT INTO counters VALUES (?, 0)", (session_id,))

    def commit(self, session_id: str, step: Step, version: int) -> None:
        execute = self.database.execute
        now = now_ms()
        execute("BEGIN IMMEDIATE")
        rows = execute(
            "UPDATE sessions SET step_count = ?, version = version + 1, message_count = message_count + ?, "
            "updated_at = ? WHERE session_id = ? AND version = ? RETURNING message_count",
            (step.number, len(step.messages), now, session_id, version),
        ).fetchall()
        (count,) = rows[0]
        first = count - len(step.messages)
        self.database.executemany(
            "INSERT INTO messages VALUES (?, ?, ?)",
            [(session_id, first + place, json.dumps(message)) for place, message in enumerate(step.messages)],
        )
        ((counter,),) = execute(
            "UPDATE counters SET value = value + 1 WHERE session_id = ? RETURNING value", (session_id,)
        ).fetchall()
        execute("INSERT INTO items VALUES (?, ?, ?)", (session_id, step.number, json.dumps(step.item)))
        execute(
            "INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)",
            (session_id, version + 1, f"cp-{session_id}-{step.number}-{now}", step.number, count, counter, now),
        )
        execute("COMMIT")

    def load(self, session_id: str, last: int) -> tuple[Any, Any, list[Any], list[Any]]:
        """The session row, the counter, all items, and the last messages."""
        execute = self.database.execute
        execute("BEGIN")
        session = execute("SELECT * FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
        counter = execute("SELECT value FROM counters WHERE session_id = ?", (session_id,)).fetchone()
        items = execute("SELECT item FROM items WHERE session_id = ? ORDER BY position", (session_id,)).fetchall()
        messages = execute(
            "SELECT message FROM messages WHERE session_id = ? ORDER BY sequence DESC LIMIT ?", (session_id, last)
        ).fetchall()
        execute("COMMIT")
        decoded = [json.loads(row[0]) for row in reversed(messages)]
        return session, counter, [json.loads(row[0]) for row in items], decoded

    def close(self) -> None:
        self.database.close()


class DictByHand:
    """Sessions in a dictionary, with one JSON encode a commit.

    The text detaches what is stored from the caller's objects and is the checkpoint: the session's fields, the new
    messages, and of custom state what the step wrote, so that the cost does not grow. Such a dictionary cannot answer
    what the state was at a checkpoint; with `whole` it can, since the text then holds all of custom state.
    """

    def __init__(self, *, whole: bool = False) -> None:
        self.whole = whole
        self.sessions: dict[str, dict[str, Any]] = {}

    def create(self, session_id: str) -> None:
        self.fields = SessionState(session_id, "benchmark", session_id)
        custom_state: dict[str, Any] = {"counter": 0, "items": []}
        self.sessions[session_id] = {"version": 1, "custom_state": custom_state, "checkpoints": []}

    def commit(self, session_id: str, step: Step, version: int) -> None:
        session = self.sessions[session_id]
        if session["version"] != version:
            raise ValueError("another writer was faster")
        now = now_ms()
        custom_state = session["custom_state"]
        custom_state["counter"] += 1
        custom_state["items"].append(step.item)
        stored = custom_state if self.whole else {"counter": custom_state["counter"], "items": [step.item]}
        text = json.dumps({"session": asdict(self.fields), "custom_state": stored, "messages": step.messages})
        session["version"] = version + 1
        session["updated_at"] = now
        session["checkpoints"].append((f"cp-{session_id}-{step.number}-{now}", text))


def grow_log(path: Path) -> None:
    """Bring the write-ahead log of an open database to its full size, as it is after the first minutes of any store.

    Syncing a file that grows costs ten times a sync that overwrites; who grows his log faster would seem faster.
    """
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("CREATE TABLE filler (bytes BLOB)")
    for _ in range(2):
        other.execute("INSERT INTO filler VALUES (zeroblob(6000000))")
        other.execute("PRAGMA wal_checkpoint(RESTART)")
    other.execute("DROP TABLE filler")
    other.execute("PRAGMA wal_checkpoint(RESTART)")
    other.close()
