"""Stores inside a Durable Object, on its own SQLite: no request leaves the object, and no write awaits anything.

    state = DOStateStore(ctx)

A commit reads, decides and writes in one synchronous transaction. A chunk is stored and handed to every connected
WebSocket without an await in between, so a client that replays and then listens neither misses nor repeats one; its
position is stored in the socket's attachment and survives hibernation. Imported only inside a Worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from ...clock import Clock, IdSource, random_id, system_clock
from ...codec import Json
from ...errors import StreamCursorAhead
from ...stores.blobs.base import MEGABYTE
from ...stores.memory.contract import Embedder
from ...stores.state.commit import Applied, CellName, Commit, CommitRefused
from ...streams.base import DEFAULT_MAX_CHUNKS, DEFAULT_TTL_SECONDS
from ...streams.contract import StreamOutcome
from ...streams.reader import ensure_readable, outcome_of
from ...streams.records import StoredText, StreamHead
from ...streams.wakeup import Wakeup
from ..sql_shared.beside import SqlBeside
from ..sql_shared.blobs.store import SqlBlobStore
from ..sql_shared.joint import JointCommits, Load, apply_along
from ..sql_shared.memory.store import SqlMemoryStore
from ..sql_shared.schema.migrate import COMPACT_STATE, COMPACT_USAGE
from ..sql_shared.state.planned_commit import Answer, PlannedCommits
from ..sql_shared.state.store import SqlStateStore
from ..sql_shared.streams.manager import SqlStreamManager
from ..sql_shared.streams.planned_append import Appended, planned_appends
from ..sql_shared.usage.store import SqlUsageStore
from . import sockets
from .bindings import ObjectStorage, unwrapped
from .sockets import Listener
from .wire import GATHER_SECONDS, MAX_VALUE_BYTES

MAX_PARAMETERS = 100
PAGE_CHUNKS = 512
PAGE_CHARS = 4_000_000

Word = tuple[str, Json]
LastWord = Callable[[str, StreamOutcome | None], Awaitable[Word | None]]
"""Maps what a client asked for and how its stream ended (None: it does not exist) to a final event; None: not final."""


def storage_of(place: Any) -> ObjectStorage:
    """Return the storage of an object: given itself, or as `ctx`, or as `ctx.storage`."""
    if isinstance(place, ObjectStorage):
        return place
    return ObjectStorage(getattr(place, "storage", place))


class DOStateStore(SqlStateStore):
    """StateStore on the SQLite of a Durable Object. `place` is `ctx`, `ctx.storage`, or an `ObjectStorage` to share."""

    def __init__(
        self,
        place: Any,
        *,
        prefix: str = "",
        clock: Clock = system_clock,
        ids: IdSource = random_id,
        beside: SqlBeside | None = None,
    ) -> None:
        """`beside`: the `DOStreamManager` and the `DOUsageStore` of the same object, for commits that carry to them."""
        self._storage = storage_of(place)
        self._migrated = self._storage.tables(COMPACT_STATE, prefix=prefix)
        self._commits = PlannedCommits(prefix, max_parameters=MAX_PARAMETERS, max_value_bytes=MAX_VALUE_BYTES)
        self._joint = JointCommits(self._commits, planned_appends(prefix))
        super().__init__(self._migrated, prefix=prefix, clock=clock, ids=ids, beside=beside)

    async def _apply(self, commit: Commit, want: Iterable[CellName] = ()) -> tuple[Applied, dict[CellName, str | None]]:
        if not self._migrated.ready:
            await self._migrated.migrate()
        if commit.along is not None and self._beside is not None:
            return await apply_along(self._beside, commit, commit.along, tuple(want), self._run_along)
        request = (commit, tuple(want))
        (outcome,) = self._storage.transaction(lambda: self._commits.run(self._storage, [request]))
        if isinstance(outcome, CommitRefused):
            raise outcome
        return outcome

    async def _run_along(self, load: Load) -> tuple[Answer, Appended]:
        assert self._beside is not None
        await self._beside.prepare()
        (outcome,) = self._storage.transaction(lambda: self._joint.run(self._storage, [load]))
        return outcome


class DOUsageStore(SqlUsageStore):
    """UsageStore on the SQLite of a Durable Object, like `DOStateStore`."""

    def __init__(self, place: Any, *, prefix: str = "", clock: Clock = system_clock) -> None:
        super().__init__(storage_of(place).tables(COMPACT_USAGE, prefix=prefix), prefix=prefix, clock=clock)


class DOBlobStore(SqlBlobStore):
    """BlobStore on the SQLite of a Durable Object, like `DOStateStore`. Blobs are limited to 25 MB."""

    def __init__(
        self, place: Any, *, prefix: str = "", max_bytes: int = 25 * MEGABYTE, clock: Clock = system_clock
    ) -> None:
        driver = storage_of(place).tables({"blobs"}, prefix=prefix)
        super().__init__(driver, prefix=prefix, max_bytes=max_bytes, clock=clock)


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
        driver = storage_of(place).tables({"memory"}, prefix=prefix)
        super().__init__(driver, prefix=prefix, embedder=embedder, clock=clock, ids=ids)


class DOStreamManager(SqlStreamManager):
    """StreamManager on the SQLite of a Durable Object, which also serves the object's WebSockets.

    `ctx` is the object's context. Readers in Python work as everywhere; `accept` gives a browser a socket that may
    hibernate. `last_word` returns the final event for clients that asked for `about`; `exists`, whether that still
    exists.
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
        last_word: LastWord | None = None,
        exists: Callable[[str], bool] | None = None,
    ) -> None:
        self._ctx = getattr(unwrapped(ctx), "_ctx", unwrapped(ctx))
        self._storage = storage or storage_of(ctx)
        self._last_word = last_word or _last_word_of_stream
        self._exists = exists or (lambda about: True)
        self._speaking: set[asyncio.Task[None]] = set()
        self._tables = self._storage.tables({"streams"}, prefix=prefix)
        super().__init__(
            self._tables, prefix=prefix, max_chunks=max_chunks, ttl=ttl, clock=clock, ids=ids, wakeup=wakeup
        )
        self.gather_seconds = gather_seconds

    async def prepare(self) -> None:
        """Create the tables, unless that has been done."""
        if not self._tables.ready:
            await self._tables.migrate()

    async def purge(self) -> None:
        """Empty the streams that have expired."""
        self._purged_at = 0
        await self._purge(self._clock())

    def _changed(self, stream_id: str) -> None:
        super()._changed(stream_id)
        self.deliver(stream_id)

    async def accept(
        self,
        stream_id: str,
        *,
        from_sequence: int = 0,
        follow: bool = False,
        about: str = "",
        user_id: str = "",
        tell: dict[str, Json] | None = None,
    ) -> Any:
        """Return the client's end of a WebSocket that gets all chunks after `from_sequence`, stored and live.

        It closes when the stream stops, unless `follow`. `tell` is sent first, in the `open` event.
        Raises `StreamCursorAhead` or `StreamTruncated`.
        """
        info = None if self._storage.is_empty() else await self.get_stream_info(stream_id)
        head = None if info is None else self._head_now(stream_id)
        latest = 0 if head is None else head.latest_sequence
        if head is not None:
            ensure_readable(head, from_sequence)
        elif from_sequence:
            raise StreamCursorAhead(stream_id, from_sequence, latest)
        client = sockets.accept(
            self._ctx,
            stream_id,
            {"from_sequence": from_sequence, "latest_sequence": latest, **(tell or {})},
            at=from_sequence,
            follow=follow,
            about=about,
            incarnation="" if head is None else head.incarnation,
            user_id=user_id,
        )
        self.deliver(stream_id)
        return client

    def deliver(self, stream_id: str) -> None:
        """Send every socket of the stream the chunks it lacks. Without an await, so nothing can interleave."""
        listeners = sockets.listeners(self._ctx, stream_id)
        if not listeners:
            return
        head = self._head_now(stream_id)
        listeners = self._still_there(listeners, head)
        if head is None:
            if listeners:
                self._speak_later(stream_id, None)
            return
        current = []
        for listener in listeners:
            if listener.at < head.floor:
                listener.say("truncated", {"first_sequence": head.first_sequence})
            else:
                current.append(listener)
        at = min((listener.at for listener in current), default=head.latest_sequence)
        while at < head.latest_sequence and (rows := self._rows_now(stream_id, at)):
            at = rows[-1].sequence
            for listener in current:
                listener.send(rows, head.incarnation)
        if head.status != "active" and current:
            self._speak_later(stream_id, head)

    def _still_there(self, listeners: list[Listener], head: StreamHead | None) -> list[Listener]:
        """Return the sockets whose session and stream still exist. Send `gone` to the others, also if they follow."""
        exists = {about: self._exists(about) for about in {listener.about for listener in listeners}}
        stream = "" if head is None else head.incarnation
        found = []
        for listener in listeners:
            if exists[listener.about] and listener.incarnation in ("", stream):
                found.append(listener)
            else:
                listener.say("gone", {})
        return found

    def _speak_later(self, stream_id: str, head: StreamHead | None) -> None:
        speaking = asyncio.get_running_loop().create_task(self._speak(stream_id, head))
        self._speaking.add(speaking)
        speaking.add_done_callback(self._speaking.discard)

    async def _speak(self, stream_id: str, head: StreamHead | None) -> None:
        """Send the final event to sockets that have every chunk, unless the stream has changed since."""
        outcome = None if head is None else outcome_of(head)
        words: dict[str, Word | None] = {}
        for about in {listener.about for listener in sockets.listeners(self._ctx, stream_id)}:
            words[about] = await self._last_word(about, outcome)
        now, moment = self._head_now(stream_id), None if head is None else head.moment
        if (now and now.moment) != moment:
            return  # the request that changed it sends the event
        for listener in sockets.listeners(self._ctx, stream_id):
            word = words.get(listener.about)
            has_all = not listener.follow if head is None else listener.at >= head.latest_sequence
            if word is not None and has_all:
                listener.say(*word, moment or (0, 0))

    def _head_now(self, stream_id: str) -> StreamHead | None:
        if self._storage.is_empty():
            return None
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


async def _last_word_of_stream(about: str, outcome: StreamOutcome | None) -> Word | None:
    """Return the final event of a stream, if there is no session to ask."""
    if outcome is None:
        return None
    if outcome.status == "failed":
        return "fail", {"error": outcome.error}
    if outcome.status == "paused":
        return "pause", {"status": "paused", "suspended": []}
    return "end", {"status": "completed", "output": outcome.final_output}
