"""The StateStore contract on a few backend verbs: the policy that all backends share.

Public methods check their input, build a `Commit`, and let the backend apply it. The step commit and other merges of
custom state are in `merging.py`, restoring in `checkpoints.py`, branches in `branching.py`, runs in `runs.py`, statuses
in `statuses.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ...codec import Json, decode, decode_many, encode, ensure_count
from ...errors import InvalidArgument, SessionNotFound
from ...ids import ensure_id
from ...lifecycle import guarded_sources
from ...messages import Message, is_thinking, without_thinking
from ...types import (
    CheckpointMeta,
    Claimable,
    InterruptFlag,
    Owner,
    Page,
    RunRecord,
    SessionState,
    SessionStatus,
    SubSessionRef,
)
from ..along import Along
from ..paging import ensure_limit
from . import validate
from .branching import BranchingStore
from .cells import replacement
from .commit import NO_CHANGES, ClaimableFilter, ClaimablePlace, Commit, CommitRefused, RunChange, SessionFilter
from .contract import UNSET, Unset
from .due import due_at
from .refusals import require_session
from .runs import checked_change, with_run


class StateStoreBase(BranchingStore):
    """A complete state store for a backend that implements the verbs."""

    # -- sessions

    async def create_session(
        self,
        session_id: str,
        *,
        agent_type: str,
        custom_state: Mapping[str, Json] | None = None,
        stream_id: str | None = None,
        parent_session_id: str | None = None,
        root_session_id: str | None = None,
        user_id: str | None = None,
        tags: Sequence[str] = (),
        metadata: Mapping[str, str] | None = None,
        expires_at: int | None = None,
        messages: Sequence[Message] = (),
        checkpoint: CheckpointMeta | None = None,
        run: RunRecord | None = None,
        owner_epoch: int = 0,
        along: Along | None = None,
    ) -> SessionState:
        ensure_id(session_id, "session_id")
        validate.ensure_labels(
            agent_type=agent_type,
            stream_id=stream_id,
            parent_session_id=parent_session_id,
            root_session_id=root_session_id,
            user_id=user_id,
            tags=tags,
            metadata=metadata,
            expires_at=expires_at,
        )
        custom = {} if custom_state is None else custom_state
        validate.ensure_custom_state(custom)
        now = self._clock()
        state = SessionState(
            session_id=session_id,
            agent_type=agent_type,
            stream_id=stream_id or session_id,
            parent_session_id=parent_session_id,
            root_session_id=root_session_id,
            user_id=user_id,
            tags=tuple(tags),
            metadata=dict(metadata or {}),
            expires_at=expires_at,
            step_count=0 if checkpoint is None else checkpoint.step_count,
            version=1,
            created_at=now,
            updated_at=now,
            incarnation=self._ids(),
            owner_epoch=ensure_count(owner_epoch, "owner_epoch"),
        )
        await self._create(state, custom, messages, checkpoint, run, along)
        return msgspec.structs.replace(state, custom_state=decode(encode(custom)))  # not the caller's own

    async def _create(
        self,
        state: SessionState,
        custom: Mapping[str, Json],
        messages: Sequence[Message],
        checkpoint: CheckpointMeta | None,
        run: RunRecord | None,
        along: Along | None,
    ) -> None:
        session_id, now = state.session_id, state.created_at
        changes = replacement(custom) if custom else NO_CHANGES
        await self._write(
            Commit(
                session_id=session_id,
                now=now,
                create=True,
                state=state,
                custom=changes,
                messages=validate.encoded_messages(messages) if messages else (),
                checkpoint=None if checkpoint is None else self._row_of_checkpoint(state, checkpoint, now),
                run=with_run(session_id, run, now),
                along=along,
            )
        )
        self._cells.learn(session_id, changes)

    async def session_exists(self, session_id: str) -> bool:
        ensure_id(session_id, "session_id")
        return await self._read_session(session_id, custom_state=False) is not None

    async def delete_session(self, session_id: str, *, owner: Owner | None = None) -> bool:
        ensure_id(session_id, "session_id")
        validate.ensure_guards(owner=owner)
        try:
            deleted = await self._delete(session_id, owner)
        except CommitRefused as failed:
            if failed.reason == "missing":
                return False
            await self._explain(Commit(session_id=session_id, now=self._clock(), owner=owner), failed)
            raise
        self._forget(session_id)
        return deleted

    async def load_state(self, session_id: str) -> SessionState | None:
        ensure_id(session_id, "session_id")
        stored = await self._read_session(session_id, custom_state=True)
        return None if stored is None else stored.state

    async def save_state(
        self,
        session_id: str,
        state: SessionState,
        *,
        expected_version: int | None = None,
        run: RunRecord | None = None,
        change_run: RunChange | None = None,
        owner: Owner | None = None,
        new_epoch: int | None = None,
        keep_messages: int | None = None,
        messages: Sequence[Message] = (),
        along: Along | None = None,
    ) -> int:
        ensure_id(session_id, "session_id")
        validate.ensure_state(session_id, state)
        validate.ensure_guards(expected_version=expected_version, owner=owner, new_epoch=new_epoch)
        if keep_messages is not None:
            ensure_count(keep_messages, "keep_messages")
        changes = NO_CHANGES if state.custom_state is None else replacement(state.custom_state)
        now = self._clock()
        commit = Commit(
            session_id=session_id,
            now=now,
            owner=owner,
            expected_version=expected_version,
            new_epoch=new_epoch,
            allowed_from=guarded_sources(state.status),
            state=state,
            due_at=due_at(state, now),
            bump_version=True,
            keep_messages=keep_messages,
            messages=validate.encoded_messages(messages) if messages else (),
            custom=changes,
            run=with_run(session_id, run, now),
            change_run=checked_change(session_id, change_run, now),
            along=along,
        )
        applied = await self._write(commit)
        self._cells.learn(session_id, changes)
        return applied.version

    # -- composable writes

    async def append_messages(self, session_id: str, messages: Sequence[Message], *, owner: Owner | None = None) -> int:
        ensure_id(session_id, "session_id")
        validate.ensure_guards(owner=owner)
        texts = validate.encoded_messages(messages)
        commit = Commit(session_id=session_id, now=self._clock(), owner=owner, messages=texts)
        return (await self._write(commit)).message_count

    async def increment_step_count(self, session_id: str) -> int:
        ensure_id(session_id, "session_id")
        return (await self._write(Commit(session_id=session_id, now=self._clock(), add_steps=1))).step_count

    async def increment_resume_count(self, session_id: str) -> int:
        ensure_id(session_id, "session_id")
        return (await self._write(Commit(session_id=session_id, now=self._clock(), add_resumes=1))).resume_count

    # -- interrupt flag

    async def set_interrupt_flag(
        self,
        session_id: str,
        reason: str | None = None,
        *,
        run_id: str | None = None,
        abort: bool = False,
        owner: Owner | None = None,
    ) -> None:
        ensure_id(session_id, "session_id")
        validate.ensure_optional(texts={"reason": reason})
        validate.ensure_guards(owner=owner)
        if run_id is not None:
            ensure_id(run_id, "run_id")
        now = self._clock()
        flag = InterruptFlag(reason, run_id, now, bool(abort))
        await self._write(Commit(session_id=session_id, now=now, owner=owner, flag=flag))

    async def check_interrupt_flag(self, session_id: str) -> InterruptFlag | None:
        ensure_id(session_id, "session_id")
        return require_session(session_id, await self._read_flag(session_id))[0]

    async def clear_interrupt_flag(self, session_id: str, *, owner: Owner | None = None) -> None:
        ensure_id(session_id, "session_id")
        validate.ensure_guards(owner=owner)
        await self._write(Commit(session_id=session_id, now=self._clock(), owner=owner, clear_flag=True))

    # -- sub-sessions

    async def add_sub_session_refs(
        self,
        session_id: str,
        refs: Sequence[SubSessionRef],
        *,
        expected_version: int | None = None,
        owner: Owner | None = None,
    ) -> None:
        ensure_id(session_id, "session_id")
        validate.ensure_guards(expected_version=expected_version, owner=owner)
        now = self._clock()
        stamped = tuple(
            ref if ref.started_at else msgspec.structs.replace(ref, started_at=now)
            for ref in map(validate.ensure_ref, validate.ensure_many(refs, "refs"))
        )
        await self._write(
            Commit(session_id=session_id, now=now, owner=owner, expected_version=expected_version, refs=stamped)
        )

    async def update_sub_session_ref(
        self, session_id: str, sub_session_id: str, *, owner: Owner | None = None, **changes: Any
    ) -> SubSessionRef:
        ensure_id(session_id, "session_id")
        validate.ensure_guards(owner=owner)
        ensure_id(sub_session_id, "sub_session_id")
        blank = SubSessionRef(sub_session_id, "agent", "call")
        fixed = {"sub_session_id"} & changes.keys()
        unknown = fixed or changes.keys() - set(SubSessionRef.__struct_fields__)
        if unknown:
            raise InvalidArgument(f"A sub-session ref has no field {sorted(unknown)[0]!r} that can be changed.")
        validate.ensure_ref(msgspec.structs.replace(blank, **changes))
        now = self._clock()
        try:
            ref = await self._update_ref(session_id, sub_session_id, changes, owner, now)
        except CommitRefused as failed:
            await self._explain(Commit(session_id=session_id, now=now, owner=owner), failed)
            raise
        if ref is None:
            if not await self.session_exists(session_id):
                raise SessionNotFound(session_id)
            raise InvalidArgument(f"Session {session_id!r} has no ref to {sub_session_id!r}: add it first.")
        return ref

    async def list_sub_session_refs(self, session_id: str) -> list[SubSessionRef]:
        ensure_id(session_id, "session_id")
        return require_session(session_id, await self._read_refs(session_id))

    # -- messages

    async def get_messages(
        self, session_id: str, *, offset: int = 0, limit: int | None = 50, include_thinking: bool = True
    ) -> Page[Message]:
        ensure_id(session_id, "session_id")
        if limit is not None:
            ensure_limit(limit, None)
        validate.ensure_signed_offset(offset)
        texts, total = require_session(session_id, await self._read_messages(session_id, offset, limit))
        start = max(0, total + offset) if offset < 0 else offset
        messages: list[Message] = decode_many(texts)
        if not include_thinking:
            messages = [without_thinking(message) for message in messages if not is_thinking(message)]
        return Page(messages, total, start, limit, has_more=start + len(texts) < total)

    async def get_message_count(self, session_id: str) -> int:
        ensure_id(session_id, "session_id")
        return require_session(session_id, await self._read_session(session_id, custom_state=False)).message_count

    async def truncate_messages(self, session_id: str, message_count: int, *, owner: Owner | None = None) -> int:
        ensure_id(session_id, "session_id")
        ensure_count(message_count, "message_count")
        validate.ensure_guards(owner=owner)
        commit = Commit(session_id=session_id, now=self._clock(), owner=owner, keep_messages=message_count)
        return (await self._write(commit)).removed

    # -- listing

    async def list_sessions(
        self,
        *,
        user_id: str | None = None,
        agent_type: str | None = None,
        status: SessionStatus | Iterable[SessionStatus] | None = None,
        parent_session_id: str | Unset | None = UNSET,
        tags: Sequence[str] = (),
        metadata: Mapping[str, str] | None = None,
        created_from: int | None = None,
        created_to: int | None = None,
        expires_before: int | None = None,
        limit: int = 50,
        offset: int = 0,
        cursor: str | None = None,
        count: bool = True,
    ) -> Page[SessionState]:
        ensure_limit(limit)
        ensure_count(offset, "offset")
        validate.ensure_tags(tags)
        validate.ensure_metadata(metadata)
        parent = None if parent_session_id is UNSET else parent_session_id
        validate.ensure_optional(
            ids={"user_id": user_id, "agent_type": agent_type, "parent_session_id": parent},
            counts={"created_from": created_from, "created_to": created_to, "expires_before": expires_before},
        )
        statuses = validate.one_or_many(status)
        after = None if cursor is None else validate.from_cursor(cursor, 1)
        if status is not None and not statuses:
            return Page([], 0 if count else None, offset, limit, has_more=False)  # one of none
        wanted = SessionFilter(
            user_id=user_id,
            agent_type=agent_type,
            statuses=statuses,
            roots_only=parent_session_id is None,
            parent_session_id=parent,
            tags=tuple(tags),
            metadata=tuple((metadata or {}).items()),
            created_from=created_from,
            created_to=created_to,
            expires_before=expires_before,
            after=after,
        )
        # One more than asked for tells whether there is a next page.
        found, total = await self._scan_sessions(wanted, limit=limit + 1, offset=offset, count=count)
        items, has_more = found[:limit], len(found) > limit
        last = items[-1] if items else None
        cursor_after = validate.to_cursor(last.created_at, last.session_id) if has_more and last else None
        return Page(items, total, offset, limit, has_more, cursor_after)

    async def find_sessions(self, id_prefix: str, *, user_id: str | None = None, limit: int = 50) -> list[SessionState]:
        ensure_limit(limit)
        validate.ensure_optional(ids={"user_id": user_id}, counts={})
        return await self._scan_prefix(ensure_id(id_prefix, "id_prefix"), user_id, limit)

    async def _scan_prefix(self, id_prefix: str, user_id: str | None, limit: int) -> list[SessionState]:
        """Find sessions by a prefix of their ids, for backends with `finds_prefixes`."""
        return await super().find_sessions(id_prefix, user_id=user_id, limit=limit)

    async def list_due(
        self,
        now: int,
        *,
        agent_types: Iterable[str] | None = None,
        status: SessionStatus | Iterable[SessionStatus] | None = None,
        limit: int = 100,
        offset: int = 0,
        cursor: str | None = None,
    ) -> Page[Claimable]:
        ensure_limit(limit)
        ensure_count(offset, "offset")
        types = None if agent_types is None else validate.ensure_ids(agent_types, "agent_types")
        statuses = validate.one_or_many(status)
        after = None if cursor is None else ClaimablePlace(*validate.from_cursor(cursor, 2))
        wanted = ClaimableFilter(now=ensure_count(now, "now"), statuses=statuses, agent_types=types, after=after)
        if (status is not None and not statuses) or types == ():
            return Page([], None, offset, limit, has_more=False)
        # One more than asked for tells whether there is a next page.
        found = await self._scan_claimable(wanted, limit=limit + 1, offset=offset)
        items, has_more = found[:limit], len(found) > limit
        cursor_after = validate.to_cursor(*ClaimablePlace.of(items[-1])) if has_more else None
        return Page(items, None, offset, limit, has_more, cursor_after)

    async def next_due(self, now: int) -> int | None:
        return await self._next_due(ensure_count(now, "now"))
