"""A network that drops connections and replies, a server that is killed: nothing is lost or partial."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from helix_agents import open_stores
from helix_agents.backends.postgres.state_store import PostgresStateStore
from helix_agents.conformance.tools.sample import add, meta, plain_state, push, user, writes
from helix_agents.errors import StoreUnavailable
from helix_agents.stores.state.contract import StateStore
from tests.servers.postgres import PostgresServer
from tests.servers.process import HOST
from tests.servers.proxy import Proxy

MakeProxy = Callable[[int], Awaitable[Proxy]]


async def step(store: StateStore, session_id: str, number: int) -> int:
    """Commit one step: a message, a counter and an item; return the acknowledged message count."""
    step_id = f"step-{number}"
    ops = writes(add("n"), push("items", items=[number]))
    await store.stage_changes(session_id, step_id, ops, tool_call_id="call-1")
    done = await store.save_state_and_promote_staging(
        session_id, plain_state(session_id), [user(str(number))], meta(number, step_id)
    )
    return done.message_count


async def ensure_whole(store: StateStore, session_id: str, acknowledged: list[int]) -> None:
    """Check that every acknowledged step is stored, with its message, item, counter and checkpoint together."""
    state = await store.load_state(session_id)
    assert state is not None
    assert state.custom_state is not None
    items = state.custom_state.get("items", [])
    messages = [int(message["content"]) for message in (await store.get_messages(session_id, limit=None)).items]
    checkpoints = await store.list_checkpoints(session_id, limit=200)
    assert items == messages
    assert state.custom_state.get("n", 0) == len(items)
    assert checkpoints.total == len(items)
    assert set(acknowledged) <= set(items)
    assert len(set(items)) == len(items), "a step was done twice"


def through(proxy: Proxy, url: str, port: int) -> str:
    return url.replace(f"{HOST}:{port}", f"{HOST}:{proxy.port}") + "?sslmode=disable"


async def test_a_commit_whose_reply_is_lost_is_found_out(
    postgres_server: PostgresServer, postgres_url: str, proxy_to: MakeProxy
) -> None:
    proxy = await proxy_to(postgres_server.port)
    async with open_stores(through(proxy, postgres_url, postgres_server.port)) as stores:
        store = stores.state
        await store.create_session("a", agent_type="agent")
        await step(store, "a", 0)
        for number in range(1, 6):
            ops = writes(add("n"), push("items", items=[number]))
            await store.stage_changes("a", f"step-{number}", ops, tool_call_id="call-1")
            proxy.lose_reply()
            done = await store.save_state_and_promote_staging(
                "a", plain_state("a"), [user(str(number))], meta(number, f"step-{number}")
            )
            assert done.message_count == number + 1
        await ensure_whole(store, "a", list(range(6)))


async def test_dropped_connections_lose_no_acknowledged_step(
    postgres_server: PostgresServer, postgres_url: str, proxy_to: MakeProxy
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    proxy = await proxy_to(postgres_server.port)
    async with open_stores(through(proxy, postgres_url, postgres_server.port)) as stores:
        store = stores.state
        acknowledged: dict[str, list[int]] = {f"s{number}": [] for number in range(4)}
        for session_id in acknowledged:
            await store.create_session(session_id, agent_type="agent")
        working = True

        async def work(session_id: str) -> None:
            number = 0
            while working:
                with contextlib.suppress(StoreUnavailable):
                    await step(store, session_id, number)
                    acknowledged[session_id].append(number)
                number += 1

        tasks = [asyncio.ensure_future(work(session_id)) for session_id in acknowledged]
        for _ in range(15):
            await asyncio.sleep(chance.uniform(0.005, 0.05))
            proxy.cut()
        working = False
        await asyncio.gather(*tasks)
        for session_id, numbers in acknowledged.items():
            await ensure_whole(store, session_id, numbers)


async def test_a_silent_network_ends_in_store_unavailable(
    postgres_server: PostgresServer, postgres_url: str, proxy_to: MakeProxy
) -> None:
    proxy = await proxy_to(postgres_server.port)
    url = through(proxy, postgres_url, postgres_server.port)
    async with open_stores(f"{url}&command_timeout_seconds=0.3") as stores:
        await stores.state.create_session("a", agent_type="agent")
        proxy.black_hole()
        with pytest.raises(StoreUnavailable, match="in time"):
            await stores.state.append_messages("a", [user("x")])
        proxy.heal()
        assert await stores.state.append_messages("a", [user("y")]) in (1, 2)


async def test_a_restart_between_steps_goes_unnoticed(private_postgres: PostgresServer) -> None:
    async with asyncpg.create_pool(private_postgres.url, min_size=3, max_size=4) as pool:
        store = PostgresStateStore(pool)
        await store.create_session("a", agent_type="agent")
        for number in range(3):
            assert await step(store, "a", number) == number + 1
            await asyncio.to_thread(private_postgres.restart)
        await ensure_whole(store, "a", [0, 1, 2])
        await store.close()


async def test_a_killed_server_has_every_acknowledged_step_and_no_half_one(private_postgres: PostgresServer) -> None:
    pool = await asyncpg.create_pool(private_postgres.url, min_size=2, max_size=6)
    store = PostgresStateStore(pool)
    acknowledged: dict[str, list[int]] = {f"s{number}": [] for number in range(4)}
    for session_id in acknowledged:
        await store.create_session(session_id, agent_type="agent")
    for round_ in range(3):
        enough = asyncio.Event()

        async def work(session_id: str, first: int, enough: asyncio.Event) -> None:
            number = first
            while True:
                await step(store, session_id, number)
                acknowledged[session_id].append(number)
                number += 1
                if min(sum(each >= first for each in numbers) for numbers in acknowledged.values()) > 5:
                    enough.set()

        tasks = [asyncio.ensure_future(work(session_id, round_ * 10_000, enough)) for session_id in acknowledged]
        await enough.wait()
        await asyncio.to_thread(private_postgres.kill9)
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, StoreUnavailable) for each in ended), ended
        await asyncio.to_thread(private_postgres.start)
        for session_id, numbers in acknowledged.items():
            await ensure_whole(store, session_id, numbers)
    await store.close()
    await pool.close()


async def test_a_server_that_is_not_there_is_store_unavailable(private_postgres: PostgresServer) -> None:
    async with asyncpg.create_pool(private_postgres.url, min_size=1, max_size=2) as pool:
        store = PostgresStateStore(pool)
        await store.create_session("a", agent_type="agent")
        await asyncio.to_thread(private_postgres.kill9)
        with pytest.raises(StoreUnavailable):
            await store.load_state("a")
        with pytest.raises(StoreUnavailable):
            await store.append_messages("a", [user("x")])
        await asyncio.to_thread(private_postgres.start)
        assert await store.append_messages("a", [user("x")]) == 1
        await store.close()


FULL = """
CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'could not extend file "base/5/16384": {0}' USING ERRCODE = '{1}', HINT = 'Check free disk space.';
END $$;
CREATE TRIGGER no_room BEFORE INSERT ON __agents_messages EXECUTE FUNCTION no_room();
"""


@pytest.mark.parametrize("reason", [("No space left on device", "53100"), ("File too large", "XX000")])
async def test_a_server_that_has_no_room_is_store_unavailable(postgres_url: str, reason: tuple[str, str]) -> None:
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=2) as pool:
        store = PostgresStateStore(pool)
        await store.create_session("a", agent_type="agent")
        await pool.execute(FULL.format(*reason))
        with pytest.raises(StoreUnavailable, match=reason[0]):
            await store.append_messages("a", [user("x")])
        await pool.execute("DROP TRIGGER no_room ON __agents_messages")
        assert await store.append_messages("a", [user("x")]) == 1
        await store.close()
