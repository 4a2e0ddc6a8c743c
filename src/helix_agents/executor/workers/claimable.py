"""Find due sessions page by page (`list_due`) and continue or close each.

A worker may not continue every session it finds: one may belong to an engine, one to a user whose limit is reached, and
one may be broken. So a scan reads on page by page and caches what it skipped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable, Sequence

from ...errors import AlreadyRunning, HelixError, NotResumable, RunLost, SessionNotFound
from ...safe_text import get_logger
from ...stores.paging import MAX_PAGE
from ...types import SessionState
from ..handle import RunHandle
from ..later.outbox import OUTBOX, Outbox
from ..later.schedules import SCHEDULE, Schedules, schedule_type
from ..services import Services
from ..session.closing import decided
from ..session.standing import Action, Intent, Standing
from ..starting import Starter
from .stats import note_recovered

logger = get_logger("helix_agents.executor")

MAX_PAGES = 10
"""Pages per scan: 2,000 sessions."""
MAX_REMEMBERED = MAX_PAGES * MAX_PAGE


async def due_sessions(services: Services, agent_types: Sequence[str]) -> AsyncGenerator[SessionState, None]:
    """Yield the sessions of these types that a worker can start, continue or close now."""
    now, cursor = services.clock(), None
    for _ in range(MAX_PAGES):
        page = await services.store.list_due(now, agent_types=agent_types, limit=MAX_PAGE, cursor=cursor)
        for due in page.items:
            yield due.session
        cursor = page.next_cursor
        if cursor is None:
            return


class SkippedSessions:
    """Caches sessions that this process must skip, by version, so that the next scan skips them without a read."""

    def __init__(self) -> None:
        self._versions: OrderedDict[str, int] = OrderedDict()

    def __contains__(self, session: SessionState) -> bool:
        return self._versions.get(session.session_id) == session.version

    def add(self, session: SessionState) -> None:
        """Skip this session until its version changes."""
        self._versions[session.session_id] = session.version
        if len(self._versions) > MAX_REMEMBERED:
            self._versions.popitem(last=False)


class Recovery:
    """Continues or closes sessions that are due."""

    def __init__(self, services: Services, starter: Starter, schedules: Schedules, outbox: Outbox) -> None:
        self._services = services
        self._starter = starter
        self._schedules = schedules
        self._outbox = outbox
        self._skipped = SkippedSessions()

    def types(self, agents: Iterable[str]) -> list[str]:
        """Return the session types to scan for, given the agents a worker knows: theirs, and the library's own."""
        names = list(agents)
        return [*names, *map(schedule_type, names), *self._outbox.types]

    def may_take(self, session: SessionState) -> bool:
        """Return False if this process has skipped this version of the session."""
        return session not in self._skipped

    async def pick_up(self, session: SessionState, *, worker: str | None = None) -> RunHandle | bool:
        """Continue or close a session. Return the handle of its run, True if nothing is left to run here, or False if
        this process must skip it, another one was faster, or an error was logged.

        `worker`: the name stored in the run record.
        """
        try:
            if session.session_id.startswith(f"{SCHEDULE}/"):
                return await self._schedules.work(session.session_id)
            if session.session_id.startswith(f"{OUTBOX}/"):
                return await self._outbox.work(session)
            found, action = await decided(self._services, Intent.RECOVER, session.session_id, messages=True)
            if action is Action.LEAVE:
                self._skipped.add(session)
                return False
            handle = await self._starter.recover(found, action, worker=worker)
        except (AlreadyRunning, NotResumable, RunLost, SessionNotFound):
            return False  # another process was faster
        except HelixError as error:
            logger.warning("Could not continue session %s; workers will retry: %s", session.session_id, error)
            return False
        if found.seen.standing is Standing.LEASE_EXPIRED:
            await note_recovered(self._services.streams, session.session_id, self._services.clock())
        return handle or True
