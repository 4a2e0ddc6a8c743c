"""The line: sessions that wait for somebody to go on with them, those that wait longest first.

Not everybody may take what stands in front: it may belong to an engine, to a user who has enough at once, or be broken.
So whoever looks for work walks along the line, page by page, and remembers what is not for it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Container, Sequence

from ...stores.paging import MAX_PAGE
from ...types import SessionState, SessionStatus
from ..services import Services

MAX_PAGES = 10
"""How far one walk goes: past 2,000 sessions. On Redis a page costs as much as all before it."""
MAX_REMEMBERED = MAX_PAGES * MAX_PAGE


async def waiting_line(
    services: Services,
    agent_types: Sequence[str],
    *,
    status: SessionStatus | Sequence[SessionStatus] = "active",
    gone: Container[str] = (),
) -> AsyncGenerator[SessionState, None]:
    """The sessions of these agents that wait for a worker, or whose worker died (`list_claimable`).

    `gone`: the ids of those that the caller has taken meanwhile. They have left the line, so the rest has moved up.
    """
    now, offset = services.clock(), 0
    for _ in range(MAX_PAGES):
        page = await services.store.list_claimable(
            now, agent_types=agent_types, status=status, limit=MAX_PAGE, offset=offset
        )
        for session in page:
            yield session
        if len(page) < MAX_PAGE:
            return
        offset += sum(session.session_id not in gone for session in page)


class OthersBusiness:
    """Remembers whose runs are for others, until their sessions change: most stand there at the next walk, too."""

    def __init__(self) -> None:
        self._versions: OrderedDict[str, int] = OrderedDict()

    def __contains__(self, session: SessionState) -> bool:
        return self._versions.get(session.session_id) == session.version

    def add(self, session: SessionState) -> None:
        """This session, as it is now, is for others."""
        self._versions[session.session_id] = session.version
        if len(self._versions) > MAX_REMEMBERED:
            self._versions.popitem(last=False)
