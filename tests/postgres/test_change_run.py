"""The same on Postgres."""

from __future__ import annotations

from helix_agents.backends.registry import open_stores
from tests.postgres.harnesses import Home

from ..stores.test_change_run import _claims_in_one_commit


async def test_change_run() -> None:
    async with open_stores(f"{Home.url}") as stores:
        await _claims_in_one_commit(stores.state)
