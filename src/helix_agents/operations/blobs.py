"""`sweep_blobs`: delete blobs that nothing refers to.

A blob is put before what refers to it is committed, so a crash, a restore or an upload that was never sent leaves it
unused. The sweep reads a session only if it has old blobs, and only until a reference to each of them is found. What
was stored within `grace_seconds` is spared, so that a put and its commit never race with the sweep.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from ..clock import system_clock
from ..codec import Json, encode
from ..errors import HelixError, InvalidArgument
from ..stores.blobs.contract import BlobStore
from ..stores.blobs.spaces import REQUESTS, blobs_in
from ..stores.paging import MAX_PAGE
from ..stores.state.contract import StateStore
from ..types import SessionState

log = logging.getLogger(__name__)

GRACE_SECONDS = 24 * 3600
"""How old an unused blob must be. An upload may wait this long for the message that it belongs to."""
PAGE = 200
MAX_SESSIONS_OF_A_SPACE = 1_000
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class SweptBlobs(msgspec.Struct):
    """The result of one sweep. `spaces`: how many had old blobs. `spared`: spaces that changed, or cannot be read in
    full."""

    spaces: int = 0
    deleted: int = 0
    bytes: int = 0
    spared: int = 0
    errors: list[str] = []


async def sweep_blobs(
    state_store: StateStore,
    blob_store: BlobStore,
    *,
    grace_seconds: float = GRACE_SECONDS,
    now: int | None = None,
    dry_run: bool = False,
) -> SweptBlobs:
    """Delete the blobs of root sessions that no message, state, staged result or checkpoint refers to.

    A session that is written to during the sweep is left for the next one, and so is one with inactive branches, whose
    messages cannot be read. An error in one session does not stop the sweep. `dry_run` only counts.
    """
    if isinstance(grace_seconds, bool) or not isinstance(grace_seconds, int | float) or grace_seconds < 0:
        raise InvalidArgument(f"grace_seconds must not be negative: {grace_seconds!r}.")
    until = (system_clock() if now is None else now) - int(grace_seconds * 1000)
    swept, cursor = SweptBlobs(), None
    while True:
        page = await state_store.list_sessions(parent_session_id=None, limit=MAX_PAGE, cursor=cursor, count=False)
        for session in page.items:
            if session.session_id == REQUESTS:
                continue  # shared by all sessions: the texts of model requests
            try:
                await _sweep(state_store, blob_store, session.session_id, until, dry_run, swept)
            except HelixError as problem:
                log.warning("Could not sweep the blobs of session %r.", session.session_id, exc_info=True)
                swept.errors.append(f"{session.session_id}: {problem}")
        cursor = page.next_cursor
        if cursor is None:
            return swept


async def _sweep(
    state_store: StateStore, blob_store: BlobStore, space: str, until: int, dry_run: bool, swept: SweptBlobs
) -> None:
    unused = {info.digest: info.size async for info in blobs_in(blob_store, space) if info.stored_at <= until}
    if not unused:
        return
    swept.spaces += 1
    versions: dict[str, Any] = {}
    async for value in _referring(state_store, space, versions):
        for digest in _DIGEST.findall(encode(value)):
            unused.pop(digest, None)
        if not unused:
            return
    if not await _unchanged(state_store, versions):
        swept.spared += 1
        return
    swept.bytes += sum(unused.values())
    swept.deleted += len(unused) if dry_run else await blob_store.delete(space, list(unused), stored_until=until)


async def _referring(state_store: StateStore, root_id: str, versions: dict[str, Any]) -> AsyncIterator[Json]:
    """Yield everything that may refer to a blob, of a session and its descendants; record the versions that were read.

    A session whose version is noted as None cannot be read whole.
    """
    rest = [root_id]
    while rest:
        session_id = rest.pop()
        session = await state_store.load_state(session_id)
        if session is None or session_id in versions:
            continue
        versions[session_id] = await _version(state_store, session)
        yield msgspec.to_builtins(session)
        if session.suspended_step_id is not None:
            yield msgspec.to_builtins(await state_store.list_staged(session_id, session.suspended_step_id))
        async for messages in _messages(state_store, session_id):
            yield messages
        has_branches = any(not branch.is_active for branch in await state_store.list_branches(session_id))
        if has_branches or session.status == "active" or len(versions) > MAX_SESSIONS_OF_A_SPACE:
            versions[session_id] = None
            return
        async for state in _checkpoints(state_store, session_id):
            yield state
        rest += [ref.sub_session_id for ref in await state_store.list_sub_session_refs(session_id)]


async def _messages(state_store: StateStore, session_id: str) -> AsyncIterator[Json]:
    for offset in range(0, await state_store.get_message_count(session_id), PAGE):
        yield list((await state_store.get_messages(session_id, offset=offset, limit=PAGE)).items)


async def _checkpoints(state_store: StateStore, session_id: str) -> AsyncIterator[Json]:
    """Yield the states that a restore may bring back."""
    offset = 0
    while True:
        page = await state_store.list_checkpoints(session_id, limit=PAGE, offset=offset)
        for listed in page.items:
            checkpoint = await state_store.get_checkpoint(session_id, listed.checkpoint_id)
            yield None if checkpoint is None else msgspec.to_builtins(checkpoint.state)
        offset += PAGE
        if not page.has_more:
            return


async def _unchanged(state_store: StateStore, versions: dict[str, Any]) -> bool:
    """Return whether every session was read in full and has not changed since."""
    for session_id, version in versions.items():
        session = await state_store.load_state(session_id)
        if version is None or session is None or await _version(state_store, session) != version:
            return False
    return True


async def _version(state_store: StateStore, session: SessionState) -> tuple[str, int, int]:
    """Return a value that changes with every write: messages may be appended without a new version."""
    return session.incarnation, session.version, await state_store.get_message_count(session.session_id)
