"""Tail: the live end of one stream, shared by all its readers in this process.

One task reads new chunks, once; readers take them from a bounded buffer by their cursor. The buffer does not wait for
readers: one that falls behind reads history from storage until it has caught up (T9).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable

from . import loops
from .records import StoredText, StreamHead, StreamPage, fill_in

Read = Callable[[int], Awaitable[StreamPage | None]]
"""Reads one page of the stream after a sequence; None if the stream is gone."""

MAX_TAIL_ROWS = 8192
MAX_TAIL_CHARS = 2_000_000
MAX_TAKE_ROWS = 64
LARGE_CHARS = 16_384


class Tail:
    """Buffers every stored chunk with `start < sequence <= end`, with the `head` as of `end`."""

    def __init__(self, read: Read, head: StreamHead, start: int, page: StreamPage | None = None) -> None:
        self.head = head
        self.start = start
        self.end = start
        self.gone = False
        self.error: Exception | None = None
        self.readers = 0
        self.known = False  # nothing read yet: `head` was passed in and does not describe `end`
        self._read = read
        self._rows: list[StoredText] = []
        self._sequences: list[int] = []
        self._chars = 0
        self._large = False
        self._dirty = asyncio.Event()
        self._waiters: set[asyncio.Future[bool | None]] = set()
        self._pump: asyncio.Task[None] | None = None
        if page is not None:
            self._absorb(page)

    def run(self) -> None:
        """Start following the stream."""
        if not self.known or self.head.status == "active":
            self._dirty.set()  # otherwise there is nothing to read until a wake-up
        self._pump = asyncio.get_running_loop().create_task(self._follow())

    def stop(self, error: Exception | None = None) -> None:
        """Stop following; waiting readers raise `error`."""
        self.error = self.error or error
        if self._pump is None:
            self._notify()
            return
        loops.cancel(self._pump)
        loop = self._pump.get_loop()
        if not loops.is_foreign(loop):
            self._notify()
        elif not loop.is_closed():
            loop.call_soon_threadsafe(self._notify)

    def check(self) -> None:
        """Check for changes."""
        self._dirty.set()

    def knows(self, head: StreamHead) -> bool:
        """Return whether the tail has read at least as far as `head`."""
        return self.known and self.head.moment >= head.moment

    def take(self, cursor: int) -> list[StoredText]:
        """Return a few rows after the cursor, which must not be before `start`."""
        index = bisect_right(self._sequences, cursor)
        rows = self._rows[index : index + (1 if self._large else MAX_TAKE_ROWS)]
        if self.readers > 1:
            # Decoded once for all readers: without this, 100 live readers on SQLite take 1.4 times the processor time.
            # A single reader is faster without it.
            fill_in(rows)
        return rows

    def waiter(self) -> asyncio.Future[bool | None]:
        """Return a future that gets the result None at the next change; release it with `forget`."""
        future: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
        self._waiters.add(future)
        return future

    def forget(self, waiter: asyncio.Future[bool | None]) -> None:
        """Release a future whose reader no longer waits."""
        self._waiters.discard(waiter)

    def _notify(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _follow(self) -> None:
        try:
            while not self.gone:
                await self._dirty.wait()
                self._dirty.clear()
                while not self.gone and self._absorb(await self._read(self.end)):
                    self._notify()
                    await asyncio.sleep(0)  # let readers run first, or the buffer would get ahead of them
                self._notify()
        except Exception as error:
            self.error = error
            self._notify()

    def _absorb(self, page: StreamPage | None) -> bool:
        """Add a page to the buffer; return True if storage has more."""
        if page is None or page.head.incarnation != self.head.incarnation:
            self.gone = True
            return False
        head = page.head
        if head.floor > self.end:
            # Retention was faster than this process: readers that still need the chunks in between have lost them.
            self._drop(len(self._rows))
            self.start = self.end = head.floor
        rows = page.rows
        if rows:
            sizes = [len(row.text) for row in rows]
            self._rows += rows
            self._sequences += [row.sequence for row in rows]
            self._chars += sum(sizes)
            self._large = self._large or max(sizes) > LARGE_CHARS
            self.end = rows[-1].sequence
        more = bool(rows) and self.end < head.latest_sequence
        if not more:
            self.end = max(self.end, head.latest_sequence)
        self.head = head
        self.known = True
        self._shrink()
        return more

    def _shrink(self) -> None:
        if len(self._rows) <= MAX_TAIL_ROWS and self._chars <= MAX_TAIL_CHARS:
            return
        # Half at a time, so that the cost per chunk stays constant. The last row always stays.
        drop, chars = 0, self._chars
        while drop < len(self._rows) - 1 and (
            len(self._rows) - drop > MAX_TAIL_ROWS // 2 or chars > MAX_TAIL_CHARS // 2
        ):
            chars -= len(self._rows[drop].text)
            drop += 1
        if drop:
            self.start = self._rows[drop - 1].sequence
            self._drop(drop)

    def _drop(self, count: int) -> None:
        del self._rows[:count]
        del self._sequences[:count]
        self._chars = sum(len(row.text) for row in self._rows)
        self._large = any(len(row.text) > LARGE_CHARS for row in self._rows)
