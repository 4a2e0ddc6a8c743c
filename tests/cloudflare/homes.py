"""How the kit opens stores on Cloudflare from outside, through the bridge and through D1's REST shape.

A home is a Durable Object with a fresh name, or one of the D1 databases of the server, which is emptied after a check.
`Home.url` and `Home.token` are set by the fixture; child processes find both in their environment.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, ClassVar

from helix_agents.backends.cloudflare.bridge import Bridge, BridgeD1, BridgeObject
from helix_agents.backends.cloudflare.d1 import D1_FAMILIES
from helix_agents.backends.cloudflare.polling import Polling
from helix_agents.backends.cloudflare.rest import D1Rest
from helix_agents.backends.cloudflare.streams import DurableObjectStreamManager
from helix_agents.backends.cloudflare.wire import CloudflareDriver
from helix_agents.backends.sql_shared.driver import Row, Statement
from helix_agents.backends.sql_shared.memory.store import SqlMemoryStore
from helix_agents.backends.sql_shared.schema.migrate import COMPACT_STATE
from helix_agents.backends.sql_shared.schema.self_migrating import MigratedDriver
from helix_agents.backends.sql_shared.state.store import SqlStateStore
from helix_agents.backends.sql_shared.streams.manager import SqlStreamManager
from helix_agents.backends.sql_shared.usage.store import SqlUsageStore
from helix_agents.conformance.executor.harness import Parts
from helix_agents.conformance.harness import Harness
from helix_agents.conformance.options import Options
from helix_agents.stores.state.contract import StateStore
from helix_agents.streams.contract import StreamManager

TABLES = (
    "SELECT type, name FROM sqlite_master WHERE name LIKE '%\\_\\_agents\\_%' ESCAPE '\\' AND type IN ('view', 'table')"
    " AND name NOT LIKE '%\\_index\\_%' ESCAPE '\\' ORDER BY type DESC"
)


class Place:
    """One database, reached in one way. Written as `kind/name`, so that a child process can open it too."""

    def __init__(self, text: str) -> None:
        self.kind, _, self.name = text.partition("/")
        self.bridge = Bridge(os.environ["CF_URL"], os.environ["CF_TOKEN"])

    def driver(self) -> CloudflareDriver:
        if self.kind == "d1":
            return BridgeD1(self.bridge, self.name)
        if self.kind == "rest":
            return D1Rest("account", self.name, os.environ["CF_TOKEN"], url=os.environ["CF_URL"])
        return BridgeObject(self.bridge, self.name)

    def streams(self, **options: Any) -> DurableObjectStreamManager:
        return DurableObjectStreamManager(self.bridge, prefix=self.name, **options)


class OwnedState(SqlStateStore):
    """A store that closes what it was opened on."""

    def __init__(self, text: str, prefix: str = "") -> None:
        place = Place(text)
        self._bridge = place.bridge
        super().__init__(MigratedDriver(place.driver(), prefix=prefix, families=COMPACT_STATE), prefix=prefix)

    async def close(self) -> None:
        await self._driver.close()
        await self._bridge.close()


async def open_state(text: str) -> StateStore:
    """Return what a child process of the kit calls."""
    return OwnedState(text)


class OwnedStreams(DurableObjectStreamManager):
    def __init__(self, place: Place, **options: Any) -> None:
        super().__init__(place.bridge, prefix=place.name, **options)
        self._owned = place.bridge

    async def close(self) -> None:
        await super().close()
        await self._owned.close()


def streams_at(text: str, **options: Any) -> OwnedStreams:
    return OwnedStreams(Place(text), **options)


async def open_streams(text: str) -> StreamManager:
    """Return what a child process of the kit calls."""
    return streams_at(text, max_chunks=0)


class Home:
    """Takes places for a check and gives them back."""

    kind: ClassVar[str] = "do"
    free: ClassVar[list[str]] = []

    def __init__(self) -> None:
        self.options = Options()
        self._taken: list[str] = []
        self._opened: list[Any] = []
        self.text = self.another()

    def another(self) -> str:
        name = f"kit-{secrets.token_hex(6)}" if self.kind == "do" else self.free.pop()
        self._taken.append(f"{self.kind}/{name}")
        return self._taken[-1]

    def kept(self, opened: Any) -> Any:
        self._opened.append(opened)
        return opened

    async def close_all(self) -> None:
        for each in self._opened:
            await each.close()
        self._opened.clear()

    async def rows(self, *sql: str, at: str = "") -> tuple[list[list[Row]], int]:
        """Return what plain statements find, and the size of the database."""
        place = Place(at or self.text)
        driver = place.driver()
        try:
            return await driver.batch([Statement(each) for each in sql]), driver.size_bytes
        finally:
            await driver.close()
            await place.bridge.close()

    async def dispose(self) -> None:
        await self.close_all()
        if self.kind == "do":
            return  # nobody else will ever know the name
        for text in self._taken:
            (found,), _ = await self.rows(TABLES, at=text)
            if found:
                await self.rows(*(f'DROP {kind} IF EXISTS "{name}"' for kind, name in found), at=text)
            self.free.append(text.partition("/")[2])


class StateOnObject(Home, Harness):
    name: ClassVar[str] = "Durable Object over the bridge"

    async def open(self) -> StateStore:
        return self.kept(OwnedState(self.text))

    async def open_neighbour(self) -> StateStore:
        return self.kept(OwnedState(self.text, "other_"))

    async def reopen(self) -> StateStore:
        await self.close_all()
        return await self.open()

    def child_spec(self) -> str:
        return f"{__name__}:open_state {self.text}"

    def fresh_child_spec(self) -> str:
        return f"{__name__}:open_state {self.another()}"

    async def traces(self, session_id: str) -> list[str]:
        (found,), _ = await self.rows(TABLES)
        names = [name for kind, name in found if kind == "table" and not name.endswith("_index")]
        tables, _ = await self.rows(*(f'SELECT * FROM "{name}"' for name in names))
        return [
            f"{name}: {row!r:.200}"
            for name, rows in zip(names, tables, strict=True)
            for row in rows
            if any(session_id in str(value) for value in row)
        ]

    async def stored_bytes(self) -> int:
        _, size = await self.rows("SELECT 1")
        return size

    async def pretend_newer_schema(self) -> Callable[[], Awaitable[None]]:
        await self.rows("INSERT INTO __agents_migrations VALUES (9999, 'from the future', 0)")

        async def undo() -> None:
            await self.rows("DELETE FROM __agents_migrations WHERE version = 9999")

        return undo


class StateOnD1(StateOnObject):
    name: ClassVar[str] = "D1 over the bridge"
    kind: ClassVar[str] = "d1"


class StateOnRest(StateOnObject):
    name: ClassVar[str] = "D1 over its REST API"
    kind: ClassVar[str] = "rest"


class UsageAndMemoryOnObject(Home):
    name: ClassVar[str] = "usage and memory in a Durable Object"

    async def open_usage(self) -> SqlUsageStore:
        return SqlUsageStore(self._driver())

    async def open_memory(self, *, embedder: Any = None) -> SqlMemoryStore:
        return SqlMemoryStore(self._driver(), embedder=embedder)

    def _driver(self) -> MigratedDriver:
        place = Place(self.text)
        driver = self.kept(MigratedDriver(place.driver(), families=D1_FAMILIES))
        self.kept(place.bridge)
        return driver


class UsageAndMemoryOnD1(UsageAndMemoryOnObject):
    name: ClassVar[str] = "usage and memory in D1"
    kind: ClassVar[str] = "d1"


class StreamsInObjects(Home):
    name: ClassVar[str] = "one Durable Object a stream"
    declared: ClassVar[frozenset[str]] = frozenset({"T2.large_chunk"})

    async def open_streams(self, **options: Any) -> StreamManager:
        return self.kept(streams_at(self.text, **options))

    def stream_child_spec(self) -> str:
        return f"{__name__}:open_streams {self.text}"


class StreamsOnRest(Home):
    name: ClassVar[str] = "streams in D1 over its REST API"
    kind: ClassVar[str] = "rest"
    declared: ClassVar[frozenset[str]] = frozenset({"T2.large_chunk"})

    async def open_streams(self, **options: Any) -> StreamManager:
        driver = MigratedDriver(Place(self.text).driver(), families={"streams"})
        manager = SqlStreamManager(driver, wakeup=Polling(0.02), **options)
        self.kept(manager)
        self.kept(driver)
        return manager

    def stream_child_spec(self) -> None:
        return None


@asynccontextmanager
async def opened(text: str) -> AsyncIterator[Parts]:
    """The stores of an executor, as a child process opens them: streams in objects, the rest at the place."""
    place, token = Place(text.partition("#")[0]), text.partition("#")[2]
    driver = MigratedDriver(place.driver(), families=D1_FAMILIES)
    streams = DurableObjectStreamManager(place.bridge, prefix=place.name + token)
    try:
        yield Parts(SqlStateStore(driver), streams, SqlUsageStore(driver))
    finally:
        await streams.close()
        await driver.close()
        await place.bridge.close()


class ExecutorOnObject(Home):
    name: ClassVar[str] = "executor on Durable Objects over the bridge"

    def __init__(self) -> None:
        super().__init__()
        self._stack = AsyncExitStack()
        # A D1 database is used again by later checks, its streams must not be.
        self._spec = f"{self.text}#{secrets.token_hex(4)}"

    async def open_stores(self) -> Parts:
        return await self._stack.enter_async_context(opened(self._spec))

    async def dispose(self) -> None:
        await self._stack.aclose()
        await super().dispose()

    def stores_child_spec(self) -> str:
        return f"{__name__}:opened {self._spec}"


class ExecutorOnD1(ExecutorOnObject):
    name: ClassVar[str] = "executor on D1 over the bridge"
    kind: ClassVar[str] = "d1"
