"""Desk: what all routes of one app share, and the rule of who may see which session.

A user sees the sessions that bear its `user_id`; an admin sees all. Another user's session is answered exactly like
one that does not exist.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from ..agent import Agent
from ..errors import SessionNotFound
from ..executor import AgentExecutor, impatient
from ..ids import ensure_id
from ..stores.state.contract import StateStore
from ..streams.contract import StreamManager
from ..types import SessionState
from .auth import ANONYMOUS, Authenticate, User
from .problems import Problem
from .wire.feed import Feed

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Desk:
    """One app's executor, rules and open streams."""

    def __init__(
        self,
        executor: AgentExecutor,
        *,
        authenticate: Authenticate | None,
        allow_origins: Sequence[str],
        max_body_bytes: int,
        max_streams_per_user: int,
        heartbeat_seconds: float,
    ) -> None:
        self.executor = executor
        self.max_body_bytes = max_body_bytes
        self.heartbeat_seconds = heartbeat_seconds
        self._authenticate = authenticate
        self._allow_origins = frozenset(allow_origins)
        self._max_streams_per_user = max_streams_per_user
        self._streams_of: Counter[str] = Counter()
        self._feeds: set[Feed] = set()
        self._stopping = False

    @property
    def store(self) -> StateStore:
        """Where the sessions are. A request that cannot be served is told so at once; runs have more patience."""
        return impatient(self.executor.services.store)

    @property
    def streams(self) -> StreamManager:
        """Where the chunks are."""
        return impatient(self.executor.services.streams)

    # -- who

    async def user(self, connection: HTTPConnection) -> User:
        """Whoever asks. Raises a `Problem`: 401 for nobody that we know, 403 for a request of a foreign page."""
        self._ensure_origin(connection)
        if self._authenticate is None:
            return ANONYMOUS
        found = self._authenticate(connection)
        user = await found if inspect.isawaitable(found) else found
        if user is None:
            raise Problem(
                401,
                "not_authenticated",
                "This request needs a valid token.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return user

    def _ensure_origin(self, connection: HTTPConnection) -> None:
        """Refuse what a page of another site sends: browsers let it send, even where it could not read the answer."""
        origin = connection.headers.get("origin")
        if origin is None or (connection.scope["type"] == "http" and connection.scope["method"] in SAFE_METHODS):
            return
        if origin in self._allow_origins or "*" in self._allow_origins:
            return
        if urlsplit(origin).netloc.lower() != connection.headers.get("host", "").lower():
            raise Problem(403, "forbidden", "Requests from pages of this origin are not allowed here.")

    # -- what

    async def session(self, user: User, session_id: str) -> SessionState:
        """A session that this user may see and touch; else `SessionNotFound`."""
        session = await self.store.load_state(ensure_id(session_id, "session_id"))
        if session is None or not await self._may_see(user, session):
            raise SessionNotFound(session_id)
        return session

    async def existing(self, user: User, session_id: str) -> SessionState | None:
        """The session that a request is about; None if it is going to be new, which `execute` has to be told."""
        if await self.store.session_exists(ensure_id(session_id, "session_id")):
            return await self.session(user, session_id)
        return None

    async def _may_see(self, user: User, session: SessionState) -> bool:
        if user.is_admin or session.user_id == user.id:
            return True
        root_id = session.root_session_id
        if session.user_id is not None or not root_id or root_id == session.session_id:
            return False
        root = await self.store.load_state(root_id)
        return root is not None and root.user_id == user.id

    def agent(self, name: str) -> Agent:
        """A registered agent; else a `Problem`."""
        if name not in self.executor.agents:
            known = ", ".join(sorted(agent.name for agent in self.executor.agents)) or "none"
            raise Problem(404, "agent_not_found", f"There is no agent {name!r} here. Known agents: {known}.")
        return self.executor.agents.get(name)

    # -- open streams

    def take_seat(self, user: User) -> Seat:
        """Room for one more stream of this user; else a `Problem`. The caller frees it."""
        if self._streams_of[user.id] >= self._max_streams_per_user:
            raise Problem(
                429,
                "too_many_requests",
                f"{self._max_streams_per_user} streams are open already: close one first.",
                headers={"Retry-After": "5"},
            )
        self._streams_of[user.id] += 1
        return Seat(self, user)

    def stop(self) -> None:
        """End all open streams without a last frame, so that their clients come back to another process."""
        self._stopping = True
        for feed in list(self._feeds):
            feed.close()

    def _attend(self, feed: Feed) -> None:
        self._feeds.add(feed)
        if self._stopping:
            feed.close()

    def _leave(self, user: User, feed: Feed | None) -> None:
        self._streams_of[user.id] -= 1
        if not self._streams_of[user.id]:
            del self._streams_of[user.id]
        if feed is not None:
            self._feeds.discard(feed)
            feed.close()


class Seat:
    """One open stream of one user: counted from the request until the connection has ended."""

    def __init__(self, desk: Desk, user: User) -> None:
        self._desk = desk
        self._user = user
        self._feed: Feed | None = None
        self._free = False

    def attend(self, feed: Feed) -> Feed:
        """Close this feed with the seat, or when the server stops."""
        self._feed = feed
        self._desk._attend(feed)
        return feed

    def free(self) -> None:
        """Give the place back. Safe to call twice."""
        if not self._free:
            self._free = True
            self._desk._leave(self._user, self._feed)
