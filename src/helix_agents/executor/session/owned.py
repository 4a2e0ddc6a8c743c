"""OwnedSession: a session in the hands of one run. Every write carries the version that the run saw last.

Somebody else may still write to the session, e.g. the answer to a client tool: then the version has moved but the run
goes on, on what is stored now. Whoever takes the session over adds one to `resume_count` in the same write, and so does
whoever begins a turn over a run that never ended: a run that sees another `resume_count` than its own has lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from ...errors import LeaseConflict, RunLost, SessionNotFound, VersionConflict
from ...messages import Message
from ...stores.state.commit import RunChange
from ...stores.state.contract import StateStore
from ...types import CheckpointMeta, Committed, SessionState, StagedChanges, SubSessionRef

MAX_REBASES = 20

Result = TypeVar("Result")

Change = Callable[[SessionState], SessionState]


class OwnedSession:
    """The session, its messages and its committed custom state as the owning run knows them."""

    def __init__(self, store: StateStore, session: SessionState, messages: list[Message], run_id: str) -> None:
        self.session = session
        self.messages = messages
        self.run_id = run_id
        self._store = store
        self._call_ids: set[str] = set()
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
        """The ids of all tool calls in the conversation. Do not change it."""
        for message in self.messages[self._read :]:
            self._call_ids.update(call["id"] for call in message.get("tool_calls", ()))
        self._read = len(self.messages)
        return self._call_ids

    async def save(self, change: Change) -> None:
        """Write changed fields, not custom state. Raises `RunLost`."""
        async with self._lock:
            for _ in range(MAX_REBASES):
                changed = change(self.session)
                wanted = msgspec.structs.replace(changed, custom_state=None)
                try:
                    version = await self._store.save_state(
                        self.session_id, wanted, expected_version=self.session.version
                    )
                except SessionNotFound:
                    raise self._lost("the session was deleted") from None
                except VersionConflict:
                    if await self._saved_before(changed):
                        return
                    await self._refresh()
                    continue
                self.session = msgspec.structs.replace(changed, version=version, custom_state=self.session.custom_state)
                return
        raise self._lost("others keep writing to the session")

    async def _saved_before(self, changed: SessionState) -> bool:
        """Whether a change of status was stored although its reply was lost: then nobody else has set it."""
        if changed.status == self.session.status:
            return False  # saying the same again does no harm
        stored = await self._store.load_state(self.session_id)
        if stored is None or (stored.status, stored.resume_count) != (changed.status, changed.resume_count):
            return False
        if (stored.error, stored.interrupt_context) != (changed.error, changed.interrupt_context):
            return False
        self.session = stored
        return True

    async def claim_again(self) -> None:
        """Make sure that the session is still this run's: whoever is about to take it over now will fail."""
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
    ) -> Committed:
        """Commit a step. `custom_state` is what the writes of its calls make of the state. Raises `RunLost`."""
        for tries in range(MAX_REBASES):
            try:
                committed = await self.try_commit(
                    change, messages, meta, custom_state=custom_state, unstaged=unstaged, change_run=change_run
                )
            except LeaseConflict as error:
                raise self._lost("another process has ended it") from error
            except VersionConflict:
                await self.refresh()
                continue
            if tries:
                await self.refresh()  # somebody may have merged into custom state, too
            return committed
        raise self._lost("others keep writing to the session")

    async def try_commit(
        self,
        change: Change,
        messages: Sequence[Message],
        meta: CheckpointMeta,
        *,
        custom_state: dict[str, Any],
        unstaged: Sequence[StagedChanges] = (),
        change_run: RunChange | None = None,
    ) -> Committed:
        """Commit at the version seen last, or raise `VersionConflict`."""
        async with self._lock:
            changed = change(self.session)
            try:
                committed = await self._store.save_state_and_promote_staging(
                    self.session_id,
                    changed,
                    messages,
                    meta,
                    expected_version=self.session.version,
                    unstaged=unstaged,
                    change_run=change_run,
                )
            except SessionNotFound:
                raise self._lost("the session was deleted") from None
            self.messages.extend(messages)
            self.session = msgspec.structs.replace(
                changed, version=committed.new_version, step_count=meta.step_count, custom_state=custom_state
            )
            return committed

    async def stage(self, step_id: str, calls: Sequence[StagedChanges]) -> None:
        """Stage outcomes for the open step, in one write. Raises `RunLost`."""
        await self._guarded(
            lambda version: self._store.stage_calls(self.session_id, step_id, calls, expected_version=version)
        )

    async def note_child(self, ref: SubSessionRef) -> None:
        """Keep a record of a child session that is about to run. Raises `RunLost`."""
        await self._guarded(
            lambda version: self._store.add_sub_session_refs(self.session_id, [ref], expected_version=version)
        )

    async def discard_staging(self) -> None:
        """Drop what earlier runs of the session have left staged. Raises `RunLost`."""
        await self._guarded(lambda version: self._store.discard_staging(self.session_id, expected_version=version))

    async def _guarded(self, write: Callable[[int], Awaitable[Result]]) -> Result:
        """A write that does not move the version, at a version at which the session is this run's."""
        for _ in range(MAX_REBASES):
            try:
                return await write(self.session.version)
            except SessionNotFound:
                raise self._lost("the session was deleted") from None
            except VersionConflict:
                await self.refresh()
        raise self._lost("others keep writing to the session")

    async def refresh(self) -> None:
        """Load what is stored now. Raises `RunLost` if the session is no longer this run's."""
        async with self._lock:
            await self._refresh()

    async def _refresh(self) -> None:
        stored = await self._store.load_state(self.session_id)
        if stored is None:
            raise self._lost("the session was deleted")
        if stored.resume_count != self.session.resume_count:
            raise self._lost("another process has taken the session over")
        if stored.status != self.session.status:
            raise self._lost(f"somebody has set the session to {stored.status!r}")
        self.session = stored

    def _lost(self, why: str) -> RunLost:
        return RunLost(self.session_id, self.run_id, why)
