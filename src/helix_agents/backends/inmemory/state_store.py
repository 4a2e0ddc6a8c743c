"""InMemoryStateStore: dictionaries without any waiting, so every verb is atomic. The readable reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from ...clock import Clock, IdSource, random_id, system_clock
from ...codec import Json, decode, encode, to_struct
from ...stores.along import Beside
from ...stores.state.base import StateStoreBase
from ...stores.state.cells import rebuild
from ...stores.state.commit import (
    Applied,
    CellName,
    ClaimableFilter,
    Commit,
    CommitRefused,
    Identity,
    SessionFilter,
    StagedRow,
    StoredCheckpoint,
    StoredConversation,
    StoredSession,
)
from ...stores.state.plan import Counters, Plan, Seen, Source, decide, needs, refused_owner
from ...stores.usage.contract import UsageStore
from ...streams.contract import StreamManager
from ...types import (
    Claimable,
    InterruptFlag,
    Owner,
    RunRecord,
    SessionState,
    SessionStatus,
    StatusConflict,
    StatusSwapped,
    SubSessionRef,
)
from .sessions import Session, Sessions
from .storable import ensure_storable, ensure_storable_commit
from .stream_manager import InMemoryStreamManager
from .usage_store import InMemoryUsageStore

replace = msgspec.structs.replace

Kept = TypeVar("Kept", SessionState, RunRecord, SubSessionRef)


InMemoryBeside = Beside[InMemoryStreamManager, InMemoryUsageStore]


class InMemoryStateStore(StateStoreBase):
    """A state store for one process: fast, complete, gone when the process ends."""

    finds_prefixes = True

    def __init__(
        self,
        sessions: Sessions | None = None,
        *,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
        beside: InMemoryBeside | None = None,
    ) -> None:
        super().__init__(clock=clock, ids=ids)
        self._data = Sessions() if sessions is None else sessions
        self._beside = beside

    # -- writing

    async def _apply(self, commit: Commit, want: Iterable[CellName] = ()) -> tuple[Applied, dict[CellName, str | None]]:
        ensure_storable_commit(commit)
        plan = decide(commit, self._seen(commit))
        if isinstance(plan, CommitRefused):
            raise plan
        commit, sequence = self._carry(commit)
        if commit.create:
            assert commit.state is not None
            session = Session(_detached(replace(commit.state, custom_state=None)))
            if commit.copy is not None:
                source = self._data.by_id[commit.copy.session_id]
                session.messages = source.messages[: plan.first_message]
                session.custom = source.custom.fork(commit.copy.number)
            self._data.add(session)
        else:
            session = self._data.by_id[commit.session_id]
        session.change_branches(commit.branches)
        _write_history(session, commit, plan)
        _write_staging(session, commit, plan)
        session.state = _advanced(session.state, commit, plan.after)
        if commit.state is not None or commit.status is not None:
            session.due_at = commit.due_at
        if commit.checkpoint is not None:
            session.add_checkpoint(commit.checkpoint, plan.after, commit.now)
        if (change := commit.change_run) is not None:
            place = _place_of(session.runs, change.seen.run_id)
            session.runs[place] = _detached(replace(session.runs[place], **change.changes))
        if commit.run is not None:
            session.runs.append(_detached(replace(commit.run, turn=plan.turn)))
            self._data.run_owner[commit.run.run_id] = commit.session_id
        for ref in commit.refs:
            session.refs[ref.sub_session_id] = _detached(ref)
        if commit.clear_flag:
            session.flag = None
        if commit.flag is not None:
            session.flag = commit.flag
        return plan.applied._replace(sequence=sequence), {name: session.custom.text(name) for name in want}

    def carries(self, streams: StreamManager, usage: UsageStore | None) -> bool:
        return self._beside is not None and self._beside.holds(streams, usage)

    def _carry(self, commit: Commit) -> tuple[Commit, int]:
        """Store the chunks and usage of a commit, unless the stream rejects them; return the commit with its stream
        position, and the last sequence."""
        if commit.along is None or self._beside is None:
            return commit, 0
        streams, usage = self._beside
        along, sequence = commit.along, 0
        entries = usage.checked(along.usage)
        if along.append is not None:
            sequence = streams.append_now(along.append)
            if commit.checkpoint is not None:
                at = commit.checkpoint._replace(stream_sequence=sequence - along.after)
                commit = replace(commit, checkpoint=at)
        if along.start is not None:
            streams.start_now(along.start)
        if along.stream_id is not None:
            streams.changed(along.stream_id)
        usage.insert_now(entries)
        return commit, sequence

    def _seen(self, commit: Commit) -> Seen:
        """Return everything about the session that the planner must see to decide the commit."""
        seen, wanted = Seen(), needs(commit)
        if commit.run is not None:
            seen.run_is_taken = commit.run.run_id in self._data.run_owner
        if commit.copy is not None and (source := self._data.by_id.get(commit.copy.session_id)) is not None:
            counts = (source.state.version, len(source.messages), len(source.checkpoints))
            seen.source = Source(source.state.incarnation, *counts)
        session = self._data.by_id.get(commit.session_id)
        if session is None:
            return seen
        state, keys = session.state, session.custom.keys
        seen.session = Counters(
            state.version,
            len(session.messages),
            len(session.checkpoints),
            state.step_count,
            state.resume_count,
            state.owner_epoch,
            state.status,
        )
        seen.identity = Identity.of(state)
        seen.cells = {name: cell for name in wanted.cells if (cell := session.custom.get(name)) is not None}
        seen.keys = keys if wanted.everything else {key: keys[key] for key in wanted.keys if key in keys}
        seen.lists = {key: (keys[key][None].text, len(keys[key]) - 1) for key in wanted.lists if key in keys}
        if wanted.staged is not None:
            rows = session.staged.get(wanted.staged, {}).values()
            seen.staged = frozenset((row.kind, row.tool_call_id, row.token) for row in rows)
        if commit.discard_all:
            seen.discarded = sum(map(len, session.staged.values()))
        elif commit.discard_step is not None:
            seen.discarded = len(session.staged.get(commit.discard_step, ()))
        for move in commit.branches.moves:
            if (shelf := session.shelves.get(move.returned or "")) is not None:
                seen.shelved = shelf.checkpoints[-1].number, move.message_count + len(shelf.messages)
        seen.latest_turn = session.runs[-1].turn if session.runs else 0
        if commit.change_run is not None and (place := _place_of(session.runs, commit.change_run.seen.run_id)) >= 0:
            seen.lease = (session.runs[place].status, session.runs[place].lease_until)
        return seen

    async def _swap_status(
        self,
        session_id: str,
        expected: tuple[str, ...],
        new: SessionStatus,
        *,
        also: Mapping[str, Any],
        expected_version: int | None,
        owner: Owner | None,
        due_at: int | None,
        now: int,
    ) -> StatusSwapped | StatusConflict | None:
        ensure_storable(also)
        session = self._data.by_id.get(session_id)
        refused = None if session is None else refused_owner(owner, session.state)
        if session is None or refused == "missing":
            return None
        state = session.state
        if refused or state.status not in expected or expected_version not in (None, state.version):
            return StatusConflict(state.status, state.version)
        session.state = _detached(replace(state, status=new, version=state.version + 1, updated_at=now, **also))
        session.due_at = due_at
        return StatusSwapped(session.state.version)

    async def _update_run(
        self, run_id: str, changes: Mapping[str, Any], allowed_from: tuple[str, ...], owner: Owner | None
    ) -> tuple[bool, RunRecord | None]:
        ensure_storable(changes)
        session_id = self._data.run_owner.get(run_id)
        if session_id is None:
            return False, None
        session = self._data.by_id[session_id]
        runs, place = session.runs, _place_of(session.runs, run_id)
        if runs[place].status not in allowed_from or refused_owner(owner, session.state):
            return False, _detached(runs[place])
        runs[place] = _detached(replace(runs[place], **changes))
        return True, _detached(runs[place])

    async def _update_ref(
        self, session_id: str, sub_session_id: str, changes: Mapping[str, Any], owner: Owner | None, now: int
    ) -> SubSessionRef | None:
        ensure_storable(changes)
        session = self._data.by_id.get(session_id)
        if session is None or sub_session_id not in session.refs:
            return None
        if (reason := refused_owner(owner, session.state)) is not None:
            raise CommitRefused(reason)
        session.refs[sub_session_id] = _detached(replace(session.refs[sub_session_id], **changes))
        session.state = replace(session.state, updated_at=now)
        return _detached(session.refs[sub_session_id])

    async def _delete(self, session_id: str, owner: Owner | None) -> bool:
        if session_id not in self._data.by_id:
            return False
        if (reason := refused_owner(owner, self._data.by_id[session_id].state)) is not None:
            raise CommitRefused(reason)
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
        return None if session is None else _stored(session, custom_state=custom_state)

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

    async def _read_conversation(
        self, session_id: str, offset: int | None, *, custom_state: bool
    ) -> StoredConversation | None:
        session = self._data.by_id.get(session_id)
        if session is None:
            return None
        stored = _stored(session, custom_state=custom_state)
        texts = [] if offset is None else session.messages[offset:]
        run = None if session.latest_run is None else _detached(session.latest_run)
        return StoredConversation(stored, texts, run, session.checkpoints[-1] if session.checkpoints else None)

    async def _read_runs(self, session_id: str, *, last: bool) -> list[RunRecord] | None:
        session = self._data.by_id.get(session_id)
        return None if session is None else list(map(_detached, session.runs[-1:] if last else session.runs))

    async def _read_refs(self, session_id: str) -> list[SubSessionRef] | None:
        session = self._data.by_id.get(session_id)
        return None if session is None else list(map(_detached, session.refs.values()))

    async def _read_flag(self, session_id: str) -> tuple[InterruptFlag | None] | None:
        session = self._data.by_id.get(session_id)
        return None if session is None else (session.flag,)

    async def _read_branches(self, session_id: str) -> dict[str, str] | None:
        session = self._data.by_id.get(session_id)
        return None if session is None else {row.branch_id: row.about for row in session.branches.values()}

    async def _read_branch_state(self, session_id: str, branch_id: str) -> str | None:
        session = self._data.by_id.get(session_id)
        row = None if session is None else session.branches.get(branch_id)
        return None if row is None else row.state

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

    async def _scan_prefix(self, id_prefix: str, user_id: str | None, limit: int) -> list[SessionState]:
        found = (
            self._data.by_id[each]
            for each in sorted(self._data.by_id)
            if each.startswith(id_prefix) and user_id in (None, self._data.by_id[each].state.user_id)
        )
        return [replace(_detached(it.state), interrupt_flag=it.flag) for it in islice(found, limit)]

    async def _scan_claimable(self, wanted: ClaimableFilter, *, limit: int, offset: int) -> list[Claimable]:
        found = [
            (place, session)
            for session in self._data.by_id.values()
            if wanted.matches(session.state)
            and (place := wanted.place_of(session.state, session.latest_run, session.due_at)) is not None
            and (wanted.after is None or place > wanted.after)
        ]
        found.sort(key=lambda pair: pair[0])
        return [
            Claimable(
                replace(_detached(session.state), interrupt_flag=session.flag),
                None if session.latest_run is None else _detached(session.latest_run),
                place.due_at,
            )
            for place, session in found[offset : offset + limit]
        ]

    async def _next_due(self, now: int) -> int | None:
        moments: list[int | None] = []
        for session in self._data.by_id.values():
            run = session.latest_run
            moments += [session.due_at, None if run is None or run.status != "running" else run.lease_until]
        return min((each for each in moments if each is not None and each > now), default=None)


def _stored(session: Session, *, custom_state: bool) -> StoredSession:
    custom = rebuild(session.custom.all()) if custom_state else None
    state = replace(_detached(session.state), custom_state=custom, interrupt_flag=session.flag)
    return StoredSession(state, len(session.messages), len(session.checkpoints))


def _place_of(runs: list[RunRecord], run_id: str) -> int:
    """Return the index of a run, or -1."""
    return next((place for place, run in enumerate(runs) if run.run_id == run_id), -1)


def _detached(kept: Kept) -> Kept:
    """Copy containers, so that changes by the caller do not reach the store, and the reverse."""
    if not any(_CONTAINERS[type(kept)](kept)):
        return kept
    return to_struct(type(kept), decode(encode(msgspec.to_builtins(kept))))


def _containers_of(kind: type[msgspec.Struct]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns the values of those struct fields that may be or contain dicts or lists."""
    fields = msgspec.structs.fields(kind)
    may_be = (msgspec.inspect.AnyType, msgspec.inspect.DictType, msgspec.inspect.ListType)
    names = [field.name for field in fields if isinstance(msgspec.inspect.type_info(field.type), may_be)]
    names += [name for name in ("parent_call",) if name in kind.__struct_fields__]
    return attrgetter(*names, names[0])  # one more than there are: for a single one it would return the value itself


_CONTAINERS = {kind: _containers_of(kind) for kind in (SessionState, RunRecord, SubSessionRef)}


def _advanced(stored: SessionState, commit: Commit, after: Counters) -> SessionState:
    """Return the session's fields after a commit."""
    given = stored if commit.state is None else commit.state
    state = replace(
        given,
        session_id=stored.session_id,
        stream_id=given.stream_id or stored.stream_id,
        custom_state=None,
        interrupt_flag=None,
        agent_type=stored.agent_type,
        user_id=stored.user_id,
        incarnation=stored.incarnation,
        forked_from=stored.forked_from,
        status=after.status,
        step_count=after.step_count,
        resume_count=after.resume_count,
        owner_epoch=after.owner_epoch,
        tags=tuple(given.tags),  # a list may be given
        version=after.version,
        created_at=stored.created_at,
        updated_at=commit.now,
    )
    return state if commit.state is None else _detached(state)


def _write_history(session: Session, commit: Commit, plan: Plan) -> None:
    """Write messages, and custom state with its history."""
    del session.messages[plan.first_message :]
    session.messages.extend(commit.messages)
    if commit.restore_number is not None:
        session.custom.restore(commit.restore_number)
        del session.checkpoints[commit.restore_number :]
    if plan.cells is not None:
        session.custom.write(plan.cells, plan.before)
    if plan.recount and commit.keep_messages is not None:
        for place in reversed(range(len(session.checkpoints))):
            if session.checkpoints[place].message_count <= commit.keep_messages:
                break
            session.checkpoints[place] = session.checkpoints[place]._replace(message_count=commit.keep_messages)


def _write_staging(session: Session, commit: Commit, plan: Plan) -> None:
    if plan.unstage is not None:
        del session.staged[plan.unstage]
    if commit.discard_all:
        session.staged.clear()
    elif commit.discard_step is not None:
        session.staged.pop(commit.discard_step, None)
    if commit.stage is not None:
        step_id, rows = commit.stage
        session.staged.setdefault(step_id, {}).update({(row.kind, row.tool_call_id): row for row in rows})
