"""Hub: one upstream subscription per process, fanned out to any number of readers.

The hub holds one `Tail` for every stream that has readers here, wakes it at each wake-up, and shares pages of history:
readers that request the same page at about the same time share one read, and a recent page is cached for the readers
that follow. All its caches are bounded.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from operator import attrgetter
from typing import NamedTuple

from ..errors import StoreUnavailable
from ..retry import OUTAGE
from . import loops
from .records import StoredText, StreamHead, StreamPage, fill_in
from .tail import Tail
from .wakeup import Wakeup

ReadPage = Callable[[str, int, int, int], Awaitable[StreamPage | None]]
"""(stream id, after sequence, maximum rows, maximum characters) -> page, or None if there is no such stream."""

PAGE_ROWS = 4096
PAGE_CHARS = 1_000_000
MAX_CACHED_CHARS = 4_000_000
MAX_FIRST_PAGES = 8

PageKey = tuple[str, str, int, int]


class History(NamedTuple):
    """A page of history with the head from the same read."""

    head: StreamHead
    rows: list[StoredText]
    chars: int


class FirstPage(NamedTuple):
    """The page that the manager read while creating the first reader of a stream, until that reader starts."""

    after: int
    page: StreamPage


class Hub:
    """Serves the readers of one manager."""

    def __init__(self, read_page: ReadPage, wakeup: Wakeup) -> None:
        self._read_page = read_page
        self._wakeup = wakeup
        self._tails: dict[str, Tail] = {}
        self._starting: asyncio.Task[None] | None = None
        self._reading: dict[PageKey, asyncio.Task[History | None]] = {}
        self._cached: OrderedDict[PageKey, History] = OrderedDict()
        self._cached_chars = 0
        self._first_pages: OrderedDict[str, FirstPage] = OrderedDict()
        self._closed = False
        self.subscriptions = 0
        """How often the wake-up source was started: at most 1."""
        self.reads = 0
        """How many pages were read from storage for readers."""

    async def start(self) -> None:
        """Subscribe once, even if many readers start concurrently."""
        if self._closed:
            raise StoreUnavailable("This stream manager is closed: create another.")
        if self._starting is None:
            self.subscriptions += 1
            self._starting = asyncio.get_running_loop().create_task(self._wakeup.start(self.wake))
        starting = self._starting
        if starting.done() and not starting.cancelled() and starting.exception() is None:
            return
        try:
            await asyncio.shield(starting)
        except Exception:
            if self._starting is starting:
                self._starting = None  # the next reader tries again
                self.subscriptions -= 1
            raise

    def wake(self, stream_id: str | None) -> None:
        """Wake the readers of a changed stream, or all readers if None."""
        if stream_id is None:
            for tail in self._tails.values():
                tail.check()
        elif (found := self._tails.get(stream_id)) is not None:
            found.check()

    def wants_page(self, stream_id: str) -> bool:
        """Return True if no part of the stream is in memory, so that a new reader should prefetch a page."""
        return stream_id not in self._tails and stream_id not in self._first_pages

    def keep_page(self, stream_id: str, after: int, page: StreamPage) -> None:
        """Cache the page that was read with the head until the new reader requests it."""
        self._first_pages[stream_id] = FirstPage(after, page)
        if len(self._first_pages) > MAX_FIRST_PAGES:
            self._first_pages.popitem(last=False)

    def attach(self, head: StreamHead, cursor: int) -> Tail:
        """Return the tail for a reader that was created with this `head`."""
        if self._closed:
            raise StoreUnavailable("This stream manager is closed: create another.")
        tail = self._tails.get(head.stream_id)
        if tail is None or tail.gone or tail.error is not None or tail.head.incarnation != head.incarnation:
            tail = self._new_tail(head, cursor)
            self._tails[head.stream_id] = tail
            self._wakeup.watch(head.stream_id)
            tail.run()
        elif not tail.knows(head):
            tail.check()
        tail.readers += 1
        return tail

    def detach(self, tail: Tail) -> None:
        """Detach a reader; the last one also stops the tail."""
        tail.readers -= 1
        if tail.readers > 0:
            return
        tail.stop()
        stream_id = tail.head.stream_id
        if self._tails.get(stream_id) is tail:
            del self._tails[stream_id]
            self._wakeup.unwatch(stream_id)

    async def history(self, head: StreamHead, after: int) -> History | None:
        """Return some rows after a cursor that the tail no longer covers; None if the stream is gone."""
        stream = (head.stream_id, head.incarnation, head.revision)
        while True:
            cached = self._covering(stream, after)
            if cached is not None:
                return cached
            reading = self._reading_near(stream, after)
            if reading is None:
                return await asyncio.shield(self._start_reading((*stream, after)))
            # Another reader is fetching a page that should also contain this position.
            history = await asyncio.shield(reading)
            if history is None:
                return None
            if history.rows and history.rows[-1].sequence > after:
                return _cut(history, after)

    async def close(self) -> None:
        """Release everything; readers that still wait get `StoreUnavailable`."""
        if self._closed:
            return
        self._closed = True
        for tail in list(self._tails.values()):
            tail.stop(StoreUnavailable("The stream manager was closed while this reader was reading: open another."))
        self._tails.clear()
        self._cached.clear()
        self._first_pages.clear()
        if self._starting is not None:
            await loops.wait_for([self._starting])
        await self._wakeup.close()

    def _new_tail(self, head: StreamHead, cursor: int) -> Tail:
        read = self._reader_of(head.stream_id)
        after, page = self._first_pages.pop(head.stream_id, (0, None))
        if page is not None and page.head.moment == head.moment and page.head.incarnation == head.incarnation:
            if page.rows and page.rows[-1].sequence < head.latest_sequence:
                self._keep((head.stream_id, head.incarnation, head.revision, after), _history(page))
            elif head.floor <= after <= cursor:
                return Tail(read, head, after, page)
        # The last, incomplete page of history belongs to the tail, so that readers share it.
        start = head.latest_sequence - head.latest_sequence % PAGE_ROWS
        if cursor + PAGE_ROWS >= head.latest_sequence:
            start = cursor
        return Tail(read, head, max(start, cursor, head.floor))

    def _reader_of(self, stream_id: str) -> Callable[[int], Awaitable[StreamPage | None]]:
        return lambda after: self._page(stream_id, after, PAGE_ROWS)

    async def _page(self, stream_id: str, after: int, limit: int) -> StreamPage | None:
        """Read a page; retry for a few seconds while the backend is unreachable."""
        self.reads += 1
        for delay_seconds in OUTAGE.delays():
            try:
                return await self._read_page(stream_id, after, limit, PAGE_CHARS)
            except StoreUnavailable as error:
                if error.nothing_written:
                    raise  # the backend has already retried
                await asyncio.sleep(delay_seconds)
        return await self._read_page(stream_id, after, limit, PAGE_CHARS)

    def _covering(self, stream: tuple[str, str, int], after: int) -> History | None:
        for key, cached in reversed(self._cached.items()):
            if key[:3] == stream and key[3] <= after < cached.rows[-1].sequence:
                self._cached.move_to_end(key)
                return _cut(cached, after)
        return None

    def _reading_near(self, stream: tuple[str, str, int], after: int) -> asyncio.Task[History | None] | None:
        for key, reading in self._reading.items():
            if key[:3] == stream and key[3] <= after < key[3] + page_limit(key[3]):
                return reading
        return None

    def _start_reading(self, key: PageKey) -> asyncio.Task[History | None]:
        reading = asyncio.get_running_loop().create_task(self._load(key))
        self._reading[key] = reading
        reading.add_done_callback(lambda done: self._loaded(key, done))
        return reading

    async def _load(self, key: PageKey) -> History | None:
        stream_id, incarnation, revision, after = key
        page = await self._page(stream_id, after, page_limit(after))
        if page is None or page.head.incarnation != incarnation:
            return None
        history = _history(page)
        if page.head.revision == revision and not self._closed:
            self._keep(key, history)
        return history

    def _loaded(self, key: PageKey, done: asyncio.Task[History | None]) -> None:
        self._reading.pop(key, None)
        if not done.cancelled():
            done.exception()  # retrieve it: every waiting reader gets the error

    def _keep(self, key: PageKey, history: History) -> None:
        if key in self._cached or not history.rows:
            return
        self._cached[key] = history
        self._cached_chars += history.chars
        while self._cached_chars > MAX_CACHED_CHARS and len(self._cached) > 1:
            _, dropped = self._cached.popitem(last=False)
            self._cached_chars -= dropped.chars


def page_limit(after: int) -> int:
    """Return how many rows to read: up to a multiple of PAGE_ROWS, so that readers that started at different positions
    soon request the same pages."""
    rest = PAGE_ROWS - after % PAGE_ROWS
    return rest if rest >= PAGE_ROWS // 2 else rest + PAGE_ROWS


def _cut(history: History, after: int) -> History:
    """Return the part after the cursor, for a second reader, with chunks decoded once for all readers."""
    fill_in(history.rows)
    first = bisect_right(history.rows, after, key=attrgetter("sequence"))
    return History(history.head, history.rows[first:], history.chars)


def _history(page: StreamPage) -> History:
    return History(page.head, page.rows, sum(len(row.text) for row in page.rows))
