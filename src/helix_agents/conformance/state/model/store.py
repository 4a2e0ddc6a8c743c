"""ModelStore: the whole StateStore contract on one dict per session and deep copies, one asyncio task at a time.

It is the oracle of the random walks. It validates nothing: walks pass it only what a store must accept, or what both
must reject because of what is stored. The walk sets `now`, so that both sides order sessions alike.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ....codec import Json
from ....errors import InvalidArgument, SessionExists, SessionNotFound
from ....messages import Message
from ....state.writes import StepWrites
from ....stores.along import Along
from ....stores.state.commit import RunChange
from ....stores.state.contract import UNSET, Unset
from ....types import (
    CheckpointMeta,
    Claimable,
    Committed,
    InterruptFlag,
    Owner,
    Page,
    RunRecord,
    SessionState,
    SessionStatus,
    StagedChanges,
    StatusConflict,
    StatusSwapped,
    SubSessionRef,
)
from .history import HistoryModel
from .listing import due_first, newest_first, page_of
from .merge import naive_apply
from .session import Session


class ModelStore(HistoryModel):
    """The model; see the module."""

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
        if session_id in self.sessions:
            raise SessionExists(session_id)
        state = SessionState(
            session_id=session_id,
            agent_type=agent_type,
            stream_id=stream_id or session_id,
            parent_session_id=parent_session_id,
            root_session_id=root_session_id,
            custom_state=copy.deepcopy(dict(custom_state or {})),
            user_id=user_id,
            tags=tuple(tags),
            metadata=dict(metadata or {}),
            expires_at=expires_at,
            version=1,
            created_at=self.now,
            updated_at=self.now,
            incarnation=self.born(),
            owner_epoch=owner_epoch,
        )
        self._refuse_taken(run)
        session = self.sessions[session_id] = Session(state)
        session.messages.extend(copy.deepcopy(list(messages)))
        if checkpoint is not None:
            session.make_checkpoint(checkpoint, self.now, next(self.numbers))
        session.begin(run, self.now)
        return copy.deepcopy(state)

    async def session_exists(self, session_id: str) -> bool:
        return session_id in self.sessions

    async def delete_session(self, session_id: str, *, owner: Owner | None = None) -> bool:
        try:
            self._guarded(session_id, owner=owner)
        except SessionNotFound:
            return False
        del self.sessions[session_id]
        for session in self.sessions.values():
            noted = session.refs.get(session_id)
            if noted is not None and noted.remote is None:
                del session.refs[session_id]
        below = [name for name, it in self.sessions.items() if it.state.parent_session_id == session_id]
        for name in below:
            await self.delete_session(name)
        return True

    async def load_state(self, session_id: str) -> SessionState | None:
        found = self.sessions.get(session_id)
        return copy.deepcopy(found.state) if found else None

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
        session = self._guarded(session_id, expected_version, owner, new_epoch)
        session.require_identity(state, guarded=expected_version is not None or owner is not None)
        session.require_transition(state.status)
        self._refuse_taken(run)
        session.change_run(change_run, self.now)
        session.claim(new_epoch)
        session.overwrite(state, self.now)
        session.begin(run, self.now)
        if keep_messages is not None:
            await self.truncate_messages(session_id, keep_messages)
        session.messages.extend(copy.deepcopy(list(messages)))
        return session.state.version

    async def save_state_and_promote_staging(
        self,
        session_id: str,
        state: SessionState,
        append_messages: Sequence[Message],
        checkpoint: CheckpointMeta,
        *,
        expected_version: int | None = None,
        unstaged: Sequence[StagedChanges] = (),
        run: RunRecord | None = None,
        change_run: RunChange | None = None,
        owner: Owner | None = None,
        new_epoch: int | None = None,
        along: Along | None = None,
    ) -> Committed:
        session = self._guarded(session_id, expected_version, owner, new_epoch)
        session.require_identity(state, guarded=expected_version is not None or owner is not None)
        session.require_transition(state.status)
        self._refuse_taken(run)
        session.change_run(change_run, self.now)
        session.claim(new_epoch)
        await self.stage_calls(session_id, checkpoint.step_id, unstaged)
        session.overwrite(msgspec.structs.replace(state, step_count=checkpoint.step_count), self.now)
        warnings = session.promote(checkpoint.step_id) if checkpoint.kind == "step" else []
        session.messages.extend(copy.deepcopy(list(append_messages)))
        made = session.make_checkpoint(checkpoint, self.now, next(self.numbers))
        session.begin(run, self.now)
        return Committed(made.checkpoint_id, session.state.version, len(session.messages), warnings)

    # -- staging

    async def stage_calls(
        self,
        session_id: str,
        step_id: str,
        calls: Sequence[StagedChanges],
        *,
        expected_version: int | None = None,
        owner: Owner | None = None,
        along: Along | None = None,
    ) -> int:
        self._guarded(session_id, expected_version, owner).stage(step_id, calls, self.now)
        return 0

    async def list_staged(self, session_id: str, step_id: str) -> list[StagedChanges]:
        return copy.deepcopy(self._session(session_id).rows_of(step_id))

    async def promote_staging(self, session_id: str, step_id: str) -> list[str]:
        return self._session(session_id).promote(step_id)

    async def discard_staging(
        self,
        session_id: str,
        step_id: str | None = None,
        *,
        expected_version: int | None = None,
        owner: Owner | None = None,
    ) -> int:
        staged = self._guarded(session_id, expected_version, owner).staged
        doomed = [step_id] if step_id is not None else list(staged)
        return sum(len(staged.pop(step, {})) for step in doomed)

    # -- composable writes

    async def append_messages(self, session_id: str, messages: Sequence[Message], *, owner: Owner | None = None) -> int:
        session = self._guarded(session_id, owner=owner)
        session.messages.extend(copy.deepcopy(list(messages)))
        return len(session.messages)

    async def merge_custom_state(self, session_id: str, writes: StepWrites, *, owner: Owner | None = None) -> list[str]:
        session = self._guarded(session_id, owner=owner)
        ops = writes["ops"] if isinstance(writes, dict) else writes.ops
        merged, lost = naive_apply(session.state.custom_state, list(ops))
        session.state = msgspec.structs.replace(session.state, custom_state=merged)
        return ["lost"] if lost else []

    async def update_status(self, session_id: str, status: SessionStatus, *, owner: Owner | None = None) -> int:
        session = self._guarded(session_id, owner=owner)
        session.require_transition(status)
        version = session.bump(status=status)
        session.wait(self.now, by_status=True)
        return version

    async def increment_step_count(self, session_id: str) -> int:
        session = self._session(session_id)
        session.state = msgspec.structs.replace(session.state, step_count=session.state.step_count + 1)
        return session.state.step_count

    async def increment_resume_count(self, session_id: str) -> int:
        session = self._session(session_id)
        session.state = msgspec.structs.replace(session.state, resume_count=session.state.resume_count + 1)
        return session.state.resume_count

    async def compare_and_set_status(
        self,
        session_id: str,
        expected: Iterable[SessionStatus] | SessionStatus,
        new: SessionStatus,
        *,
        interrupt_context: Json = None,
        error: str | None = None,
        failure_reason: str | None = None,
        expected_version: int | None = None,
        owner: Owner | None = None,
    ) -> StatusSwapped | StatusConflict:
        session = self._guarded(session_id, owner=None if owner is None else Owner(owner.incarnation))
        state = session.state
        allowed = {expected} if isinstance(expected, str) else set(expected)
        if state.status not in allowed or expected_version not in (None, state.version):
            return StatusConflict(state.status, state.version)
        session.require_transition(new)
        if owner is not None and owner.epoch not in (None, state.owner_epoch):
            return StatusConflict(state.status, state.version)
        extra = {"interrupt_context": interrupt_context, "error": error, "failure_reason": failure_reason}
        given = {name: copy.deepcopy(value) for name, value in extra.items() if value is not None}
        version = session.bump(status=new, **given)
        session.wait(self.now, by_status=True)
        return StatusSwapped(version)

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
        session = self._guarded(session_id, owner=owner)
        flag = InterruptFlag(reason, run_id, self.now, abort)
        session.state = msgspec.structs.replace(session.state, interrupt_flag=flag)

    async def check_interrupt_flag(self, session_id: str) -> InterruptFlag | None:
        return self._session(session_id).state.interrupt_flag

    async def clear_interrupt_flag(self, session_id: str, *, owner: Owner | None = None) -> None:
        session = self._guarded(session_id, owner=owner)
        session.state = msgspec.structs.replace(session.state, interrupt_flag=None)

    # -- sub-sessions

    async def add_sub_session_refs(
        self,
        session_id: str,
        refs: Sequence[SubSessionRef],
        *,
        expected_version: int | None = None,
        owner: Owner | None = None,
    ) -> None:
        session = self._guarded(session_id, expected_version, owner)
        session.refs.update({ref.sub_session_id: copy.deepcopy(ref) for ref in refs})

    async def update_sub_session_ref(
        self, session_id: str, sub_session_id: str, *, owner: Owner | None = None, **changes: Any
    ) -> SubSessionRef:
        refs = self._guarded(session_id, owner=owner).refs
        if sub_session_id not in refs:
            raise InvalidArgument(f"There is no ref to {sub_session_id!r}.")
        refs[sub_session_id] = msgspec.structs.replace(refs[sub_session_id], **copy.deepcopy(changes))
        return refs[sub_session_id]

    async def list_sub_session_refs(self, session_id: str) -> list[SubSessionRef]:
        return copy.deepcopy(list(self._session(session_id).refs.values()))

    # -- messages

    async def get_messages(
        self, session_id: str, *, offset: int = 0, limit: int | None = 50, include_thinking: bool = True
    ) -> Page[Message]:
        messages = copy.deepcopy(self._session(session_id).messages)
        start = max(0, len(messages) + offset) if offset < 0 else offset
        end = len(messages) if limit is None else start + limit
        items = messages[start:end]
        if not include_thinking:
            spoken = [message for message in items if message["role"] != "thinking"]
            items = [{key: value for key, value in m.items() if key not in ("thinking", "native")} for m in spoken]
        return Page(items, len(messages), start, limit, end < len(messages))

    async def get_message_count(self, session_id: str) -> int:
        return len(self._session(session_id).messages)

    async def truncate_messages(self, session_id: str, message_count: int, *, owner: Owner | None = None) -> int:
        session = self._guarded(session_id, owner=owner)
        removed = len(session.messages[message_count:])
        del session.messages[message_count:]
        # Checkpoints also lose the removed messages.
        session.checkpoints = [
            msgspec.structs.replace(made, message_count=min(made.message_count, message_count))
            for made in session.checkpoints
        ]
        return removed

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
        found = newest_first(
            self.sessions,
            user_id=user_id,
            agent_type=agent_type,
            status=status,
            parent_session_id=parent_session_id,
            tags=tags,
            metadata=metadata,
            created_from=created_from,
            created_to=created_to,
            expires_before=expires_before,
        )
        return page_of(found, limit=limit, offset=offset, cursor=cursor, count=count)

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
        found = due_first(self.sessions, now, agent_types=agent_types, status=status)
        if cursor is not None:
            found = {place: it for place, it in found.items() if place > cursor}
        places, more = list(found)[offset : offset + limit], len(found) > offset + limit
        items = [copy.deepcopy(found[place]) for place in places]
        return Page(items, None, offset, limit, more, places[-1] if more else None)

    async def next_due(self, now: int) -> int | None:
        moments = [it.due_at for it in self.sessions.values()]
        latest = [it.runs[-1] for it in self.sessions.values() if it.runs]
        moments += [run.lease_until for run in latest if run.status == "running"]
        return min((each for each in moments if each is not None and each > now), default=None)
