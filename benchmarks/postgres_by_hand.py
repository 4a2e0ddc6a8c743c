"""The Postgres baselines: one statement with CTEs for a step, one for a batch of chunks, and nothing more.

No validation, no staging, no history of custom state, no listing, no idempotent producer. The rows are the same as
ours; the durability is the same; a step is one round trip.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from benchmarks.workload import Step, now_ms

SCHEMA = """
CREATE TABLE sessions (session_id TEXT PRIMARY KEY, agent_type TEXT NOT NULL, status TEXT NOT NULL,
  step_count BIGINT NOT NULL, version BIGINT NOT NULL, message_count BIGINT NOT NULL,
  created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL);
CREATE TABLE messages (session_id TEXT NOT NULL, sequence BIGINT NOT NULL, message TEXT NOT NULL,
  PRIMARY KEY (session_id, sequence));
CREATE TABLE counters (session_id TEXT PRIMARY KEY, value BIGINT NOT NULL);
CREATE TABLE items (session_id TEXT NOT NULL, position BIGINT NOT NULL, item TEXT NOT NULL,
  PRIMARY KEY (session_id, position));
CREATE TABLE checkpoints (session_id TEXT NOT NULL, version BIGINT NOT NULL, checkpoint_id TEXT NOT NULL,
  step_count BIGINT NOT NULL, message_count BIGINT NOT NULL, counter BIGINT NOT NULL, created_at BIGINT NOT NULL,
  PRIMARY KEY (session_id, version));
CREATE TABLE chunks (stream_id TEXT NOT NULL, sequence BIGINT NOT NULL, chunk TEXT NOT NULL,
  PRIMARY KEY (stream_id, sequence));
CREATE TABLE streams (stream_id TEXT PRIMARY KEY, latest BIGINT NOT NULL);
"""

COMMIT = """
WITH s AS (
  UPDATE sessions SET step_count = $3, version = version + 1, message_count = message_count + cardinality($4::text[]),
    updated_at = $7 WHERE session_id = $1 AND version = $2 RETURNING message_count, version
), m AS (
  INSERT INTO messages SELECT $1, s.message_count - cardinality($4::text[]) + u.place - 1, u.text
  FROM s, unnest($4::text[]) WITH ORDINALITY AS u (text, place)
), c AS (
  UPDATE counters SET value = value + 1 FROM s WHERE session_id = $1 RETURNING value
), i AS (
  INSERT INTO items SELECT $1, $3, $5 FROM s
), k AS (
  INSERT INTO checkpoints SELECT $1, s.version, $6, $3, s.message_count, c.value, $7 FROM s, c
)
SELECT message_count FROM s
"""

APPEND = """
WITH s AS (UPDATE streams SET latest = latest + cardinality($2::text[]) WHERE stream_id = $1 RETURNING latest)
INSERT INTO chunks SELECT $1, s.latest - cardinality($2::text[]) + u.place, u.text
FROM s, unnest($2::text[]) WITH ORDINALITY AS u (text, place)
"""


class Runs(Protocol):
    """A connection or a pool."""

    async def fetchval(self, query: str, *args: Any) -> Any: ...

    async def execute(self, query: str, *args: Any) -> str: ...


async def create(where: Runs, session_id: str) -> None:
    now = now_ms()
    await where.execute("INSERT INTO sessions VALUES ($1, 'benchmark', 'active', 0, 1, 0, $2, $2)", session_id, now)
    await where.execute("INSERT INTO counters VALUES ($1, 0)", session_id)


async def commit(where: Runs, session_id: str, step: Step, version: int) -> None:
    now = now_ms()
    count = await where.fetchval(
        COMMIT,
        session_id,
        version,
        step.number,
        [json.dumps(message) for message in step.messages],
        json.dumps(step.item),
        f"cp-{session_id}-{step.number}-{now}",
        now,
    )
    assert count is not None
