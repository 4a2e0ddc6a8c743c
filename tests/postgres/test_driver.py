"""The driver: one round trip for every verb, connections usable after cancellation, pools left as they were."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from helix_agents import open_stores
from helix_agents.backends.postgres.driver import PostgresDriver
from helix_agents.backends.postgres.state_store import PostgresStateStore
from helix_agents.backends.sql_shared.driver import Statement
from helix_agents.conformance.tools.sample import add, meta, plain_state, push, put, ref, user, writes
from helix_agents.errors import InvalidArgument, SessionExists, StoreError, StoreUnavailable
from helix_agents.stores.state.contract import StateStore
from tests.servers.postgres import PostgresServer
from tests.servers.process import HOST
from tests.servers.proxy import Proxy

MakeProxy = Callable[[int], Awaitable[Proxy]]
Verb = Callable[[StateStore], Awaitable[object]]


@pytest.fixture
async def pool(postgres_url: str) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=4) as made:
        yield made


async def commit(store: StateStore) -> None:
    await store.save_state_and_promote_staging("a", plain_state("a"), [user("x")], meta(1, "step-1"))


async def replacing_commit(store: StateStore) -> None:
    state = plain_state("a", custom_state={"items": [1, 2], "other": {"x": 1}})
    await store.save_state_and_promote_staging("a", state, [user("x")], meta(2, "step-2"))


VERBS: dict[str, Verb] = {
    "commit": commit,
    "commit of a whole state": replacing_commit,
    "create": lambda store: store.create_session("b", agent_type="agent", tags=["x"], custom_state={"n": 1}),
    "stage": lambda store: store.stage_changes("a", "s", writes(add("n"), put("o", "k", value=1)), tool_call_id="c"),
    "append": lambda store: store.append_messages("a", [user("x"), user("y")]),
    "merge": lambda store: store.merge_custom_state("a", writes(add("n"), push("items", items=[1]))),
    "swap": lambda store: store.compare_and_set_status("a", "active", "paused"),
    "load": lambda store: store.load_state("a"),
    "messages": lambda store: store.get_messages("a", offset=-2),
    "flag": lambda store: store.set_interrupt_flag("a", "stop"),
    "look at the flag": lambda store: store.check_interrupt_flag("a"),
    "run": lambda store: store.create_run("a", "run-1"),
    "run ends": lambda store: store.update_run_status("run-0", "completed"),
    "refs": lambda store: store.add_sub_session_refs("a", [ref("child-1")]),
    "ref changes": lambda store: store.update_sub_session_ref("a", "child-0", status="completed"),
    "listing": lambda store: store.list_sessions(status=["active", "paused"], tags=["x"]),
    "checkpoint": lambda store: store.get_latest_checkpoint("a"),
    "checkpoints": lambda store: store.list_checkpoints("a"),
    "delete": lambda store: store.delete_session("a"),
}


@pytest.mark.parametrize("name", VERBS)
async def test_a_verb_is_one_round_trip(
    name: str, postgres_server: PostgresServer, postgres_url: str, proxy_to: MakeProxy
) -> None:
    proxy = await proxy_to(postgres_server.port)
    url = postgres_url.replace(f"{HOST}:{postgres_server.port}", f"{HOST}:{proxy.port}")
    async with open_stores(f"{url}?pool_size=1&sslmode=disable") as stores:
        store = stores.state
        # Statements are prepared once per connection: prepare all of them first, on another session.
        await store.create_session("z", agent_type="agent", custom_state={"n": 1, "items": []})
        for verb in VERBS.values():
            await store.create_session("a", agent_type="agent", custom_state={"n": 1, "items": []})
            await store.create_run("a", "run-0")
            await store.add_sub_session_refs("a", [ref("child-0")])
            await verb(store)
            await store.delete_session("a")
            await store.delete_session("b")
        await store.create_session("a", agent_type="agent", custom_state={"n": 1, "items": []})
        await store.create_run("a", "run-0")
        await store.add_sub_session_refs("a", [ref("child-0")])
        await store.stage_changes("a", "step-1", writes(add("n"), push("items", items=[1])), tool_call_id="c")
        before = proxy.round_trips
        await VERBS[name](store)
        assert proxy.round_trips - before == 1


async def test_a_pool_of_the_caller_is_not_reset_between_the_batches(
    postgres_server: PostgresServer, postgres_url: str, proxy_to: MakeProxy
) -> None:
    proxy = await proxy_to(postgres_server.port)
    url = postgres_url.replace(f"{HOST}:{postgres_server.port}", f"{HOST}:{proxy.port}") + "?sslmode=disable"
    async with asyncpg.create_pool(url, min_size=2, max_size=2) as pool:
        store = PostgresStateStore(pool)
        await store.create_session("a", agent_type="agent")
        await asyncio.gather(*(store.append_messages("a", [user("x")]) for _ in range(4)))
        before = proxy.round_trips
        await asyncio.gather(*(store.append_messages("a", [user("x")]) for _ in range(100)))
        assert proxy.round_trips - before < 150
        await store.close()


async def test_others_get_their_turn_in_a_pool_that_a_store_keeps_busy(pool: asyncpg.Pool) -> None:
    store = PostgresStateStore(pool)
    await store.create_session("a", agent_type="agent")
    busy = True

    async def work() -> None:
        while busy:
            await store.append_messages("a", [user("x")])

    working = [asyncio.ensure_future(work()) for _ in range(20)]
    try:
        for _ in range(5):
            assert await asyncio.wait_for(pool.fetchval("SELECT 1"), 30) == 1
    finally:
        busy = False
        await asyncio.gather(*working)
        await store.close()


async def test_a_closed_store_gives_everything_back_and_leaves_the_pool_open(pool: asyncpg.Pool) -> None:
    store = PostgresStateStore(pool)
    await asyncio.gather(*(store.create_session(f"s{number}", agent_type="agent") for number in range(20)))
    await store.close()
    assert pool.get_idle_size() == pool.get_size()
    assert await pool.fetchval("SELECT 1") == 1
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.load_state("s1")


async def test_cancelled_tasks_leave_every_connection_usable(pool: asyncpg.Pool) -> None:
    store = PostgresStateStore(pool)
    await store.create_session("a", agent_type="agent")
    for round_ in range(40):
        tasks = [asyncio.ensure_future(store.append_messages("a", [user(f"{round_}.{n}")])) for n in range(6)]
        for _ in range(round_ % 8):
            await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, int | asyncio.CancelledError) for each in done), done
    count = await store.get_message_count("a")
    texts = [message["content"] for message in (await store.get_messages("a", limit=None)).items]
    assert len(texts) == count == len(set(texts))
    assert count >= 40 * 3
    await store.close()
    rows = await pool.fetch("SELECT state FROM pg_stat_activity WHERE datname = current_database()")
    assert all("transaction" not in (row["state"] or "") for row in rows)


async def test_cancelling_in_a_row_lock_waits_for_nobody(pool: asyncpg.Pool) -> None:
    store = PostgresStateStore(pool)
    await store.create_session("a", agent_type="agent")
    async with pool.acquire() as holder, holder.transaction():
        await holder.execute("SELECT 1 FROM __agents_states FOR UPDATE")
        waiting = asyncio.ensure_future(store.append_messages("a", [user("x")]))
        while not await holder.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            continue
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    # It was there or not, as a whole; the connection works either way.
    assert await store.append_messages("a", [user("y")]) in (1, 2)
    await store.close()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_stricter_isolation_is_retried(postgres_url: str, level: str) -> None:
    settings = {"default_transaction_isolation": level}
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=3, server_settings=settings) as pool:
        store = PostgresStateStore(pool)
        await store.create_session("a", agent_type="agent")
        outcomes = await asyncio.gather(
            *(store.append_messages("a", [user(str(number))]) for number in range(12)), return_exceptions=True
        )
        done = [each for each in outcomes if isinstance(each, int)]
        assert all(isinstance(each, int | StoreUnavailable) for each in outcomes), outcomes
        assert sorted(done) == list(range(1, len(done) + 1))
        await store.close()


async def test_who_loses_in_a_deadlock_tries_again(pool: asyncpg.Pool) -> None:
    driver = PostgresDriver(pool)
    store = PostgresStateStore(pool, driver=driver)
    for name in "ab":
        await store.create_session(name, agent_type="agent")
    count = "UPDATE __agents_states SET step_count = step_count + 1 WHERE session_id = ?1"

    def crosswise(first: str, second: str) -> list[Statement]:
        return [Statement(count, (first,)), Statement("SELECT 1 FROM pg_sleep(0.2)"), Statement(count, (second,))]

    await asyncio.gather(driver.batch(crosswise("a", "b")), driver.batch(crosswise("b", "a")))
    found = [await store.load_state(name) for name in "ab"]
    assert [state and state.step_count for state in found] == [2, 2]
    await driver.close()


async def test_a_batch_of_unknown_statements_is_atomic_too(pool: asyncpg.Pool) -> None:
    driver = PostgresDriver(pool)
    insert = "INSERT INTO __agents_interrupt_flags (session_id, timestamp) VALUES (?1, CAST(?2 AS BIGINT))"
    with pytest.raises(StoreError):
        await driver.batch([Statement(insert, ("a", 1)), Statement("INSERT INTO __agents_nowhere VALUES (1)")])
    assert await driver.batch([Statement("SELECT * FROM __agents_interrupt_flags")], read_only=True) == [[]]
    await driver.close()


async def test_reads_of_one_batch_see_one_moment(pool: asyncpg.Pool) -> None:
    driver = PostgresDriver(pool)
    count = Statement("SELECT count(*) FROM __agents_interrupt_flags WHERE pg_sleep(0) IS NOT NULL")
    insert = Statement("INSERT INTO __agents_interrupt_flags (session_id, timestamp) SELECT gen_random_uuid()::text, 1")
    writing = True

    async def write() -> None:
        while writing:
            await driver.batch([insert])

    task = asyncio.ensure_future(write())
    for _ in range(50):
        answers = await driver.batch([count] * 5, read_only=True)
        assert len({rows[0][0] for rows in answers}) == 1
    writing = False
    await task
    await driver.close()


async def test_a_dropped_function_comes_back(pool: asyncpg.Pool) -> None:
    store = PostgresStateStore(pool)
    await store.create_session("a", agent_type="agent")
    for row in await pool.fetch("SELECT oid::regprocedure::text AS name FROM pg_proc WHERE proname ~ '_[0-9a-f]{8}$'"):
        await pool.execute(f"DROP FUNCTION {row['name']}")
    assert await store.append_messages("a", [user("x")]) == 1
    assert await pool.fetchval("SELECT count(*) FROM pg_proc WHERE proname ~ '_[0-9a-f]{8}$'") > 0
    await store.close()


async def test_data_is_readable_in_psql(pool: asyncpg.Pool) -> None:
    store = PostgresStateStore(pool)
    await store.create_session("a", agent_type="agent", custom_state={"name": "Zoë", "n": 1})
    await store.append_messages("a", [user("hello"), user("nul \x00 and \ud800")])
    readable = "SELECT message::json->>'content' FROM __agents_messages WHERE sequence = 0"
    assert await pool.fetchval(readable) == "hello"
    assert await pool.fetchval("SELECT value FROM __agents_custom_state WHERE key = 'name'") == '"Zoë"'
    page = await store.get_messages("a")
    assert page.items[1]["content"] == "nul \x00 and \ud800"
    await store.close()


@pytest.mark.parametrize("schema", ["a b", 'x"; DROP', "", "é", "a" * 64])
async def test_a_schema_is_a_plain_name(pool: asyncpg.Pool, schema: str) -> None:
    with pytest.raises(InvalidArgument):
        PostgresStateStore(pool, schema=schema)


async def test_of_many_creates_exactly_one_wins(pool: asyncpg.Pool) -> None:
    store = PostgresStateStore(pool)
    outcomes = await asyncio.gather(
        *(store.create_session("a", agent_type="agent") for _ in range(20)), return_exceptions=True
    )
    assert sum(isinstance(each, SessionExists) for each in outcomes) == 19
    await store.close()
