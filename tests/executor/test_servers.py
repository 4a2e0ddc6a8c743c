"""The executor checks of the kit on a Valkey and a Postgres, in short form: `HELIX_SOAK=1` takes the long one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar

import asyncpg
import pytest

from helix_agents.conformance.pytest import conformance_tests
from tests.executor.harnesses import FAULTS, OTHER_KINDS, ShortHarness
from tests.servers.fixtures import started
from tests.servers.postgres import PostgresServer
from tests.servers.redis_server import VALKEY_9, RedisServer

IN_MEMORY = ("--appendonly", "no")
DATABASE = "executor_checks"
OUR_TABLES = """
    SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables
    WHERE schemaname NOT IN ('pg_catalog', 'information_schema') AND tablename NOT LIKE '%migrations%'
"""


@pytest.fixture(scope="module")
def valkey() -> Iterator[RedisServer]:
    with contextlib.ExitStack() as stack:
        yield started(stack, lambda: RedisServer(VALKEY_9, options=IN_MEMORY))


class ValkeyHarness(ShortHarness):
    name: ClassVar[str] = "executor on Valkey"


class PostgresHarness(ShortHarness):
    name: ClassVar[str] = "executor on Postgres"


@pytest.fixture
def empty_valkey(valkey: RedisServer) -> None:
    valkey.flush()
    ValkeyHarness.url = valkey.url


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> str:
    """One database for all checks: to migrate one for each takes longer than the checks."""
    asyncio.run(_ask(postgres_server.url, f"CREATE DATABASE {DATABASE}"))
    return postgres_server.url_of(DATABASE)


@pytest.fixture
def empty_postgres(database: str) -> None:
    tables = asyncio.run(_ask(database, OUR_TABLES))
    if tables:
        asyncio.run(_ask(database, f"TRUNCATE {', '.join(row['name'] for row in tables)}"))
    PostgresHarness.url = database


async def _ask(url: str, statement: str) -> list[Any]:
    connection = await asyncpg.connect(url)
    try:
        return list(await connection.fetch(statement))
    finally:
        await connection.close()


class ValkeyFaultsHarness(ValkeyHarness):
    sometimes_apart = True


class PostgresFaultsHarness(PostgresHarness):
    sometimes_apart = True


test_valkey = pytest.mark.usefixtures("empty_valkey")(conformance_tests(ValkeyHarness, only=OTHER_KINDS))
test_valkey_faults = pytest.mark.usefixtures("empty_valkey")(conformance_tests(ValkeyFaultsHarness, only=FAULTS))
test_postgres = pytest.mark.usefixtures("empty_postgres")(conformance_tests(PostgresHarness, only=OTHER_KINDS))
test_postgres_faults = pytest.mark.usefixtures("empty_postgres")(conformance_tests(PostgresFaultsHarness, only=FAULTS))
