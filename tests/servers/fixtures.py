"""Fixtures that hand real servers to tests.

Shared servers live for the whole session and are emptied (or given a fresh database) for each test that asks for a
URL. A test that kills a server takes one of its own from a `private_...` fixture. Where a server cannot be had its
tests are skipped with the reason, or fail if HELIX_REQUIRE_SERVERS is 1.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import NoReturn, TypeVar

import asyncpg
import pytest

from tests.servers.postgres import PostgresServer
from tests.servers.process import ServerProcess, ServerUnavailable
from tests.servers.proxy import Proxy
from tests.servers.redis_cluster import RedisCluster
from tests.servers.redis_server import VALKEY_9, RedisServer, expected_kinds

Server = TypeVar("Server", bound=ServerProcess | RedisCluster)
_database_numbers = itertools.count(1)


def servers_required() -> bool:
    return os.environ.get("HELIX_REQUIRE_SERVERS", "").lower() in ("1", "true")


def without_server(reason: str) -> NoReturn:
    """Skip, or fail where servers are required."""
    if servers_required():
        pytest.fail(f"NO SERVER, and HELIX_REQUIRE_SERVERS is set: {reason}", pytrace=False)
    pytest.skip(f"NO SERVER: {reason}")


def started(stack: contextlib.ExitStack, make: Callable[[], Server]) -> Server:
    """Start a server that the stack will stop, or end the test with the reason why there is none."""
    try:
        server = make()
        stack.enter_context(server)
    except ServerUnavailable as error:
        without_server(str(error))
    return server


@pytest.fixture(scope="session", params=expected_kinds())
def redis_server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A shared server, once for each kind there is. Do not kill it: see `private_redis`."""
    with contextlib.ExitStack() as stack:
        yield started(stack, lambda: RedisServer(request.param))


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """An empty Redis, once for each kind there is."""
    redis_server.flush()
    return redis_server.url


@pytest.fixture(params=expected_kinds())
def private_redis(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """The test's own server, to kill and restart, once for each kind there is."""
    with contextlib.ExitStack() as stack:
        yield started(stack, lambda: RedisServer(request.param))


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    """A shared cluster of three masters."""
    with contextlib.ExitStack() as stack:
        yield started(stack, lambda: RedisCluster(VALKEY_9))


@pytest.fixture
def redis_cluster_url(redis_cluster: RedisCluster) -> str:
    """An empty cluster."""
    redis_cluster.flush()
    return redis_cluster.url


@pytest.fixture
def private_redis_cluster() -> Iterator[RedisCluster]:
    """The test's own cluster, each master with a replica, to try failover."""
    with contextlib.ExitStack() as stack:
        yield started(stack, lambda: RedisCluster(VALKEY_9, replicas=1))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A shared server. Do not kill it: see `private_postgres`."""
    with contextlib.ExitStack() as stack:
        yield started(stack, PostgresServer)


@pytest.fixture
async def postgres_url(postgres_server: PostgresServer) -> AsyncIterator[str]:
    """A fresh database, dropped after the test."""
    name = f"test_{next(_database_numbers)}"
    await _administer(postgres_server, f"CREATE DATABASE {name}")
    yield postgres_server.url_of(name)
    await _administer(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")


async def _administer(server: PostgresServer, statement: str) -> None:
    connection = await asyncpg.connect(server.url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture
def private_postgres() -> Iterator[PostgresServer]:
    """The test's own server, to kill and restart."""
    with contextlib.ExitStack() as stack:
        yield started(stack, PostgresServer)


@pytest.fixture
async def proxy_to() -> AsyncIterator[Callable[[int], Awaitable[Proxy]]]:
    """`proxy = await proxy_to(server.port)`: a proxy that stops with the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(port: int) -> Proxy:
            return await stack.enter_async_context(Proxy(port))

        yield make
