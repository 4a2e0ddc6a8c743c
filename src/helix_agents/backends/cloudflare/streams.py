"""Streams in Durable Objects, from outside: each stream is an object of its own behind the bridge.

All verbs are those of SQL streams; this room only finds the object of a stream and listens to it. The socket that
carries batches out brings wake-ups in, so listening costs nothing more. An object forgets its stream by an alarm of its
own, hence there is nothing to purge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode

from ...clock import Clock, IdSource, random_id, system_clock
from ...errors import HelixError
from ...ids import ensure_id
from ...streams.base import DEFAULT_MAX_CHUNKS, DEFAULT_TTL_SECONDS
from ...streams.wakeup import Wake, Wakeup
from ..sql_shared.driver import Row, SqlDriver, Statement
from ..sql_shared.schema.self_migrating import MigratedDriver
from ..sql_shared.streams.manager import SqlStreamManager
from .bridge import VERSION, Bridge, BridgeObject
from .wire import GATHER_SECONDS, MissingTable, Reply, WireStatement

RECONNECT_SECONDS = 0.5
MAX_OBJECTS = 10_000
"""How many objects a manager remembers; a forgotten one is only opened again."""


class StreamObject(BridgeObject):
    """The object of one stream. A batch that writes tells everybody else who listens to it."""

    def __init__(self, bridge: Bridge, name: str, stream_id: str, **options: Any) -> None:
        super().__init__(bridge, name, **options)
        self._stream_id = stream_id

    async def _send(self, batch: list[WireStatement], *, read_only: bool) -> Reply:
        if read_only:
            return await self.ask({"batch": batch}, repeatable=True)
        return await self.ask({"batch": batch, "changed": self._stream_id})


class StreamHome(MigratedDriver):
    """The tables of a stream in its object, made on first use and again if the object has emptied itself."""

    def __init__(self, place: StreamObject) -> None:
        super().__init__(place, families={"streams"})
        self.place = place
        self.watchers = 0
        self.listening: asyncio.Task[None] | None = None

    async def batch(self, statements: Sequence[Statement], *, read_only: bool = False) -> list[list[Row]]:
        try:
            return await super().batch(statements, read_only=read_only)
        except MissingTable:
            self.ready = False
        return await super().batch(statements, read_only=read_only)


class StreamHomes(Wakeup):
    """The objects of all streams that a manager has to do with, and the sockets it listens on."""

    def __init__(self, bridge: Bridge, *, prefix: str, ttl_seconds: int) -> None:
        self._bridge = bridge
        self._prefix = prefix
        self._ttl_seconds = ttl_seconds
        self._homes: dict[str, StreamHome] = {}
        self._wake: Wake = lambda stream_id: None

    def name_of(self, stream_id: str) -> str:
        """The name of a stream's object."""
        return f"stream:{self._prefix}:{stream_id}"

    def home(self, stream_id: str) -> StreamHome:
        """The home of a stream."""
        found = self._homes.get(stream_id)
        if found is None:
            if len(self._homes) >= MAX_OBJECTS:
                self._forget_one()
            place = StreamObject(
                self._bridge,
                self.name_of(stream_id),
                stream_id,
                ttl_seconds=self._ttl_seconds,
                changed=lambda _: self._wake(stream_id),
            )
            found = self._homes[stream_id] = StreamHome(place)
        return found

    def _forget_one(self) -> None:
        """Of those that nobody listens to, the one that was opened first; its socket closes when it is idle."""
        for stream_id, home in self._homes.items():
            if not home.watchers:
                del self._homes[stream_id]
                return

    @property
    def rows_written(self) -> int:
        """What all of them have written."""
        return sum(home.place.rows_written for home in self._homes.values())

    async def start(self, wake: Wake) -> None:
        self._wake = wake

    def watch(self, stream_id: str) -> None:
        home = self.home(stream_id)
        home.watchers += 1
        home.place.listeners += 1
        if home.listening is None:
            home.listening = asyncio.get_running_loop().create_task(self._listen(stream_id, home))

    async def _listen(self, stream_id: str, home: StreamHome) -> None:
        """Keep the socket open; look whenever it has been opened again, for something may have been missed."""
        while True:
            with suppress(HelixError):
                socket = await home.place.open()
                self._wake(stream_id)
                await socket.closed.wait()
                continue
            await asyncio.sleep(RECONNECT_SECONDS)

    def unwatch(self, stream_id: str) -> None:
        home = self._homes.get(stream_id)
        if home is None or not home.watchers:
            return
        home.watchers -= 1
        home.place.listeners -= 1
        if not home.watchers and home.listening is not None:
            home.listening.cancel()
            home.listening = None

    async def close(self) -> None:
        homes, self._homes = list(self._homes.values()), {}
        for home in homes:
            if home.listening is not None:
                home.listening.cancel()
        await asyncio.gather(*(home.close() for home in homes))


class DurableObjectStreamManager(SqlStreamManager):
    """StreamManager on a bridge, one Durable Object a stream. The bridge stays the caller's.

    `prefix` keeps applications apart that share a bridge. Browsers may read a stream from its object directly:
    `browser_url` gives the address.
    """

    def __init__(
        self,
        bridge: Bridge,
        *,
        prefix: str = "",
        max_chunks: int = DEFAULT_MAX_CHUNKS,
        ttl: int | None = DEFAULT_TTL_SECONDS,
        gather_seconds: float = GATHER_SECONDS,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
    ) -> None:
        self.gather_seconds = gather_seconds
        self._bridge = bridge
        self._homes = StreamHomes(bridge, prefix=prefix, ttl_seconds=ttl or 0)
        super().__init__(
            BridgeObject(bridge, ""),  # only says which SQL is spoken: every batch goes to the home of its stream
            max_chunks=max_chunks,
            ttl=ttl,
            clock=clock,
            ids=ids,
            wakeup=self._homes,
        )

    def _home(self, stream_id: str) -> SqlDriver:
        return self._homes.home(stream_id)

    async def _purge(self, now: int) -> None:
        """Nothing to do: an object empties itself by its alarm."""

    @property
    def rows_written(self) -> int:
        """How many rows this manager has written, as Cloudflare counts and bills them."""
        return self._homes.rows_written

    def browser_url(self, stream_id: str, *, valid_seconds: int = 3600, from_sequence: int = 0) -> str:
        """An address from which a browser reads this stream by WebSocket, without the token, until it expires."""
        ensure_id(stream_id, "stream_id")
        name = self._homes.name_of(stream_id)
        path = f"/v{VERSION}/objects/{quote(name, safe='')}/stream/{quote(stream_id, safe='')}"
        expires = self._clock() + valid_seconds * 1000
        ticket = self._bridge.ticket(name, stream_id, expires)
        query = urlencode({"from_sequence": from_sequence, "expires": expires, "ticket": ticket})
        return f"{self._bridge.http.base.replace('http', 'ws', 1)}{path}?{query}"

    async def close(self) -> None:
        await super().close()
        await self._homes.close()
