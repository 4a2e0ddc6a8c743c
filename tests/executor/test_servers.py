"""The executor checks of the kit on a Valkey and a Postgres, in short form: `HELIX_SOAK=1` takes the long one."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from helix_agents.conformance.executor import EXECUTOR, ExecutorHarness
from helix_agents.conformance.options import Options
from helix_agents.conformance.registry import Check
from tests.executor.harnesses import UrlExecutorHarness
from tests.executor.test_conformance import run_check
from tests.servers.fixtures import started
from tests.servers.postgres import PostgresServer
from tests.servers.redis_server import VALKEY_9, RedisServer

CHECKS = EXECUTOR.select()
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


@pytest.fixture
def valkey_harness(valkey: RedisServer) -> ExecutorHarness:
    valkey.flush()
    return _harness(valkey.url)


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> str:
    """One database for all checks: to migrate one for each takes longer than the checks."""
    asyncio.run(_ask(postgres_server.url, f"CREATE DATABASE {DATABASE}"))
    return postgres_server.url_of(DATABASE)


@pytest.fixture
async def postgres_harness(database: str) -> ExecutorHarness:
    tables = await _ask(database, OUR_TABLES)
    if tables:
        await _ask(database, f"TRUNCATE {', '.join(row['name'] for row in tables)}")
    return _harness(database)


async def _ask(url: str, statement: str) -> list[Any]:
    connection = await asyncpg.connect(url)
    try:
        return list(await connection.fetch(statement))
    finally:
        await connection.close()


def _harness(url: str) -> UrlExecutorHarness:
    harness = UrlExecutorHarness(url)
    if os.environ.get("HELIX_SOAK") != "1":
        harness.options = replace(Options(), steps=50)  # one run that is killed, a few that die between calls
    return harness


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_valkey(check: Check[ExecutorHarness], valkey_harness: ExecutorHarness) -> None:
    await run_check(check, valkey_harness)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_postgres(check: Check[ExecutorHarness], postgres_harness: ExecutorHarness) -> None:
    await run_check(check, postgres_harness)
