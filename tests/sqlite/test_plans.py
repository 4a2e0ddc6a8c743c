"""Query plans of SQLite: queries use an index, however many rows there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_agents.backends.sql_shared.driver import Statement
from helix_agents.backends.sql_shared.queries import Queries
from helix_agents.backends.sql_shared.schema.migrate import migrate
from helix_agents.backends.sql_shared.state.listing import claimable_statements
from helix_agents.backends.sqlite.driver import SqliteDriver
from helix_agents.stores.state.commit import ClaimableFilter, ClaimablePlace


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


@pytest.mark.parametrize("after", [None, ClaimablePlace(1, 2, "s")])
async def test_claimable_sessions_are_found_in_the_order_of_two_indexes(
    tmp_path: Path, after: ClaimablePlace | None
) -> None:
    driver = SqliteDriver(tmp_path / "a.db")
    await migrate(driver)
    wanted = ClaimableFilter(now=5, statuses=("active",), agent_types=("agent",), after=after)
    steps = []
    for query in claimable_statements(Queries("state/queries", "sqlite", ""), wanted, 100):
        (plan,) = await driver.batch([Statement(f"EXPLAIN QUERY PLAN {query.sql}", query.params)], read_only=True)
        steps.append([str(step[3]) for step in plan])
    await driver.close()
    by_lease, by_time = steps
    begins = "" if after is None else "<expr>>? AND "
    assert f"SEARCH r USING INDEX __agents_runs_running ({begins}<expr><?)" in by_lease
    begins = "" if after is None else "due_at>? AND "
    assert f"SEARCH s USING INDEX __agents_states_by_due ({begins}due_at<?)" in by_time
    assert not any("SCAN r" in step or "SCAN s" in step or "TEMP B-TREE" in step for step in by_lease + by_time)
