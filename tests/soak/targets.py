"""The servers of a soak: how to reach them directly and through a proxy, restart them, and fill their disks."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.servers.postgres import PostgresServer
from tests.servers.process import HOST
from tests.servers.proxy import Proxy
from tests.servers.redis_cluster import RedisCluster
from tests.servers.redis_server import RedisServer

BACKENDS = ("sqlite", "postgres", "redis", "cluster")


class Target:
    """One backend. `url` leads straight to it, `stormy_url` through the proxy, if there can be one."""

    def __init__(self, backend: str, url: str, *, proxy: Proxy | None = None, server: object = None) -> None:
        self.backend = backend
        self.url = url
        self.proxy = proxy
        self.server = server
        self.stormy_url = url

    @property
    def can_restart(self) -> bool:
        """Return whether there is a server to kill."""
        return isinstance(self.server, PostgresServer | RedisServer)

    async def restart(self) -> None:
        """Kill the server as a power cut would, and start it again."""
        assert isinstance(self.server, PostgresServer | RedisServer)
        await asyncio.to_thread(self.server.kill9)
        await asyncio.to_thread(self.server.start)

    @property
    def can_fill(self) -> bool:
        """Return whether this backend's disk or memory can be made to look full."""
        return self.backend in ("sqlite", "redis")

    def fill(self, workers: Iterable[int]) -> None:
        """Let writes fail for lack of room, until `empty`."""
        if isinstance(self.server, RedisServer):
            self.server.ask("CONFIG", "SET", "maxmemory", 1)
            return
        size = Path(self.url.removeprefix("sqlite:")).stat().st_size
        for pid in workers:  # no file may grow past this: SQLite sees a full disk
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (max(4096, size // 8), resource.RLIM_INFINITY))

    def empty(self, workers: Iterable[int]) -> None:
        """Make room again."""
        if isinstance(self.server, RedisServer):
            self.server.ask("CONFIG", "SET", "maxmemory", 0)
            return
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@asynccontextmanager
async def open_target(backend: str) -> AsyncIterator[Target]:
    """Start a private backend, and remove every trace of it at the end."""
    async with AsyncExitStack() as stack:
        if backend == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="helix-soak-"))
            yield Target(backend, f"sqlite:{Path(folder) / 'soak.db'}")
            return
        if backend == "cluster":
            cluster = stack.enter_context(RedisCluster())
            yield Target(backend, cluster.url, server=cluster)
            return
        server: PostgresServer | RedisServer = PostgresServer() if backend == "postgres" else RedisServer()
        stack.enter_context(server)
        proxy = await stack.enter_async_context(Proxy(server.port))
        target = Target(backend, server.url, proxy=proxy, server=server)
        target.stormy_url = server.url.replace(f"{HOST}:{server.port}", f"{HOST}:{proxy.port}")
        yield target
