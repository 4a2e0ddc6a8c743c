"""Notify a process of changes that others made to streams: one subscription for all its readers.

Every write publishes on the stream's channel in the same atomic step. A message only says "check again", so losing one
is harmless: after a reconnect every stream is checked. Channels reach every node of a cluster, which a blocking XREAD
on streams in different slots could not.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from redis import exceptions as redis_errors

from ...retry import RECONNECT
from ...streams import loops
from ...streams.wakeup import Wake, Wakeup
from .client.driver_errors import TranslatedErrors
from .client.servers import Servers

PING_SECONDS = 2.0
SILENCE_SECONDS = 6.0


class ChannelWakeup(Wakeup):
    """One connection that listens on the channels of all streams that are read in this process."""

    def __init__(self, servers: Servers, prefix: str) -> None:
        self._servers = servers
        self._prefix = f"{prefix}:stream:wake:"
        self._watched: set[str] = set()
        self._connection: Any = None
        self._tasks: list[asyncio.Task[None]] = []
        self._wake: Wake = lambda stream_id: None
        self._heard_at = 0.0
        self._sending = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()

    def channel(self, stream_id: str) -> str:
        """Return the channel on which changes of a stream are published."""
        return f"{self._prefix}{{{stream_id}}}"

    async def start(self, wake: Wake) -> None:
        self._wake = wake
        with TranslatedErrors("subscribing"):
            await self._connect()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._listen()), loop.create_task(self._keep_awake())]

    def watch(self, stream_id: str) -> None:
        self._watched.add(stream_id)
        self._later("SUBSCRIBE", stream_id)

    def unwatch(self, stream_id: str) -> None:
        self._watched.discard(stream_id)
        self._later("UNSUBSCRIBE", stream_id)

    async def close(self) -> None:
        tasks, self._tasks = [*self._tasks, *self._background], []
        await loops.end(tasks)
        await self._disconnect()

    # -- the connection

    async def _connect(self) -> None:
        connection = await self._servers.new_connection()
        try:
            await connection.connect()
            # A channel of our own: it proves that we may listen, and keeps the connection in that mode.
            channels = [f"{self._prefix}", *map(self.channel, sorted(self._watched))]
            await connection.send_command("SUBSCRIBE", *channels)
            answer = await connection.read_response(disable_decoding=True)
            if not isinstance(answer, list):
                raise redis_errors.ConnectionError(f"an unexpected reply to SUBSCRIBE: {answer!r}")
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self._connection = connection
        self._heard_at = time.monotonic()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                await connection.disconnect(nowait=True)

    def _later(self, word: str, stream_id: str) -> None:
        if not self._tasks:
            return
        task = asyncio.get_running_loop().create_task(self._say(word, stream_id))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _say(self, word: str, stream_id: str) -> None:
        async with self._sending:
            if word == "UNSUBSCRIBE" and stream_id in self._watched:
                return  # a reader came back in the meantime
            await self._send(word, self.channel(stream_id))

    async def _send(self, *words: str) -> None:
        connection = self._connection
        if connection is None:
            return  # the next connection subscribes to everything that is watched
        try:
            await connection.send_command(*words, check_health=False)
        except (redis_errors.RedisError, OSError):
            await connection.disconnect(nowait=True)  # the listener notices

    # -- tasks

    async def _listen(self) -> None:
        """Receive messages; if the connection breaks, open another and check every stream."""
        attempt = 0
        while True:
            try:
                if self._connection is None:
                    await self._connect()
                    self._wake(None)
                await self._hear()
                attempt = 0
            except (TimeoutError, redis_errors.RedisError, OSError, EOFError, AttributeError):
                await self._disconnect()
                await asyncio.sleep(RECONNECT.delay_seconds(attempt))
                attempt += 1

    async def _hear(self) -> None:
        message = await self._connection.read_response(disable_decoding=True)
        self._heard_at = time.monotonic()
        if not isinstance(message, list) or len(message) < 3:
            return  # a reply to PING
        kind, channel = message[0], message[1].decode() if message[1] else ""
        if kind in (b"message", b"subscribe") and channel != self._prefix:
            # Subscribed: what was written between the reader's first look and now must be looked at too.
            self._wake(channel[len(self._prefix) + 1 : -1])

    async def _keep_awake(self) -> None:
        """Ping the connection: one that died silently looks like one without messages."""
        while True:
            await asyncio.sleep(PING_SECONDS)
            if self._connection is None:
                continue
            if time.monotonic() - self._heard_at > SILENCE_SECONDS:
                await self._connection.disconnect(nowait=True)
                continue
            async with self._sending:
                await self._send("PING")
