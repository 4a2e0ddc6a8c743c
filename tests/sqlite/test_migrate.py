"""Migrations: once, together, forward only, and the same schema by every path."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from helix_agents import SchemaTooNew, open_stores
from helix_agents.backends.sql_shared.driver import Dialect, Statement
from helix_agents.backends.sql_shared.schema import migrate as migrations
from helix_agents.backends.sql_shared.schema.migrate import (
    COMPACT,
    FAMILIES,
    Migration,
    applied_versions,
    known_migrations,
    migrate,
)
from helix_agents.backends.sqlite.driver import SqliteDriver

OPEN = """
import asyncio, sys
from helix_agents import open_stores
async def main():
    async with open_stores(sys.argv[1]): pass
asyncio.run(main())
"""

SECOND = """
-- family: state
ALTER TABLE __agents_states ADD COLUMN mood TEXT NOT NULL DEFAULT 'good';
UPDATE __agents_states SET mood = 'old';
-- family: memory
CREATE TABLE __agents_moods (mood TEXT PRIMARY KEY);
"""


@pytest.fixture
def with_second(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this were the next version of the library, whose schema has a second step."""
    folder = tmp_path_factory.mktemp("migrations")
    shutil.copytree(str(migrations.FOLDER), folder, dirs_exist_ok=True)
    (folder / "0002_moods.sql").write_text(SECOND)
    monkeypatch.setattr(migrations, "FOLDER", folder)


def versions(dialect: Dialect = "sqlite") -> list[int]:
    return [each.version for each in known_migrations(dialect)]


def schema(path: Path) -> list[tuple[str, str]]:
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
    connection.close()
    return rows


async def fresh_schema(folder: Path) -> list[tuple[str, str]]:
    driver = SqliteDriver(folder / "fresh.db")
    await migrate(driver)
    await driver.close()
    return schema(folder / "fresh.db")


async def test_migrating_twice_does_nothing_the_second_time(tmp_path: Path) -> None:
    driver = SqliteDriver(tmp_path / "a.db")
    assert await migrate(driver) == versions()
    assert await migrate(driver) == []
    assert await applied_versions(driver) == versions()
    await driver.close()


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_a_number_names_one_step(dialect: Dialect) -> None:
    folder = Path(migrations.__file__).parent / "migrations"
    names = {each.name.split(".")[0] for each in folder.glob(f"*.{dialect}.sql")}
    names |= {each.name.split(".")[0] for each in folder.glob("*.sql") if each.name.count(".") == 1}
    assert len({name[:4] for name in names}) == len(names) == len(known_migrations(dialect))


async def test_a_file_of_an_earlier_schema_is_migrated_in_place(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    async with open_stores(f"sqlite:{tmp_path / 'a.db'}") as stores:
        await stores.state.create_session("s", agent_type="a", custom_state={"n": 1})
    request.getfixturevalue("with_second")
    driver = SqliteDriver(tmp_path / "a.db")
    assert await migrate(driver) == [2]
    assert await migrate(driver) == []
    (moods,) = await driver.batch([Statement("SELECT mood FROM __agents_states")])
    assert moods == [("old",)]
    await driver.close()
    async with open_stores(f"sqlite:{tmp_path / 'a.db'}", migrate=False) as stores:
        state = await stores.state.load_state("s")
    assert state is not None
    assert state.custom_state == {"n": 1}
    assert schema(tmp_path / "a.db") == await fresh_schema(tmp_path), "a fresh schema differs from a migrated one"


async def test_a_step_that_comes_late_is_made_all_the_same(
    tmp_path: Path, with_second: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two branches of a project may bring their migrations in either order."""
    every = known_migrations("sqlite")
    later = Migration(3, "later", (("state", ("CREATE TABLE __agents_later (x TEXT)",)),))
    monkeypatch.setattr(migrations, "known_migrations", lambda _: [every[0], later])
    driver = SqliteDriver(tmp_path / "a.db")
    assert await migrate(driver) == [1, 3]
    monkeypatch.setattr(migrations, "known_migrations", lambda _: [*every, later])
    assert await migrate(driver) == [2]
    assert await applied_versions(driver) == [1, 2, 3]
    await driver.close()


async def test_a_newer_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with open_stores(f"sqlite:{path}") as stores:
        await stores.state.create_session("s", agent_type="a")
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO __agents_migrations VALUES (999, 'from_the_future', 0)")
    connection.close()
    before = schema(path)
    with pytest.raises(SchemaTooNew, match="schema version 999"):
        async with open_stores(f"sqlite:{path}"):
            pass
    assert schema(path) == before


async def test_an_interrupted_step_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (first,) = known_migrations("sqlite")
    broken = first._replace(parts=(*first.parts, ("state", ("CREATE TABLE broken (", ""))))
    monkeypatch.setattr(migrations, "known_migrations", lambda _: [broken])
    driver = SqliteDriver(tmp_path / "a.db")
    with pytest.raises(Exception, match=r"syntax|incomplete"):
        await migrate(driver)
    assert await applied_versions(driver) == []
    await driver.close()
    assert [name for name, _ in schema(tmp_path / "a.db")] == ["__agents_migrations"]


async def test_twenty_processes_may_start_at_once(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    starting = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", OPEN, url, stderr=asyncio.subprocess.PIPE)
        for _ in range(20)
    ]
    failures = [error for each in starting if (error := (await each.communicate())[1])]
    assert failures == []
    driver = SqliteDriver(tmp_path / "a.db")
    assert await migrate(driver) == []
    await driver.close()


async def test_prefixes_keep_applications_apart(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with open_stores(f"sqlite:{path}?prefix=one") as one, open_stores(f"sqlite:{path}?prefix=two") as two:
        await one.state.create_session("s", agent_type="a", tags=["t"])
        assert not await two.state.session_exists("s")
        assert (await two.state.list_sessions(tags=["t"])).items == []
        await two.state.create_session("s", agent_type="b")
        assert await one.state.delete_session("s")
        assert await two.state.session_exists("s")


async def test_the_ledger_names_every_step(tmp_path: Path, with_second: None) -> None:
    driver = SqliteDriver(tmp_path / "a.db")
    await migrate(driver, clock=lambda: 5)
    (rows,) = await driver.batch([Statement("SELECT version, name, applied_at FROM __agents_migrations ORDER BY 1")])
    assert rows == [(each.version, each.name, 5) for each in known_migrations("sqlite")]
    await driver.close()


# Which tables each family has; the guard belongs to all.
OF_A_FAMILY = {"state": "states", "streams": "streams", "usage": "usage", "memory": "memories", "blobs": "blobs"}


def tables(path: Path) -> set[str]:
    return {name.removeprefix("__agents_") for name, sql in schema(path) if sql.startswith("CREATE TABLE")}


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_every_statement_of_a_migration_says_which_family_it_belongs_to(dialect: Dialect) -> None:
    for step in known_migrations(dialect):
        assert step.families <= FAMILIES | {"every"}, step.name
        shared = [text for text in step.of(["every"]) if "__agents_guard" not in text]
        assert shared == [], f"{step.name}: write a line `-- family: state` (or streams, usage, memory) above these"


@pytest.mark.parametrize("family", sorted(FAMILIES))
async def test_a_database_has_only_the_tables_of_the_families_it_holds(tmp_path: Path, family: str) -> None:
    driver = SqliteDriver(tmp_path / "a.db")
    await migrate(driver, families={family})
    assert await migrate(driver, families={family}) == []
    await driver.close()
    found = tables(tmp_path / "a.db")
    assert "guard" in found
    assert {each for each, table in OF_A_FAMILY.items() if table in found} == {family}


@pytest.mark.parametrize(
    "order", [("streams", "state", "memory", "usage", "blobs"), ("blobs", "memory", "usage", "streams", "state")]
)
async def test_families_that_come_one_after_the_other_end_in_the_same_schema(
    tmp_path: Path, order: tuple[str, ...], with_second: None
) -> None:
    path = tmp_path / "a.db"
    for family in order:
        driver = SqliteDriver(path)
        assert await migrate(driver, families={family})
        await driver.close()
    async with open_stores(f"sqlite:{path}") as stores:
        await stores.state.create_session("s", agent_type="a")
    assert schema(path) == await fresh_schema(tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM __agents_migrations ORDER BY version")]
    assert names == [each.name for each in known_migrations("sqlite")]


async def test_processes_that_add_different_families_at_once_do_not_undo_each_other(
    tmp_path: Path, with_second: None
) -> None:
    drivers = [SqliteDriver(tmp_path / "a.db") for _ in range(2 * len(FAMILIES))]
    await asyncio.gather(
        *(migrate(driver, families={family}) for driver, family in zip(drivers, sorted(FAMILIES) * 2, strict=True))
    )
    assert await migrate(drivers[0]) == []
    await asyncio.gather(*(driver.close() for driver in drivers))
    assert schema(tmp_path / "a.db") == await fresh_schema(tmp_path)


async def test_compact_tables_have_no_rows_beside_their_keys(tmp_path: Path) -> None:
    driver = SqliteDriver(tmp_path / "compact.db")
    await migrate(driver, families=FAMILIES | {COMPACT})
    await driver.close()
    compact, plain = dict(schema(tmp_path / "compact.db")), dict(await fresh_schema(tmp_path))
    changed = {name for name in plain if plain[name] != compact[name]}
    assert changed == {"__agents_branches", "__agents_messages", "__agents_checkpoints", "__agents_usage"}
    assert all(compact[name] == plain[name] + " WITHOUT ROWID" for name in changed)
