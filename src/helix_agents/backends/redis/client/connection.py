"""Connections to one server. Commands are lists of words here; `servers.py` chooses the server.

redis-py opens connections and speaks the protocol; this file sends on them directly. The client's own commands retry
on a broken connection, and a write that is sent again may happen twice: here every command is sent once. Replies are
bytes, whatever `decode_responses` says.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from weakref import WeakKeyDictionary

from redis import exceptions as redis_errors

from .driver_errors import LOST, REFUSED, NotReached

try:
    import hiredis
except ImportError:  # pragma: no cover - depends on the installation
    _pack: Any = None
else:
    _pack = getattr(hiredis, "pack_command", None)  # old ones can only read

Argument = str | bytes | int
Command = Sequence[Argument]
Client = Any
"""`redis.asyncio.Redis` or `redis.asyncio.RedisCluster`; both are generic in ways that differ between versions."""

DIRECT_BYTES = 32_768
MAX_IDLE = 2
MAX_AT_ONCE = 32
"""The most connections of a pool in use at a time; later requests wait instead of opening more."""

_gates: WeakKeyDictionary[Any, asyncio.Semaphore] = WeakKeyDictionary()


def _gate_of(pool: Any) -> asyncio.Semaphore:
    """Return the semaphore of a pool, shared by all stores that use it."""
    gate = _gates.get(pool)
    if gate is None:
        limit = min(MAX_AT_ONCE, max(1, getattr(pool, "max_connections", MAX_AT_ONCE) // 2))
        gate = _gates[pool] = asyncio.Semaphore(limit)
    return gate


def packed(command: Command) -> bytes:
    """Encode a command in the wire protocol, with hiredis if it is installed."""
    if _pack is not None:
        return bytes(_pack(tuple(command)))
    words = [word if word.__class__ is bytes else str(word).encode() for word in command]
    return b"*%d\r\n%b" % (len(words), b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words]))


class _Cancellation:
    """Detects a cancellation that Python 3.11's `wait_for`, which redis-py uses to send, may have swallowed."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._asked = self._task.cancelling() if self._task is not None else 0

    def check(self) -> None:
        """Raise if this task has been cancelled in the meantime."""
        if self._task is not None and self._task.cancelling() > self._asked:
            raise asyncio.CancelledError


async def _send(connection: Any, data: bytes) -> None:
    """Send a request, directly to the socket if possible: redis-py starts a task for every write.

    Measured with redis-py's own way: steps of one session take 1.1 times as long, those of 32 sessions 1.2 times.
    """
    writer = getattr(connection, "_writer", None)
    if writer is not None and len(data) < DIRECT_BYTES and not connection.health_check_interval:
        writer.write(data)
        return
    cancellation = _Cancellation()
    await connection.send_packed_command(data)
    cancellation.check()


class Link:
    """One connection in exclusive use."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Send all commands, then read one reply for each; a rejected command is an exception among the replies."""
        connection = self._connection
        await _send(connection, b"".join(map(packed, commands)))
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(await connection.read_response(disable_decoding=True))
            except REFUSED as error:
                replies.append(error)
        return replies

    async def one(self, *command: Argument) -> Any:
        """Send one command; return its reply or raise its error."""
        (reply,) = await self.ask([command])
        return checked(reply)

    async def transaction(self, commands: Sequence[Command]) -> list[Any] | None:
        """Run the commands in MULTI and EXEC; return None if a watched key has changed."""
        replies = await self.ask([("MULTI",), *commands, ("EXEC",)])
        for reply in replies[:-1]:
            checked(reply)
        answers = checked(replies[-1])
        return None if answers is None else [checked(each) for each in answers]


def checked(reply: Any) -> Any:
    """Return the reply, unless it is an error."""
    if isinstance(reply, Exception):
        raise reply
    return reply


class Node:
    """One server, reached through a pool of connections."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        # Up to redis-py 5.2 the pool wants the name of a command, which it ignores.
        needed = inspect.signature(pool.get_connection).parameters.get("command_name")
        self._gate = _gate_of(pool)
        self._idle: list[Any] = []
        self._words = ("_",) if needed is not None and needed.default is inspect.Parameter.empty else ()

    @asynccontextmanager
    async def link(self) -> AsyncIterator[Link]:
        """Yield a connection for exclusive use. It is dropped, not reused, if anything goes wrong on it."""
        connection = await self._take()
        try:
            yield Link(connection)
        except REFUSED:
            raise  # the reply was read to its end: the connection is fine
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        finally:
            await self._give_back(connection)

    async def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Exchange commands and replies once, on any connection."""
        connection = await self._take()
        try:
            return await Link(connection).ask(commands)
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        finally:
            await self._give_back(connection)

    async def _take(self) -> Any:
        await self._gate.acquire()
        try:
            cancellation = _Cancellation()
            connection = self._idle.pop() if self._idle else await self._pool.get_connection(*self._words)
            try:
                cancellation.check()
                await _revive(connection)
            except BaseException:
                await self._pool.release(connection)
                raise
        except BaseException as error:
            self._gate.release()
            if isinstance(error, LOST) and not isinstance(error, _REFUSED_FOR_GOOD):
                raise NotReached(str(error)) from error
            raise
        return connection

    async def _give_back(self, connection: Any) -> None:
        # A few stay here: going through the pool takes longer than some requests.
        try:
            if connection.is_connected and len(self._idle) < MAX_IDLE:
                self._idle.append(connection)
            else:
                await self._pool.release(connection)
        finally:
            self._gate.release()

    async def reconnect(self) -> None:
        """Close the connections that are not in use, because the address may now lead to another server."""
        await self.let_go()
        await self._pool.disconnect(inuse_connections=False)

    async def let_go(self) -> None:
        """Return all connections to the pool."""
        idle, self._idle = self._idle, []
        for connection in idle:
            with suppress(Exception):
                await self._pool.release(connection)

    async def close(self) -> None:
        """Close all connections of the pool."""
        await self.let_go()
        await self._pool.disconnect()


_REFUSED_FOR_GOOD = (redis_errors.AuthenticationError, redis_errors.AuthorizationError)


async def _revive(connection: Any) -> None:
    """Reopen a connection that the server closed while it was idle. Newer pools no longer check for this."""
    reader = getattr(connection, "_reader", None)
    if not connection.is_connected:
        await connection.connect()
    elif reader is not None and reader.at_eof():
        await connection.disconnect(nowait=True)
        await connection.connect()
