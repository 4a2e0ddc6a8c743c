"""Queries of an `AgentServer` object to its own SQLite: what it stores and when it must wake up.

Nothing here awaits, so a result is still valid when the caller acts on it. Imported only inside a Worker.
"""

from __future__ import annotations

from ...backends.cloudflare.bindings import ObjectStorage
from ...backends.cloudflare.wire import MissingTable
from ...backends.sql_shared.driver import Row, Statement

ANY_SESSION = "SELECT 1 FROM __agents_states LIMIT 1"
ANY_ACTIVE = "SELECT 1 FROM __agents_states WHERE status = 'active' LIMIT 1"
SAME_SESSION = "SELECT 1 FROM __agents_states WHERE session_id = ?1 AND incarnation = ?2"
NEXT_WORK = "SELECT MIN(due_at) FROM __agents_states"
NEXT_EXPIRY = "SELECT MIN(expires_at) FROM __agents_states WHERE status NOT IN ('completed', 'failed')"
OLDEST_STREAM = "SELECT MIN(updated_at) FROM __agents_streams WHERE total_chunks > 0"
IS_IDLE = "parent_session_id IS NULL AND status <> 'active' AND session_id NOT LIKE 'helix/%'"
"""Schedules and other sessions of the library are not idle: they wait."""
LAST_TOUCHED = f"SELECT MIN(updated_at) FROM __agents_states WHERE {IS_IDLE}"
IDLE = f"SELECT session_id FROM __agents_states WHERE {IS_IDLE} AND updated_at <= ?1 LIMIT 100"


class Upkeep:
    """Queries one object. A missing table counts as empty."""

    def __init__(self, storage: ObjectStorage) -> None:
        self._storage = storage

    def is_bare(self) -> bool:
        """Return whether there is no session here."""
        return not self._rows(ANY_SESSION)

    def is_active(self) -> bool:
        """Return whether a session here runs, or should."""
        return bool(self._rows(ANY_ACTIVE))

    def has(self, session_id: str, incarnation: str) -> bool:
        """Return whether this session is here: another incarnation of the same id does not count."""
        return bool(self._rows(SAME_SESSION, session_id, incarnation))

    def idle_sessions(self, before: int) -> list[str]:
        """Return root sessions that have stopped and were not touched since."""
        return [session_id for (session_id,) in self._rows(IDLE, before)]

    def next_due(self, *, stream_ttl_ms: int, session_ttl_ms: int | None) -> int | None:
        """Return when the next session expires, becomes idle, or has a question or schedule that is due, or when the
        next stream is too old."""
        times = [self._time(NEXT_EXPIRY), self._time(NEXT_WORK)]
        if stream_ttl_ms:
            times.append(self._time(OLDEST_STREAM, stream_ttl_ms))
        if session_ttl_ms is not None:
            times.append(self._time(LAST_TOUCHED, session_ttl_ms))
        return min((at for at in times if at is not None), default=None)

    def _time(self, sql: str, later_ms: int = 0) -> int | None:
        rows = self._rows(sql)
        return int(rows[0][0]) + later_ms if rows and rows[0][0] is not None else None

    def _rows(self, sql: str, *params: str | int) -> list[Row]:
        if self._storage.is_empty():
            return []
        try:
            return self._storage.batch_now([Statement(sql, params)])[0]
        except MissingTable:
            return []
