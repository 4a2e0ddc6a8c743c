"""`expired_session_cleanup`: the sweep that an operator runs on a schedule. Knows only the contracts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from .clock import system_clock
from .errors import HelixError, InvalidArgument
from .lifecycle import SESSION_STATUSES, SESSION_TERMINAL
from .stores.paging import MAX_PAGE
from .stores.state.contract import StateStore
from .streams.contract import StreamManager
from .types import CleanupSummary, SessionState

log = logging.getLogger(__name__)

FAILURE_REASON = "session_expired"


class WorkspaceSnapshots(Protocol):
    """Where a workspace provider keeps the snapshots of sessions."""

    async def list(self, session_id: str) -> list[str]:
        """The ids of a session's snapshots."""

    async def delete(self, snapshot_id: str) -> None:
        """Remove one snapshot."""


class WorkspaceProvider(Protocol):
    """Something that keeps files for sessions."""

    @property
    def snapshots(self) -> WorkspaceSnapshots:
        """Where they are."""


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
    error: str = "session_expired",
    now: int | None = None,
    dry_run: bool = False,
) -> CleanupSummary:
    """Fail the sessions whose `expires_at` has passed and delete their workspace snapshots.

    Streams of sessions that were still going are failed too where a `stream_manager` is given. One bad session never
    stops the sweep: what went wrong is in `errors`. `dry_run` only counts.
    """
    if page_size.__class__ is not int or not 1 <= page_size <= MAX_PAGE:
        raise InvalidArgument(f"page_size must be a whole number from 1 to {MAX_PAGE}, not {page_size!r}.")
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
            except Exception as problem:  # whatever a provider or store raises must not stop the others
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
    if session.status in SESSION_TERMINAL:
        tally.already_terminal += 1
        return
    if dry_run:
        return
    for name, provider in providers.items():
        await _delete_snapshots(session.session_id, name, provider, tally)
    going: Any = sorted(SESSION_STATUSES - SESSION_TERMINAL)
    answer = await state_store.compare_and_set_status(
        session.session_id, going, "failed", error=error, failure_reason=FAILURE_REASON
    )
    if not answer.ok:
        tally.already_terminal += 1
        return
    tally.marked += 1
    if stream_manager is not None and await stream_manager.get_stream_info(session.stream_id) is not None:
        await stream_manager.fail_stream(session.stream_id, error)


async def _delete_snapshots(session_id: str, name: str, provider: WorkspaceProvider, tally: _Tally) -> None:
    try:
        for snapshot_id in await provider.snapshots.list(session_id):
            await provider.snapshots.delete(snapshot_id)
            tally.snapshots_deleted += 1
    except HelixError:
        raise
    except Exception as problem:  # a provider's fault; the session is expired all the same
        tally.errors.append(f"{session_id}: provider {name!r}: {problem}")
