"""A database for the kit's harnesses, which the kit constructs without arguments."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

from tests.postgres.harnesses import Home
from tests.servers.postgres import PostgresServer

DATABASE = "kit"


async def _create(server_url: str) -> None:
    connection = await asyncpg.connect(server_url)
    try:
        await connection.execute(f"CREATE DATABASE {DATABASE}")
    finally:
        await connection.close()


@pytest.fixture(scope="session", autouse=True)
def home_of_harnesses(postgres_server: PostgresServer) -> Iterator[None]:
    """Tell the harnesses where their database is."""
    asyncio.run(_create(postgres_server.url))
    Home.url = postgres_server.url_of(DATABASE)
    yield
    Home.url = ""
