"""ModelStore: the whole StateStore contract on one dict per session and deep copies, one asyncio task at a time.

It is the oracle of the random walks. It validates nothing: walks hand it only what a store must accept, or what both
must refuse because of what is stored. `now` is set by the walk, so that both sides order sessions alike.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ....codec import Json
from ....errors import (
    CheckpointNotFound,
    IllegalTransition,
    InvalidArgument,
    RunNotFound,
    SessionExists,
    SessionNotFound,
    VersionConflict,
)
from ....lifecycle import SESSION_TRANSITIONS, ensure_status
from ....messages import Message
from ....state.writes import StepWrites
from ....stores.state.contract import UNSET, StateStore, Unset
from ....types import (
    Checkpoint,
    CheckpointMeta,
    Committed,
    InterruptFlag,
    Page,
    RunRecord,
    RunStatus,
    SessionState,
    SessionStatus,
    StagedChanges,
    StatusConflict,
    StatusSwapped,
    SubSessionRef,
)
from .merge import naive_apply, naive_merge

KEPT = ("session_id", "version", "created_at", "updated_at", "interrupt_flag")
"""Fields of a session that `save_state` and `restore_checkpoint` never take from their argument."""


class Session:
    """Everything that is kept of one session."""

    def __init__(self, state: SessionState) -> None:
        self.state = state
        self.messages: list[Message] = []
        self.staged: dict[str, dict[str, StagedChanges]] = {}
        self.refs: dict[str, SubSessionRef] = {}
        self.runs: list[RunRecord] = []
        self.checkpoints: list[Checkpoint] = []


class ModelStore(StateStore):
    """See the module."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.now = 1
        self._checkpoints_made = 0

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
        )
        self._refuse_taken(run)
        session = self.sessions[session_id] = Session(state)
        session.messages.extend(copy.deepcopy(list(messages)))
        if checkpoint is not None:
            self._make_checkpoint(session, checkpoint)
        self._begin(session, run)
        return copy.deepcopy(state)

    async def session_exists(self, session_id: str) -> bool:
        return session_id in self.sessions

    async def delete_session(self, session_id: str) -> bool:
        if session_id not in self.sessions:
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

    async def save_state(self, session_id: str, state: SessionState, *, expected_version: int | None = None) -> int:
        session = self._guarded(session_id, expected_version)
        self._pass(session, state.status)
        self._overwrite(session, state)
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
    ) -> Committed:
        session = self._guarded(session_id, expected_version)
        self._pass(session, state.status)
        self._refuse_taken(run)
        await self.stage_calls(session_id, checkpoint.step_id, unstaged)
        self._overwrite(session, msgspec.structs.replace(state, step_count=checkpoint.step_count))
        warnings = self._promote(session, checkpoint.step_id)
        session.messages.extend(copy.deepcopy(list(append_messages)))
        made = self._make_checkpoint(session, checkpoint)
        self._begin(session, run)
        return Committed(made.checkpoint_id, session.state.version, len(session.messages), warnings)

    def _make_checkpoint(self, session: Session, checkpoint: CheckpointMeta) -> Checkpoint:
        session_id = session.state.session_id
        self._checkpoints_made += 1
        made = Checkpoint(
            checkpoint_id=f"cpv1-{session_id}-s{checkpoint.step_count}-t{self.now}-{self._checkpoints_made:06x}",
            session_id=session_id,
            step_id=checkpoint.step_id,
            step_count=checkpoint.step_count,
            stream_sequence=checkpoint.stream_sequence,
            message_count=len(session.messages),
            status=session.state.status,
            version=session.state.version,
            created_at=self.now,
            # The flag belongs to the present, not to what was committed.
            state=msgspec.structs.replace(copy.deepcopy(session.state), interrupt_flag=None),
        )
        session.checkpoints.append(made)
        return made

    def _refuse_taken(self, run: RunRecord | None) -> None:
        taken = {each.run_id for other in self.sessions.values() for each in other.runs}
        if run is not None and run.run_id in taken:
            raise InvalidArgument(f"There is a run {run.run_id!r} already.")

    def _begin(self, session: Session, run: RunRecord | None) -> RunRecord | None:
        if run is None:
            return None
        made = RunRecord(
            run_id=run.run_id,
            session_id=session.state.session_id,
            turn=1 + max((each.turn for each in session.runs), default=0),
            start_sequence=run.start_sequence,
            started_at=self.now,
            metadata=copy.deepcopy(dict(run.metadata)),
            lease_until=run.lease_until,
        )
        session.runs.append(made)
        return made

    # -- staging

    async def stage_changes(
        self,
        session_id: str,
        step_id: str,
        writes: StepWrites,
        *,
        tool_call_id: str,
        index: int = 0,
        result: Json = None,
        expected_version: int | None = None,
    ) -> None:
        rows = self._guarded(session_id, expected_version).staged.setdefault(step_id, {})
        rows[tool_call_id] = StagedChanges(tool_call_id, index, copy.deepcopy(writes), copy.deepcopy(result), self.now)

    async def list_staged(self, session_id: str, step_id: str) -> list[StagedChanges]:
        rows = self._session(session_id).staged.get(step_id, {})
        return copy.deepcopy(sorted(rows.values(), key=lambda row: (row.index, row.tool_call_id)))

    async def promote_staging(self, session_id: str, step_id: str) -> list[str]:
        return self._promote(self._session(session_id), step_id)

    async def discard_staging(
        self, session_id: str, step_id: str | None = None, *, expected_version: int | None = None
    ) -> int:
        staged = self._guarded(session_id, expected_version).staged
        doomed = [step_id] if step_id is not None else list(staged)
        return sum(len(staged.pop(step, {})) for step in doomed)

    # -- composable writes

    async def append_messages(self, session_id: str, messages: Sequence[Message]) -> int:
        session = self._session(session_id)
        session.messages.extend(copy.deepcopy(list(messages)))
        return len(session.messages)

    async def merge_custom_state(self, session_id: str, writes: StepWrites) -> list[str]:
        session = self._session(session_id)
        merged, lost = naive_apply(session.state.custom_state, list(writes.ops))
        session.state = msgspec.structs.replace(session.state, custom_state=merged)
        return ["lost"] if lost else []

    async def update_status(self, session_id: str, status: SessionStatus) -> int:
        session = self._session(session_id)
        self._pass(session, status)
        return self._bump(session, status=status)

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
    ) -> StatusSwapped | StatusConflict:
        session = self._session(session_id)
        state = session.state
        allowed = {expected} if isinstance(expected, str) else set(expected)
        if state.status not in allowed or expected_version not in (None, state.version):
            return StatusConflict(state.status, state.version)
        self._pass(session, new)
        extra = {"interrupt_context": interrupt_context, "error": error, "failure_reason": failure_reason}
        given = {name: copy.deepcopy(value) for name, value in extra.items() if value is not None}
        return StatusSwapped(self._bump(session, status=new, **given))

    # -- interrupt flag

    async def set_interrupt_flag(
        self, session_id: str, reason: str | None = None, *, run_id: str | None = None, abort: bool = False
    ) -> None:
        session = self._session(session_id)
        flag = InterruptFlag(reason, run_id, self.now, abort)
        session.state = msgspec.structs.replace(session.state, interrupt_flag=flag)

    async def check_interrupt_flag(self, session_id: str) -> InterruptFlag | None:
        return self._session(session_id).state.interrupt_flag

    async def clear_interrupt_flag(self, session_id: str) -> None:
        session = self._session(session_id)
        session.state = msgspec.structs.replace(session.state, interrupt_flag=None)

    # -- sub-sessions

    async def add_sub_session_refs(
        self, session_id: str, refs: Sequence[SubSessionRef], *, expected_version: int | None = None
    ) -> None:
        session = self._guarded(session_id, expected_version)
        session.refs.update({ref.sub_session_id: copy.deepcopy(ref) for ref in refs})

    async def update_sub_session_ref(self, session_id: str, sub_session_id: str, **changes: Any) -> SubSessionRef:
        refs = self._session(session_id).refs
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
            items = [{key: value for key, value in m.items() if key != "thinking"} for m in spoken]
        return Page(items, len(messages), start, limit, end < len(messages))

    async def get_message_count(self, session_id: str) -> int:
        return len(self._session(session_id).messages)

    async def truncate_messages(self, session_id: str, message_count: int) -> int:
        session = self._session(session_id)
        removed = len(session.messages[message_count:])
        del session.messages[message_count:]
        # What is gone is gone for checkpoints, too.
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
        statuses = {status} if isinstance(status, str) else set(status) if status is not None else None

        def fits(it: SessionState) -> bool:
            return (
                (user_id is None or it.user_id == user_id)
                and (agent_type is None or it.agent_type == agent_type)
                and (statuses is None or it.status in statuses)
                and (parent_session_id is UNSET or it.parent_session_id == parent_session_id)
                and set(tags) <= set(it.tags)
                and (metadata or {}).items() <= it.metadata.items()
                and (created_from is None or it.created_at >= created_from)
                and (created_to is None or it.created_at < created_to)
                and (expires_before is None or (it.expires_at is not None and it.expires_at < expires_before))
            )

        found = [it.state for it in self.sessions.values() if fits(it.state)]
        found.sort(key=lambda it: (it.created_at, it.session_id), reverse=True)
        total = len(found)
        if cursor is not None:
            created_at, _, last = cursor.partition(" ")
            found = [it for it in found if (it.created_at, it.session_id) < (int(created_at), last)]
        items = [msgspec.structs.replace(it, custom_state=None) for it in found[offset : offset + limit]]
        more = len(found) > offset + limit
        behind = f"{items[-1].created_at} {items[-1].session_id}" if more and items else None
        return Page(items, total if count else None, offset, limit, more, behind)

    async def list_claimable(
        self,
        now: int,
        *,
        agent_types: Iterable[str] | None = None,
        status: SessionStatus | Iterable[SessionStatus] = "active",
        limit: int = 100,
    ) -> list[SessionState]:
        statuses = {status} if isinstance(status, str) else set(status)
        types = None if agent_types is None else set(agent_types)
        found = []
        for session in self.sessions.values():
            run = max(session.runs, key=lambda it: it.turn, default=None)
            if run is None or run.status != "running" or (run.lease_until or 0) > now:
                continue
            state = session.state
            fits = state.status in statuses and (types is None or state.agent_type in types)
            if fits and state.parent_session_id is None:
                found.append((run.lease_until or 0, run.started_at, run.run_id, state))
        found.sort(key=lambda it: it[:3])
        return [msgspec.structs.replace(it[3], custom_state=None) for it in found[:limit]]

    # -- runs

    async def create_run(
        self,
        session_id: str,
        run_id: str,
        *,
        start_sequence: int = 0,
        metadata: Mapping[str, Json] | None = None,
        lease_until: int | None = None,
        expected_version: int | None = None,
    ) -> RunRecord:
        session = self._guarded(session_id, expected_version)
        wanted = RunRecord(
            run_id, session_id, 0, start_sequence=start_sequence, metadata=dict(metadata or {}), lease_until=lease_until
        )
        self._refuse_taken(wanted)
        made = self._begin(session, wanted)
        assert made is not None
        return made

    async def update_run_status(
        self,
        run_id: str,
        status: RunStatus,
        *,
        step_count: int | None = None,
        error: str | None = None,
        output: Json = None,
        completed_at: int | None = None,
        lease_until: int | None = None,
        start_sequence: int | None = None,
        metadata: Mapping[str, Json] | None = None,
        expected_status: RunStatus | None = None,
    ) -> RunRecord:
        if expected_status is not None:
            ensure_status("run", expected_status)
        for session in self.sessions.values():
            for place, run in enumerate(session.runs):
                if run.run_id != run_id:
                    continue
                ended = run.status in ("completed", "failed", "interrupted") and status != run.status
                if ended or expected_status not in (None, run.status):
                    raise IllegalTransition("run", run.status, status, run_id)
                extra = {
                    "step_count": step_count,
                    "error": error,
                    "output": output,
                    "completed_at": completed_at,
                    "lease_until": lease_until,
                    "start_sequence": start_sequence,
                    "metadata": metadata,
                }
                given = {name: copy.deepcopy(value) for name, value in extra.items() if value is not None}
                session.runs[place] = msgspec.structs.replace(run, status=status, **given)
                return copy.deepcopy(session.runs[place])
        raise RunNotFound(run_id)

    async def get_current_run(self, session_id: str) -> RunRecord | None:
        found = self.sessions.get(session_id)
        return copy.deepcopy(found.runs[-1]) if found and found.runs else None

    async def list_runs(self, session_id: str) -> list[RunRecord]:
        return copy.deepcopy(self._session(session_id).runs)

    # -- checkpoints

    async def list_checkpoints(self, session_id: str, *, limit: int = 50, offset: int = 0) -> Page[Checkpoint]:
        newest_first = self._session(session_id).checkpoints[::-1]
        items = [
            msgspec.structs.replace(it, state=msgspec.structs.replace(it.state, custom_state=None))
            for it in newest_first[offset : offset + limit]
        ]
        return Page(items, len(newest_first), offset, limit, len(newest_first) > offset + limit)

    async def get_checkpoint(self, session_id: str, checkpoint_id: str) -> Checkpoint | None:
        found = self.sessions.get(session_id)
        made = [it for it in found.checkpoints if it.checkpoint_id == checkpoint_id] if found else []
        return copy.deepcopy(made[0]) if made else None

    async def get_latest_checkpoint(self, session_id: str) -> Checkpoint | None:
        found = self.sessions.get(session_id)
        return copy.deepcopy(found.checkpoints[-1]) if found and found.checkpoints else None

    async def restore_checkpoint(
        self, session_id: str, checkpoint_id: str, *, expected_version: int | None = None
    ) -> int:
        place, made = self._checkpoint(self._session(session_id), checkpoint_id)
        session = self._guarded(session_id, expected_version)
        self._overwrite(session, made.state)
        del session.messages[made.message_count :]
        session.checkpoints = session.checkpoints[: place + 1]
        session.staged = {}
        return session.state.version

    async def fork_session(
        self, session_id: str, new_session_id: str, *, checkpoint_id: str | None = None
    ) -> SessionState:
        source = self._session(session_id)
        state, messages = source.state, source.messages
        if checkpoint_id is not None:
            made_then = self._checkpoint(source, checkpoint_id)[1]
            state, messages = made_then.state, messages[: made_then.message_count]
        if new_session_id in self.sessions:
            raise SessionExists(new_session_id)
        made = Session(
            msgspec.structs.replace(
                copy.deepcopy(state),
                session_id=new_session_id,
                stream_id=new_session_id,
                parent_session_id=None,
                root_session_id=None,
                interrupt_flag=None,
                version=1,
                created_at=self.now,
                updated_at=self.now,
            )
        )
        made.messages = copy.deepcopy(messages)
        self.sessions[new_session_id] = made
        return copy.deepcopy(made.state)

    # -- what the methods share

    def _session(self, session_id: str) -> Session:
        if session_id not in self.sessions:
            raise SessionNotFound(session_id)
        return self.sessions[session_id]

    def _guarded(self, session_id: str, expected_version: int | None) -> Session:
        session = self._session(session_id)
        if expected_version not in (None, session.state.version):
            raise VersionConflict(expected_version or 0, session.state.version, session.state.status, session_id)
        return session

    def _pass(self, session: Session, status: str) -> None:
        if status not in SESSION_TRANSITIONS[session.state.status]:
            raise IllegalTransition("session", session.state.status, status, session.state.session_id)

    def _checkpoint(self, session: Session, checkpoint_id: str) -> tuple[int, Checkpoint]:
        for place, made in enumerate(session.checkpoints):
            if made.checkpoint_id == checkpoint_id:
                return place, made
        raise CheckpointNotFound(session.state.session_id, checkpoint_id)

    def _bump(self, session: Session, **changes: Any) -> int:
        session.state = msgspec.structs.replace(session.state, version=session.state.version + 1, **changes)
        return session.state.version

    def _overwrite(self, session: Session, state: SessionState) -> None:
        kept = {name: getattr(session.state, name) for name in KEPT}
        if state.custom_state is None:
            kept["custom_state"] = session.state.custom_state
        session.state = msgspec.structs.replace(copy.deepcopy(state), **kept)
        self._bump(session)

    def _promote(self, session: Session, step_id: str) -> list[str]:
        rows = sorted(session.staged.pop(step_id, {}).values(), key=lambda row: (row.index, row.tool_call_id))
        merged, lost = naive_merge(session.state.custom_state, [list(row.writes.ops) for row in rows])
        session.state = msgspec.structs.replace(session.state, custom_state=merged)
        return {True: ["lost"], None: ["perhaps"], False: []}[lost]
