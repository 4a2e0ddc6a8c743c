"""Limits on what one user may use at a time in this process: open streams, runs, and responses being read or sent.

Each limit protects the other users and has a default. They apply per process: limits across processes belong in the
proxy in front of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from weakref import WeakValueDictionary

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..errors import InvalidArgument
from ..safe_text import get_logger
from .auth import User
from .problems import Problem
from .wire.feed import Feed

logger = get_logger("helix_agents.server")

SLICE_BYTES = 65_536
READS_AT_ONCE = 4
"""How many large responses of one user are built at a time; further ones wait."""


class Limits(msgspec.Struct, frozen=True):
    """The limits of one app. All of them must be positive."""

    max_body_bytes: int = 1_000_000
    max_streams_per_user: int = 1_000
    max_runs_per_user: int = 100
    max_bytes_per_user: int = 64_000_000
    max_stream_seconds: float = 3_600.0
    heartbeat_seconds: float = 15.0
    stall_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise InvalidArgument(f"{name} must be positive, not {getattr(self, name)!r}.")


class Occupancy:
    """Counts what each user occupies, and rejects what exceeds the limits with 429."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._streams: Counter[str] = Counter()
        self._starting: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._readers: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._feeds: set[Feed] = set()
        self._stopping = False

    # -- streams

    def stream_slot(self, user: User) -> StreamSlot:
        """Return a slot for one more stream. The caller releases it."""
        most = self.limits.max_streams_per_user
        if self._streams[user.id] >= most:
            raise too_many(f"You have {most} open streams: close one first.")
        self._streams[user.id] += 1
        return StreamSlot(self, user)

    def open_streams(self, user: User) -> int:
        """Return how many streams a user has open."""
        return self._streams[user.id]

    def stop_streams(self) -> None:
        """End all open streams without a final event, so that their clients reconnect to another process."""
        self._stopping = True
        for feed in list(self._feeds):
            feed.close()

    def _attach(self, feed: Feed) -> None:
        self._feeds.add(feed)
        if self._stopping:
            feed.close()

    def _release(self, user: User, feed: Feed | None) -> None:
        _subtract(self._streams, user.id, 1)
        if feed is not None:
            self._feeds.discard(feed)
            feed.close()

    # -- runs

    @contextmanager
    def starting_run(self, user: User, running: Callable[[], int]) -> Iterator[None]:
        """Count a run that is being started. `running` returns how many of the user's runs this process executes."""
        most = self.limits.max_runs_per_user
        if running() + self._starting[user.id] >= most:
            raise too_many(f"You have {most} runs in progress: wait for one to stop.")
        self._starting[user.id] += 1
        try:
            yield
        finally:
            _subtract(self._starting, user.id, 1)

    # -- bytes

    @asynccontextmanager
    async def reading(self, user: User) -> AsyncIterator[None]:
        """Wait for the user's turn to load something large."""
        semaphore = self._readers.setdefault(user.id, asyncio.Semaphore(READS_AT_ONCE))
        async with semaphore:
            yield

    def held_bytes(self, user: User) -> int:
        """Return how many bytes of responses are on their way to a user."""
        return self._bytes[user.id]

    def hold(self, user: User, response: Response) -> Response | LargeResponse:
        """Count the bytes of a response until they are sent. One response is always allowed, however large."""
        size = len(response.body)
        if size <= SLICE_BYTES:
            return response
        most = self.limits.max_bytes_per_user
        if self._bytes[user.id] and self._bytes[user.id] + size > most:
            raise too_many(f"Responses with more than {most} bytes are being sent to you: read them first.")
        self._bytes[user.id] += size
        return LargeResponse(
            response, lambda: _subtract(self._bytes, user.id, size), stall_seconds=self.limits.stall_seconds
        )


class StreamSlot:
    """One open stream of one user, counted from the request until the connection ends."""

    def __init__(self, occupancy: Occupancy, user: User) -> None:
        self._occupancy = occupancy
        self._user = user
        self._feed: Feed | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._released = False

    def attach(self, feed: Feed) -> Feed:
        """Close this feed with the slot, when the server stops, or after `max_stream_seconds`.

        The client then reconnects and is authenticated again, so no stream outlives a revoked token for long.
        """
        self._feed = feed
        self._occupancy._attach(feed)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._occupancy.limits.max_stream_seconds, feed.close)
        return feed

    def release(self) -> None:
        """Free the slot. Safe to call twice."""
        if not self._released:
            self._released = True
            if self._timer is not None:
                self._timer.cancel()
            self._occupancy._release(self._user, self._feed)


class LargeResponse:
    """A response sent slice by slice, so that a client that reads slowly costs its own bytes and no copy of them."""

    def __init__(self, response: Response, release: Callable[[], None], *, stall_seconds: float) -> None:
        self._response = response
        self._release = release
        self._stall_seconds = stall_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it. A client that accepts nothing for `stall_seconds` is disconnected."""
        body = memoryview(self._response.body)
        try:
            head = {"status": self._response.status_code, "headers": self._response.raw_headers}
            await send({"type": "http.response.start", **head})
            for start in range(0, len(body), SLICE_BYTES):
                part = bytes(body[start : start + SLICE_BYTES])
                more = start + SLICE_BYTES < len(body)
                async with asyncio.timeout(self._stall_seconds):
                    await send({"type": "http.response.body", "body": part, "more_body": more})
        except TimeoutError:
            logger.warning("Disconnecting a client that accepted no data for %s s.", self._stall_seconds)
        finally:
            self._release()


def too_many(detail: str) -> Problem:
    """Return the 429 for a user who is at a limit."""
    return Problem(429, "too_many_requests", detail, headers={"Retry-After": "5"})


def _subtract(counts: Counter[str], user_id: str, amount: int) -> None:
    counts[user_id] -= amount
    if counts[user_id] <= 0:
        del counts[user_id]
