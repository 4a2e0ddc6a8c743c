"""Route commands to servers, follow redirections, and wait for a server that is unavailable. Connections are in
`connection.py`.

A lost reply to a write is a `StoreUnavailable`, since the write may have happened. A request that was not
sent, or was rejected before anything happened, is retried while a server is briefly unavailable; reads are always sent
again. On a cluster the caller's client provides the topology and the connections are ours, one small pool per node.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from weakref import WeakSet

from redis import exceptions as redis_errors
from redis.asyncio import RedisCluster
from redis.asyncio.connection import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from ....retry import OUTAGE
from .connection import Argument, Client, Command, Link, Node, checked
from .driver_errors import LOST, REFUSED, NotReached, TranslatedErrors, is_refusal

MAX_READS = 3
NODE_CONNECTIONS = 64

READS = frozenset(
    {"EXISTS", "GET", "HEXISTS", "HGET", "HGETALL", "HLEN", "HMGET", "LINDEX", "LLEN", "LRANGE", "SCARD", "SMEMBERS"}
    | {"XRANGE", "ZCARD", "ZCOUNT", "ZRANGEBYLEX", "ZRANGEBYSCORE", "ZREVRANGE", "ZREVRANGEBYLEX", "ZREVRANGEBYSCORE"}
)
"""Commands that may be sent again if their reply was lost."""

_reached: WeakSet[Any] = WeakSet()
"""Clients whose servers have been reached by any of the stores that use them."""


class Patience:
    """How long one call waits for servers that are unavailable or reject it before anything has happened. A server that
    was never reached is not waited for: its address may be wrong. The first redirection is followed immediately.
    """

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._until = time.monotonic() + OUTAGE.within_seconds
        self._redirected = False
        self._waits = 0

    async def after(self, error: Exception) -> None:
        """Wait briefly before another try. Raise the error if something may have happened, or if time is up."""
        refused = is_refusal(error)
        undone = refused or (isinstance(error, NotReached) and self._servers.were_reached)
        if not undone or time.monotonic() >= self._until:
            raise error
        await self._servers.reconsider(error)
        if self._redirected or not isinstance(error, redis_errors.AskError):  # MovedError is one
            await asyncio.sleep(OUTAGE.delay_seconds(self._waits))
            self._waits += 1
        self._redirected = True


class Servers:
    """Routes keys to servers, using the caller's client, which it never closes."""

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
        """Return the server that holds a key."""
        if self._single is not None:
            return self._single
        cluster: Any = self._cluster
        try:
            if self._stale:
                await _reload(cluster)
                self._stale = False
            await cluster.initialize()
        except (*LOST, redis_errors.RedisClusterException) as error:
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
        """Yield a connection to the server that holds a key. The caller handles rejections: see `Patience`."""
        patience = Patience(self)
        async with AsyncExitStack() as stack:
            while True:
                try:
                    link = await stack.enter_async_context((await self.node_of(key)).link())
                    break
                except LOST as error:
                    self.suspect()
                    await patience.after(error)
            self._note_reached()
            try:
                yield link
            except LOST:
                self.suspect()
                raise

    async def ask(self, key: str, commands: Sequence[Command]) -> list[Any]:
        """Exchange commands and replies once with the server that holds a key. The caller handles rejections."""
        patience = None
        while True:
            try:
                replies = await (self._single or await self.node_of(key)).ask(commands)
                self._note_reached()
                return replies
            except LOST as error:
                self.suspect()
                patience = patience or Patience(self)
                await patience.after(error)

    async def run(self, key: str, commands: Sequence[Command], *, atomic: bool = False) -> list[Any]:
        """Send commands that all belong to the slot of `key`; wait while they are rejected temporarily."""
        patience, lost = Patience(self), 0
        while True:
            with TranslatedErrors(f"key {key!r}"):
                try:
                    if not atomic:
                        return [checked(reply) for reply in await self.ask(key, commands)]
                    async with self.link(key) as link:
                        answers = await link.transaction(commands)
                        assert answers is not None  # nothing is watched
                        return answers
                except REFUSED as error:
                    await patience.after(error)
                except redis_errors.ConnectionError as error:
                    lost += 1
                    reads = all(command[0] in READS for command in commands)
                    if isinstance(error, NotReached) or lost == MAX_READS or not reads:
                        raise

    async def one(self, key: str, *command: Argument) -> Any:
        """Send one command."""
        return (await self.run(key, [command]))[0]

    @property
    def were_reached(self) -> bool:
        """Whether a server of this client has been reached, by any store."""
        return self._client in _reached

    async def reconsider(self, error: Exception) -> None:
        """Find the server again before the next try: another one may have replaced the one that rejected the
        request."""
        self.suspect()
        if self._single is not None and isinstance(error, redis_errors.ReadOnlyError):
            await self._single.reconnect()

    def _note_reached(self) -> None:
        if not self._has_reached:
            self._has_reached = True
            _reached.add(self._client)

    def suspect(self) -> None:
        """Reload a cluster's topology before the next request, because a server could not be reached."""
        self._stale = self._cluster is not None

    async def each(self, keyed: Sequence[tuple[str, Command]]) -> list[Any]:
        """Send commands to the servers of their keys, one exchange per server, concurrently; return the replies in
        order."""
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
            if isinstance(reply, REFUSED):
                key, command = keyed[place]
                (replies[place],) = await self.run(key, [command])  # moved in the meantime, or truly refused
        return replies

    async def new_connection(self) -> Any:
        """Return a separate connection for listening, not yet open; the caller closes it."""
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
        """Return every server that holds keys."""
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


async def _reload(cluster: Any) -> None:
    """Have the client reload the topology without closing connections that others use."""
    await cluster.nodes_manager.initialize()
