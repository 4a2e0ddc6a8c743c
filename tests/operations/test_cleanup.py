"""The sweep of expired sessions."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents import InvalidArgument, StoreUnavailable, expired_session_cleanup, open_stores
from helix_agents.backends.inmemory.state_store import InMemoryStateStore

NOW = 1_000_000


class Snapshots:
    def __init__(self, kept: dict[str, list[str]]) -> None:
        self.kept = kept
        self.stuck: set[str] = set()

    async def list(self, session_id: str) -> list[str]:
        if session_id == "bad":
            raise OSError("the bucket is gone")
        return list(self.kept.get(session_id, []))

    async def delete(self, snapshot_id: str) -> None:
        if snapshot_id in self.stuck:
            raise OSError(f"{snapshot_id!r} is in use")
        for ids in self.kept.values():
            if snapshot_id in ids:
                ids.remove(snapshot_id)


class Provider:
    def __init__(self, **kept: list[str]) -> None:
        self.snapshots = Snapshots(kept)


async def store_with(**expiry: int | None) -> InMemoryStateStore:
    store = InMemoryStateStore()
    for session_id, expires_at in expiry.items():
        await store.create_session(session_id, agent_type="a", expires_at=expires_at)
    return store


async def test_expired_sessions_fail_and_others_stay() -> None:
    store = await store_with(old=NOW - 1, young=NOW + 1, eternal=None)
    summary = await expired_session_cleanup(store, now=NOW, error="gone")
    assert (summary.detected, summary.marked, summary.errors) == (1, 1, [])
    old, young = await store.load_state("old"), await store.load_state("young")
    assert old is not None
    assert (old.status, old.error, old.failure_reason) == ("failed", "gone", "session_expired")
    assert young is not None
    assert young.status == "active"


async def test_a_terminal_session_is_only_counted() -> None:
    store = await store_with(old=NOW - 1)
    await store.update_status("old", "completed")
    summary = await expired_session_cleanup(store, now=NOW)
    assert (summary.detected, summary.marked, summary.already_terminal) == (1, 0, 1)


async def test_a_dry_run_changes_nothing() -> None:
    store = await store_with(old=NOW - 1)
    provider = Provider(old=["x"])
    summary = await expired_session_cleanup(store, now=NOW, dry_run=True, workspace_providers={"p": provider})
    state = await store.load_state("old")
    assert summary.detected == 1
    assert summary.marked == 0
    assert state is not None
    assert state.version == 1
    assert provider.snapshots.kept == {"old": ["x"]}


async def test_snapshots_are_deleted_and_one_bad_session_does_not_stop_the_sweep() -> None:
    store = await store_with(one=NOW - 3, bad=NOW - 2, two=NOW - 1)
    provider = Provider(one=["a", "b"], two=["c"], other=["d"])
    summary = await expired_session_cleanup(store, now=NOW, workspace_providers={"p": provider})
    assert (summary.detected, summary.marked, summary.snapshots_deleted) == (3, 3, 3)
    assert summary.errors == ["bad: provider 'p': the bucket is gone"]
    assert provider.snapshots.kept == {"one": [], "two": [], "other": ["d"]}


async def test_a_snapshot_that_could_not_be_deleted_is_tried_again_by_the_next_sweep() -> None:
    store = await store_with(old=NOW - 1)
    provider = Provider(old=["a", "b", "c"])
    provider.snapshots.stuck = {"b"}
    first = await expired_session_cleanup(store, now=NOW, workspace_providers={"p": provider})
    assert (first.marked, first.snapshots_deleted) == (1, 2)
    assert first.errors == ["old: provider 'p': 'b' is in use"]
    provider.snapshots.stuck = set()
    second = await expired_session_cleanup(store, now=NOW, workspace_providers={"p": provider})
    assert (second.already_terminal, second.snapshots_deleted, second.errors) == (1, 1, [])
    assert provider.snapshots.kept == {"old": []}


async def test_a_session_that_ended_before_it_expired_keeps_its_snapshots() -> None:
    store = await store_with(old=NOW - 1)
    await store.update_status("old", "completed")
    provider = Provider(old=["a"])
    await expired_session_cleanup(store, now=NOW, workspace_providers={"p": provider})
    assert provider.snapshots.kept == {"old": ["a"]}


async def test_a_store_that_fails_for_one_session_goes_on_with_the_next() -> None:
    class Flaky(InMemoryStateStore):
        async def save_state(self, session_id: str, *args: Any, **more: Any) -> int:
            if session_id == "bad":
                raise StoreUnavailable("lost the connection")
            return await super().save_state(session_id, *args, **more)

    store = Flaky()
    for session_id in ("bad", "good"):
        await store.create_session(session_id, agent_type="a", expires_at=NOW - 1)
    summary = await expired_session_cleanup(store, now=NOW)
    assert (summary.detected, summary.marked, len(summary.errors)) == (2, 1, 1)


async def test_every_page_is_swept() -> None:
    store = await store_with(**{f"s{n}": NOW - 1 for n in range(25)})
    summary = await expired_session_cleanup(store, now=NOW, page_size=4)
    assert (summary.detected, summary.marked) == (25, 25)


async def test_the_stream_of_an_expired_session_fails() -> None:
    async with open_stores("memory:") as stores:
        await stores.state.create_session("old", agent_type="a", expires_at=NOW - 1)
        async with await stores.streams.create_writer("old", "r", "a") as writer:
            await writer.write({"type": "custom", "name": "n", "data": 1})
        await expired_session_cleanup(stores.state, stream_manager=stores.streams, now=NOW)
        info = await stores.streams.get_stream_info("old")
        assert info is not None
        assert (info.status, info.error) == ("failed", "session_expired")


@pytest.mark.parametrize("page_size", [0, 201, "many", True])
async def test_a_bad_page_size_is_refused(page_size: int) -> None:
    with pytest.raises(InvalidArgument, match="page_size"):
        await expired_session_cleanup(await store_with(), page_size=page_size)
