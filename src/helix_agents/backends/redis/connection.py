"""The way to the servers: connections, routing and errors. It knows commands only as lists of words.

redis-py opens connections and speaks the protocol; this file sends on them directly. The client's own commands retry
on a broken connection, and a write that is sent again may happen twice: here every write is sent once, and a lost
reply is a `StoreUnavailable`. What was not sent yet waits for a server that is away for a moment, and what only reads
is asked again. Replies are bytes, whatever `decode_responses` says. On a cluster the caller's client is
asked for the topology and the connections are ours, one small pool per node.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from weakref import WeakKeyDictionary, WeakSet

from ...errors import InvalidArgument, StoreCorrupt, StoreUnavailable

try:
    from redis import exceptions as redis_errors
    from redis.asyncio import Redis, RedisCluster
    from redis.asyncio.connection import ConnectionPool
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
except ImportError as error:  # pragma: no cover - depends on the installation
    raise ImportError("The Redis backend needs redis-py: pip install 'helix-agents[redis]'") from error

try:
    import hiredis
except ImportError:  # pragma: no cover - depends on the installation
    _pack: Any = None
else:
    _pack = getattr(hiredis, "pack_command", None)  # old ones can only read

Word = str | bytes | int
Command = Sequence[Word]
Client = Any
"""`redis.asyncio.Redis` or `redis.asyncio.RedisCluster`; both are generic in ways that differ between versions."""

MAX_REDIRECTS = 16
REDIRECT_DELAY_SECONDS = 0.05
PATIENCE_SECONDS = 6.0
"""So long a server may be away that was reached before: a restart, a failover, a cable."""
RECONNECT_DELAY_SECONDS = 0.1
MAX_READS = 3
NODE_CONNECTIONS = 64
DIRECT_BYTES = 32_768
MAX_IDLE = 2
MAX_AT_ONCE = 32
"""As many connections of one pool are used at a time; who comes later waits, instead of opening a hundred more."""

READS = frozenset(
    {"EXISTS", "GET", "HEXISTS", "HGET", "HGETALL", "HLEN", "HMGET", "LINDEX", "LLEN", "LRANGE", "SCARD", "SMEMBERS"}
    | {"XRANGE", "ZCARD", "ZCOUNT", "ZRANGEBYLEX", "ZRANGEBYSCORE", "ZREVRANGE", "ZREVRANGEBYLEX", "ZREVRANGEBYSCORE"}
)
"""Commands that may be sent again when their reply was lost."""

_gates: WeakKeyDictionary[Any, asyncio.Semaphore] = WeakKeyDictionary()
_reached: WeakSet[Any] = WeakSet()
"""Clients whose servers have been reached, by any of the stores that use them."""


def _gate_of(pool: Any) -> asyncio.Semaphore:
    """The gate of a pool, shared by all stores that use it."""
    gate = _gates.get(pool)
    if gate is None:
        limit = min(MAX_AT_ONCE, max(1, getattr(pool, "max_connections", MAX_AT_ONCE) // 2))
        gate = _gates[pool] = asyncio.Semaphore(limit)
    return gate


_LOST = (redis_errors.ConnectionError, redis_errors.TimeoutError, OSError)
_THEIRS = (TimeoutError, redis_errors.RedisError, redis_errors.RedisClusterException, OSError, EOFError)


class NotReached(redis_errors.ConnectionError):
    """There is no connection to a server, so nothing was sent to it."""


class TranslatedErrors:
    """Turns what a driver raises into our tree. A class: a generator would cost more than some requests."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _THEIRS):
            if "WRONGTYPE" in str(error):
                raise StoreCorrupt(f"Redis, {self._what}: a key holds another kind of value. {error}") from error
            unsent = isinstance(error, NotReached)
            raise StoreUnavailable(f"Redis, {self._what}: {error}", nothing_written=unsent) from error


def packed(command: Command) -> bytes:
    """A command in the protocol's words, by hiredis if it can."""
    if _pack is not None:
        return bytes(_pack(tuple(command)))
    words = [word if word.__class__ is bytes else str(word).encode() for word in command]
    return b"*%d\r\n%b" % (len(words), b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words]))


class _Cancellation:
    """Python 3.11's `wait_for`, which redis-py sends with, may swallow a cancellation: this notices and raises it."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._asked = self._task.cancelling() if self._task is not None else 0

    def check(self) -> None:
        """Raise if somebody has asked this task to end since."""
        if self._task is not None and self._task.cancelling() > self._asked:
            raise asyncio.CancelledError


async def _send(connection: Any, data: bytes) -> None:
    """Send a request. Straight to the socket where that is possible: redis-py starts a task for every write."""
    writer = getattr(connection, "_writer", None)
    if writer is not None and len(data) < DIRECT_BYTES and not connection.health_check_interval:
        writer.write(data)
        return
    cancellation = _Cancellation()
    await connection.send_packed_command(data)
    cancellation.check()


class Link:
    """One connection in our hands."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Send all, then read one reply for each; a refused command is an exception among the replies."""
        connection = self._connection
        await _send(connection, b"".join(map(packed, commands)))
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(await connection.read_response(disable_decoding=True))
            except redis_errors.ResponseError as error:
                replies.append(error)
        return replies

    async def one(self, *command: Word) -> Any:
        """Send one command; its reply, or its error raised."""
        (reply,) = await self.ask([command])
        return checked(reply)

    async def transaction(self, commands: Sequence[Command]) -> list[Any] | None:
        """MULTI, the commands, EXEC; None if something that was watched has changed."""
        replies = await self.ask([("MULTI",), *commands, ("EXEC",)])
        for reply in replies[:-1]:
            checked(reply)
        answers = checked(replies[-1])
        return None if answers is None else [checked(each) for each in answers]


def checked(reply: Any) -> Any:
    """The reply, unless it is an error."""
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
        """A connection of one's own for a while. It is dropped, not reused, if anything goes wrong on it."""
        connection = await self._take()
        try:
            yield Link(connection)
        except redis_errors.ResponseError:
            raise  # the reply was read to its end: the connection is fine
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        finally:
            await self._give_back(connection)

    async def ask(self, commands: Sequence[Command]) -> list[Any]:
        """One exchange on any connection."""
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
            if isinstance(error, _LOST) and not isinstance(error, _REFUSED_FOR_GOOD):
                raise NotReached(str(error)) from error
            raise
        return connection

    async def _give_back(self, connection: Any) -> None:
        # A few stay at hand: the way through the pool takes longer than some requests.
        try:
            if connection.is_connected and len(self._idle) < MAX_IDLE:
                self._idle.append(connection)
            else:
                await self._pool.release(connection)
        finally:
            self._gate.release()

    async def let_go(self) -> None:
        """Give all connections back to the pool."""
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
    """Open a connection again that the server has closed while it was idle. Newer pools no longer look."""
    reader = getattr(connection, "_reader", None)
    if not connection.is_connected:
        await connection.connect()
    elif reader is not None and reader.at_eof():
        await connection.disconnect(nowait=True)
        await connection.connect()


class _Waiting:
    """Waits for a server that is away. One that nobody has reached yet is not waited for: its address may be wrong."""

    def __init__(self, *, patient: bool) -> None:
        self._until = time.monotonic() + PATIENCE_SECONDS * patient

    async def after(self, error: Exception) -> None:
        """Wait a little, if nothing was sent and there is time left; else raise the error."""
        unsent = isinstance(error, NotReached | redis_errors.BusyLoadingError)
        if not unsent or time.monotonic() >= self._until:
            raise error
        await asyncio.sleep(RECONNECT_DELAY_SECONDS)


class Servers:
    """Where keys live. Made from the caller's client, which it never closes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._cluster = client if isinstance(client, RedisCluster) else None
        self._single = None if self._cluster is not None else Node(client.connection_pool)
        self._nodes: dict[tuple[str, int], Node] = {}
        self._stale = False
        self._has_reached = client in _reached

    @property
    def is_cluster(self) -> bool:
        """Whether keys are spread over several servers."""
        return self._cluster is not None

    async def node_of(self, key: str) -> Node:
        """The server that holds a key."""
        if self._single is not None:
            return self._single
        cluster: Any = self._cluster
        try:
            if self._stale:
                await _reload(cluster)
                self._stale = False
            await cluster.initialize()
        except (*_LOST, redis_errors.RedisClusterException) as error:
            raise NotReached(str(error)) from error
        return self._node(cluster.get_node_from_key(key))

    def _node(self, found: Any) -> Node:
        place = (found.host, int(found.port))
        node = self._nodes.get(place)
        if node is None:
            kwargs = {**found.connection_kwargs, "retry": Retry(NoBackoff(), 0)}
            pool: Any = ConnectionPool(found.connection_class, max_connections=NODE_CONNECTIONS, **kwargs)
            node = self._nodes[place] = Node(pool)
        return node

    @asynccontextmanager
    async def link(self, key: str) -> AsyncIterator[Link]:
        """A connection to the server that holds a key. Redirections are the caller's: see `redirected`."""
        waiting = _Waiting(patient=self._client in _reached)
        async with AsyncExitStack() as stack:
            while True:
                try:
                    link = await stack.enter_async_context((await self.node_of(key)).link())
                    break
                except _LOST as error:
                    self.suspect()
                    await waiting.after(error)
            self._note_reached()
            try:
                yield link
            except _LOST:
                self.suspect()
                raise

    async def ask(self, key: str, commands: Sequence[Command]) -> list[Any]:
        """One exchange with the server that holds a key. Redirections are the caller's."""
        waiting = None
        while True:
            try:
                replies = await (self._single or await self.node_of(key)).ask(commands)
                self._note_reached()
                return replies
            except _LOST as error:
                self.suspect()
                waiting = waiting or _Waiting(patient=self._client in _reached)
                await waiting.after(error)

    async def run(self, key: str, commands: Sequence[Command], *, atomic: bool = False) -> list[Any]:
        """Send commands that all belong to the slot of `key`; refused ones raise. Follows a cluster's redirections."""
        lost = 0
        for attempt in range(MAX_REDIRECTS):
            with TranslatedErrors(f"key {key!r}"):
                try:
                    if not atomic:
                        return [checked(reply) for reply in await self.ask(key, commands)]
                    async with self.link(key) as link:
                        answers = await link.transaction(commands)
                        assert answers is not None  # nothing is watched
                        return answers
                except redis_errors.ResponseError as error:
                    if not await self.redirected(error, attempt):
                        raise
                except redis_errors.ConnectionError as error:
                    lost += 1
                    reads = all(command[0] in READS for command in commands)
                    if isinstance(error, NotReached) or lost == MAX_READS or not reads:
                        raise
        raise StoreUnavailable(f"Redis, key {key!r}: the cluster sent us from node to node. Try again.")

    async def one(self, key: str, *command: Word) -> Any:
        """Send one command."""
        return (await self.run(key, [command]))[0]

    async def redirected(self, error: Exception, attempt: int) -> bool:
        """Whether a cluster says "not here" or "not now": then nothing was done, and another try may find the place."""
        if self._cluster is None or not _says_elsewhere(error):
            return False
        self._stale = True
        if attempt:
            await asyncio.sleep(REDIRECT_DELAY_SECONDS * attempt)
        return True

    def _note_reached(self) -> None:
        if not self._has_reached:
            self._has_reached = True
            _reached.add(self._client)

    def suspect(self) -> None:
        """A server could not be reached: look at a cluster's topology again before the next request."""
        self._stale = self._cluster is not None

    async def each(self, keyed: Sequence[tuple[str, Command]]) -> list[Any]:
        """Send commands to wherever their keys live, one exchange per server at the same time; replies in order."""
        if self._single is not None:
            return await self.run("", [command for _, command in keyed]) if keyed else []
        groups: dict[int, list[int]] = {}
        for place, (key, _) in enumerate(keyed):
            with TranslatedErrors(f"key {key!r}"):
                groups.setdefault(id(await self.node_of(key)), []).append(place)
        replies: list[Any] = [None] * len(keyed)

        async def ask(places: list[int]) -> None:
            found = await self._try_together([keyed[place] for place in places])
            for place, reply in zip(places, found, strict=True):
                replies[place] = reply

        await asyncio.gather(*(ask(places) for places in groups.values()))
        return replies

    async def _try_together(self, keyed: Sequence[tuple[str, Command]]) -> list[Any]:
        with TranslatedErrors(f"key {keyed[0][0]!r}"):
            replies = await self.ask(keyed[0][0], [command for _, command in keyed])
        for place, reply in enumerate(replies):
            if isinstance(reply, redis_errors.ResponseError):
                key, command = keyed[place]
                (replies[place],) = await self.run(key, [command])  # moved in the meantime, or truly refused
        return replies

    async def new_connection(self) -> Any:
        """A connection that is nobody else's, not yet open, for listening; its owner closes it."""
        if self._single is not None:
            pool = self._client.connection_pool
            made, kwargs = pool.connection_class, pool.connection_kwargs
        else:
            cluster: Any = self._cluster
            await cluster.initialize()
            node = cluster.get_random_node()
            made, kwargs = node.connection_class, node.connection_kwargs
        # Messages as plain arrays, however long they take to come.
        return made(**{**kwargs, "protocol": 2, "socket_timeout": None, "retry": Retry(NoBackoff(), 0)})

    async def masters(self) -> list[Node]:
        """Every server that holds keys."""
        if self._single is not None:
            return [self._single]
        cluster: Any = self._cluster
        await cluster.initialize()
        return [self._node(found) for found in cluster.get_primaries()]

    async def close(self) -> None:
        """Close the connections that we opened; the caller's client stays open."""
        if self._single is not None:
            await self._single.let_go()
        nodes, self._nodes = list(self._nodes.values()), {}
        for node in nodes:
            await node.close()


def _says_elsewhere(error: Exception) -> bool:
    kinds = (redis_errors.MovedError, redis_errors.AskError, redis_errors.TryAgainError)
    return isinstance(error, kinds) or str(error).startswith(("MOVED", "ASK", "TRYAGAIN", "EXECABORT", "CLUSTERDOWN"))


async def _reload(cluster: Any) -> None:
    """Have the client read the topology again, without closing what others use."""
    await cluster.nodes_manager.initialize()


def client_from_url(url: str, **options: Any) -> Client:
    """A client for `redis://`, `rediss://`, `redis+cluster://` or `rediss+cluster://`; the caller closes it."""
    parts = urlsplit(url)
    scheme, _, kind = parts.scheme.partition("+")
    if scheme not in ("redis", "rediss") or kind not in ("", "cluster"):
        raise InvalidArgument(
            f"A Redis URL begins with redis://, rediss:// or redis+cluster://, not with {parts.scheme}://."
        )
    plain = urlunsplit(parts._replace(scheme=scheme))
    try:
        return (RedisCluster if kind == "cluster" else Redis).from_url(plain, **options)
    except (ValueError, TypeError) as error:
        raise InvalidArgument(f"The Redis URL for {parts.hostname} cannot be used: {error}") from error
