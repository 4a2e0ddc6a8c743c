"""One server for all tests that do nothing to it, on a SQLite file that a test may open as well."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from helix_agents.backends.registry import Stores, open_stores
from helix_agents.clock import random_id
from tests.server.running import Running, running


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("server")
    with running(f"sqlite:{folder / 'helix.db'}", folder) as started:
        yield started


@pytest.fixture
async def alice(server: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with server.client() as client:
        yield client


@pytest.fixture
async def bob(server: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with server.client("bob-token") as client:
        yield client


@pytest.fixture
async def admin(server: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with server.client("admin-token") as client:
        yield client


@pytest.fixture
async def stores(server: Running) -> AsyncIterator[Stores]:
    async with open_stores(server.url) as opened:
        yield opened


@pytest.fixture
def sid() -> str:
    """A session id that no other test has."""
    return f"s-{random_id()[:12]}"
