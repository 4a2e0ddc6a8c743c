"""The servers of a soak: how to reach them directly and through a proxy, restart them, and fill their disks."""

from __future__ import annotations

import asyncio
import contextlib
import pwd
import resource
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

from tests.servers.postgres import PostgresServer
from tests.servers.process import HOST, children_of, run_as, wait_until
from tests.servers.proxy import Proxy
from tests.servers.redis_cluster import RedisCluster
from tests.servers.redis_server import BUS_OFFSET, RedisServer

BACKENDS = ("sqlite", "postgres", "redis", "cluster")
Server: TypeAlias = PostgresServer | RedisServer


class Target:
    """One backend. `url` leads straight to it, `stormy_url` through the proxies, where there are servers."""

    def __init__(
        self, backend: str, url: str, *, servers: Sequence[Server] = (), proxies: Sequence[Proxy] = ()
    ) -> None:
        self.backend = backend
        self.url = url
        self.servers = servers
        self.proxies = proxies
        self.stormy_url = url if not proxies else url.replace(f"{HOST}:{servers[0].port}", f"{HOST}:{proxies[0].port}")

    async def restart(self, server: Server) -> None:
        """Kill a server, and start it again."""
        await asyncio.to_thread(server.kill9)
        await asyncio.to_thread(server.start)

    def fill(self, workers: Iterable[int]) -> Callable[[], None]:
        """Let writes fail for lack of room; return what makes room again."""
        nodes = [server for server in self.servers if isinstance(server, RedisServer)]
        if nodes:
            for node in nodes:
                node.ask("CONFIG", "SET", "maxmemory", 1)
            return lambda: _free(nodes)
        if self.servers:
            # The server's processes, but not the first one: it starts them again after the crash that a full disk is.
            pids = [pid for server in self.servers for pid in children_of(server.pid)]
            return limit_files(pids, 8192, user=self.servers[0].user)
        size = Path(self.url.removeprefix("sqlite:")).stat().st_size
        return limit_files(list(workers), max(4096, size // 8))


def _free(nodes: Iterable[RedisServer]) -> None:
    for node in nodes:
        node.ask("CONFIG", "SET", "maxmemory", 0)


def limit_files(pids: Sequence[int], size: int, *, user: pwd.struct_passwd | None = None) -> Callable[[], None]:
    """Let no file of these processes grow past a size, as if the disk were full; return what ends that."""

    def limit(most: int) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

    def act(most: int) -> None:
        if user is None:
            limit(most)
        else:  # only their own user may do that
            subprocess.run(["true"], preexec_fn=lambda: limit(most), check=True, **run_as(user))

    act(size)
    return lambda: act(resource.RLIM_INFINITY)


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
            proxies = [await stack.enter_async_context(Proxy(node.port)) for node in cluster.masters]
            await asyncio.to_thread(announce, cluster, [proxy.port for proxy in proxies])
            yield Target(backend, cluster.url, servers=cluster.masters, proxies=proxies)
            return
        server: PostgresServer | RedisServer = PostgresServer() if backend == "postgres" else RedisServer()
        stack.enter_context(server)
        proxy = await stack.enter_async_context(Proxy(server.port))
        yield Target(backend, server.url, servers=[server], proxies=[proxy])


def announce(cluster: RedisCluster, ports: Sequence[int]) -> None:
    """Let the nodes of a cluster send clients to other ports than their own, also after a restart."""
    for node, port in zip(cluster.masters, ports, strict=True):
        settings = {"cluster-announce-port": port, "cluster-announce-bus-port": node.port + BUS_OFFSET}
        node.options = (*node.options, *(str(word) for name in settings for word in (f"--{name}", settings[name])))
        for name, value in settings.items():
            node.ask("CONFIG", "SET", name, value)

    def is_known() -> bool:
        return all(f":{port}@" in node.ask("CLUSTER", "NODES") for node in cluster.masters for port in ports)

    wait_until(is_known, "every node to know the ports of the others")
