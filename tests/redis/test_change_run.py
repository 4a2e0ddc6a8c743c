"""The same on Valkey: with scripts, without, and on a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents.backends.registry import open_stores

from ..stores.test_change_run import _claims_in_one_commit


@pytest.mark.parametrize("server", ["valkey", "valkey_without_scripts", "cluster"])
async def test_change_run(server: str, request: Any, prefix: str) -> None:
    url = request.getfixturevalue(server)
    async with open_stores(f"{url}{'&' if '?' in url else '?'}prefix={prefix}") as stores:
        await _claims_in_one_commit(stores.state)
