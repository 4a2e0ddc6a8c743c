"""Checkpoints: reading them, restoring one, and forking a session from one.

A checkpoint names messages by their count and custom state by its number; the backend knows the contents. Other writers
may write between reading a checkpoint and restoring it: the commit carries the version it was computed from, and after
a rejection everything is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from ...clock import pause_seconds
from ...codec import Json, decode_many, ensure_count
from ...errors import (
    CheckpointNotFound,
    HelixError,
    SessionExists,
    SessionNotFound,
    StoreUnavailable,
    VersionConflict,
)
from ...ids import ensure_id, ensure_printable
from ...messages import Message
from ...retry import CONFLICT
from ...types import Checkpoint, Conversation, ForkOrigin, Owner, Page, SessionState
from ..paging import ensure_limit
from . import validate
from .branches import BranchTree
from .commit import Applied, Commit, CommitRefused, Copy, RunChange, StoredCheckpoint, StoredSession
from .due import due_at
from .fields import fields_from_text, recorded_in
from .merging import MergingStore
from .refusals import require_session
from .runs import checked_change


class CheckpointingStore(MergingStore):
    """The part of the state store that returns to earlier commits."""

    async def load_conversation(
        self, session_id: str, *, last: int | None = 50, offset: int | None = None, custom_state: bool = True
    ) -> Conversation | None:
        ensure_id(session_id, "session_id")
        start = 0 if last is None else -ensure_count(last, "last")
        if offset is not None:
            start = ensure_count(offset, "offset")
        wanted = None if last == 0 and offset is None else start
        found = await self._read_conversation(session_id, wanted, custom_state=custom_state)
        if found is None:
            return None
        stored, texts, run, row = found
        checkpoint = None if row is None else _checkpoint(session_id, row, None)
        return Conversation(stored.state, decode_many(texts), stored.message_count, run, checkpoint)

    async def list_checkpoints(self, session_id: str, *, limit: int = 50, offset: int = 0) -> Page[Checkpoint]:
        ensure_id(session_id, "session_id")
        ensure_limit(limit)
        ensure_count(offset, "offset")
        rows, total = require_session(session_id, await self._read_checkpoints(session_id, limit, offset))
        items = [_checkpoint(session_id, row, None) for row in rows]
        return Page(items, total, offset, limit, has_more=offset + len(items) < total)

    async def get_checkpoint(self, session_id: str, checkpoint_id: str) -> Checkpoint | None:
        ensure_id(session_id, "session_id")
        ensure_printable(checkpoint_id, "checkpoint_id")
        return await self._checkpoint_with_state(session_id, checkpoint_id)

    async def get_latest_checkpoint(self, session_id: str) -> Checkpoint | None:
        ensure_id(session_id, "session_id")
        return await self._checkpoint_with_state(session_id, None)

    async def _checkpoint_with_state(self, session_id: str, checkpoint_id: str | None) -> Checkpoint | None:
        found = await self._read_checkpoint(session_id, checkpoint_id, custom_state=True)
        return None if found is None else _checkpoint(session_id, *found)

    async def _checkpoint_row(self, session_id: str, checkpoint_id: str) -> StoredCheckpoint:
        ensure_printable(checkpoint_id, "checkpoint_id")
        found = await self._read_checkpoint(session_id, checkpoint_id, custom_state=False)
        if found is not None:
            return found[0]
        if not await self.session_exists(session_id):
            raise SessionNotFound(session_id)
        raise CheckpointNotFound(session_id, checkpoint_id)

    async def restore_checkpoint(
        self,
        session_id: str,
        checkpoint_id: str,
        *,
        append_messages: Sequence[Message] = (),
        expected_version: int | None = None,
        change_run: RunChange | None = None,
        owner: Owner | None = None,
        new_epoch: int | None = None,
    ) -> int:
        ensure_id(session_id, "session_id")
        texts = validate.encoded_messages(append_messages)
        validate.ensure_guards(expected_version=expected_version, owner=owner, new_epoch=new_epoch)

        async def make(source: StoredSession) -> Commit:
            row = await self._checkpoint_row(session_id, checkpoint_id)
            stored = require_session(session_id, await self._read_branches(session_id))
            now, fields = self._clock(), fields_from_text(row.state)
            return Commit(
                session_id=session_id,
                now=now,
                owner=owner or Owner(source.state.incarnation),
                new_epoch=new_epoch,
                # Numbers are reused after a restore, so the version guard ensures that the row still belongs to its
                # number.
                expected_version=source.state.version,
                state=fields,
                due_at=due_at(fields, now),
                bump_version=True,
                keep_messages=row.message_count,
                messages=texts,
                discard_all=True,
                restore_number=row.number,
                branches=BranchTree(stored).cut(row.number),
                change_run=checked_change(session_id, change_run, now),
            )

        gone = CheckpointNotFound(session_id, checkpoint_id)  # if another restore goes further back in between
        return (await self._write_from_present(session_id, make, gone, expected_version, owner)).version

    async def _write_from_present(
        self,
        session_id: str,
        make: Callable[[StoredSession], Awaitable[Commit | None]],
        gone: HelixError,
        expected_version: int | None,
        owner: Owner | None,
    ) -> Applied:
        """Build a commit from the current session and store it; repeat while other writers are faster.

        Raises `gone` if what it goes back to has gone since it was read. None: there is nothing to do.
        """
        for attempt in CONFLICT.attempts():
            source = require_session(session_id, await self._read_session(session_id, custom_state=False))
            version, state = source.state.version, source.state
            if owner is not None and owner.incarnation != state.incarnation:
                raise SessionNotFound(session_id)
            if expected_version not in (None, version):
                raise VersionConflict(expected_version or 0, version, state.status, session_id)
            try:
                commit = await make(source)
            except CheckpointNotFound:
                if await self._is_at(session_id, version):
                    raise
                continue  # another writer has just gone back
            if commit is None:
                return Applied(version, source.message_count, state.step_count, state.resume_count)
            try:
                try:
                    applied, _ = await self._apply(commit)
                except StoreUnavailable as error:
                    applied = await self._outcome(commit, error)
            except CommitRefused as failed:
                if failed.reason == "checkpoint":
                    if await self._is_at(session_id, version):
                        raise gone from failed
                elif failed.reason != "version" or expected_version is not None:
                    await self._explain(commit, failed)
                # The session has moved on since it was read: read it again, out of step with other writers.
                await asyncio.sleep(pause_seconds(attempt))
                continue
            self._forget(session_id)
            return applied
        raise StoreUnavailable(f"Session {session_id!r} changes too fast to go back: try again.")

    async def _is_at(self, session_id: str, version: int) -> bool:
        """Return whether a session still has this version."""
        stored = await self._read_session(session_id, custom_state=False)
        return stored is not None and stored.state.version == version

    async def fork_session(
        self,
        session_id: str,
        new_session_id: str,
        *,
        checkpoint_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        tags: Sequence[str] | None = None,
        append_messages: Sequence[Message] = (),
    ) -> SessionState:
        ensure_id(session_id, "session_id")
        texts = validate.encoded_messages(append_messages)
        ensure_id(new_session_id, "new_session_id")
        validate.ensure_metadata(metadata)
        validate.ensure_tags(() if tags is None else tags)
        labels: dict[str, Any] = {} if metadata is None else {"metadata": dict(metadata)}
        if tags is not None:
            labels["tags"] = tuple(tags)
        for attempt in CONFLICT.attempts():
            try:
                await self._fork_once(session_id, new_session_id, checkpoint_id, labels, texts)
            except CommitRefused as failed:
                if failed.reason == "exists":
                    raise SessionExists(new_session_id) from failed
                # The source has moved on since it was read: read it again, out of step with other writers.
                await asyncio.sleep(pause_seconds(attempt))
                continue
            state = await self.load_state(new_session_id)
            return require_session(new_session_id, state)
        raise StoreUnavailable(f"Session {session_id!r} changes too fast to be forked: try again.")

    async def _fork_once(
        self,
        session_id: str,
        new_session_id: str,
        checkpoint_id: str | None,
        labels: Mapping[str, Any],
        texts: tuple[str, ...],
    ) -> None:
        source = require_session(session_id, await self._read_session(session_id, custom_state=False))
        fields, number, message_count = source.state, None, None
        if checkpoint_id is not None:
            row = await self._checkpoint_row(session_id, checkpoint_id)
            fields, number, message_count = fields_from_text(row.state), row.number, row.message_count
        now, shared = self._clock(), source.message_count if message_count is None else message_count
        state = msgspec.structs.replace(
            at_rest(fields) if shared else fields,
            session_id=new_session_id,
            stream_id=new_session_id,
            # The fork is independent: deleting a parent of the original must not delete it.
            parent_session_id=None,
            root_session_id=None,
            interrupt_flag=None,
            version=1,
            created_at=now,
            updated_at=now,
            incarnation=self._ids(),
            owner_epoch=0,
            forked_from=ForkOrigin(session_id, checkpoint_id, shared),
            **labels,
        )
        copy = Copy(session_id, source.state.incarnation, source.state.version, number, message_count)
        due = due_at(state, now)
        await self._apply(
            Commit(session_id=new_session_id, now=now, create=True, state=state, due_at=due, copy=copy, messages=texts)
        )


def at_rest(state: SessionState) -> SessionState:
    """Return a session without a run: `interrupted` instead of `active`, so that it can be resumed."""
    return msgspec.structs.replace(state, status="interrupted") if state.status == "active" else state


def _checkpoint(session_id: str, row: StoredCheckpoint, custom_state: dict[str, Json] | None) -> Checkpoint:
    fields, request = recorded_in(row.state)
    state = msgspec.structs.replace(
        fields,
        custom_state=custom_state,
        version=row.version,
        # Set here, whatever the committed value was: creation time is not copied.
        created_at=row.session_created_at,
        incarnation=row.session_incarnation,
        updated_at=row.created_at,
    )
    return Checkpoint(
        checkpoint_id=row.checkpoint_id,
        session_id=session_id,
        step_id=row.step_id,
        step_count=row.step_count,
        stream_sequence=row.stream_sequence,
        message_count=row.message_count,
        status=row.status,
        version=row.version,
        created_at=row.created_at,
        state=state,
        kind=row.kind,
        request=request,
    )
