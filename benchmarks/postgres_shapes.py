"""Commits of every shape on Postgres against one hand-written statement: `python -m benchmarks.postgres_shapes`.

For each shape of `shapes.py` the hand-written contestant has one statement with CTEs that writes the same: the session,
the messages, the values and items, a checkpoint row. Steps are paired. Then loads of a long session against
hand-written reads of the same data. `--quick` takes fewer steps.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable

import asyncpg

from benchmarks import machine
from benchmarks.pairing import Paired, Report, pair_async
from benchmarks.postgres_state import grow_log
from benchmarks.shapes import SHAPES, ByHand, Shape, ShapedSession
from benchmarks.workload import Step, now_ms, steps
from helix_agents.backends.postgres.state_store import PostgresStateStore
from tests.servers.postgres import DURABLE, PostgresServer

WARMUP = 10
MOST = 1.6
MOST_OF_THREE = 2.2
MOST_OF_LOADS = 1.5

SCHEMA = """
CREATE TABLE sessions (session_id TEXT PRIMARY KEY, agent_type TEXT NOT NULL, status TEXT NOT NULL,
  step_count BIGINT NOT NULL, version BIGINT NOT NULL, message_count BIGINT NOT NULL,
  created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL);
CREATE TABLE messages (session_id TEXT NOT NULL, sequence BIGINT NOT NULL, message TEXT NOT NULL,
  PRIMARY KEY (session_id, sequence));
CREATE TABLE counters (session_id TEXT PRIMARY KEY, value BIGINT NOT NULL);
CREATE TABLE state (session_id TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (session_id, key));
CREATE TABLE items (session_id TEXT NOT NULL, position BIGINT NOT NULL, item TEXT NOT NULL,
  PRIMARY KEY (session_id, position));
CREATE TABLE checkpoints (session_id TEXT NOT NULL, version BIGINT NOT NULL, checkpoint_id TEXT NOT NULL,
  step_count BIGINT NOT NULL, message_count BIGINT NOT NULL, created_at BIGINT NOT NULL,
  PRIMARY KEY (session_id, version));
"""

_SESSION = """
WITH s AS (
  UPDATE sessions SET step_count = $3, version = version + 1, message_count = message_count + cardinality($4::text[]),
    updated_at = $6 WHERE session_id = $1 AND version = $2 RETURNING message_count, version
), m AS (
  INSERT INTO messages SELECT $1, s.message_count - cardinality($4::text[]) + u.place - 1, u.text
  FROM s, unnest($4::text[]) WITH ORDINALITY AS u (text, place)
), k AS (
  INSERT INTO checkpoints SELECT $1, s.version, $5, $3, s.message_count, $6 FROM s
)"""
_COUNTER = ", c AS (UPDATE counters SET value = value + 1 FROM s WHERE session_id = $1)"
_VALUES = """, v AS (
  INSERT INTO state SELECT $1, u.key, u.value FROM s, unnest(${keys}::text[], ${values}::text[]) AS u (key, value)
  ON CONFLICT (session_id, key) DO UPDATE SET value = excluded.value
)"""
_ITEMS = """, i AS (
  INSERT INTO items SELECT $1, $3 * 10 + u.place, u.item
  FROM s, unnest(${items}::text[]) WITH ORDINALITY AS u (item, place)
)"""


class HandSession:
    """A session that one statement a step keeps."""

    def __init__(self, connection: asyncpg.Connection, session_id: str) -> None:
        self._connection = connection
        self._session_id = session_id

    async def create(self) -> HandSession:
        now = now_ms()
        await self._connection.execute(
            "INSERT INTO sessions VALUES ($1, 'benchmark', 'active', 0, 1, 0, $2, $2)", self._session_id, now
        )
        await self._connection.execute("INSERT INTO counters VALUES ($1, 0)", self._session_id)
        return self

    async def commit(self, shape: Shape, step: Step) -> None:
        """Write the step as a hand-written store would."""
        now = now_ms()
        writes = shape.by_hand(step)
        count = await self._connection.fetchval(
            _statement(writes),
            self._session_id,
            step.number,
            step.number,
            [json.dumps(message) for message in step.messages],
            f"cp-{self._session_id}-{step.number}-{now}",
            now,
            *_arguments(writes, json.dumps(step.item)),
        )
        assert count is not None


def _arguments(writes: ByHand, item: str) -> list[list[str]]:
    found: list[list[str]] = []
    if writes.values:
        found += [[key for key, _ in writes.values], [json.dumps(value) for _, value in writes.values]]
    if writes.items:
        found.append([item] * writes.items)
    return found


def _statement(writes: ByHand) -> str:
    text, places = _SESSION, iter(range(7, 12))
    if writes.counts:
        text += _COUNTER
    if writes.values:
        text += _VALUES.format(keys=next(places), values=next(places))
    if writes.items:
        text += _ITEMS.format(items=next(places))
    return f"{text} SELECT message_count FROM s"


async def shape_of(url: str, pool: asyncpg.Pool, shape: Shape, count: int) -> Paired:
    connection = await asyncpg.connect(url)
    store = PostgresStateStore(pool)
    ours = ShapedSession(store, f"ours, {shape.title}")
    await ours.create()
    by_hand = await HandSession(connection, f"by hand, {shape.title}").create()
    every = steps(count)
    step: Step

    async def prepare() -> None:
        nonlocal step
        step = next(every)
        await ours.stage_shape(shape, step)

    contestants: dict[str, Callable[[], Awaitable[object]]] = {
        "ours": lambda: ours.commit(step),
        "by hand": lambda: by_hand.commit(shape, step),
    }
    paired = await pair_async(contestants, rounds=count - WARMUP, warmup=WARMUP, before=prepare)
    await store.close()
    await connection.close()
    return paired


async def writes(report: Report, url: str, count: int) -> None:
    async with asyncpg.create_pool(url, min_size=2, max_size=4) as pool:
        for shape in SHAPES:
            paired = await shape_of(url, pool, shape, count)
            most = MOST_OF_THREE if len(shape.tools) > 1 else MOST
            report.line(f"{shape.title}: times by hand", paired.ratio("ours", "by hand"), at_most=most)
            mine, theirs = (paired.median_ns(name) / 1000 for name in ("ours", "by hand"))
            print(f"       p50 {mine:.0f} us, by hand {theirs:.0f} us")


async def loads(report: Report, url: str, count: int) -> None:
    """Reads of a session of `count` steps, 3 messages each, and of a list of `count` items."""
    connection = await asyncpg.connect(url)
    async with asyncpg.create_pool(url, min_size=2, max_size=4) as pool:
        store = PostgresStateStore(pool)
        ours = ShapedSession(store, "ours, long")
        await ours.create()
        by_hand = await HandSession(connection, "by hand, long").create()
        for step in steps(count):
            await ours.stage_shape(SHAPES[0], step)
            await ours.commit(step)
            await by_hand.commit(SHAPES[0], step)

        async def state_by_hand() -> dict[str, object]:
            row = await connection.fetchrow("SELECT * FROM sessions WHERE session_id = $1", "by hand, long")
            counter = await connection.fetchval("SELECT value FROM counters WHERE session_id = $1", "by hand, long")
            items = await connection.fetch(
                "SELECT item FROM items WHERE session_id = $1 ORDER BY position", "by hand, long"
            )
            assert row is not None
            return {"session": dict(row), "counter": counter, "items": [json.loads(each[0]) for each in items]}

        async def messages_by_hand(limit: int) -> list[object]:
            found = await connection.fetch(
                "SELECT message FROM messages WHERE session_id = $1 ORDER BY sequence DESC LIMIT $2",
                "by hand, long",
                limit,
            )
            return [json.loads(each[0]) for each in reversed(found)]

        async def by_hand_last(limit: int) -> None:
            await state_by_hand()
            assert len(await messages_by_hand(limit)) == limit

        async def ours_last(limit: int | None) -> None:
            await store.load_state("ours, long")
            offset = 0 if limit is None else count * 3 - limit
            page = await store.get_messages("ours, long", offset=offset, limit=limit)
            assert len(page.items) == (limit or count * 3)

        for title, mine, theirs in (
            ("state and the last 50 messages", lambda: ours_last(50), lambda: by_hand_last(50)),
            ("everything", lambda: ours_last(None), lambda: by_hand_last(count * 3)),
        ):
            paired = await pair_async({"ours": mine, "by hand": theirs}, rounds=60, warmup=5)
            report.line(f"load {title}: times by hand", paired.ratio("ours", "by hand"), at_most=MOST_OF_LOADS)
            ours_us, hand_us = (paired.median_ns(name) / 1000 for name in ("ours", "by hand"))
            print(f"       p50 {ours_us:.0f} us, by hand {hand_us:.0f} us")
        await store.close()
    await connection.close()


async def measure(report: Report, server: PostgresServer, *, quick: bool) -> None:
    connection = await asyncpg.connect(server.url)
    await connection.execute(SCHEMA)
    if not quick:
        await grow_log(connection)
    await connection.close()
    await writes(report, server.url, 80 if quick else 300)
    await loads(report, server.url, 300)


def main(arguments: list[str]) -> int:
    print(machine.describe())
    report = Report()
    with PostgresServer(options=DURABLE) as server:
        asyncio.run(measure(report, server, quick="--quick" in arguments))
    return report.exit_code()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
