"""A TCP proxy between a client and a real server: it counts round trips, and it breaks things on demand.

It knows no protocol. A round trip is a request that starts after a reply (or at the start of a connection): all
requests that a client sends without waiting for a reply count once. Bytes that a server sends unasked also end a
request, so count on connections that do not subscribe. A greeting or login counts like any other exchange:
take `round_trips` before and after what you measure.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self

from tests.servers.process import HOST

CHUNK_BYTES = 65_536


class _Link:
    """One client connection and its connection to the server."""

    def __init__(self, proxy: Proxy, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self.client = client
        self.server = server
        self.answered = True

    async def pump_requests(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(CHUNK_BYTES):
            if self.answered:
                self.answered = False
                self.proxy.round_trips += 1
            await self.proxy.obstruct()
            self.server.write(data)
            await self.server.drain()
        # The client is done sending; what the server still has to say may pass.
        if self.server.can_write_eof():
            self.server.write_eof()

    async def pump_answers(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(CHUNK_BYTES):
            if self.proxy.take_reply_to_lose():
                self.abort()
                return
            await self.proxy.obstruct()
            self.answered = True
            self.client.write(data)
            await self.client.drain()
        self.client.close()

    def abort(self) -> None:
        """Abort both connections."""
        self.client.transport.abort()
        self.server.transport.abort()


class Proxy:
    """`async with Proxy(server.port) as proxy:` then connect to `proxy.port` instead.

    `delay_seconds` holds up every piece of data, in both directions, as a slow network would.
    """

    def __init__(self, target_port: int, *, target_host: str = HOST, delay_seconds: float = 0.0) -> None:
        self.target_host = target_host
        self.target_port = target_port
        self.delay_seconds = delay_seconds
        self.port = 0
        self.round_trips = 0
        self.connections_made = 0
        self._replies_until_loss: int | None = None
        self._refusing = False
        self._passing = asyncio.Event()
        self._passing.set()
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._accept, HOST, 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Cut all connections and wait until no task of the proxy runs."""
        self.cut(refuse=True)
        if self._listener is not None:
            self._listener.close()
        serving = list(self._tasks)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    def cut(self, *, refuse: bool = False) -> None:
        """Break all connections now. With `refuse`, new ones are also cut, until `heal`."""
        self._refusing = refuse
        for link in list(self._links):
            link.abort()

    def black_hole(self) -> None:
        """Keep connections open but pass nothing, in either direction, until `heal`."""
        self._passing.clear()

    def lose_reply(self, *, after: int = 0) -> None:
        """Cut a connection when its reply arrives, after `after` more pieces of the reply have passed.

        The server has executed the request, and the client never gets the reply.
        """
        self._replies_until_loss = after

    def heal(self) -> None:
        """End every fault but a delay. What a black hole held back is passed on."""
        self._refusing = False
        self._replies_until_loss = None
        self._passing.set()

    def take_reply_to_lose(self) -> bool:
        """Return whether to lose this piece of the reply, which happens once."""
        if self._replies_until_loss is None:
            return False
        self._replies_until_loss -= 1
        if self._replies_until_loss >= 0:
            return False
        self._replies_until_loss = None
        return True

    async def obstruct(self) -> None:
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        await self._passing.wait()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Not a coroutine: of the task that asyncio would make for it, asyncio reports the cancellation as an error.
        if self._refusing:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection(self.target_host, self.target_port)
        except BaseException as error:
            writer.transport.abort()  # the server is down: the client sees that
            if not isinstance(error, OSError):
                raise
            return
        self.connections_made += 1
        link = _Link(self, writer, server_writer)
        self._links.add(link)
        pumps = [
            asyncio.ensure_future(link.pump_requests(reader)),
            asyncio.ensure_future(link.pump_answers(server_reader)),
        ]
        try:
            # The connection ends with the replies; a client may stop sending long before that.
            with contextlib.suppress(OSError):
                await asyncio.wait(pumps, return_when=asyncio.FIRST_EXCEPTION)
                await asyncio.gather(*pumps)
        finally:
            self._links.discard(link)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            link.abort()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
