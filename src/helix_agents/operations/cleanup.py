"""`expired_session_cleanup`: the sweep that an operator runs on a schedule. Ends sessions as an abort does."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import msgspec

from ..clock import system_clock
from ..errors import InvalidArgument
from ..executor import Ending, SessionStores, fail_session
from ..failures import SESSION_EXPIRED
from ..lifecycle import SESSION_TERMINAL
from ..stores.paging import MAX_PAGE
from ..stores.state.contract import StateStore
from ..streams.contract import StreamManager
from ..types import CleanupSummary, SessionState

log = logging.getLogger(__name__)


class WorkspaceSnapshots(Protocol):
    """The snapshots of a workspace provider."""

    async def list(self, session_id: str) -> list[str]:
        """Return the ids of a session's snapshots."""

    async def delete(self, snapshot_id: str) -> None:
        """Remove one snapshot."""


class WorkspaceProvider(Protocol):
    """Stores files for sessions."""

    @property
    def snapshots(self) -> WorkspaceSnapshots:
        """The snapshots."""


class _Tally(msgspec.Struct):
    detected: int = 0
    marked: int = 0
    already_terminal: int = 0
    snapshots_deleted: int = 0
    errors: list[str] = []


async def expired_session_cleanup(
    state_store: StateStore,
    *,
    stream_manager: StreamManager | None = None,
    workspace_providers: Mapping[str, WorkspaceProvider] | None = None,
    page_size: int = MAX_PAGE,
    error: str = SESSION_EXPIRED,
    now: int | None = None,
    dry_run: bool = False,
) -> CleanupSummary:
    """Fail the sessions whose `expires_at` has passed and delete their workspace snapshots.

    With a `stream_manager`, their streams also fail. An error in one session does not stop the sweep: it is reported in
    `errors`, and the next sweep tries again. `dry_run` only counts.
    """
    if page_size.__class__ is not int or not 1 <= page_size <= MAX_PAGE:
        raise InvalidArgument(f"page_size must be an integer from 1 to {MAX_PAGE}, not {page_size!r}.")
    tally = _Tally()
    cursor = None
    while True:
        page = await state_store.list_sessions(
            expires_before=system_clock() if now is None else now, limit=page_size, cursor=cursor, count=False
        )
        for session in page.items:
            tally.detected += 1
            try:
                await _reap(session, state_store, stream_manager, workspace_providers or {}, error, dry_run, tally)
            except Exception as problem:  # an error of a provider or store must not stop the sweep
                log.warning("cleanup of session %r failed", session.session_id, exc_info=True)
                tally.errors.append(f"{session.session_id}: {problem}")
        cursor = page.next_cursor
        if cursor is None:
            return CleanupSummary(**msgspec.structs.asdict(tally))


async def _reap(
    session: SessionState,
    state_store: StateStore,
    stream_manager: StreamManager | None,
    providers: Mapping[str, WorkspaceProvider],
    error: str,
    dry_run: bool,
    tally: _Tally,
) -> None:
    ended = session.status in SESSION_TERMINAL
    if not dry_run and (not ended or session.failure_reason == SESSION_EXPIRED):
        # Also if an earlier sweep failed the session: snapshots that it could not delete cost money until they are
        # gone.
        for name, provider in providers.items():
            await _delete_snapshots(session.session_id, name, provider, tally)
    if ended:
        tally.already_terminal += 1
        return
    if dry_run:
        return
    stores = SessionStores(state_store, stream_manager)
    if await fail_session(stores, session.session_id, Ending("failed", error, SESSION_EXPIRED), expired=session):
        tally.marked += 1
    else:
        tally.already_terminal += 1


async def _delete_snapshots(session_id: str, name: str, provider: WorkspaceProvider, tally: _Tally) -> None:
    """Delete what can be deleted; the next sweep tries the rest again."""
    snapshots: list[str] = []
    with _reported(session_id, name, tally):
        snapshots = await provider.snapshots.list(session_id)
    for snapshot_id in snapshots:
        with _reported(session_id, name, tally):
            await provider.snapshots.delete(snapshot_id)
            tally.snapshots_deleted += 1


@contextmanager
def _reported(session_id: str, name: str, tally: _Tally) -> Iterator[None]:
    """Turn any exception of a provider into an entry of `errors`: the session has expired nevertheless."""
    try:
        yield
    except Exception as problem:
        tally.errors.append(f"{session_id}: provider {name!r}: {problem}")
