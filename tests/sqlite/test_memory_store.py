"""Memories on SQLite: what the file and its search index contain."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from helix_agents.backends.sql_shared.memory.store import SqlMemoryStore
from helix_agents.backends.sql_shared.queries import Queries
from helix_agents.backends.sql_shared.schema.self_migrating import MigratedDriver
from helix_agents.backends.sqlite.driver import SqliteDriver
from helix_agents.backends.sqlite.memory_store import SqliteMemoryStore
from helix_agents.stores.memory.contract import Memory


async def test_a_store_built_on_a_path_survives_being_closed(tmp_path: Path) -> None:
    async with SqliteMemoryStore(tmp_path / "memory.db") as store:
        await store.save(Memory(id="1", entity_id="e", content="likes tea"))
    async with SqliteMemoryStore(tmp_path / "memory.db") as store:
        assert [each.id for each in await store.search("e", "tea")] == ["1"]


async def test_a_shared_driver_is_left_open(tmp_path: Path) -> None:
    driver = MigratedDriver(SqliteDriver(tmp_path / "shared.db"))
    async with SqlMemoryStore(driver) as store:
        await store.save(Memory(id="1", entity_id="e", content="likes tea"))
    assert await SqlMemoryStore(driver).get("e", "1") is not None
    await driver.close()


async def test_prefixes_keep_applications_apart(tmp_path: Path) -> None:
    async with SqliteMemoryStore(tmp_path / "memory.db", prefix="one") as one:
        async with SqliteMemoryStore(tmp_path / "memory.db", prefix="two") as two:
            await one.save(Memory(id="1", entity_id="e", content="likes tea"))
            assert await two.search("e", "tea") == []


async def test_the_index_holds_nothing_of_what_was_edited_or_deleted(tmp_path: Path) -> None:
    async with SqliteMemoryStore(tmp_path / "memory.db") as store:
        for number in range(20):
            await store.save(Memory(id=str(number % 5), entity_id="e", content=f"tea number {number}"))
        await store.delete_entity("e")
    connection = sqlite3.connect(tmp_path / "memory.db")
    connection.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(__agents_memories_index, 'row')")
    assert connection.execute("SELECT * FROM terms").fetchall() == []
    connection.close()


async def test_a_common_word_elsewhere_is_not_met_by_a_search(tmp_path: Path) -> None:
    async with SqliteMemoryStore(tmp_path / "memory.db") as store:
        for entity_id in ("a", "b", "c"):
            await store.save(Memory(id="1", entity_id=entity_id, content="tea"))
    connection = sqlite3.connect(tmp_path / "memory.db")
    connection.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(__agents_memories_index, 'row')")
    assert [row[1] for row in connection.execute("SELECT * FROM terms")] == [1, 1, 1]
    connection.close()


async def test_entities_that_share_a_scope_by_chance_are_apart(tmp_path: Path) -> None:
    first, second = "user-278437", "user-1593089"
    async with SqliteMemoryStore(tmp_path / "memory.db") as store:
        await store.save(Memory(id="1", entity_id=first, content="tea"))
        await store.save(Memory(id="1", entity_id=second, content="tea"))
        assert [each.id for each in await store.search(first, "tea")] == ["1"]
    connection = sqlite3.connect(tmp_path / "memory.db")
    assert len(connection.execute("SELECT DISTINCT scope FROM __agents_memories").fetchall()) == 1, (
        "choose another pair"
    )
    connection.close()


async def test_a_search_asks_the_index_once_and_first(tmp_path: Path) -> None:
    async with SqliteMemoryStore(tmp_path / "memory.db") as store:
        await store.search("e", "tea")
    connection = sqlite3.connect(tmp_path / "memory.db")
    sql = Queries("memory/memory_queries", "sqlite")["match_memories"]
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", ("e", "tea", None, 10))]
    assert "__agents_memories_index" in plan[0], plan
    assert "INTEGER PRIMARY KEY" in plan[1], plan
    connection.close()
