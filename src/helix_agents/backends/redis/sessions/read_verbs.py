"""The reading verbs of the state store: each is one MULTI, or a few where one says what the next must read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ....clock import Clock, IdSource, random_id, system_clock
from ....codec import Json, decode, to_struct
from ....errors import InvalidArgument, StoreUnavailable
from ....retry import CONTENTION
from ....stores.state.base import StateStoreBase
from ....stores.state.cells import rebuild
from ....stores.state.commit import (
    CellName,
    ClaimableFilter,
    SessionFilter,
    StagedRow,
    StoredCheckpoint,
    StoredConversation,
    StoredSession,
)
from ....types import Claimable, InterruptFlag, RunRecord, SessionState, SessionStatus, SubSessionRef
from ..client.connection import Client, Command
from ..client.servers import Servers
from ..index.claimable import ClaimableIndex
from ..index.listing import Listing
from ..index.sessions import SessionIndex
from ..keys import SessionKeys, checked_prefix, short_checkpoint_id
from ..program.runner import Runner
from .compile import cell_command, staged_field
from .expiry import SESSION_TTL_SECONDS
from .session_hash import as_fields, as_texts, from_hash, run_from, text_or_none
from .session_reader import CheckpointRead, SessionRead, SessionReader, checkpoint_from

MAX_KNOWN_KEYS = 1024


class RedisReads(StateStoreBase):
    """The part of the state store that reads."""

    exact_counts = False

    def __init__(
        self,
        redis: Client,
        *,
        prefix: str = "agent",
        ttl: int = SESSION_TTL_SECONDS,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
    ) -> None:
        super().__init__(clock=clock, ids=ids)
        if ttl <= 0:
            raise InvalidArgument(f"ttl must be a positive number of seconds, not {ttl!r}: sessions in Redis expire.")
        self._prefix = checked_prefix(prefix)
        self._ttl_ms = int(ttl * 1000)
        self._servers = Servers(redis)
        self._runner = Runner(self._servers)
        self._index = SessionIndex(self._runner, self._prefix, self._ttl_ms)
        self._claimable = ClaimableIndex(self._runner, self._index, self._prefix, self._ttl_ms)
        self._reader = SessionReader(self._servers)
        self._listing = Listing(self._servers, self._index, self._prefix)
        self._known_keys: dict[str, SessionKeys] = {}

    async def close(self) -> None:
        """Close the connections that this store opened itself; the client stays open."""
        await self._servers.close()

    def _keys(self, session_id: str) -> SessionKeys:
        keys = self._known_keys.get(session_id)
        if keys is None:
            if len(self._known_keys) >= MAX_KNOWN_KEYS:
                self._known_keys.clear()
            keys = self._known_keys[session_id] = SessionKeys(self._prefix, session_id)
        return keys

    # -- reading

    async def _read_session(self, session_id: str, *, custom_state: bool) -> StoredSession | None:
        keys = self._keys(session_id)
        if custom_state:
            read = await self._reader.session(keys)
            return None if read is None else _stored(session_id, read, custom_state=True)
        commands = [("HGETALL", keys.main), ("LLEN", keys.messages), ("LLEN", keys.checkpoints)]
        fields, messages, checkpoints = await self._servers.run(keys.main, commands, atomic=True)
        if not fields:
            return None
        return StoredSession(from_hash(session_id, as_fields(fields)), int(messages), int(checkpoints))

    async def _if_exists(self, keys: SessionKeys, commands: list[Command]) -> list[Any] | None:
        """Return the replies of one MULTI, or None if there is no session."""
        exists, *replies = await self._servers.run(keys.main, [("EXISTS", keys.main), *commands], atomic=True)
        return replies if exists else None

    async def _read_cells(self, session_id: str, names: Iterable[CellName]) -> dict[CellName, str | None] | None:
        keys = self._keys(session_id)
        commands = {name: command for name in names if (command := cell_command(keys, name)) is not None}
        found: dict[CellName, str | None] = dict.fromkeys(names)
        replies = await self._if_exists(keys, list(commands.values()))
        if replies is None:
            return None
        return found | dict(zip(commands, map(text_or_none, replies), strict=True))

    async def _read_checkpoint(
        self, session_id: str, checkpoint_id: str | None, *, custom_state: bool
    ) -> tuple[StoredCheckpoint, dict[str, Json] | None] | None:
        keys = self._keys(session_id)
        for _ in CONTENTION.attempts():
            found = await self._find_checkpoint(keys, session_id, checkpoint_id)
            if found is None or not custom_state:
                return None if found is None else (found.row, None)
            read = await self._reader.session(keys, at=found)
            if read is not None:
                return found.row, rebuild(read.custom.cells())
        raise StoreUnavailable(f"The checkpoints of session {session_id!r} change too fast to be read: try again.")

    async def _find_checkpoint(
        self, keys: SessionKeys, session_id: str, checkpoint_id: str | None
    ) -> CheckpointRead | None:
        if checkpoint_id is None:
            commands = [("LINDEX", keys.checkpoints, -1), ("LLEN", keys.checkpoints)]
            row, number = await self._servers.run(keys.main, commands, atomic=True)
            return None if row is None else checkpoint_from(row.decode(), int(number))
        short = _without_surrogates(short_checkpoint_id(session_id, checkpoint_id))
        number = await self._servers.one(keys.main, "HGET", keys.checkpoint_ids, short)
        if number is None:
            return None
        row = await self._servers.one(keys.main, "LINDEX", keys.checkpoints, int(number) - 1)
        found = None if row is None else checkpoint_from(row.decode(), int(number))
        return found if found is not None and found.row.checkpoint_id == checkpoint_id else None

    async def _read_checkpoints(
        self, session_id: str, limit: int, offset: int
    ) -> tuple[list[StoredCheckpoint], int] | None:
        keys = self._keys(session_id)
        newest_first = ("LRANGE", keys.checkpoints, -offset - limit, -offset - 1)
        replies = await self._if_exists(keys, [("LLEN", keys.checkpoints), newest_first])
        if replies is None:
            return None
        total, rows = int(replies[0]), as_texts(replies[1])[::-1]
        return [checkpoint_from(text, total - offset - place).row for place, text in enumerate(rows)], total

    async def _read_staged(self, session_id: str, step_id: str) -> list[StagedRow] | None:
        keys = self._keys(session_id)
        replies = await self._if_exists(keys, [("HGETALL", keys.staging)])
        if replies is None:
            return None
        beginning = staged_field(step_id)
        rows = as_fields(replies[0]).items()
        return [StagedRow(*decode(text)) for name, text in rows if name.startswith(beginning)]

    async def _read_messages(self, session_id: str, offset: int, limit: int | None) -> tuple[list[str], int] | None:
        keys = self._keys(session_id)
        last = -1 if limit is None else offset + limit - 1
        if offset < 0:
            return await self._read_last_messages(keys, offset, limit)
        replies = await self._if_exists(keys, [("LLEN", keys.messages), ("LRANGE", keys.messages, offset, last)])
        return None if replies is None else (as_texts(replies[1]), int(replies[0]))

    async def _read_last_messages(
        self, keys: SessionKeys, offset: int, limit: int | None
    ) -> tuple[list[str], int] | None:
        """Read messages from the end: LRANGE counts the same way, but a start before the first message shifts the
        end."""
        replies = await self._if_exists(keys, [("LLEN", keys.messages), ("LRANGE", keys.messages, offset, -1)])
        if replies is None:
            return None
        return as_texts(replies[1])[:limit], int(replies[0])

    async def _read_conversation(
        self, session_id: str, offset: int | None, *, custom_state: bool
    ) -> StoredConversation | None:
        messages = None if offset is None else (offset, -1)
        read = await self._reader.session(
            self._keys(session_id), messages=messages, custom_state=custom_state, latest=True
        )
        if read is None:
            return None
        stored = _stored(session_id, read, custom_state=custom_state)
        run = None if read.run is None else run_from(read.run)
        row = None if read.checkpoint is None else checkpoint_from(read.checkpoint, read.checkpoint_count).row
        return StoredConversation(stored, read.messages, run, row)

    async def _read_runs(self, session_id: str, *, last: bool) -> list[RunRecord] | None:
        keys = self._keys(session_id)
        replies = await self._if_exists(keys, [("LRANGE", keys.run_ids, -1 if last else 0, -1), ("HGETALL", keys.runs)])
        if replies is None:
            return None
        records = as_fields(replies[1])
        return [run_from(records[run_id]) for run_id in as_texts(replies[0])]

    async def _read_refs(self, session_id: str) -> list[SubSessionRef] | None:
        keys = self._keys(session_id)
        replies = await self._if_exists(keys, [("LRANGE", keys.ref_ids, 0, -1), ("HGETALL", keys.refs)])
        if replies is None:
            return None
        refs = as_fields(replies[1])
        return [to_struct(SubSessionRef, decode(refs[ref_id])) for ref_id in as_texts(replies[0])]

    async def _read_flag(self, session_id: str) -> tuple[InterruptFlag | None] | None:
        keys = self._keys(session_id)
        replies = await self._if_exists(keys, [("HGET", keys.main, "interrupt_flag")])
        if replies is None:
            return None
        text = text_or_none(replies[0])
        return (None if text is None else to_struct(InterruptFlag, decode(text)),)

    async def _scan_sessions(
        self, wanted: SessionFilter, *, limit: int, offset: int, count: bool
    ) -> tuple[list[SessionState], int | None]:
        return await self._listing.scan(wanted, limit=limit, offset=offset, count=count)

    async def count_by_status(self) -> dict[SessionStatus, int]:
        return await self._listing.count_by_status()

    async def _scan_claimable(self, wanted: ClaimableFilter, *, limit: int, offset: int) -> list[Claimable]:
        return (await self._claimable.claimable(wanted, limit + offset))[offset:]

    async def _next_due(self, now: int) -> int | None:
        return await self._claimable.next_due(now)


def _stored(session_id: str, read: SessionRead, *, custom_state: bool) -> StoredSession:
    custom = rebuild(read.custom.cells()) if custom_state else None
    state = msgspec.structs.replace(from_hash(session_id, read.fields), custom_state=custom)
    return StoredSession(state, read.message_count, read.checkpoint_count)


def _without_surrogates(text: str) -> str:
    """Replace lone surrogates, which cannot be sent; no stored id contains the result."""
    return text.encode("utf-8", "replace").decode()
