"""Sessions that are due: the walk over `list_claimable`, and what a worker does with each.

Not every worker may continue what comes first: it may belong to an engine, to a user whose limit is reached, or be
broken. So a walk goes on page by page, and remembers what it skipped.
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
"""How far one walk goes: past 2,000 sessions."""
MAX_REMEMBERED = MAX_PAGES * MAX_PAGE


async def due_sessions(services: Services, agent_types: Sequence[str]) -> AsyncGenerator[SessionState, None]:
    """Yield the sessions of these types that a worker can continue, start or close now."""
    now, cursor = services.clock(), None
    for _ in range(MAX_PAGES):
        page = await services.store.list_due(now, agent_types=agent_types, limit=MAX_PAGE, cursor=cursor)
        for due in page.items:
            yield due.session
        cursor = page.next_cursor
        if cursor is None:
            return


class SkippedSessions:
    """Remembers sessions that are not for this process until they change: most are still due at the next walk."""

    def __init__(self) -> None:
        self._versions: OrderedDict[str, int] = OrderedDict()

    def __contains__(self, session: SessionState) -> bool:
        return self._versions.get(session.session_id) == session.version

    def add(self, session: SessionState) -> None:
        """Skip this session as it is now."""
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
        """Return the types of sessions that workers who know these agents look for: theirs, and the library's own."""
        names = list(agents)
        return [*names, *map(schedule_type, names), *self._outbox.types]

    def may_take(self, session: SessionState) -> bool:
        """Return whether it is worth trying."""
        return session not in self._skipped

    async def pick_up(self, session: SessionState, *, worker: str | None = None) -> RunHandle | bool:
        """Continue or close a session: its run; True if nothing runs here then; False if another process does it.

        `worker`: the name that the run's record gives to this process.
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
            logger.warning("Cannot continue session %s now: %s", session.session_id, error)
            return False
        if found.seen.standing is Standing.LAPSED:
            await note_recovered(self._services.streams, session.session_id, self._services.clock())
        return handle or True
