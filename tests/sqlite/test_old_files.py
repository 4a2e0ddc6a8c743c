"""Files of every earlier schema open, and tell the same history as then, wherever they kept it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from helix_agents import SqliteStateStore
from helix_agents.backends.sql_shared.schema.migrate import FAMILIES, Migration, known_migrations

from .. import old_schemas as old

EVERY = known_migrations("sqlite")
ONE_HOME = 8
EARLIER = [each for each in EVERY if each.version < ONE_HOME]


def make_file(path: Path, schema: list[Migration]) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(old.LEDGER)
        for each in schema:
            connection.execute("INSERT INTO __agents_migrations VALUES (?, ?, 0)", each[:2])
            for statement in each.statements:
                connection.execute(statement)
        for statement in old.inserts(schema[-1].version):
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("known", range(1, len(EARLIER) + 1))
async def test_a_file_of_an_earlier_schema_keeps_its_history(tmp_path: Path, known: int) -> None:
    make_file(tmp_path / "old.db", EARLIER[:known])
    store = SqliteStateStore(tmp_path / "old.db")
    await old.ensure_history(store)
    await store.close()


async def test_a_step_that_was_open_when_its_file_was_migrated_can_be_committed(tmp_path: Path) -> None:
    make_file(tmp_path / "old.db", EARLIER[:3])
    store = SqliteStateStore(tmp_path / "old.db")
    await store.promote_staging(old.SESSION, "step")
    state = await store.load_state(old.SESSION)
    assert state is not None
    assert state.custom_state == {**old.PRESENT, "n": 5}
    await store.close()


async def test_a_step_of_the_schema_that_comes_late_is_made_all_the_same(tmp_path: Path) -> None:
    """Two branches of a project may bring their migrations in either order."""
    without = [each for each in EARLIER if each.version != 6 + 1]
    make_file(tmp_path / "old.db", without)
    store = SqliteStateStore(tmp_path / "old.db")
    await old.ensure_history(store)
    await store.close()
    with sqlite3.connect(tmp_path / "old.db") as connection:
        applied = connection.execute("SELECT version FROM __agents_migrations ORDER BY version").fetchall()
    connection.close()
    wanted = [each.version for each in EVERY if each.families & {*FAMILIES, "every"}]
    assert [version for (version,) in applied] == wanted
