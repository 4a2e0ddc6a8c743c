"""Read sessions from stores as the lines of an export, one session at a time."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any, Protocol

import msgspec

from ...codec import Json, encode
from ...errors import InvalidArgument, SessionNotFound, StoreUnavailable
from ...retry import CONFLICT
from ...state import diff
from ...stores.blobs.contract import BlobStore
from ...stores.blobs.spaces import blobs_in
from ...stores.memory.contract import MemoryStore
from ...stores.state.contract import StateStore
from ...stores.state.tree import session_tree
from ...stores.usage.contract import UsageStore
from ...types import Checkpoint, SessionState
from .records import Block, Record, header

PAGE = 200

Progress = Callable[[int, int], None]
"""(done, of how many)"""


class TransferStores(Protocol):
    """The stores to read from or write to."""

    @property
    def state(self) -> StateStore: ...

    @property
    def usage(self) -> UsageStore: ...

    @property
    def memory(self) -> MemoryStore: ...

    @property
    def blobs(self) -> BlobStore: ...


class Exported(msgspec.Struct):
    """What an export wrote."""

    sessions: int = 0
    skipped: int = 0
    memories: int = 0


async def export_sessions(
    stores: TransferStores,
    write: Callable[[str], object],
    *,
    session_id: str | None = None,
    user_id: str | None = None,
    already: Collection[str] = (),
    resumed: bool = False,
    progress: Progress = lambda done, total: None,
) -> Exported:
    """Write sessions as lines, oldest first: all, one with its descendants, or those of one user.

    Memories are written with all sessions, or, for one user, only those about that user. `already`: sessions that an
    interrupted export has written completely; `resumed`: the header is also written.
    """
    if session_id is not None and user_id is not None:
        raise InvalidArgument("Give session_id or user_id, not both.")
    ids = await _ids(stores.state, session_id, user_id)
    exported = Exported()
    if not resumed:
        write(header())
    for number, each in enumerate(ids):
        progress(number, len(ids))
        if each in already:
            exported.skipped += 1
            continue
        lines = await _session_lines(stores, each)
        if lines:  # else it was deleted in the meantime
            write("\n".join(lines))
            exported.sessions += 1
    progress(len(ids), len(ids))
    if session_id is None:
        async for items in _memories(stores.memory, user_id):
            write(encode({"kind": "memories", "items": items}))
            exported.memories += len(items)
    write(encode({"kind": "end", "sessions": exported.sessions + exported.skipped}))
    return exported


async def _ids(store: StateStore, session_id: str | None, user_id: str | None) -> list[str]:
    """Return the ids, oldest first, so that an import creates them in the same order; parents precede their
    children."""
    if session_id is not None:
        tree = await session_tree(store, session_id)
        if not tree:
            raise SessionNotFound(session_id)
        return [session.session_id for session in tree]
    found: list[str] = []
    cursor = None
    while True:
        page = await store.list_sessions(user_id=user_id, limit=PAGE, cursor=cursor, count=False)
        found += [session.session_id for session in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return found[::-1]


async def _session_lines(stores: TransferStores, session_id: str) -> list[str]:
    """Return one session's block, read at one moment; empty if there is no such session."""
    for _ in CONFLICT.attempts():
        session = await stores.state.load_state(session_id)
        if session is None:
            return []
        try:
            records = [record async for record in _records(stores, session)]
        except SessionNotFound:
            return []
        again = await stores.state.load_state(session_id)
        if again is not None and again.version == session.version:
            block = Block()
            lines = [block.line(record) for record in records]
            return [*lines, encode({"kind": "end_session", "session_id": session_id, "sha256": block.sha256})]
    raise StoreUnavailable(f"Session {session_id!r} changes too fast to be exported: stop its run first.")


async def _records(stores: TransferStores, session: SessionState) -> AsyncIterator[Record]:
    session_id = session.session_id
    yield {"kind": "session", "session": _plain(session)}
    if session.root_session_id in (None, session_id):
        async for info in blobs_in(stores.blobs, session_id):
            data = await stores.blobs.get(session_id, info.digest)
            if data is not None:
                text = base64.b64encode(data).decode()
                yield {"kind": "blob", "digest": info.digest, "media_type": info.media_type, "data": text}
    count = await stores.state.get_message_count(session_id)
    for offset in range(0, count, PAGE):
        page = await stores.state.get_messages(session_id, offset=offset, limit=PAGE)
        yield {"kind": "messages", "items": list(page.items)}
    custom_state: Json = {}
    for listed in await _checkpoints(stores.state, session_id):
        point = await stores.state.get_checkpoint(session_id, listed.checkpoint_id)
        if point is None:
            continue
        yield {
            "kind": "checkpoint",
            "step_id": point.step_id,
            "of": point.kind,
            "step_count": point.step_count,
            "message_count": point.message_count,
            "state": _plain(point.state),
            "patch": diff(custom_state, point.state.custom_state),
            "request": point.request,
        }
        custom_state = point.state.custom_state
    yield {"kind": "custom_state", "patch": diff(custom_state, session.custom_state)}
    for run in await stores.state.list_runs(session_id):
        yield {"kind": "run", "run": msgspec.to_builtins(run)}
    if refs := await stores.state.list_sub_session_refs(session_id):
        yield {"kind": "refs", "items": msgspec.to_builtins(refs)}
    if session.suspended_step_id and (staged := await stores.state.list_staged(session_id, session.suspended_step_id)):
        yield {"kind": "staged", "step_id": session.suspended_step_id, "items": msgspec.to_builtins(staged)}
    if entries := await stores.usage.get_entries(session_id, incarnation=session.incarnation):
        yield {"kind": "usage", "items": msgspec.to_builtins(entries)}


def _plain(session: SessionState) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(session)
    data["custom_state"] = None  # implied by the patches
    return data


async def _checkpoints(store: StateStore, session_id: str) -> list[Checkpoint]:
    """Return all checkpoints, oldest first, without custom state."""
    found: list[Checkpoint] = []
    while True:
        page = await store.list_checkpoints(session_id, limit=PAGE, offset=len(found))
        found += page.items
        if not page.has_more or not page.items:
            return found[::-1]


async def _memories(store: MemoryStore, entity_id: str | None) -> AsyncIterator[list[Json]]:
    entities, offset = set[str](), 0
    while True:
        page = await store.list_entities(entity_id=entity_id, limit=PAGE, offset=offset, count=False)
        entities.update(item.entity_id for item in page.items)
        offset += len(page.items)
        if not page.has_more or not page.items:
            break
    for entity_id in sorted(entities):
        offset = 0
        while True:
            memories = await store.list_memories(entity_id, limit=PAGE, offset=offset)
            if memories.items:
                yield msgspec.to_builtins(memories.items)
            offset += len(memories.items)
            if not memories.has_more or not memories.items:
                break
