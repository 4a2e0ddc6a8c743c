"""InMemoryStateStore: dictionaries, no waiting, so every verb is atomic by itself. The readable reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from ...clock import Clock, IdSource, random_id, system_clock
from ...codec import Json, decode, encode, to_struct
from ...stores.state.base import StateStoreBase
from ...stores.state.cells import rebuild
from ...stores.state.commit import (
    Applied,
    CellName,
    CheckpointRow,
    Commit,
    GuardFailed,
    SessionFilter,
    StagedRow,
    StoredCheckpoint,
    StoredSession,
)
from ...types import InterruptFlag, RunRecord, SessionState, SessionStatus, StatusConflict, StatusSwapped, SubSessionRef
from .sessions import Session, Sessions

replace = msgspec.structs.replace

Kept = TypeVar("Kept", SessionState, RunRecord, SubSessionRef)


class InMemoryStateStore(StateStoreBase):
    """A state store for one process: fast, complete, gone when the process ends."""

    def __init__(
        self, sessions: Sessions | None = None, *, clock: Clock = system_clock, ids: IdSource = random_id
    ) -> None:
        super().__init__(clock=clock, ids=ids)
        self._data = Sessions() if sessions is None else sessions

    # -- writing

    async def _apply(self, commit: Commit, want: Iterable[CellName] = ()) -> tuple[Applied, dict[CellName, str | None]]:
        session = self._guarded(commit)
        if session is None:
            assert commit.state is not None
            session = Session(_detached(replace(commit.state, custom_state=None)))
            self._data.add(session)
        removed = _cut_messages(session, commit)
        session.messages.extend(commit.messages)
        if commit.restore_number is not None:
            session.custom.restore(commit.restore_number)
            del session.checkpoints[commit.restore_number :]
        if not commit.custom.is_empty:
            session.custom.apply(commit.custom, len(session.checkpoints))
        removed += _change_staging(session, commit)
        state = session.state = _advanced(session.state, commit)
        if commit.checkpoint is not None:
            session.checkpoints.append(_numbered(session, commit.checkpoint, commit.now))
        turn = 0 if commit.run is None else self._add_run(session, commit.run)
        for ref in commit.refs:
            session.refs[ref.sub_session_id] = _detached(ref)
        if commit.clear_flag:
            session.flag = None
        if commit.flag is not None:
            session.flag = commit.flag
        applied = Applied(state.version, len(session.messages), state.step_count, state.resume_count, removed, turn)
        return applied, {name: session.custom.text(name) for name in want}

    def _guarded(self, commit: Commit) -> Session | None:
        """The session that the commit may change; None if it is to be created. Nothing has changed if this raises."""
        session = self._data.by_id.get(commit.session_id)
        if commit.create:
            if session is not None:
                raise GuardFailed("exists")
            return None
        if session is None:
            raise GuardFailed("missing")
        if commit.expected_version not in (None, session.state.version):
            raise GuardFailed("version")
        if commit.promote is not None:
            rows = session.staged.get(commit.promote.step_id, {}).values()
            if {(row.tool_call_id, row.token) for row in rows} != set(commit.promote.rows):
                raise GuardFailed("staged")
        for name, text in commit.custom.expected.items():
            if session.custom.text(name) != text:
                raise GuardFailed("cells")
        if commit.run is not None and commit.run.run_id in self._data.run_owner:
            raise GuardFailed("run")
        if commit.restore_number is not None and commit.restore_number > len(session.checkpoints):
            raise GuardFailed("checkpoint")
        return session

    def _add_run(self, session: Session, run: RunRecord) -> int:
        turn = len(session.runs) + 1
        session.runs.append(_detached(replace(run, turn=turn)))
        self._data.run_owner[run.run_id] = run.session_id
        return turn

    async def _swap_status(
        self,
        session_id: str,
        expected: tuple[str, ...],
        new: SessionStatus,
        *,
        also: Mapping[str, Any],
        expected_version: int | None,
        now: int,
    ) -> StatusSwapped | StatusConflict | None:
        session = self._data.by_id.get(session_id)
        if session is None:
            return None
        state = session.state
        if state.status not in expected or expected_version not in (None, state.version):
            return StatusConflict(state.status, state.version)
        session.state = _detached(replace(state, status=new, version=state.version + 1, updated_at=now, **also))
        return StatusSwapped(session.state.version)

    async def _update_run(
        self, run_id: str, changes: Mapping[str, Any], allowed_from: tuple[str, ...]
    ) -> tuple[bool, RunRecord | None]:
        owner = self._data.run_owner.get(run_id)
        if owner is None:
            return False, None
        runs = self._data.by_id[owner].runs
        place = next(index for index, run in enumerate(runs) if run.run_id == run_id)
        if runs[place].status not in allowed_from:
            return False, _detached(runs[place])
        runs[place] = _detached(replace(runs[place], **changes))
        return True, _detached(runs[place])

    async def _update_ref(
        self, session_id: str, sub_session_id: str, changes: Mapping[str, Any], now: int
    ) -> SubSessionRef | None:
        session = self._data.by_id.get(session_id)
        if session is None or sub_session_id not in session.refs:
            return None
        session.refs[sub_session_id] = _detached(replace(session.refs[sub_session_id], **changes))
        session.state = replace(session.state, updated_at=now)
        return _detached(session.refs[sub_session_id])

    async def _fork(
        self,
        commit: Commit,
        source_id: str,
        *,
        number: int | None,
        message_count: int | None,
        source_version: int | None,
    ) -> None:
        source = self._data.by_id.get(source_id)
        if source is None:
            raise GuardFailed("missing")
        if source_version not in (None, source.state.version):
            raise GuardFailed("version")
        if number is not None and number > len(source.checkpoints):
            raise GuardFailed("checkpoint")
        await self._apply(commit)
        copy = self._data.by_id[commit.session_id]
        copy.messages = source.messages[:message_count]
        copy.custom = source.custom.at(len(source.checkpoints) + 1 if number is None else number)

    async def _delete(self, session_id: str) -> bool:
        if session_id not in self._data.by_id:
            return False
        doomed = [session_id]
        for parent in doomed:  # grows while it is walked
            doomed += [
                each
                for each, session in self._data.by_id.items()
                if session.state.parent_session_id == parent and each not in doomed
            ]
        for each in doomed:
            self._data.remove(each)
        for session in self._data.by_id.values():
            for each in doomed:
                if each in session.refs and session.refs[each].remote is None:
                    del session.refs[each]
        return True

    # -- reading

    async def _read_session(self, session_id: str, *, custom_state: bool) -> StoredSession | None:
        session = self._data.by_id.get(session_id)
        if session is None:
            return None
        custom = rebuild(session.custom.all()) if custom_state else None
        state = replace(_detached(session.state), custom_state=custom, interrupt_flag=session.flag)
        return StoredSession(state, len(session.messages), len(session.checkpoints))

    async def _read_cells(self, session_id: str, names: Iterable[CellName]) -> dict[CellName, str | None] | None:
        session = self._data.by_id.get(session_id)
        return None if session is None else {name: session.custom.text(name) for name in names}

    async def _read_checkpoint(
        self, session_id: str, checkpoint_id: str | None, *, custom_state: bool
    ) -> tuple[StoredCheckpoint, dict[str, Json] | None] | None:
        session = self._data.by_id.get(session_id)
        if session is None:
            return None
        for row in reversed(session.checkpoints):
            if checkpoint_id in (None, row.checkpoint_id):
                return row, rebuild(session.custom.at(row.number).all()) if custom_state else None
        return None

    async def _read_checkpoints(
        self, session_id: str, limit: int, offset: int
    ) -> tuple[list[StoredCheckpoint], int] | None:
        session = self._data.by_id.get(session_id)
        if session is None:
            return None
        return session.checkpoints[::-1][offset : offset + limit], len(session.checkpoints)

    async def _read_staged(self, session_id: str, step_id: str) -> list[StagedRow] | None:
        session = self._data.by_id.get(session_id)
        return None if session is None else list(session.staged.get(step_id, {}).values())

    async def _read_messages(self, session_id: str, offset: int, limit: int | None) -> tuple[list[str], int] | None:
        session = self._data.by_id.get(session_id)
        if session is None:
            return None
        total = len(session.messages)
        start = max(0, total + offset) if offset < 0 else offset
        return session.messages[start : None if limit is None else start + limit], total

    async def _read_runs(self, session_id: str, *, last: bool) -> list[RunRecord] | None:
        session = self._data.by_id.get(session_id)
        return None if session is None else list(map(_detached, session.runs[-1:] if last else session.runs))

    async def _read_refs(self, session_id: str) -> list[SubSessionRef] | None:
        session = self._data.by_id.get(session_id)
        return None if session is None else list(map(_detached, session.refs.values()))

    async def _read_flag(self, session_id: str) -> tuple[InterruptFlag | None] | None:
        session = self._data.by_id.get(session_id)
        return None if session is None else (session.flag,)

    async def _scan_sessions(
        self, wanted: SessionFilter, *, limit: int, offset: int, count: bool
    ) -> tuple[list[SessionState], int | None]:
        after = (s for s in self._data.newest_first(wanted.after) if wanted.matches(s.state))
        found = [
            replace(_detached(session.state), interrupt_flag=session.flag)
            for session in islice(after, offset, offset + limit)
        ]
        total = sum(wanted.matches(s.state) for s in self._data.newest_first(None)) if count else None
        return found, total


def _detached(kept: Kept) -> Kept:
    """The same values in containers of their own: what a caller does to his must not reach ours, nor the reverse."""
    if not any(_CONTAINERS[type(kept)](kept)):
        return kept
    return to_struct(type(kept), decode(encode(msgspec.to_builtins(kept))))


def _containers_of(kind: type[msgspec.Struct]) -> Callable[[Any], tuple[Any, ...]]:
    """What answers the values of those fields of a struct that may be dicts or lists."""
    fields = msgspec.structs.fields(kind)
    may_be = (msgspec.inspect.AnyType, msgspec.inspect.DictType, msgspec.inspect.ListType)
    names = [field.name for field in fields if isinstance(msgspec.inspect.type_info(field.type), may_be)]
    return attrgetter(*names, names[0])  # one more than there are: of a single one it would answer the value itself


_CONTAINERS = {kind: _containers_of(kind) for kind in (SessionState, RunRecord, SubSessionRef)}


def _advanced(stored: SessionState, commit: Commit) -> SessionState:
    """The session's fields after a commit."""
    given = stored if commit.state is None else commit.state
    state = replace(
        given,
        session_id=stored.session_id,
        stream_id=given.stream_id or stored.stream_id,
        custom_state=None,
        interrupt_flag=None,
        status=commit.status or given.status,
        step_count=given.step_count + commit.add_steps,
        resume_count=given.resume_count + commit.add_resumes,
        tags=tuple(given.tags),  # a list may be given
        version=stored.version + commit.bump_version,
        created_at=stored.created_at,
        updated_at=commit.now,
    )
    return state if commit.state is None else _detached(state)


def _cut_messages(session: Session, commit: Commit) -> int:
    if commit.keep_messages is None:
        return 0
    removed = max(0, len(session.messages) - commit.keep_messages)
    del session.messages[commit.keep_messages :]
    for place in reversed(range(len(session.checkpoints))):
        if session.checkpoints[place].message_count <= commit.keep_messages:
            break
        session.checkpoints[place] = session.checkpoints[place]._replace(message_count=commit.keep_messages)
    return removed


def _change_staging(session: Session, commit: Commit) -> int:
    removed = 0
    if commit.discard_all:
        removed = sum(map(len, session.staged.values()))
        session.staged.clear()
    elif commit.discard_step is not None:
        removed = len(session.staged.pop(commit.discard_step, {}))
    if commit.promote is not None:
        session.staged.pop(commit.promote.step_id, None)
    if commit.stage is not None:
        step_id, rows = commit.stage
        session.staged.setdefault(step_id, {}).update({row.tool_call_id: row for row in rows})
    return removed


def _numbered(session: Session, row: CheckpointRow, now: int) -> StoredCheckpoint:
    checkpoint_id, step_id, step_count, stream_sequence, fields = row
    state = session.state
    return StoredCheckpoint(
        checkpoint_id,
        len(session.checkpoints) + 1,
        step_id,
        step_count,
        stream_sequence,
        len(session.messages),
        state.status,
        state.version,
        fields,
        now,
        state.created_at,
    )
