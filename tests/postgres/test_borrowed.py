"""The connections that a driver holds of a pool, on a pool whose server is away."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from helix_agents.backends.postgres.borrowed import BorrowedConnections

POOL_SIZE = 2


class PoolWithoutServer:
    """An asyncpg pool as far as the module uses it; connecting fails once the gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    def get_max_size(self) -> int:
        return POOL_SIZE

    async def acquire(self) -> Any:
        await self.gate.wait()
        raise ConnectionRefusedError


async def test_callers_that_wait_for_a_connection_get_the_error_of_a_server_that_is_away() -> None:
    pool = PoolWithoutServer()
    lanes = BorrowedConnections(cast(Any, pool))
    callers = [asyncio.create_task(lanes.take()) for _ in range(3 * POOL_SIZE + 1)]
    await asyncio.sleep(0)
    pool.gate.set()
    async with asyncio.timeout(60):
        ended = await asyncio.gather(*callers, return_exceptions=True)
    assert {type(error) for error in ended} == {ConnectionRefusedError}
