"""Migrations: once, together, in a caller's transaction, with few rights, and with the same schema by every path."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from helix_agents import SchemaTooNew, open_stores
from helix_agents.backends.postgres.prepare import migrate_postgres
from helix_agents.backends.postgres.state_store import PostgresStateStore
from helix_agents.backends.sql_shared.schema import migrate as migrations
from helix_agents.backends.sql_shared.schema.migrate import known_migrations, migrate
from helix_agents.backends.sqlite.driver import SqliteDriver
from helix_agents.conformance.tools.sample import meta, plain_state, user
from helix_agents.errors import StoreError

OPEN = """
import asyncio, sys
from helix_agents import open_stores
async def main():
    async with open_stores(sys.argv[1]) as stores:
        await stores.state.create_session(sys.argv[2], agent_type="agent")
asyncio.run(main())
"""

CATALOGUE = """
SELECT 'column', table_name, column_name, data_type || coalesce(collation_name, '') || coalesce(column_default, '')
  || is_nullable || is_generated FROM information_schema.columns WHERE table_schema = $1
UNION ALL SELECT 'index', tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = $1
UNION ALL SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
  WHERE connamespace = $1::regnamespace
UNION ALL SELECT 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) FROM pg_trigger
  WHERE NOT tgisinternal AND tgrelid::regclass::text LIKE $1 || '.%'
UNION ALL SELECT 'function', proname, '', pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = $1::regnamespace
ORDER BY 1, 2, 3
"""

SECOND = """
-- family: state
ALTER TABLE __agents_interrupt_flags ADD COLUMN mood TEXT NOT NULL DEFAULT 'good';
UPDATE __agents_interrupt_flags SET mood = 'old';
"""

EVERY_VERSION = [each.version for each in known_migrations("postgres")]


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    made = await asyncpg.connect(postgres_url)
    yield made
    await made.close()


async def catalogue(connection: asyncpg.Connection, schema: str) -> list[str]:
    rows = await connection.fetch(CATALOGUE, schema)
    return ["|".join(row).replace(schema, "SCHEMA") for row in rows]


async def test_a_database_of_an_earlier_schema_is_migrated_in_place(
    connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await migrate_postgres(connection, schema="made_in_steps")
    await connection.execute(
        "INSERT INTO made_in_steps.__agents_interrupt_flags (session_id, timestamp) VALUES ('s', 1)"
    )
    # As if this were the next version of the library, whose schema has a second step.
    shutil.copytree(str(migrations.FOLDER), tmp_path / "next")
    (tmp_path / "next" / "0002_moods.sql").write_text(SECOND)
    monkeypatch.setattr(migrations, "FOLDER", tmp_path / "next")
    assert await migrate_postgres(connection, schema="made_in_steps") == [2]
    assert await connection.fetchval("SELECT mood FROM made_in_steps.__agents_interrupt_flags") == "old"
    assert await migrate_postgres(connection, schema="made_at_once") == [1, 2]
    fresh, grown = await catalogue(connection, "made_at_once"), await catalogue(connection, "made_in_steps")
    assert fresh == grown
    assert len(fresh) > 200


async def test_migrating_twice_does_nothing_the_second_time(connection: asyncpg.Connection) -> None:
    assert await migrate_postgres(connection) == EVERY_VERSION
    assert await migrate_postgres(connection) == []


async def test_twenty_processes_may_start_at_once(postgres_url: str, connection: asyncpg.Connection) -> None:
    path = os.pathsep.join(entry or os.curdir for entry in sys.path)
    starting = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            OPEN,
            f"{postgres_url}?schema=together",
            f"session-{number}",
            env={**os.environ, "PYTHONPATH": path},
        )
        for number in range(20)
    ]
    assert [await each.wait() for each in starting] == [0] * 20
    versions = await connection.fetch("SELECT version FROM together.__agents_migrations ORDER BY 1")
    assert [row["version"] for row in versions] == EVERY_VERSION
    assert await connection.fetchval("SELECT count(*) FROM together.__agents_states") == 20


async def test_a_callers_transaction_decides(connection: asyncpg.Connection) -> None:
    transaction = connection.transaction()
    await transaction.start()
    await migrate_postgres(connection, schema="undecided")
    await transaction.rollback()
    assert await connection.fetchval("SELECT to_regnamespace('undecided') IS NULL")
    async with connection.transaction():
        await migrate_postgres(connection, schema="undecided")
        await connection.execute("CREATE TABLE undecided.of_the_caller (x int)")
    assert await connection.fetchval("SELECT to_regclass('undecided.__agents_states') IS NOT NULL")


async def test_a_newer_database_is_refused_and_left_alone(connection: asyncpg.Connection) -> None:
    await migrate_postgres(connection)
    await connection.execute("INSERT INTO __agents_migrations VALUES (9999, 'from the future', 0)")
    before = await catalogue(connection, "public")
    with pytest.raises(SchemaTooNew):
        await migrate_postgres(connection)
    assert await catalogue(connection, "public") == before


async def as_role(connection: asyncpg.Connection, url: str, *rights: str) -> str:
    """Return the address for a new role with these rights and no others."""
    role = f"role_{await connection.fetchval('SELECT pg_backend_pid()')}"
    await connection.execute(f"DROP ROLE IF EXISTS {role}")
    await connection.execute(f"CREATE ROLE {role} LOGIN")
    for right in rights:
        await connection.execute(f"GRANT {right} TO {role}")
    return url.replace("postgres@", f"{role}@", 1)


async def drop_role(connection: asyncpg.Connection, url: str) -> None:
    role = url.partition("//")[2].partition("@")[0]
    await connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


async def commit_once(store: PostgresStateStore, session_id: str) -> None:
    await store.create_session(session_id, agent_type="agent")
    await store.save_state_and_promote_staging(session_id, plain_state(session_id), [user("x")], meta(1, "s"))
    assert await store.get_message_count(session_id) == 1
    assert await store.delete_session(session_id)


async def test_a_role_that_may_not_create_schemas_uses_one_that_is_there(
    connection: asyncpg.Connection, postgres_url: str
) -> None:
    await connection.execute("CREATE SCHEMA given")
    url = await as_role(connection, postgres_url, "CREATE, USAGE ON SCHEMA given")
    async with open_stores(f"{url}?schema=given") as stores:
        assert isinstance(stores.state, PostgresStateStore)
        await commit_once(stores.state, "a")
    await drop_role(connection, url)


async def test_without_the_schema_and_without_the_right_the_error_says_what_to_do(
    connection: asyncpg.Connection, postgres_url: str
) -> None:
    url = await as_role(connection, postgres_url)
    with pytest.raises(StoreError, match='CREATE SCHEMA "missing"'):
        async with open_stores(f"{url}?schema=missing"):
            pass
    await drop_role(connection, url)


async def test_a_role_that_may_create_nothing_works_on_a_migrated_database(
    connection: asyncpg.Connection, postgres_url: str
) -> None:
    await migrate_postgres(connection, schema="ready")
    tables = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ready"
    url = await as_role(connection, postgres_url, "USAGE ON SCHEMA ready", tables)
    async with asyncpg.create_pool(url, min_size=1, max_size=2) as pool:
        store = PostgresStateStore(pool, schema="ready")
        await commit_once(store, "a")
        # Functions of another version of the library: the same, in more round trips.
        for row in await connection.fetch(
            "SELECT oid::regprocedure::text AS name FROM pg_proc WHERE proname ~ '_[0-9a-f]{8}$'"
        ):
            await connection.execute(f"DROP FUNCTION {row['name']}")
        await commit_once(store, "b")
        await commit_once(PostgresStateStore(pool, schema="ready"), "c")
        await store.close()
    await drop_role(connection, url)


async def test_both_dialects_have_the_same_tables_and_columns(connection: asyncpg.Connection, tmp_path: Path) -> None:
    await migrate_postgres(connection)
    columns = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
    ours = {tuple(row) for row in await connection.fetch(columns)}
    driver = SqliteDriver(tmp_path / "other.db")
    await migrate(driver)
    await driver.close()
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        tables = [name for (name,) in other.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
        theirs = {(table, row[1]) for table in tables for row in other.execute(f"PRAGMA table_info({table})")}
    # Each has its own kind of full-text index, only Postgres has indexes that limit long names, and only SQLite keeps
    # the chunks of one append in one row.
    ours = {each for each in ours if each[0] != "__agents_long_names"}
    theirs = {
        each for each in theirs if not each[0].startswith(("__agents_memories_index", "__agents_stream_segments"))
    }
    assert theirs - ours == {("__agents_memories", "memory_number")}
    assert ours - theirs == {("__agents_memories", "search")}
