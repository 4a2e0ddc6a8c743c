"""Retries: a store that is unavailable for a few seconds does not end a run, on any backend.

A call without a response is retried for as long as `OUTAGE` allows, and at least once: this process itself may have
been frozen or asleep. After that, `StoreUnavailable` is raised to the caller. A call whose response was lost may have
happened: reads and idempotent writes are repeated; for a commit and the start of a run, the outcome is checked first.
Other calls (`append_messages`, for example) are not retried here, and the executor does not use them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

from ..errors import IllegalTransition, InvalidArgument, SessionExists, StoreUnavailable, VersionConflict
from ..messages import Message
from ..retry import OUTAGE, Retry
from ..stores.state.contract import StateStore
from ..stores.usage.contract import UsageStore
from ..streams.contract import StreamManager
from ..types import BranchPoint, CheckpointMeta, Committed, RunRecord, RunStatus, SessionState

NOT_REPEATABLE = frozenset(
    {
        "append_messages",
        "merge_custom_state",
        "promote_staging",
        "increment_step_count",
        "increment_resume_count",
        "restore_checkpoint",
        "truncate_messages",
        "fork_session",
        "close",
    }
)

Reply = TypeVar("Reply")
Kind = TypeVar("Kind")


async def patiently(
    call: Callable[[], Awaitable[Reply]],
    *,
    happened: Callable[[], Awaitable[Reply | None]] | None = None,
    refusals: tuple[type[Exception], ...] = (),
    retry: Retry = OUTAGE,
) -> Reply:
    """Return the response of a call, retried while the store is unavailable.

    `happened` checks whether a call without a response took effect. It is called before each retry, and when a retry is
    rejected with one of `refusals`, which the first try may have caused.
    """
    loop = asyncio.get_running_loop()
    deadline, tries = loop.time() + retry.within_seconds, 0
    while True:
        try:
            if tries and happened is not None and (found := await happened()) is not None:
                return found
            return await call()
        except StoreUnavailable as error:
            # A backend that knows that nothing was written (a lock, a full disk) has already retried.
            if error.nothing_written or (tries and loop.time() >= deadline):
                raise
            await asyncio.sleep(retry.delay_seconds(tries))
            tries += 1
        except refusals:
            if not tries or happened is None or (found := await happened()) is None:
                raise
            return found


def patient_store(store: StateStore) -> StateStore:
    """Wrap a state store with retries."""
    return cast(StateStore, _PatientState(store))


def patient_streams(streams: StreamManager) -> StreamManager:
    """Wrap a stream manager with retries. Writers retry by themselves."""
    return cast(StreamManager, _Patient(streams))


def patient_usage(usage: UsageStore | None) -> UsageStore | None:
    """Wrap a usage store with retries: an entry recorded twice counts once."""
    return None if usage is None else cast(UsageStore, _Patient(usage))


def impatient(store: Kind) -> Kind:
    """Return the unwrapped store, whose calls fail fast."""
    return cast(Kind, store._inner) if isinstance(store, _Patient) else store


class _Patient:
    """Retries calls that may be repeated; passes the others through."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name.startswith("_") or name in NOT_REPEATABLE or not asyncio.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await patiently(lambda: found(*args, **kwargs))

        return call


class _PatientState(_Patient):
    """Retries writes of a state store that must not be repeated blindly."""

    async def save_state_and_promote_staging(
        self,
        session_id: str,
        state: SessionState,
        append_messages: Sequence[Message],
        checkpoint: CheckpointMeta,
        **options: Any,
    ) -> Committed:
        store: StateStore = self._inner
        return await self._committed(
            lambda: store.save_state_and_promote_staging(session_id, state, append_messages, checkpoint, **options),
            session_id,
            checkpoint,
            options.get("expected_version"),
        )

    async def branch_session(
        self,
        session_id: str,
        point: BranchPoint,
        state: SessionState,
        append_messages: Sequence[Message],
        checkpoint: CheckpointMeta,
        **options: Any,
    ) -> Committed:
        store: StateStore = self._inner
        return await self._committed(
            lambda: store.branch_session(session_id, point, state, append_messages, checkpoint, **options),
            session_id,
            checkpoint,
            options.get("expected_version"),
        )

    async def _committed(
        self,
        commit: Callable[[], Awaitable[Committed]],
        session_id: str,
        checkpoint: CheckpointMeta,
        expected: int | None,
    ) -> Committed:
        """Return the response of a commit; before each retry, check for its checkpoint."""
        store: StateStore = self._inner

        async def happened() -> Committed | None:
            seen = await store.load_conversation(session_id, last=0, custom_state=False)
            latest = None if seen is None else seen.checkpoint
            if latest is None or latest.step_id != checkpoint.step_id:
                return None
            if expected is not None and latest.version != expected + 1:
                return None  # another owner has committed this step
            return Committed(latest.checkpoint_id, latest.version, latest.message_count, [])

        return await patiently(commit, happened=happened, refusals=(VersionConflict,))

    async def switch_branch(self, session_id: str, branch_id: str, **options: Any) -> int:
        store: StateStore = self._inner

        async def happened() -> int | None:
            branches = {it.branch_id: it for it in await store.list_branches(session_id)}
            session = await store.load_state(session_id)
            if session is None or branch_id not in branches or not branches[branch_id].is_active:
                return None
            mine = session.owner_epoch == options.get("new_epoch")
            return session.version if mine else None

        return await patiently(
            lambda: store.switch_branch(session_id, branch_id, **options),
            happened=happened,
            refusals=(VersionConflict,),
        )

    async def create_session(self, session_id: str, **options: Any) -> SessionState:
        store: StateStore = self._inner
        run: RunRecord | None = options.get("run")

        async def happened() -> SessionState | None:
            latest = await store.get_current_run(session_id)
            if run is None or latest is None or latest.run_id != run.run_id:
                return None
            return await patiently(lambda: store.load_state(session_id))

        return await patiently(
            lambda: store.create_session(session_id, **options), happened=happened, refusals=(SessionExists,)
        )

    async def create_run(self, session_id: str, run_id: str, **options: Any) -> RunRecord:
        store: StateStore = self._inner

        async def happened() -> RunRecord | None:
            latest = await store.get_current_run(session_id)
            return latest if latest is not None and latest.run_id == run_id else None

        return await patiently(
            lambda: store.create_run(session_id, run_id, **options),
            happened=happened,
            refusals=(InvalidArgument, VersionConflict),
        )

    async def update_run_status(self, run_id: str, status: RunStatus, **changes: Any) -> RunRecord:
        store: StateStore = self._inner
        tries = 0

        async def update() -> RunRecord:
            nonlocal tries
            tries += 1
            try:
                return await store.update_run_status(run_id, status, **changes)
            except IllegalTransition as error:
                if tries == 1 or error.current != status:
                    raise
                # An earlier try did it, but its response was lost. Keep the guard: another process may own the session
                # by now.
                changes["expected_status"] = status
                return await store.update_run_status(run_id, status, **changes)

        return await patiently(update)
