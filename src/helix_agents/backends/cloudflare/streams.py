"""Streams in Durable Objects, one object for each: through a namespace inside a Worker, through a bridge outside.

All verbs are those of SQL streams; this module only finds the object of a stream and listens to it. An object empties
itself by its own alarm, so there is nothing to purge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from ...clock import Clock, IdSource, random_id, system_clock
from ...codec import Json, encode, ensure_count
from ...errors import HelixError, InvalidArgument
from ...ids import ensure_id
from ...retry import RECONNECT
from ...streams.base import DEFAULT_MAX_CHUNKS, DEFAULT_TTL_SECONDS
from ...streams.wakeup import Wake, Wakeup
from ..sql_shared.driver import Row, SqlDriver, Statement
from ..sql_shared.schema.self_migrating import MigratedDriver
from ..sql_shared.streams.manager import SqlStreamManager
from .wire import BRIDGE_VERSION, GATHER_SECONDS, MissingTable

MAX_OBJECTS = 10_000
"""How many objects a manager remembers; a forgotten one is only opened again."""


class StreamObject(SqlDriver, Protocol):
    """The object of one stream, seen as a driver; `BridgeObject` or `BoundObject`."""

    rows_written: int
    listeners: int

    async def open(self) -> Any:
        """Return the socket on which wake-ups arrive. Its `closed` is set when it ends."""

    async def forget(self) -> None:
        """Empty the object, unless it holds a stream: one may have been created since the last was deleted."""


NewObject = Callable[..., StreamObject]
"""(name, stream_id=, ttl_seconds=, changed=) -> the driver of that object."""


class StreamHome(MigratedDriver):
    """The object of a stream, and its readers in this process.

    An object behind the bridge has no Python: its tables are created from here, on first use and again if the object
    has emptied itself. A `StreamServer` creates its own.
    """

    def __init__(self, place: StreamObject, *, has_tables: bool) -> None:
        super().__init__(place, families={"streams"})
        self.place = place
        self.ready = has_tables
        self.watchers = 0
        self.listening: asyncio.Task[None] | None = None

    async def batch(self, statements: Sequence[Statement], *, read_only: bool = False) -> list[list[Row]]:
        try:
            return await super().batch(statements, read_only=read_only)
        except MissingTable:
            self.ready = False
        return await super().batch(statements, read_only=read_only)


class StreamHomes(Wakeup):
    """The objects of all streams that a manager uses, and the sockets it listens on."""

    def __init__(self, new_object: NewObject, *, have_tables: bool, prefix: str, ttl_seconds: int) -> None:
        self._new_object = new_object
        self._have_tables = have_tables
        self._prefix = prefix
        self._ttl_seconds = ttl_seconds
        self._homes: dict[str, StreamHome] = {}
        self._wake: Wake = lambda stream_id: None

    def name_of(self, stream_id: str) -> str:
        """Return the name of a stream's object."""
        return f"stream:{self._prefix}:{stream_id}"

    def home(self, stream_id: str) -> StreamHome:
        """Return the home of a stream."""
        found = self._homes.get(stream_id)
        if found is None:
            if len(self._homes) >= MAX_OBJECTS:
                self._forget_one()
            place = self._new_object(
                self.name_of(stream_id),
                stream_id=stream_id,
                ttl_seconds=self._ttl_seconds,
                changed=lambda _: self._wake(stream_id),
            )
            found = self._homes[stream_id] = StreamHome(place, has_tables=self._have_tables)
        return found

    def _forget_one(self) -> None:
        """Drop the oldest home without listeners; its socket closes when it is idle."""
        for stream_id, home in self._homes.items():
            if not home.watchers:
                del self._homes[stream_id]
                return

    @property
    def rows_written(self) -> int:
        """How many rows all of them have written."""
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
        """Keep the socket open; check after each reconnect, because a change may have been missed."""
        while True:
            with suppress(HelixError):
                socket = await home.place.open()
                self._wake(stream_id)
                await socket.closed.wait()
                continue
            await asyncio.sleep(RECONNECT.longest_seconds)

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
    """StreamManager with a Durable Object for each stream.

    `objects`: inside a Worker the namespace binding of the class `StreamServer` (`env.STREAMS`); outside a `Bridge`,
    which stays the caller's. `prefix` separates applications that share objects. `location_hint` says where new objects
    should live. Make a manager for each request, as you do with stores.
    """

    def __init__(
        self,
        objects: Any,
        *,
        prefix: str = "",
        max_chunks: int = DEFAULT_MAX_CHUNKS,
        ttl: int | None = DEFAULT_TTL_SECONDS,
        gather_seconds: float = GATHER_SECONDS,
        location_hint: str | None = None,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
    ) -> None:
        self.gather_seconds = gather_seconds
        self._bridge = objects if hasattr(objects, "http") else None
        new_object = _objects_of(objects, location_hint)
        have_tables = self._bridge is None
        self._homes = StreamHomes(new_object, have_tables=have_tables, prefix=prefix, ttl_seconds=ttl or 0)
        super().__init__(
            new_object(""),  # only says which SQL is spoken: every batch goes to the home of its stream
            max_chunks=max_chunks,
            ttl=ttl,
            clock=clock,
            ids=ids,
            wakeup=self._homes,
        )

    def _home(self, stream_id: str) -> SqlDriver:
        return self._homes.home(stream_id)

    async def _purge(self, now: int) -> None:
        """Do nothing: an object empties itself by its alarm."""

    async def _delete(self, stream_id: str, *, fence: int | None, now: int) -> None:
        await super()._delete(stream_id, fence=fence, now=now)
        await self._homes.home(stream_id).place.forget()

    @property
    def rows_written(self) -> int:
        """How many rows this manager has written, as Cloudflare counts and bills them."""
        return self._homes.rows_written

    def browser_url(self, stream_id: str, *, valid_seconds: int = 3600, from_sequence: int = 0) -> str:
        """Return an address from which a browser reads this stream by WebSocket, without the token, until it expires.

        Only through a bridge. Deleting the stream invalidates the addresses that were made before.
        """
        ensure_id(stream_id, "stream_id")
        if self._bridge is None:
            raise InvalidArgument("Inside a Worker, pass the browser's request on: return await streams.websocket(id).")
        name = self._homes.name_of(stream_id)
        path = f"/v{BRIDGE_VERSION}/objects/{quote(name, safe='')}/stream/{quote(stream_id, safe='')}"
        issued = self._clock()
        expires = issued + valid_seconds * 1000
        ticket = self._bridge.ticket(name, stream_id, issued, expires)
        query = urlencode({"from_sequence": from_sequence, "issued": issued, "expires": expires, "ticket": ticket})
        return f"{self._bridge.http.base.replace('http', 'ws', 1)}{path}?{query}"

    async def websocket(
        self,
        stream_id: str,
        *,
        from_sequence: int = 0,
        follow: bool = False,
        tell: dict[str, Json] | None = None,
        user_id: str = "",
        max_per_user: int | None = None,
    ) -> Any:
        """Return the response that gives a browser a WebSocket on this stream; inside a Worker only.

        The object serves the socket and may hibernate while it stays open. Authorize the caller before you call this:
        the response gives access to the stream. `tell` is added to the `open` event. `max_per_user`: how many sockets
        `user_id` may have on this stream; the response to one more is a 429.
        """
        ensure_id(stream_id, "stream_id")
        ensure_count(from_sequence, "from_sequence")
        if self._bridge is not None:
            raise InvalidArgument("Outside a Worker, give the browser an address: streams.browser_url(id).")
        place: Any = self._homes.home(stream_id).place
        return await place.websocket(
            from_sequence=from_sequence,
            follow="true" if follow else "false",
            tell=encode(tell or {}),
            user=user_id,
            most="" if max_per_user is None else max_per_user,
        )

    async def close(self) -> None:
        await super().close()
        await self._homes.close()


def _objects_of(objects: Any, location_hint: str | None) -> NewObject:
    """Return the factory of an object's driver: through a bridge, or inside a Worker through a namespace."""
    # Loaded only where it is needed: one exists only outside a Worker, the other only inside.
    if hasattr(objects, "http"):
        return partial(import_module(".bridge", __package__).BridgeObject, objects)
    try:
        bound_object = import_module(".bound_object", __package__)
    except ModuleNotFoundError as missing:
        raise InvalidArgument(
            f"A {type(objects).__name__} has no Durable Objects. Outside a Worker pass a Bridge, or use "
            "open_stores('d1://...'); a namespace binding such as env.STREAMS exists only inside a Worker."
        ) from missing
    return partial(bound_object.BoundObject, objects, location_hint=location_hint)
