"""RedisStreamManager: the verbs of streams on Redis Streams, with the sequence as the id of an entry.

Changes are one script each (`lua/stream.lua`), or WATCH and MULTI where scripts are forbidden
(`streams_without_scripts.py`); reads are one MULTI. All keys of a stream share a hash tag and expire together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from redis import exceptions as redis_errors

from ...clock import Clock, IdSource, random_id, system_clock
from ...errors import StoreCorrupt, StreamFenced, StreamNotActive
from ...retry import OUTAGE
from ...streams.base import DEFAULT_MAX_CHUNKS, DEFAULT_TTL_SECONDS, PRODUCER_MEMORY_MS, StreamManagerBase
from ...streams.records import Append, NewChunk, StoredText, StreamHead, StreamPage, StreamStart
from ...types import StreamStatus
from .client.connection import Client
from .client.driver_errors import NotReached, TranslatedErrors
from .client.servers import Servers
from .keys import StreamKeys, checked_prefix
from .program.runner import STREAM, Refused, evaluate, is_forbidden
from .program.streams_without_scripts import MultiStreams
from .program.vocabulary import Program, StreamWords
from .sessions.session_hash import as_fields
from .wakeup import ChannelWakeup

REPEATABLE = frozenset({"open", "status", "delete"})
"""Changes that are sent again if their reply was lost. The writer repeats appends itself; a rewind leaves a marker."""

_encoder = msgspec.msgpack.Encoder()


class RedisStreamManager(StreamManagerBase):
    """Streams on Redis or Valkey, one server or a cluster. The client stays the caller's."""

    def __init__(
        self,
        redis: Client,
        *,
        prefix: str = "agent",
        max_chunks: int = DEFAULT_MAX_CHUNKS,
        ttl: int | None = DEFAULT_TTL_SECONDS,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
        retry_delays_seconds: Sequence[float] = tuple(OUTAGE.delays()),
    ) -> None:
        self._prefix = checked_prefix(prefix)
        self._servers = Servers(redis)
        self._channels = ChannelWakeup(self._servers, self._prefix)
        self._multi = MultiStreams(self._servers)
        self._scripts_allowed = True
        super().__init__(
            max_chunks=max_chunks,
            ttl=ttl,
            clock=clock,
            ids=ids,
            wakeup=self._channels,
            retry_delays_seconds=retry_delays_seconds,
        )

    async def close(self) -> None:
        """Release readers, writers and the connections that this manager opened itself."""
        await super().close()
        await self._servers.close()

    # -- changing

    async def _change(self, stream_id: str, what: str, now: int, *, fence: int | None = None, **arguments: Any) -> Any:
        keys = StreamKeys.of(self._prefix, stream_id)
        arguments |= {
            "now": now,
            "fence": False if fence is None else fence,
            "expired_before": self._expired_before(now),
            "ttl": self.ttl_seconds * 1000,
            "max_chunks": self.max_chunks,
            "channel": self._channels.channel(stream_id),
            "producer_memory": PRODUCER_MEMORY_MS,
        }
        with TranslatedErrors(f"stream {stream_id!r}"):
            try:
                return await self._run(keys, what, arguments)
            except redis_errors.ConnectionError as error:
                if isinstance(error, NotReached) or what not in REPEATABLE:
                    raise
                return await self._run(keys, what, arguments)

    async def _run(self, keys: StreamKeys, what: str, arguments: dict[str, Any]) -> Any:
        if self._scripts_allowed:
            try:
                return await evaluate(self._servers, STREAM, keys, [_encoder.encode([what, arguments])])
            except redis_errors.ResponseError as error:
                if not is_forbidden(error):
                    raise
                self._scripts_allowed = False
        return await self._multi.run(keys, what, arguments)

    async def _open(self, stream_id: str, *, incarnation: str, fence: int | None, now: int) -> StreamHead:
        reply = await self._change(stream_id, "open", now, fence=fence, incarnation=incarnation)
        return _head(stream_id, as_fields(reply))

    async def _append(
        self,
        stream_id: str,
        *,
        producer_id: str,
        counter: int,
        chunks: Sequence[NewChunk],
        fence: int | None,
        now: int,
    ) -> int:
        words = [word for chunk in chunks for word in (str(chunk.step), chunk.text)]
        outcome, *detail = await self._change(
            stream_id, "append", now, fence=fence, producer=producer_id, counter=counter, chunks=words
        )
        return _stored_at(stream_id, fence, outcome.decode(), *detail)

    # -- changes that a program of the same slot makes

    def append_with(self, program: Program, append: Append) -> None:
        """Add an append to a program."""
        keys, about = self._words(append)
        chunks = [(chunk.step, chunk.text) for chunk in append.chunks]
        program.append(keys, about, (append.producer_id, append.counter), append.ends, chunks)

    def start_with(self, program: Program, start: StreamStart) -> None:
        """Add the start of a turn's stream to a program."""
        program.start(*self._words(start), start, PRODUCER_MEMORY_MS)

    def _words(self, change: Append | StreamStart) -> tuple[StreamKeys, StreamWords]:
        now = change.now
        words = StreamWords(
            "" if change.fence is None else change.fence,
            now,
            self._expired_before(now),
            self.ttl_seconds * 1000,
            self.max_chunks,
            self._channels.channel(change.stream_id),
        )
        return StreamKeys.of(self._prefix, change.stream_id), words

    def stored_before(self, change: Append | StreamStart, refused: Refused) -> int:
        """Return the sequence of an append that was stored earlier; raise if the stream rejects the change."""
        _, outcome, detail = refused.reason.split(":")
        return _stored_at(change.stream_id, change.fence, outcome, detail)

    async def _set_status(
        self,
        stream_id: str,
        status: StreamStatus,
        *,
        allowed: tuple[str, ...],
        final_output: str | None,
        error: str | None,
        fence: int | None,
        now: int,
    ) -> StreamHead | None:
        reply = await self._change(
            stream_id,
            "status",
            now,
            fence=fence,
            status=status,
            allowed=list(allowed),
            final_output=False if final_output is None else final_output,
            error=False if error is None else error,
        )
        return None if reply is None else _head(stream_id, as_fields(reply))

    async def _rewind(
        self, stream_id: str, *, step_count: int, marker: NewChunk, fence: int | None, now: int
    ) -> int | None:
        words = [str(marker.step), marker.text]
        reply = await self._change(stream_id, "rewind", now, fence=fence, step_count=step_count, marker=words)
        _ensure_not_fenced(stream_id, fence, reply)
        return None if reply is None else int(reply)

    async def _reset(self, stream_id: str, *, marker: NewChunk, fence: int | None, now: int) -> bool:
        words = [str(marker.step), marker.text]
        reply = await self._change(stream_id, "reset", now, fence=fence, marker=words)
        _ensure_not_fenced(stream_id, fence, reply)
        return reply is not None

    async def _delete(self, stream_id: str, *, fence: int | None, now: int) -> None:
        _ensure_not_fenced(stream_id, fence, await self._change(stream_id, "delete", now, fence=fence))

    # -- reading

    async def _info(self, stream_id: str, *, now: int) -> StreamHead | None:
        meta = StreamKeys.of(self._prefix, stream_id).meta
        return self._living(stream_id, await self._servers.one(meta, "HGETALL", meta), now)

    async def _read(self, stream_id: str, *, after: int, limit: int, max_chars: int, now: int) -> StreamPage | None:
        keys = StreamKeys.of(self._prefix, stream_id)
        while True:
            commands = [("HGETALL", keys.meta), ("XRANGE", keys.chunks, str(after + 1), "+", "COUNT", limit)]
            meta, entries = await self._servers.run(keys.meta, commands, atomic=True)
            head = self._living(stream_id, meta, now)
            if head is None:
                return None
            rows = [row for row in map(_row, entries) if row.sequence > head.floor]
            if entries and not rows and after < head.floor:
                after = head.floor  # all of it was dropped by retention but not yet removed
                continue
            return StreamPage(head, _up_to(rows, max_chars))

    def _living(self, stream_id: str, reply: Any, now: int) -> StreamHead | None:
        if not reply:
            return None
        head = _head(stream_id, as_fields(reply))
        return head if head.updated_at > self._expired_before(now) else None


def _ensure_not_fenced(stream_id: str, fence: int | None, reply: Any) -> None:
    if fence is not None and isinstance(reply, list) and reply[0] == b"fenced":
        raise StreamFenced(stream_id, fence, int(reply[1]))


def _stored_at(stream_id: str, fence: int | None, outcome: str, detail: Any = None) -> int:
    """Return the sequence that an append led to, or raise what its outcome means."""
    if outcome == "fenced":
        assert fence is not None
        raise StreamFenced(stream_id, fence, int(detail))
    if outcome != "stored":
        raise StreamNotActive(stream_id, outcome)
    return int(detail)


def _head(stream_id: str, fields: dict[str, str]) -> StreamHead:
    try:
        return StreamHead(
            stream_id=stream_id,
            incarnation=fields["incarnation"],
            status=fields["status"],  # type: ignore[arg-type]  # stored by us
            revision=int(fields["revision"]),
            latest_sequence=int(fields["latest"]),
            floor=int(fields["floor"]),
            first_sequence=int(fields["first"]) if fields["kept"] != "0" else int(fields["latest"]) + 1,
            total_chunks=int(fields["kept"]),
            final_output=fields.get("final_output"),
            error=fields.get("error"),
            created_at=int(fields["created_at"]),
            updated_at=int(fields["updated_at"]),
            fence=int(fields.get("fence", 0)),
        )
    except (KeyError, ValueError) as error:
        raise StoreCorrupt(f"Stream {stream_id!r} cannot be read from Redis: {error!r}") from error


def _row(entry: Any) -> StoredText:
    name, (_, facts, _, text) = entry[0], entry[1]
    return StoredText(int(name[:-2]), int(facts.partition(b":")[0]), text.decode())


def _up_to(rows: list[StoredText], max_chars: int) -> list[StoredText]:
    chars = 0
    for index, row in enumerate(rows):
        chars += len(row.text)
        if chars >= max_chars:
            return rows[: index + 1]
    return rows
