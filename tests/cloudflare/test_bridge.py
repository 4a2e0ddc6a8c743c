"""The bridge Worker and its Python side: addresses, tokens, versions, lost connections, browsers."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from aiohttp import web

from helix_agents import InvalidArgument, StoreUnavailable, StreamNotActive, open_stores
from helix_agents.backends.cloudflare.bridge import Bridge, BridgeD1, BridgeObject
from helix_agents.backends.cloudflare.d1 import D1MemoryStore, D1StateStore, D1UsageStore, run_migration
from helix_agents.backends.cloudflare.http import MAX_AT_ONCE
from helix_agents.backends.cloudflare.rest import D1Rest
from helix_agents.backends.cloudflare.streams import DurableObjectStreamManager
from helix_agents.backends.sql_shared.driver import Row, Statement
from helix_agents.backends.sql_shared.schema.migrate import COMPACT_STATE, migrate
from helix_agents.errors import NotMigrated, StoreError
from tests.cloudflare.client import narrow_session
from tests.cloudflare.homes import Home
from tests.cloudflare.inside.costs import costs
from tests.cloudflare.workerd import Workerd
from tests.servers.process import free_port

pytestmark = pytest.mark.usefixtures("bridge_of_harnesses")


@pytest.fixture
async def bridge(workerd: Workerd) -> AsyncIterator[Bridge]:
    made = Bridge(workerd.url, workerd.token)
    yield made
    await made.close()


@pytest.fixture
async def streams(bridge: Bridge, request: pytest.FixtureRequest) -> AsyncIterator[DurableObjectStreamManager]:
    manager = DurableObjectStreamManager(bridge, prefix=request.node.name)
    yield manager
    await manager.close()


async def pour(
    manager: DurableObjectStreamManager, stream_id: str, count: int, *, end: bool = True, size: int = 0
) -> None:
    writer = await manager.create_writer(stream_id, "run", "agent")
    for number in range(count):
        await writer.write({"type": "text_delta", "delta": f"{number} ".ljust(size)})
    await writer.close()
    if end:
        await manager.end_stream(stream_id, {"done": True})


async def browse(url: str) -> list[dict[str, Any]]:
    """Return everything that a browser receives, until the socket closes."""
    frames = []
    async with aiohttp.ClientSession() as session, session.ws_connect(url, max_msg_size=0) as socket:
        async for message in socket:
            frames.append(message.json())
    return frames


def sequences(frames: list[dict[str, Any]]) -> list[int]:
    return [frame["id"] for frame in frames if frame["event"] == "chunk"]


# -- addresses


@pytest.mark.parametrize("scheme", ["d1", "do", "rest"])
async def test_stores_open_by_an_address(workerd: Workerd, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = Home.free.pop()
    address = f"{scheme}://:{workerd.token}@127.0.0.1:{workerd.port}/{name}?prefix=app"
    if scheme == "rest":  # an account instead of a bridge, at an address that is Cloudflare's own
        monkeypatch.setattr(D1Rest.__init__, "__kwdefaults__", {"url": workerd.url, "timeout_seconds": 30.0})
        address = f"d1://:{workerd.token}@{'a' * 32}/{name}?prefix=app"
    async with open_stores(address) as stores, open_stores(address) as others:
        await stores.state.create_session("s", agent_type="a", custom_state={"n": 1})
        writer = await stores.streams.create_writer("s", "run", "a")
        reader = await others.streams.create_reader("s")
        assert reader is not None
        await writer.write({"type": "text_delta", "delta": "hello"})
        await writer.close()
        await stores.streams.end_stream("s")
        assert [chunk["delta"] async for chunk in reader] == ["hello"]
        assert await others.state.session_exists("s")
        assert (await others.usage.get_rollup("s")).tokens.total == 0
        assert await others.memory.search("e", "hello") == []


@pytest.mark.parametrize("scheme", ["d1", "do"])
async def test_looking_neither_creates_nor_migrates(workerd: Workerd, scheme: str) -> None:
    name = Home.free.pop()
    address = f"{scheme}://:{workerd.token}@127.0.0.1:{workerd.port}/{name}"
    for _ in range(2):
        with pytest.raises(NotMigrated) as caught:
            async with open_stores(address, migrate=False):
                pass
        assert workerd.token not in str(caught.value)
    async with open_stores(address):
        pass
    async with open_stores(address, migrate=False) as stores:
        assert not await stores.state.session_exists("s")


async def test_the_token_may_come_from_the_environment(workerd: Workerd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIX_CLOUDFLARE_TOKEN", workerd.token)
    async with open_stores(f"do://127.0.0.1:{workerd.port}/by-environment") as stores:
        assert not await stores.state.session_exists("s")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("d1:", "cannot be parsed"),
        ("d1://:t@host", "looks like d1://:TOKEN@bridge"),
        ("do://:t@/name", "looks like do://:TOKEN@bridge"),
        ("do://host/name", "no token"),
        ("do://:t@host/name?tls=maybe", "tls"),
        ("do://:t@host/name?colour=red", "colour"),
    ],
)
async def test_a_bad_address_is_refused(address: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        async with open_stores(address):
            pass


# -- what is rejected


@pytest.mark.parametrize("scheme", ["d1", "do"])
async def test_a_wrong_token_is_told_without_showing_it(workerd: Workerd, scheme: str) -> None:
    with pytest.raises(StoreError, match="does not accept this token") as caught:
        async with open_stores(f"{scheme}://:wrongtoken@127.0.0.1:{workerd.port}/DB0"):
            pass
    assert "wrongtoken" not in str(caught.value)
    assert "wrongtoken" not in repr(Bridge(workerd.url, "wrongtoken"))


async def test_a_database_that_the_bridge_does_not_have_is_named(bridge: Bridge) -> None:
    with pytest.raises(StoreError, match="no D1 binding NOPE"):
        await run_migration(BridgeD1(bridge, "NOPE"))


async def test_values_that_do_not_fit_are_refused_and_leave_nothing(bridge: Bridge) -> None:
    store = D1StateStore(BridgeObject(bridge, "large"))
    await store.create_session("s", agent_type="a", custom_state={})
    with pytest.raises(InvalidArgument, match="larger than Cloudflare allows"):
        await store.append_messages("s", [{"role": "user", "content": "a" * 2_100_000}])
    assert await store.get_message_count("s") == 0
    with pytest.raises(InvalidArgument, match="9007199254740991"):
        await store.create_session("t", agent_type="a", expires_at=2**53)
    assert not await store.session_exists("t")
    # Inside JSON an integer is text, and exact.
    await store.append_messages("s", [{"role": "user", "content": 2**63 - 1}])
    assert (await store.get_messages("s")).items[0]["content"] == 2**63 - 1
    await store._driver.close()


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Any]]:
    """`url = await serve(status, body)`: a server that replies so to everything."""
    runners: list[web.AppRunner] = []

    async def start(status: int, body: Any) -> str:
        async def reply(request: web.Request) -> web.Response:
            return web.json_response(body, status=status)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", reply)
        runners.append(web.AppRunner(app))
        await runners[-1].setup()
        site = web.TCPSite(runners[-1], "127.0.0.1", 0)
        await site.start()
        port = runners[-1].addresses[0][1]
        return f"http://127.0.0.1:{port}"

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("status", "body"),
    [(404, {"error": "this bridge speaks version 2", "bridge": 2}), (200, {"hello": "world"}), (200, [1])],
    ids=["newer", "another service", "a list"],
)
async def test_a_bridge_of_another_version_is_told(serve: Callable[..., Any], status: int, body: Any) -> None:
    await _is_told_to_deploy(Bridge(await serve(status, body), "t"))


async def test_a_deployed_bridge_of_an_older_version_is_told(workerd: Workerd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helix_agents.backends.cloudflare.bridge.BRIDGE_VERSION", 2)
    await _is_told_to_deploy(Bridge(workerd.url, workerd.token))


async def _is_told_to_deploy(bridge: Bridge) -> None:
    for driver in (BridgeD1(bridge), BridgeObject(bridge, "o")):
        with pytest.raises(StoreError, match="not a bridge of the version that this library speaks: deploy"):
            await driver.batch([Statement("SELECT 1")])
    await bridge.close()


async def test_an_overloaded_d1_is_unavailable_and_has_written_nothing(serve: Callable[..., Any]) -> None:
    said = {"code": 7500, "message": "D1 DB is overloaded. Too many requests queued."}
    rest = D1Rest("a", "d", "t", url=await serve(400, {"success": False, "errors": [said], "result": []}))
    with pytest.raises(StoreUnavailable, match="overloaded") as caught:
        await rest.batch([Statement("SELECT 1")])
    assert caught.value.nothing_written
    await rest.close()
    bridge = Bridge(await serve(409, {"error": said["message"]}), "t")
    with pytest.raises(StoreUnavailable, match="overloaded"):
        await BridgeD1(bridge).batch([Statement("SELECT 1")])
    await bridge.close()


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_bridge_that_does_not_work_is_told_without_the_token(serve: Callable[..., Any], status: int) -> None:
    bridge = Bridge(await serve(status, {"error": "out of order"}), "secret-token")
    for driver in (BridgeD1(bridge), BridgeObject(bridge, "o")):
        with pytest.raises(StoreError, match=f"replied {status}") as caught:
            await driver.batch([Statement("SELECT 1")])
        assert "secret-token" not in "".join(traceback.format_exception(caught.value))
    await bridge.close()


async def test_a_bridge_that_is_not_there_is_told() -> None:
    port = free_port()
    bridge = Bridge(f"http://127.0.0.1:{port}", "secret-token")
    for driver in (BridgeD1(bridge), BridgeObject(bridge, "o")):
        with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port} cannot be reached: Cannot connect"):
            await driver.batch([Statement("SELECT 1")])
    await bridge.close()


@pytest.mark.parametrize("kind", ["requests", "sockets"])
async def test_many_calls_at_once_take_turns(kind: str) -> None:
    """A thousand concurrent connections are more than a server accepts."""
    under_way, full, release = 0, asyncio.Event(), asyncio.Event()

    async def hold(request: web.Request) -> web.Response:
        nonlocal under_way
        if request.path.startswith("/other"):
            return web.json_response({})
        under_way += 1
        if under_way == MAX_AT_ONCE:
            full.set()
        await release.wait()
        under_way -= 1
        return web.json_response({"error": "database is overloaded"}, status=409)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", hold)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    bridge, other = (Bridge(f"http://127.0.0.1:{runner.addresses[0][1]}", "t") for _ in range(2))
    homes = [BridgeD1(bridge) if kind == "requests" else BridgeObject(bridge, f"{number}") for number in range(300)]
    calls = asyncio.gather(*(home.batch([Statement("SELECT 1")]) for home in homes), return_exceptions=True)
    await full.wait()
    for _ in range(50):  # anything else in flight arrives in the meantime
        await other.http.post("/other", {})
    assert under_way == MAX_AT_ONCE
    release.set()
    assert {type(each) for each in await calls} <= {StoreUnavailable, StoreError}
    for each in (*homes, bridge, other):
        await each.close()
    await runner.cleanup()


async def test_rest_with_a_wrong_token_is_told(workerd: Workerd) -> None:
    rest = D1Rest("account", "DB0", "wrong", url=workerd.url)
    with pytest.raises(StoreError, match="does not accept this token"):
        await rest.batch([Statement("SELECT 1")])
    await rest.close()


async def test_an_empty_batch_does_nothing(bridge: Bridge) -> None:
    assert await BridgeD1(bridge, "DB0").batch([]) == []


# -- migration and stores by hand


async def test_stores_share_a_database_that_was_migrated_once(bridge: Bridge) -> None:
    database = BridgeD1(bridge, Home.free.pop())
    assert await run_migration(database)
    assert await run_migration(database) == []
    written = database.rows_written
    state, usage = D1StateStore(database, migrated=True), D1UsageStore(database, migrated=True)
    await state.create_session("s", agent_type="a")
    assert (await usage.get_rollup("s")).tokens.total == 0
    assert await D1MemoryStore(database, migrated=True).search("e", "word") == []
    assert 0 < database.rows_written - written <= 8


class OvertakenDatabase(BridgeD1):
    """A database whose tables an older Worker starts to create just before this one does."""

    older: BridgeD1 | None = None

    async def batch(self, statements: Sequence[Statement], *, read_only: bool = False) -> list[list[Row]]:
        if self.older is not None and any("CREATE TABLE __agents_" in each.sql for each in statements):
            older, self.older = self.older, None
            await migrate(older, families=COMPACT_STATE)  # it knows sessions only
        return await super().batch(statements, read_only=read_only)


async def test_a_database_in_the_middle_of_a_migration_by_an_older_worker(bridge: Bridge) -> None:
    name = Home.free.pop()
    database = OvertakenDatabase(bridge, name)
    database.older = BridgeD1(bridge, name)
    await run_migration(database)
    assert database.older is None, "nothing overtook it"
    state, usage = D1StateStore(database, migrated=True), D1UsageStore(database, migrated=True)
    await state.create_session("s", agent_type="a")
    assert (await usage.get_rollup("s")).tokens.total == 0
    assert await D1MemoryStore(database, migrated=True).search("e", "word") == []
    assert await run_migration(BridgeD1(bridge, name)) == []


async def test_many_workers_that_start_on_an_empty_database_migrate_it_once(bridge: Bridge) -> None:
    name = Home.free.pop()
    done = await asyncio.gather(*(run_migration(BridgeD1(bridge, name)) for _ in range(6)))
    assert sorted(map(len, done)) == [0, 0, 0, 0, 0, 1]


# -- what it costs


async def test_rows_written_stay_few(bridge: Bridge) -> None:
    database = BridgeD1(bridge, Home.free.pop())
    streams = DurableObjectStreamManager(bridge, prefix="costs")

    def rows() -> int:
        return database.rows_written + streams.rows_written

    found = await costs(D1StateStore(database), streams, rows)
    print(found)
    assert found["commit"] <= 13
    assert found["thousand_chunks_by_ten"] <= 300
    await streams.close()


# -- browsers


async def test_a_browser_reads_a_stream_with_a_ticket(streams: DurableObjectStreamManager) -> None:
    await pour(streams, "s", 3)
    frames = await browse(streams.browser_url("s"))
    assert frames[0] == {
        "event": "open",
        "id": None,
        "data": {"session_id": "s", "status": "ended", "from_sequence": 0, "latest_sequence": 3},
    }
    assert [frame["data"]["delta"] for frame in frames[1:4]] == ["0 ", "1 ", "2 "]
    assert frames[4:] == [{"event": "end", "id": None, "data": {"status": "completed", "output": {"done": True}}}]
    assert sequences(await browse(streams.browser_url("s", from_sequence=2))) == [3]


async def test_a_ticket_opens_its_own_stream_only_and_not_for_ever(streams: DurableObjectStreamManager) -> None:
    await pour(streams, "s", 1)
    await pour(streams, "t", 1)
    good, other = streams.browser_url("s"), streams.browser_url("t")
    forged = other.partition("?")[0] + "?" + good.partition("?")[2]
    late = streams.browser_url("s", valid_seconds=-1)
    stretched = late.replace("expires=", "expires=9")
    driver = good.replace("/stream/s", "/socket")
    for url in (forged, late, stretched, driver, good.partition("?")[0]):
        with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
            await browse(url)


async def test_a_ticket_does_not_outlive_its_stream(streams: DurableObjectStreamManager) -> None:
    """This includes a stream that was deleted before it was ever written, like that of a fork."""
    old = streams.browser_url("fork")
    await streams.delete_stream("fork")
    await pour(streams, "fork", 1)
    older = streams.browser_url("s")
    await pour(streams, "s", 1)
    assert sequences(await browse(older)) == [1]
    await streams.delete_stream("s")
    await pour(streams, "s", 1)
    for url in (old, older):
        with pytest.raises(aiohttp.WSServerHandshakeError, match="404"):
            await browse(url)
    assert sequences(await browse(streams.browser_url("s"))) == [1]


async def test_browsers_are_told_of_bad_cursors_and_lost_chunks(bridge: Bridge) -> None:
    manager = DurableObjectStreamManager(bridge, prefix="cursors", max_chunks=5)
    await pour(manager, "s", 20)
    frames = await browse(manager.browser_url("s", from_sequence=3))
    assert [frame["event"] for frame in frames] == ["open", "truncated"]
    assert frames[1]["data"] == {"first_sequence": 16}
    with pytest.raises(aiohttp.WSServerHandshakeError, match="416"):
        await browse(manager.browser_url("s", from_sequence=21))
    with pytest.raises(aiohttp.WSServerHandshakeError, match="404"):
        await browse(manager.browser_url("nothing"))
    await manager.close()


async def test_browsers_hear_of_failure_pause_and_deletion(streams: DurableObjectStreamManager) -> None:
    acts: list[tuple[str, Callable[[], Any], str, Any]] = [
        ("failing", lambda: streams.fail_stream("failing", "no"), "fail", {"error": "no"}),
        ("pausing", lambda: streams.pause_stream("pausing"), "pause", {"status": "paused", "suspended": []}),
        ("going", lambda: streams.delete_stream("going"), "gone", {}),
    ]
    for stream_id, act, event, data in acts:
        await pour(streams, stream_id, 1, end=False)
        async with aiohttp.ClientSession() as session, session.ws_connect(streams.browser_url(stream_id)) as socket:
            await socket.receive_json()
            await socket.receive_json()
            await act()
            assert await socket.receive_json() == {"event": event, "id": None, "data": data}


async def test_an_object_forgets_its_stream_and_the_next_one_too(bridge: Bridge) -> None:
    manager = DurableObjectStreamManager(bridge, prefix="forgetful", ttl=1)
    for _ in range(2):
        await pour(manager, "s", 2, end=False)
        frames = await asyncio.wait_for(browse(manager.browser_url("s")), 60)
        assert [frame["event"] for frame in frames] == ["open", "chunk", "chunk", "gone"]
        assert sequences(frames) == [1, 2]
    await manager.close()


async def test_an_object_is_not_emptied_under_a_stream_that_was_created_since(
    streams: DurableObjectStreamManager,
) -> None:
    """A deletion may stall before it empties the object."""
    await pour(streams, "s", 3)
    await streams.delete_stream("s", fence=1)
    writer = await streams.create_writer("s", "run", "agent", fence=2)
    await writer.write({"type": "text_delta", "delta": "new"})
    await writer.close()
    place: Any = streams._home("s")
    await place.place.forget()
    assert [stored.chunk["delta"] for stored in await streams.get_all_chunks("s")] == ["new"]


async def test_a_browser_that_does_not_read_slows_no_other_and_loses_nothing(
    streams: DurableObjectStreamManager,
) -> None:
    await pour(streams, "s", 1, end=False)
    url = streams.browser_url("s")
    async with narrow_session() as session:
        idle = await session.ws_connect(url, max_msg_size=0)
        reading = asyncio.create_task(browse(url))
        await pour(streams, "s", 200, size=100_000)  # 20 MB, much more than a connection holds
        frames = await reading
        assert sequences(frames) == list(range(1, 202))
        assert [message.json() async for message in idle][1:] == frames[1:]


async def test_browsers_read_streams_with_long_names(streams: DurableObjectStreamManager) -> None:
    await pour(streams, "ü" * 256, 2)
    assert sequences(await browse(streams.browser_url("ü" * 256))) == [1, 2]


# -- lost connections


async def test_readers_and_writers_go_on_after_the_runtime_was_killed(private_workerd: Workerd) -> None:
    bridge = Bridge(private_workerd.url, private_workerd.token)
    writing, reading = (DurableObjectStreamManager(bridge, prefix="p") for _ in range(2))
    state = D1StateStore(BridgeObject(bridge, "state"))
    await state.create_session("s", agent_type="a")
    private_workerd.kill9()
    with pytest.raises(StoreUnavailable):
        await state.increment_step_count("s")
    private_workerd.start()
    writer = await writing.create_writer("s", "run", "agent")
    await writer.write({"type": "text_delta", "delta": "before"})
    await writer.flush()
    reader = await reading.create_reader("s")
    assert reader is not None
    following = aiter(reader)
    seen = [(await anext(following))["delta"]]
    private_workerd.kill9()
    private_workerd.start()  # nothing is awaited in between: a reader gets an error while there is no runtime
    await writer.write({"type": "text_delta", "delta": "after"})
    await writer.close()
    await writing.end_stream("s")
    seen += [chunk["delta"] async for chunk in following]
    assert seen == ["before", "after"]
    await state.increment_step_count("s")
    with pytest.raises(StreamNotActive):
        await writing.create_writer("s", "run", "agent")
    for each in (writing, reading, state._driver, bridge):
        await each.close()


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_thirty_browsers_get_everything_once_across_sleep_and_death(private_workerd: Workerd, count: int) -> None:
    """Those that were cut off come back with the last sequence they saw; one never reads."""
    bridge = Bridge(private_workerd.url, private_workerd.token)
    manager = DurableObjectStreamManager(bridge, prefix="p")
    part = count // 3
    await pour(manager, "s", part, end=False)
    async with aiohttp.ClientSession() as session:
        await session.ws_connect(manager.browser_url("s"))
        readers = [asyncio.create_task(browse_to_the_end(manager, "s")) for _ in range(30)]
        await asleep(private_workerd, manager)
        await pour(manager, "s", part, end=False)
        private_workerd.kill9()
        private_workerd.start()
        # The manager's socket is dead, which is not detected yet: requests that only read are sent again.
        await pour(manager, "s", count - 2 * part)
        for frames in await asyncio.gather(*readers):
            assert sequences(frames) == list(range(1, count + 1))
    await manager.close()
    await bridge.close()


async def browse_to_the_end(manager: DurableObjectStreamManager, stream_id: str) -> list[dict[str, Any]]:
    """Return the frames of a browser that reconnects until it gets a final frame."""
    frames: list[dict[str, Any]] = []
    while not frames or frames[-1]["event"] != "end":
        last = max(sequences(frames), default=0)
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.ws_connect(manager.browser_url(stream_id, from_sequence=last), max_msg_size=0) as socket,
            ):
                async for message in socket:
                    frames.append(message.json())
        except (aiohttp.ClientError, OSError):
            await asyncio.sleep(0.1)  # it is not up again yet
    return frames


async def asleep(workerd: Workerd, manager: DurableObjectStreamManager) -> None:
    """Wait until the object of the stream has hibernated; there is no event to wait for."""
    life = f"{workerd.url}/life/{quote(manager._homes.name_of('s'), safe='')}"
    lives = set()
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(life) as reply:
                lives.add(await reply.text())
            if len(lives) > 1:
                return
            await asyncio.sleep(12)  # workerd lets an object hibernate after 10 s


async def test_an_idle_socket_closes_and_opens_again(bridge: Bridge) -> None:
    home = BridgeObject(bridge, "idle", idle_seconds=0.05)
    await home.batch([Statement("SELECT 1")])
    first = await home.open()
    await asyncio.wait_for(first.closed.wait(), 10)
    assert await home.batch([Statement("SELECT 2 AS two")]) == [[(2,)]]
    assert await home.open() is not first
    await home.close()
