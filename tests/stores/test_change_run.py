"""A claim as one commit: a new run begins, the old one ends, if its lease is still as it was seen."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from helix_agents.backends.inmemory.state_store import InMemoryStateStore
from helix_agents.backends.registry import open_stores
from helix_agents.backends.sqlite.state_store import SqliteStateStore
from helix_agents.errors import LeaseConflict, VersionConflict
from helix_agents.stores.state.commit import RunChange
from helix_agents.types import RunRecord


async def _claims_in_one_commit(store: Any) -> None:
    first = RunRecord("a", "s", 0, lease_until=5)
    made = await store.create_session("s", agent_type="main", custom_state={}, run=first)
    (old,) = await store.list_runs("s")
    ended = msgspec.structs.replace(old, status="interrupted", error="died", completed_at=9)
    wanted = msgspec.structs.replace(made, custom_state=None, resume_count=1)
    claim: dict[str, Any] = {"expected_version": made.version, "run": RunRecord("late", "s", 0, lease_until=99)}
    await store.update_run_status("a", "running", lease_until=50)  # the owner wakes up and renews
    with pytest.raises(LeaseConflict):
        await store.save_state("s", wanted, **claim, change_run=RunChange(old, ended))
    assert [(run.run_id, run.status) for run in await store.list_runs("s")] == [("a", "running")]
    (old,) = await store.list_runs("s")
    ended = msgspec.structs.replace(old, status="interrupted", error="died", completed_at=9)
    claim["run"] = RunRecord("b", "s", 0, lease_until=99)
    await store.save_state("s", wanted, **claim, change_run=RunChange(old, ended))
    runs = await store.list_runs("s")
    assert [(run.run_id, run.turn, run.status, run.error) for run in runs] == [
        ("a", 1, "interrupted", "died"),
        ("b", 2, "running", None),
    ]
    assert [each.session_id for each in await store.list_claimable(60)] == []
    assert [each.session_id for each in await store.list_claimable(100)] == ["s"]
    with pytest.raises(VersionConflict):
        await store.save_state("s", wanted, **{**claim, "run": RunRecord("c", "s", 0)}, change_run=RunChange(*runs))


async def test_memory() -> None:
    await _claims_in_one_commit(InMemoryStateStore())


async def test_sqlite(tmp_path: Any) -> None:
    async with open_stores(f"sqlite:{tmp_path}/a.db") as stores:
        await _claims_in_one_commit(stores.state)


async def test_d1_batches(tmp_path: Any) -> None:
    async with SqliteStateStore(f"{tmp_path}/b.db", d1_limits=True) as store:
        await _claims_in_one_commit(store)
