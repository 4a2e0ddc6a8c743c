"""Work that blocks until it is released: work that is submitted before then waits and becomes one group."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Sequence


class Held:
    """One piece of such work."""

    def __init__(self) -> None:
        self._busy, self._go_on = threading.Event(), threading.Event()

    def work(self, connection: sqlite3.Connection, items: Sequence[None]) -> Sequence[None]:
        self._busy.set()
        self._go_on.wait()
        return items

    async def begun(self) -> None:
        await asyncio.to_thread(self._busy.wait)

    def let_go(self) -> None:
        self._go_on.set()
