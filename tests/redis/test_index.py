"""The listing index may be outdated; listings are correct, and repair it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from helix_agents.backends.redis.index import listing
from helix_agents.backends.redis.sessions.store import RedisStateStore
from helix_agents.conformance.tools.sample import plain_state, ref
from helix_agents.errors import SessionExists, StoreUnavailable, VersionConflict
from helix_agents.types import PendingClientToolCall, RunRecord

Connect = Callable[..., Any]

PATIENCE = 50
"""Listings until the last announcement, which is remembered for a millisecond here, has been forgotten."""


async def _members(client: Any, prefix: str, facet: str) -> list[bytes]:
    found: list[bytes] = await client.zrange(f"{prefix}:index:{{{prefix}}}:by:{facet}", 0, -1)
    return found


async def test_a_session_that_never_came_to_be_is_not_listed_and_its_entry_goes(connect: Connect, prefix: str) -> None:
    client = connect()
    store = RedisStateStore(client, prefix=prefix)
    store._index.fresh_ms = 1

    async def crash(*_: Any) -> Any:
        raise StoreUnavailable("The test's fault.")

    await store.create_session("real", agent_type="agent")
    run = store._runner.run
    announce = store._index.announce_state

    async def announce_then_crash(*args: Any, **kwargs: Any) -> None:
        await announce(*args, **kwargs)
        store._runner.run = crash  # type: ignore[method-assign,assignment]

    store._index.announce_state = announce_then_crash  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        await store.create_session("ghost", agent_type="agent", user_id="u")
    store._runner.run = run  # type: ignore[method-assign]
    assert len(await _members(client, prefix, "user=u")) == 1
    for _ in range(PATIENCE):
        if not await _members(client, prefix, "user=u"):
            break
        page = await store.list_sessions(user_id="u")
        assert (page.items, page.total) == ([], 0)
    assert await _members(client, prefix, "user=u") == []
    assert [each.session_id for each in (await store.list_sessions()).items] == ["real"]


async def test_an_entry_that_was_just_announced_stays(connect: Connect, prefix: str) -> None:
    client = connect()
    store = RedisStateStore(client, prefix=prefix)
    await store.create_session("a", agent_type="agent")
    await client.delete(f"{prefix}:session:{{a}}")
    assert (await store.list_sessions()).total == 0
    assert len(await _members(client, prefix, "all")) == 1


async def test_an_entry_whose_session_is_about_to_follow_stays(connect: Connect, prefix: str) -> None:
    client = connect()
    store = RedisStateStore(client, prefix=prefix)
    made = await store.create_session("a", agent_type="agent")
    # What a writer does before it changes a session.
    await store._index.announce("a", made.created_at, ["user=u"], expires_at=None, token="a writer")
    assert (await store.list_sessions(user_id="u")).total == 0
    assert len(await _members(client, prefix, "user=u")) == 1


async def test_changes_of_one_ref_at_the_same_time_are_all_kept(connect: Connect, prefix: str) -> None:
    stores = [RedisStateStore(connect(), prefix=prefix) for _ in range(2)]
    await stores[0].create_session("a", agent_type="agent")
    for number in range(20):
        await stores[0].add_sub_session_refs("a", [ref(f"sub-{number}")])
        await asyncio.gather(
            stores[0].update_sub_session_ref("a", f"sub-{number}", status="completed"),
            stores[1].update_sub_session_ref("a", f"sub-{number}", name="other"),
        )
    kept = {(each.status, each.name) for each in await stores[0].list_sub_session_refs("a")}
    assert kept == {("completed", "other")}


async def test_an_entry_of_a_former_status_goes_when_met(connect: Connect, prefix: str) -> None:
    client = connect()
    store = RedisStateStore(client, prefix=prefix)
    store._index.fresh_ms = 1
    await store.create_session("a", agent_type="agent")
    await store.update_status("a", "completed")
    for _ in range(PATIENCE):
        assert (await store.list_sessions(status="active")).total == 0
        if not await _members(client, prefix, "status=active"):
            break
    assert await _members(client, prefix, "status=active") == []
    assert (await store.list_sessions(status="completed")).total == 1
    # Switching back must add it again.
    await store.update_status("a", "active")
    assert (await store.list_sessions(status="active")).total == 1


async def test_an_entry_of_a_former_label_goes_when_met(connect: Connect, prefix: str) -> None:
    client = connect()
    store = RedisStateStore(client, prefix=prefix)
    store._index.fresh_ms = 1
    made = await store.create_session("a", agent_type="agent", user_id="u", tags=["t"], metadata={"k": "v"})
    await store.save_state("a", msgspec.structs.replace(made, tags=(), metadata={}))
    for _ in range(PATIENCE):
        assert (await store.list_sessions(tags=["t"])).total == 0
    assert await _members(client, prefix, "tag=t") == []
    await store.save_state("a", made)
    for filters in ({"user_id": "u"}, {"tags": ["t"]}, {"metadata": {"k": "v"}}):
        assert (await store.list_sessions(**filters)).total == 1


async def test_a_refused_creation_leaves_the_index_as_it_was(connect: Connect, prefix: str) -> None:
    client = connect()
    times = iter([1000, 2000, 3000, 4000, 5000])
    store = RedisStateStore(client, prefix=prefix, clock=lambda: next(times))
    await store.create_session("a", agent_type="agent", user_id="u")
    with pytest.raises(SessionExists):
        await store.create_session("a", agent_type="agent", user_id="v")
    assert await _members(client, prefix, "user=v") == []
    assert len(await _members(client, prefix, "all")) == 1
    assert (await store.list_sessions(user_id="u")).total == 1


async def test_a_run_id_left_behind_by_a_lost_session_can_be_taken(connect: Connect, prefix: str) -> None:
    client = connect()
    store = RedisStateStore(client, prefix=prefix)
    await client.set(f"{prefix}:run:{{run}}", "lost")
    await store.create_session("a", agent_type="agent")
    await store.create_run("a", "run")
    assert (await store.update_run_status("run", "completed")).session_id == "a"


async def test_a_page_without_total_reads_no_more_than_it_shows(connect: Connect, prefix: str) -> None:
    store = RedisStateStore(connect(), prefix=prefix)
    for number in range(450):
        await store.create_session(f"s{number:03}", agent_type="agent")
    seen = 0
    each = store._servers.each

    async def counting(keyed: Any) -> Any:
        nonlocal seen
        seen += len(keyed)
        return await each(keyed)

    store._servers.each = counting  # type: ignore[method-assign]
    page = await store.list_sessions(limit=10, count=False)
    assert page.has_more
    assert seen <= 200


async def test_counting_by_status_looks_at_few_sessions(
    connect: Connect, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect()
    store = RedisStateStore(client, prefix=prefix)
    for number in range(30):
        await store.create_session(f"s{number}", agent_type="agent")
        if number < 20:
            await store.update_status(f"s{number}", "completed")
    exact = await store.count_by_status()
    assert (exact["active"], exact["completed"], exact["failed"]) == (10, 20, 0)
    monkeypatch.setattr(listing, "SAMPLE", 4)

    async def looked() -> int:
        found = await client.info("commandstats")
        return int(found["cmdstat_hgetall"]["calls"])

    before = await looked()
    estimated = await store.count_by_status()
    assert await looked() - before <= 2 * 4
    assert estimated["completed"] == 20, "every entry is true"
    assert 0 <= estimated["active"] <= 30
    assert not store.exact_counts


async def _due_members(client: Any, prefix: str) -> dict[str, int]:
    pairs = await client.zrange(f"{prefix}:index:{{{prefix}}}:running", 0, -1, withscores=True)
    return {member.decode(): int(score) for member, score in pairs}


async def test_an_entry_of_a_session_that_no_longer_waits_goes_when_met(connect: Connect, prefix: str) -> None:
    client = connect()
    store = RedisStateStore(client, prefix=prefix)
    await store.create_session("a", agent_type="agent")
    await store.update_status("a", "suspended_step_partial")
    await store.update_status("a", "active")
    (made,) = (await _due_members(client, prefix)).values()
    assert await store.list_claimable(made) == []
    assert list(await _due_members(client, prefix)) == ["due:a"], "a writer may be about to suspend it"
    await client.zadd(f"{prefix}:index:{{{prefix}}}:running", {"due:a": made - 120_000})
    assert await store.list_claimable(made) == []
    assert await _due_members(client, prefix) == {}


async def test_a_write_that_was_refused_does_not_delay_a_session_that_is_due(connect: Connect, prefix: str) -> None:
    client = connect()
    store = RedisStateStore(client, prefix=prefix)
    await store.create_session("a", agent_type="agent")
    await store.update_status("a", "suspended_client_tool")
    (due,) = (await _due_members(client, prefix)).values()
    later = PendingClientToolCall("c", "ask", deadline_at=due + 10_000)
    state = plain_state("a", status="suspended_client_tool", pending_client_tool_calls={"c": later})
    with pytest.raises(VersionConflict):
        await store.save_state("a", state, expected_version=1)
    assert [it.session_id for it in await store.list_claimable(due)] == ["a"]
    await store.save_state("a", state)
    assert await store.list_claimable(due + 9_999) == []
    assert (await _due_members(client, prefix))["due:a"] == due + 10_000, "an entry that is too early moves when met"
    assert [it.session_id for it in await store.list_claimable(due + 10_000)] == ["a"]


async def test_a_page_of_claimable_sessions_by_cursor_looks_at_no_page_before_it(connect: Connect, prefix: str) -> None:
    client = connect()
    store = RedisStateStore(client, prefix=prefix)
    for number in range(120):
        run = RunRecord(f"run-{number}", f"s{number:03}", 0, lease_until=0)
        await store.create_session(f"s{number:03}", agent_type="agent", run=run)
    page = await store.list_due(1, limit=100)
    await client.config_resetstat()
    last = await store.list_due(1, limit=10, cursor=page.next_cursor)
    assert [it.session.session_id for it in last.items] == [f"s{number:03}" for number in range(100, 110)]
    looked_at = (await client.info("commandstats"))["cmdstat_hgetall"]["calls"]
    assert looked_at <= 20
