"""Servers for the Redis tests. `test_faults.py` tests durability; everything else runs without an append-only file."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import redis

from tests.redis.harnesses import client_for, new_prefix
from tests.servers.fixtures import started
from tests.servers.redis_cluster import RedisCluster
from tests.servers.redis_server import REDIS_6, VALKEY_9, RedisServer, expected_kinds

IN_MEMORY = ("--appendonly", "no")
WITHOUT_SCRIPTS = ("-eval", "-evalsha", "-eval_ro", "-evalsha_ro", "-script", "-fcall", "-fcall_ro")


def _forbid_scripts(port: int) -> None:
    with redis.Redis(port=port) as client:
        client.execute_command("ACL", "SETUSER", "plain", "on", ">plain", "~*", "&*", "+@all", *WITHOUT_SCRIPTS)


@pytest.fixture(scope="session")
def valkey() -> Iterator[str]:
    """The URL of a Valkey 9, with a user `plain` who must not run scripts."""
    with contextlib.ExitStack() as stack:
        server = started(stack, lambda: RedisServer(VALKEY_9, options=IN_MEMORY))
        _forbid_scripts(server.port)
        yield server.url


@pytest.fixture(scope="session")
def valkey_without_scripts(valkey: str) -> str:
    """The same server for the user who must not run scripts."""
    return valkey.replace("redis://", "redis://plain:plain@")


@pytest.fixture(scope="session")
def oldest_redis() -> Iterator[str]:
    """The URL of the oldest server that is supported, or of any other there is."""
    kinds = expected_kinds()
    with contextlib.ExitStack() as stack:
        yield started(stack, lambda: RedisServer(REDIS_6 if REDIS_6 in kinds else kinds[-1], options=IN_MEMORY)).url


@pytest.fixture(scope="session")
def cluster_of_three() -> Iterator[RedisCluster]:
    """A shared cluster of three nodes; do not break it."""
    with contextlib.ExitStack() as stack:
        yield started(stack, lambda: RedisCluster(VALKEY_9))


@pytest.fixture(scope="session")
def cluster(cluster_of_three: RedisCluster) -> str:
    """Its URL."""
    return cluster_of_three.url


@pytest.fixture
async def connect(valkey: str) -> AsyncIterator[Callable[..., Any]]:
    """`connect()` makes clients of the shared server that are closed after the test."""
    clients: list[Any] = []

    def make(url: str = valkey, **options: Any) -> Any:
        clients.append(client_for(url, **options))
        return clients[-1]

    yield make
    for client in clients:
        await client.aclose()


@pytest.fixture
def prefix() -> str:
    """A prefix that no other test uses."""
    return new_prefix()
