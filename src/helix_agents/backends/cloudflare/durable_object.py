"""Stores inside a Durable Object, on its own SQLite: no request leaves the object, and nothing is awaited in a write.

    state = DOStateStore(ctx)

A commit looks, decides and writes in one synchronous transaction. A chunk is stored and handed to every connected
WebSocket in one go, so that a client which replays and then listens can neither miss nor repeat one; its position lies
in the socket's attachment and survives hibernation. Imported only inside a Worker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from js import WebSocketPair
from pyodide.ffi import to_js

from ...clock import Clock, IdSource, random_id, system_clock
from ...codec import Json, decode, encode
from ...errors import StreamCursorAhead
from ...stores.memory.contract import Embedder
from ...stores.state.commit import Applied, CellName, Commit, CommitRefused
from ...streams.base import DEFAULT_MAX_CHUNKS, DEFAULT_TTL_SECONDS
from ...streams.records import StoredText, StreamHead
from ...streams.wakeup import Wakeup
from ..sql.memory_store import SqlMemoryStore
from ..sql.migrate import COMPACT_STATE, COMPACT_USAGE
from ..sql.planned_commit import PlannedCommits
from ..sql.self_migrating import MigratedDriver
from ..sql.state_store import SqlStateStore
from ..sql.stream_manager import SqlStreamManager
from ..sql.usage_store import SqlUsageStore
from .bindings import ObjectStorage, unwrapped
from .wire import MAX_VALUE_BYTES

MAX_PARAMETERS = 100
GATHER_SECONDS = 0.05
PAGE_CHUNKS = 512
PAGE_CHARS = 4_000_000
NORMAL, FAILED, TRUNCATED = 1000, 1011, 1008


def storage_of(place: Any) -> ObjectStorage:
    """The storage of an object: given itself, or as `ctx`, or as `ctx.storage`."""
    if isinstance(place, ObjectStorage):
        return place
    return ObjectStorage(getattr(place, "storage", place))


class DOStateStore(SqlStateStore):
    """StateStore on the SQLite of a Durable Object. `place` is `ctx`, `ctx.storage`, or an `ObjectStorage` to share."""

    def __init__(self, place: Any, *, prefix: str = "", clock: Clock = system_clock, ids: IdSource = random_id) -> None:
        self._storage = storage_of(place)
        self._migrated = MigratedDriver(self._storage, prefix=prefix, families=COMPACT_STATE)
        self._commits = PlannedCommits(prefix, max_parameters=MAX_PARAMETERS, max_value_bytes=MAX_VALUE_BYTES)
        super().__init__(self._migrated, prefix=prefix, clock=clock, ids=ids)

    async def _apply(self, commit: Commit, want: Iterable[CellName] = ()) -> tuple[Applied, dict[CellName, str | None]]:
        if not self._migrated.ready:
            await self._migrated.migrate()
        request = (commit, tuple(want))
        (outcome,) = self._storage.transaction(lambda: self._commits.run(self._storage, [request]))
        if isinstance(outcome, CommitRefused):
            raise outcome
        return outcome


class DOUsageStore(SqlUsageStore):
    """UsageStore on the SQLite of a Durable Object, like `DOStateStore`."""

    def __init__(self, place: Any, *, prefix: str = "", clock: Clock = system_clock) -> None:
        super().__init__(
            MigratedDriver(storage_of(place), prefix=prefix, families=COMPACT_USAGE), prefix=prefix, clock=clock
        )


class DOMemoryStore(SqlMemoryStore):
    """MemoryStore on the SQLite of a Durable Object, with full-text search, like `DOStateStore`."""

    def __init__(
        self,
        place: Any,
        *,
        prefix: str = "",
        embedder: Embedder | None = None,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
    ) -> None:
        driver = MigratedDriver(storage_of(place), prefix=prefix, families={"memory"})
        super().__init__(driver, prefix=prefix, embedder=embedder, clock=clock, ids=ids)


class DOStreamManager(SqlStreamManager):
    """StreamManager on the SQLite of a Durable Object, which also serves the object's WebSockets.

    `ctx` is the object's context. Readers in Python work as everywhere; `accept` gives a browser a socket that may
    hibernate.
    """

    def __init__(
        self,
        ctx: Any,
        *,
        storage: ObjectStorage | None = None,
        prefix: str = "",
        max_chunks: int = DEFAULT_MAX_CHUNKS,
        ttl: int | None = DEFAULT_TTL_SECONDS,
        gather_seconds: float = GATHER_SECONDS,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
        wakeup: Wakeup | None = None,
    ) -> None:
        self._ctx = getattr(unwrapped(ctx), "_ctx", unwrapped(ctx))
        self._storage = storage or storage_of(ctx)
        driver = MigratedDriver(self._storage, prefix=prefix, families={"streams"})
        super().__init__(driver, prefix=prefix, max_chunks=max_chunks, ttl=ttl, clock=clock, ids=ids, wakeup=wakeup)
        self.gather_seconds = gather_seconds

    def _changed(self, stream_id: str) -> None:
        super()._changed(stream_id)
        self.deliver(stream_id)

    async def accept(self, stream_id: str, *, from_sequence: int = 0, tell: Json = None) -> Any:
        """The client's end of a WebSocket that gets everything after `from_sequence`, then whatever comes.

        `tell` goes out first, as the `open` event. Raises `StreamCursorAhead`.
        """
        info = await self.get_stream_info(stream_id)
        latest = 0 if info is None else info.latest_sequence
        if from_sequence > latest:
            raise StreamCursorAhead(stream_id, from_sequence, latest)
        client, server = WebSocketPair.new().object_values()
        self._ctx.acceptWebSocket(server, to_js([_tag(stream_id)]))
        server.serializeAttachment(from_sequence)
        opened = {"from_sequence": from_sequence, "latest_sequence": latest, **(tell or {})}
        server.send(encode({"event": "open", "id": None, "data": opened}))
        self.deliver(stream_id)
        return client

    def deliver(self, stream_id: str) -> None:
        """Send every socket of the stream what it has not had. No await in here: nothing can come in between."""
        sockets = [(socket, int(socket.deserializeAttachment())) for socket in self._ctx.getWebSockets(_tag(stream_id))]
        if not sockets:
            return
        head = self._head_now(stream_id)
        if head is None:
            if any(at > 0 for _, at in sockets):  # else it is yet to be written
                self._close_all(sockets, NORMAL, "gone", {})
            return
        lost = [(socket, at) for socket, at in sockets if at < head.floor]
        self._close_all(lost, TRUNCATED, "truncated", {"first_sequence": head.first_sequence})
        current = [(socket, at) for socket, at in sockets if at >= head.floor]
        if not current:
            return
        at = min(at for _, at in current)
        while at < head.latest_sequence and (rows := self._rows_now(stream_id, at)):
            at = rows[-1].sequence
            current = [(socket, self._send(socket, seen, rows)) for socket, seen in current]
        if head.status == "failed":
            self._close_all(current, FAILED, "fail", {"error": _value(head.error)})
        elif head.status == "paused":
            self._close_all(current, NORMAL, "pause", {"status": head.status, "suspended": []})
        elif head.status == "ended":
            self._close_all(current, NORMAL, "end", {"status": head.status, "output": _value(head.final_output)})

    def _send(self, socket: Any, seen: int, rows: list[StoredText]) -> int:
        if rows[-1].sequence <= seen:
            return seen
        try:
            for row in rows:
                if row.sequence > seen:
                    socket.send(f'{{"event":"chunk","id":{row.sequence},"data":{row.text}}}')
            socket.serializeAttachment(rows[-1].sequence)
        except Exception:  # a socket that has gone away is no concern of the others
            pass
        return rows[-1].sequence

    def _close_all(self, sockets: list[tuple[Any, int]], code: int, event: str, data: Json) -> None:
        last = encode({"event": event, "id": None, "data": data})
        for socket, _ in sockets:
            try:
                socket.send(last)
                socket.close(code)
            except Exception:  # as above
                pass

    def _head_now(self, stream_id: str) -> StreamHead | None:
        (heads,) = self._storage.batch_now([self._queries("head", stream_id, -1)])
        return StreamHead(*heads[0]) if heads else None

    def _rows_now(self, stream_id: str, after: int) -> list[StoredText]:
        small, large = self._storage.batch_now(
            [
                self._queries("small_chunks", stream_id, after, PAGE_CHUNKS, PAGE_CHARS),
                self._queries("large_chunks", stream_id, after, PAGE_CHUNKS, PAGE_CHARS),
            ]
        )
        return self._chunks(small or large, after, PAGE_CHUNKS, PAGE_CHARS)


def _tag(stream_id: str) -> str:
    return f"stream {stream_id}"


def _value(text: str | None) -> Json:
    return None if text is None else decode(text)
