"""OwnedSession: a session owned by one run. Every write carries the version that the run saw last.

Other processes may still write to the session, e.g. the response to a client tool: then the version has changed, and
the run continues on the new state. A process that claims the session raises its owner epoch in the same write: from
then on every write of this run is rejected. The same holds for a session that was deleted and created again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ...errors import EpochConflict, LeaseConflict, RunLost, RunNotFound, SessionNotFound, VersionConflict
from ...messages import Message, identified, ids_of
from ...retry import CONFLICT
from ...stores.along import Along
from ...stores.state.commit import RunChange
from ...stores.state.contract import StateStore
from ...types import (
    CheckpointMeta,
    Committed,
    Owner,
    PendingClientToolCall,
    RunRecord,
    RunStatus,
    SessionState,
    StagedChanges,
    SubSessionRef,
)
from .questions import all_waiting, own_calls
from .standing import open_run

Result = TypeVar("Result")

Change = Callable[[SessionState], SessionState]


class OwnedSession:
    """The session, its messages and its committed custom state, as the owning run last saw them."""

    def __init__(self, store: StateStore, session: SessionState, messages: list[Message], run_id: str) -> None:
        self.session = session
        self.messages = messages
        self.run_id = run_id
        self.owner = Owner(session.incarnation, session.owner_epoch)
        """The ownership that every write asserts."""
        self._store = store
        self._call_ids: set[str] = set()
        self._message_ids: set[str] = set()
        self._read = 0
        self._lock = asyncio.Lock()  # a lease may be claimed again while a step commits

    @property
    def session_id(self) -> str:
        """The id of the session."""
        return self.session.session_id

    @property
    def state(self) -> dict[str, Any]:
        """The committed custom state."""
        return self.session.custom_state if self.session.custom_state is not None else {}

    @property
    def call_ids(self) -> set[str]:
        """The ids of all tool calls in the conversation. Do not modify."""
        self._read_ids()
        return self._call_ids

    def identified(self, messages: Sequence[Message], step_id: str) -> list[Message]:
        """Return messages with ids, ready to be appended to the conversation."""
        self._read_ids()
        return identified(messages, self._message_ids, step_id)

    def _read_ids(self) -> None:
        new = self.messages[self._read :]
        for message in new:
            self._call_ids.update(call["id"] for call in message.get("tool_calls", ()))
        self._message_ids |= ids_of(new)
        self._read = len(self.messages)

    async def save(
        self,
        change: Change,
        *,
        keep_messages: int | None = None,
        messages: Sequence[Message] = (),
        change_run: RunChange | None = None,
        along: Along | None = None,
    ) -> None:
        """Write changed fields except custom state. Raises `RunLost`.

        `keep_messages`: in the same write, cut the conversation after this many messages and append `messages`.
        """
        options: dict[str, Any] = _carried(along)
        if keep_messages is not None:
            options |= {"keep_messages": keep_messages, "messages": messages}
        if change_run is not None:
            options["change_run"] = change_run
        await self._save(change, options)
        if keep_messages is not None:
            self.messages[keep_messages:] = messages

    async def _save(self, change: Change, options: Mapping[str, Any]) -> None:
        async with self._lock:
            for _ in CONFLICT.attempts():
                changed = change(self.session)
                wanted = msgspec.structs.replace(changed, custom_state=None)
                try:
                    version = await self._store.save_state(
                        self.session_id, wanted, expected_version=self.session.version, owner=self.owner, **options
                    )
                except (EpochConflict, SessionNotFound) as error:
                    raise self._lost_by(error) from None
                except (VersionConflict, LeaseConflict) as error:
                    if await self._saved_before(changed):
                        return
                    if isinstance(error, LeaseConflict):
                        options = {**options, "change_run": await self._reread(options["change_run"])}
                    else:
                        await self._refresh()
                    continue
                self.session = msgspec.structs.replace(changed, version=version, custom_state=self.session.custom_state)
                return
        raise self._lost("other processes keep writing to the session")

    async def _saved_before(self, changed: SessionState) -> bool:
        """Return whether a status change was stored although its response was lost."""
        if changed.status == self.session.status:
            return False  # writing the same status again is harmless
        stored = await self._store.load_state(self.session_id)
        if stored is None or stored.status != changed.status or not self._is_owned(stored):
            return False
        if (stored.error, stored.interrupt_context) != (changed.error, changed.interrupt_context):
            return False
        self.session = stored
        return True

    async def claim_again(self) -> None:
        """Claim the session again, so that a concurrent takeover fails."""
        await self.save(lambda session: session)

    async def commit(
        self,
        change: Change,
        messages: Sequence[Message],
        meta: CheckpointMeta,
        *,
        custom_state: dict[str, Any],
        unstaged: Sequence[StagedChanges] = (),
        change_run: RunChange | None = None,
        along: Along | None = None,
    ) -> Committed:
        """Commit a step. `custom_state`: the state after the writes of its calls. Raises `RunLost`."""
        for tries in CONFLICT.attempts():
            try:
                committed = await self.try_commit(
                    change,
                    messages,
                    meta,
                    custom_state=custom_state,
                    unstaged=unstaged,
                    change_run=change_run,
                    along=along,
                )
            except VersionConflict:
                await self.refresh()
                continue
            if tries:
                await self.refresh()  # another process may also have merged into custom state
            return committed
        raise self._lost("other processes keep writing to the session")

    async def try_commit(
        self,
        change: Change,
        messages: Sequence[Message],
        meta: CheckpointMeta,
        *,
        custom_state: dict[str, Any],
        unstaged: Sequence[StagedChanges] = (),
        change_run: RunChange | None = None,
        along: Along | None = None,
    ) -> Committed:
        """Commit at the version seen last. Raises `VersionConflict` and `RunLost`."""
        async with self._lock:
            changed, messages = change(self.session), self.identified(messages, meta.step_id)
            for _ in CONFLICT.attempts():
                try:
                    committed = await self._store.save_state_and_promote_staging(
                        self.session_id,
                        changed,
                        messages,
                        meta,
                        expected_version=self.session.version,
                        unstaged=unstaged,
                        change_run=change_run,
                        owner=self.owner,
                        **_carried(along),
                    )
                except (EpochConflict, SessionNotFound) as error:
                    raise self._lost_by(error) from None
                except LeaseConflict:
                    change_run = await self._reread(change_run)
                    continue
                self.messages.extend(messages)
                self.session = msgspec.structs.replace(
                    changed, version=committed.new_version, step_count=meta.step_count, custom_state=custom_state
                )
                return committed
        raise self._lost("its lease keeps changing")

    async def _reread(self, change: RunChange | None) -> RunChange:
        """Return the change applied to the run as stored now: a renewal may be stored although its response was
        lost."""
        run = open_run(await self._store.get_current_run(self.session_id))
        if change is None or run is None or run.run_id != change.seen.run_id:
            raise self._lost("another process has ended it")
        return RunChange(run, msgspec.structs.replace(run, **change.changes))

    async def stage(self, step_id: str, calls: Sequence[StagedChanges], *, along: Along | None = None) -> int:
        """Stage outcomes for the open step in one write; return the sequence of the chunks it carried. Raises
        `RunLost`."""
        write = self._store.stage_calls(self.session_id, step_id, calls, owner=self.owner, **_carried(along))
        return await self._guarded(write)

    async def add_child_ref(self, ref: SubSessionRef) -> None:
        """Store a ref to a child session that is about to run. Raises `RunLost`."""
        await self._guarded(self._store.add_sub_session_refs(self.session_id, [ref], owner=self.owner))

    async def discard_staging(self) -> None:
        """Drop what earlier runs of the session left staged. Raises `RunLost`."""
        await self._guarded(self._store.discard_staging(self.session_id, owner=self.owner))

    async def clear_interrupt_flag(self) -> None:
        """Clear the flag that stopped this run. Raises `RunLost`."""
        await self._guarded(self._store.clear_interrupt_flag(self.session_id, owner=self.owner))

    async def end_run(self, status: RunStatus, **changes: Any) -> None:
        """Close the record of this run. Raises `RunLost`."""
        change = self._store.update_run_status(
            self.run_id, status, expected_status="running", owner=self.owner, **changes
        )
        await self._guarded(change)

    async def release(self, lease_until: int, step_count: int) -> None:
        """Release the run to other processes. Raises `RunLost`."""
        change = self._store.update_run_status(
            self.run_id,
            "running",
            lease_until=lease_until,
            step_count=step_count,
            expected_status="running",
            owner=self.owner,
        )
        await self._guarded(change)

    async def is_deleted(self) -> bool:
        """Return whether the session is gone and no other session uses its stream."""
        ids = {self.session_id, self.session.stream_id}
        return not any([await self._store.session_exists(each) for each in ids])

    async def own_calls(self, call_ids: list[str]) -> None:
        """Record at the root session that this session asks these questions. Raises `RunLost`."""
        await own_calls(self._store, self.session, call_ids, self.refresh)

    async def waiting(self, now: int) -> list[PendingClientToolCall]:
        """Return the open questions of this session and its suspended descendants."""
        return await all_waiting(self._store, self.session, now)

    async def runs_of(self, session_id: str) -> list[RunRecord]:
        """Return the runs of this session or a descendant; [] if it is gone."""
        try:
            return await self._store.list_runs(session_id)
        except SessionNotFound:
            return []

    async def messages_of(self, session_id: str, first: int) -> list[Message]:
        """Return the conversation of a descendant from message number `first` on; [] if it is gone."""
        try:
            return list((await self._store.get_messages(session_id, offset=first, limit=None)).items)
        except SessionNotFound:
            return []

    async def children_of(self, session_id: str) -> list[SubSessionRef]:
        """Return the stored refs to the children of this session or a descendant."""
        return await self._store.list_sub_session_refs(session_id)

    async def _guarded(self, write: Awaitable[Result]) -> Result:
        """Await a write that does not change the version. Raises `RunLost` if this run no longer owns the session."""
        try:
            return await write
        except (EpochConflict, RunNotFound, SessionNotFound) as error:
            raise self._lost_by(error) from None

    async def refresh(self) -> None:
        """Reload the session. Raises `RunLost` if this run no longer owns it."""
        async with self._lock:
            await self._refresh()

    async def _refresh(self) -> None:
        stored = await self._store.load_state(self.session_id)
        if stored is None:
            raise self._lost("the session was deleted")
        if not self._is_owned(stored):
            raise self._lost("another process has taken the session over")
        if stored.status != self.session.status:
            raise self._lost(f"another process has set the session to {stored.status!r}")
        self.session = stored

    def _is_owned(self, stored: SessionState) -> bool:
        return Owner(stored.incarnation, stored.owner_epoch) == self.owner

    def _lost_by(self, error: EpochConflict | RunNotFound | SessionNotFound) -> RunLost:
        deleted = not isinstance(error, EpochConflict)
        return self._lost("the session was deleted" if deleted else "another process has taken the session over")

    def _lost(self, why: str) -> RunLost:
        return RunLost(self.session_id, self.run_id, why)


def _carried(along: Along | None) -> dict[str, Any]:
    """Return the option for a write that carries chunks; stores that carry nothing need not support it."""
    return {} if along is None else {"along": along}
