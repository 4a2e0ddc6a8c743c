"""What regenerate and switch write, counted in the backend: rows and bytes depend on the branch, not the history."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import redis.asyncio

from helix_agents import Agent, AgentExecutor, ScriptedLLM, open_stores

AGENT = Agent("clerk")
TOLERANCE = 1.5


class Written(NamedTuple):
    """Rows of a database, or commands of Redis, and their bytes."""

    rows: int
    bytes: int


Counting = Callable[[str], AbstractAsyncContextManager["Counter"]]
Counter = Callable[[], Awaitable[Written]]
"""What was written since the last call."""


@asynccontextmanager
async def counted_sqlite(url: str) -> AsyncIterator[Counter]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:"), timeout=60, isolation_level=None)) as database:
        database.execute("CREATE TABLE IF NOT EXISTS written (bytes INTEGER)")
        tables = database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB '__agents*' AND name NOT GLOB '*memor*'"
        )
        for (table,) in tables.fetchall():
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            for event, side in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
                size = " + ".join(f"COALESCE(LENGTH(CAST({side}.{column} AS BLOB)), 0)" for column in columns)
                database.execute(
                    f"CREATE TRIGGER IF NOT EXISTS count_{table}_{event} AFTER {event} ON {table} "
                    f"BEGIN INSERT INTO written VALUES ({size}); END"
                )

        database.execute("DELETE FROM written")

        async def count() -> Written:
            (found,) = database.execute("SELECT COUNT(*), TOTAL(bytes) FROM written").fetchall()
            database.execute("DELETE FROM written")
            return Written(found[0], int(found[1]))

        yield count


COUNT_ROWS = """
CREATE TABLE IF NOT EXISTS written (bytes BIGINT);
CREATE OR REPLACE FUNCTION count_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO written VALUES (octet_length((CASE TG_OP WHEN 'DELETE' THEN OLD::text ELSE NEW::text END)));
    RETURN NULL;
END $$;
"""


@asynccontextmanager
async def counted_postgres(url: str) -> AsyncIterator[Counter]:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(COUNT_ROWS)
        await connection.execute("TRUNCATE written")
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE starts_with(tablename, '__agents')")
        for (table,) in tables:
            await connection.execute(
                f"CREATE OR REPLACE TRIGGER count_rows AFTER INSERT OR UPDATE OR DELETE ON {table} "
                "FOR EACH ROW EXECUTE FUNCTION count_row()"
            )

        async def count() -> Written:
            found = await connection.fetchrow("SELECT COUNT(*), COALESCE(SUM(bytes), 0)::bigint FROM written")
            await connection.execute("TRUNCATE written")
            assert found is not None
            return Written(*found)

        yield count
    finally:
        await connection.close()


@asynccontextmanager
async def counted_redis(url: str) -> AsyncIterator[Counter]:
    """Reads every command, also those of scripts."""
    async with redis.asyncio.from_url(url) as client, client.monitor() as monitor:

        async def count() -> Written:
            rows = size = 0
            await client.echo("that is all")
            while "that is all" not in (command := (await monitor.next_command())["command"]):
                rows += 1
                size += len(command)
            return Written(rows, size)

        yield count


def history(size: int) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": f"message {n}", "id": f"m{n}"} for n in range(size)]


async def costs_of(url: str, counted: Counting, size: int) -> list[Written]:
    """Return what a regenerate and a switch write in a session with this many messages."""
    session_id, llm = f"session-{size}", ScriptedLLM(lambda _: "Hello.")
    async with asyncio.timeout(60), open_stores(url) as stores, AgentExecutor(stores, llm, agents=[AGENT]) as executor:
        await stores.state.create_session(session_id, agent_type="clerk", messages=history(size))
        await executor.run(AGENT, "hi", session_id=session_id)
        async with counted(url) as count:
            await (await executor.regenerate(session_id)).result()
            regenerated = await count()
            (left, _) = await executor.list_branches(session_id)
            await count()
            await executor.switch_branch(session_id, left.branch_id)
            return [regenerated, await count()]


async def is_flat(url: str, counted: Counting) -> None:
    small, large = [await costs_of(url, counted, size) for size in (10, 1000)]
    print(small, large)
    for before, after in zip(small, large, strict=True):
        assert before.rows > 0
        assert after.rows <= before.rows * TOLERANCE
        assert after.bytes <= before.bytes * TOLERANCE


async def test_regenerate_and_switch_write_the_same_after_10_and_after_1000_messages_on_sqlite(tmp_path: Path) -> None:
    await is_flat(f"sqlite:{tmp_path / 'a.db'}", counted_sqlite)


async def test_the_same_on_postgres(postgres_url: str) -> None:
    await is_flat(postgres_url, counted_postgres)


async def test_the_same_on_redis(redis_url: str) -> None:
    await is_flat(redis_url, counted_redis)
