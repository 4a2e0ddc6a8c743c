"""Usage on SQLite: what the file contains, and which indexes queries use."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from helix_agents.backends.sql_shared.queries import Queries
from helix_agents.backends.sql_shared.schema.self_migrating import MigratedDriver
from helix_agents.backends.sql_shared.usage.store import SqlUsageStore
from helix_agents.backends.sqlite.driver import SqliteDriver
from helix_agents.backends.sqlite.usage_store import SqliteUsageStore
from helix_agents.stores.usage.contract import CustomEntry, SubagentEntry


async def test_a_store_built_on_a_path_survives_being_closed(tmp_path: Path) -> None:
    async with SqliteUsageStore(tmp_path / "usage.db") as store:
        await store.record_entry(CustomEntry(id="1", session_id="a", name="n"))
    async with SqliteUsageStore(tmp_path / "usage.db") as store:
        assert (await store.get_rollup("a")).custom == {"n": 1}


async def test_a_shared_driver_is_left_open(tmp_path: Path) -> None:
    driver = MigratedDriver(SqliteDriver(tmp_path / "shared.db"))
    async with SqlUsageStore(driver) as store:
        await store.record_entry(CustomEntry(id="1", session_id="a", name="n"))
    assert (await SqlUsageStore(driver).get_rollup("a")).custom == {"n": 1}
    await driver.close()


async def test_prefixes_keep_applications_apart(tmp_path: Path) -> None:
    async with SqliteUsageStore(tmp_path / "usage.db", prefix="one") as one:
        async with SqliteUsageStore(tmp_path / "usage.db", prefix="two") as two:
            await one.record_entry(CustomEntry(id="1", session_id="a", name="n"))
            assert await two.get_entries("a") == []


async def test_deleting_a_tree_leaves_no_row(tmp_path: Path) -> None:
    async with SqliteUsageStore(tmp_path / "usage.db") as store:
        await store.record_entry(SubagentEntry(id="1", session_id="a", sub_session_id="b", agent_type="x"))
        await store.record_entry(CustomEntry(id="2", session_id="c", parent_session_id="b", name="n"))
        await store.delete_entries("a")
    connection = sqlite3.connect(tmp_path / "usage.db")
    for table in ("__agents_usage", "__agents_usage_links"):
        assert connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone() == (0,)
    connection.close()


async def test_no_statement_of_a_session_reads_the_whole_table(tmp_path: Path) -> None:
    async with SqliteUsageStore(tmp_path / "usage.db") as store:
        await store.get_entries("a")
    connection = sqlite3.connect(tmp_path / "usage.db")
    queries = Queries("usage/usage_queries", "sqlite")
    for name in ("sums", "tree_sums", "delete_session", "delete_tree", "delete_tree_links"):
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {queries[name]}", ("a",))]
        assert not [step for step in plan if step.startswith("SCAN __agents")], (name, plan)
        assert "SCAN links" not in plan, (name, plan)
    connection.close()
