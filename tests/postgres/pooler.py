"""A transaction-mode pooler that switches the server connection after every transaction.

It speaks the wire protocol as far as a pooler must: a client gets a server connection when a transaction starts and
loses it when the transaction ends (`ReadyForQuery` idle), and the next transaction always gets another one. Prepared
statements and settings are not carried over, so code that relies on the session of a connection fails immediately.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import deque
from types import TracebackType
from typing import Self

from tests.servers.process import HOST

SERVER_CONNECTIONS = 3
ENDS_REQUEST = (b"S", b"Q")
"""Sync and a simple query: the server replies to each with ReadyForQuery."""


class _Server:
    """A connection to the real server, logged in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer


class TransactionPooler:
    """`async with TransactionPooler(port, database) as pooler:` then connect to `pooler.port`."""

    def __init__(self, server_port: int, *, user: str, database: str) -> None:
        self._server_port = server_port
        self._login = f"user\0{user}\0database\0{database}\0\0".encode()
        self._free: deque[_Server] = deque()
        self._available = asyncio.Semaphore(0)
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._greeting = b""
        self.port = 0
        self.transactions = 0

    async def __aenter__(self) -> Self:
        for _ in range(SERVER_CONNECTIONS):
            self._give(await self._connect())
        self._listener = await asyncio.start_server(self._accept, HOST, 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._listener is not None
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in self._free:
            server.writer.transport.abort()

    async def _connect(self) -> _Server:
        server = _Server(*await asyncio.open_connection(HOST, self._server_port))
        server.writer.write(struct.pack("!ii", len(self._login) + 8, 196_608) + self._login)
        kind, greeting = b"", b""
        while kind != b"Z":
            kind, message = await _message(server.reader)
            greeting += message
        self._greeting = greeting
        return server

    def _give(self, server: _Server) -> None:
        self._free.append(server)
        self._available.release()

    async def _take(self) -> _Server:
        await self._available.acquire()
        self.transactions += 1
        return self._free.popleft()  # the one that rested longest: never the one just used

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._serve(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (length,) = struct.unpack("!i", await reader.readexactly(4))
        code, *_ = struct.unpack("!i", (await reader.readexactly(length - 4))[:4])
        if code != 196_608:  # TLS is rejected, cancel requests are ignored
            writer.write(b"N")
            if code == 80_877_102:
                return
            (length,) = struct.unpack("!i", await reader.readexactly(4))
            await reader.readexactly(length - 4)
        writer.write(self._greeting)
        asking: asyncio.Future[tuple[bytes, bytes]] = asyncio.ensure_future(_message(reader))
        try:
            while True:
                kind, message = await asking
                if kind == b"X":
                    return
                asking = await self._transaction(kind, message, reader, writer)
        finally:
            asking.cancel()

    async def _transaction(
        self, kind: bytes, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> asyncio.Future[tuple[bytes, bytes]]:
        """Pass messages both ways until the server is idle again; return the client's next message."""
        server = await self._take()
        asking = asyncio.ensure_future(_message(reader))
        answering = asyncio.ensure_future(_message(server.reader))
        try:
            server.writer.write(first)
            open_requests = int(kind in ENDS_REQUEST)
            while True:
                await asyncio.wait([asking, answering], return_when=asyncio.FIRST_COMPLETED)
                if answering.done():
                    kind, message = answering.result()
                    writer.write(message)
                    open_requests -= kind == b"Z"
                    if kind == b"Z" and message[5:6] == b"I" and not open_requests:
                        break
                    answering = asyncio.ensure_future(_message(server.reader))
                elif asking.done():
                    kind, message = asking.result()
                    if kind == b"X":
                        raise ConnectionError("the client has left in the middle of a transaction")
                    open_requests += kind in ENDS_REQUEST
                    server.writer.write(message)
                    asking = asyncio.ensure_future(_message(reader))
        except BaseException:
            asking.cancel()
            answering.cancel()
            server.writer.transport.abort()
            self._give(await self._connect())
            raise
        self._give(server)
        return asking


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    (length,) = struct.unpack("!i", head[1:])
    return head[:1], head + await reader.readexactly(length - 4)
