"""How SQLite finds what is asked for: by an index, however much else there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_agents.backends.sql_shared.driver import Statement
from helix_agents.backends.sql_shared.queries import Queries
from helix_agents.backends.sql_shared.schema.migrate import migrate
from helix_agents.backends.sql_shared.state.listing import claimable_statement
from helix_agents.backends.sqlite.driver import SqliteDriver
from helix_agents.stores.state.commit import ClaimableFilter


@pytest.mark.parametrize("name", ["read_checkpoint", "read_custom_state_at"])
async def test_a_checkpoint_is_found_by_its_time_and_session(tmp_path: Path, name: str) -> None:
    driver = SqliteDriver(tmp_path / "a.db")
    await migrate(driver)
    query = Queries("state/queries", "sqlite", "")(name, "session", "cpv1-session-s1-t5-abcdef", 5)
    (plan,) = await driver.batch([Statement(f"EXPLAIN QUERY PLAN {query.sql}", query.params)], read_only=True)
    await driver.close()
    steps = [str(step[3]) for step in plan]
    assert any("__agents_checkpoints_by_time (created_at=? AND session_id=?)" in step for step in steps)
    assert not any(step.startswith("SCAN __agents") for step in steps)


WAYS_BACK = {
    "read_custom_state_at": ("session", "cpv1-session-s1-t5-abcdef", 5),
    "rewind_old_cells": ("session", 5),
    "fork_cells_at": ("fork", "session", 5),
}


@pytest.mark.parametrize("name", WAYS_BACK)
async def test_what_was_overwritten_is_found_by_session_and_number(tmp_path: Path, name: str) -> None:
    driver = SqliteDriver(tmp_path / "a.db")
    await migrate(driver)
    query = Queries("state/queries", "sqlite", "")(name, *WAYS_BACK[name])
    (plan,) = await driver.batch([Statement(f"EXPLAIN QUERY PLAN {query.sql}", query.params)], read_only=True)
    await driver.close()
    steps = [str(step[3]) for step in plan]
    assert any("__agents_checkpoints_1 (session_id=? AND number>?)" in step for step in steps)
    assert any("USING PRIMARY KEY (session_id=? AND number>?)" in step for step in steps)
    assert not any(step.startswith(("SCAN c", "SCAN p", "SCAN h", "SCAN __agents_past")) for step in steps)


async def test_claimable_sessions_are_found_in_the_order_of_the_leases_of_their_runs(tmp_path: Path) -> None:
    driver = SqliteDriver(tmp_path / "a.db")
    await migrate(driver)
    wanted = ClaimableFilter(now=5, statuses=("active",), agent_types=("agent",))
    query = claimable_statement(Queries("state/queries", "sqlite", ""), wanted, 100, 200)
    (plan,) = await driver.batch([Statement(f"EXPLAIN QUERY PLAN {query.sql}", query.params)], read_only=True)
    await driver.close()
    steps = [str(step[3]) for step in plan]
    assert "SEARCH r USING INDEX __agents_runs_running (<expr><?)" in steps
    assert not any(
        step.startswith(("SCAN r", "SCAN s", "SCAN n", "SEARCH s USING INDEX __agents_states")) for step in steps
    )
