"""An unavailable store is a 503 with `Retry-After`, never a traceback or a hang, and requests work when it is back."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from tests.server.running import PATIENCE_SECONDS, execute, result, running
from tests.server.test_problems import assert_problem
from tests.servers.fixtures import started
from tests.servers.redis_server import RedisServer


async def test_a_store_that_is_away_is_told_and_comes_back(tmp_path: Path, sid: str) -> None:
    with contextlib.ExitStack() as stack:
        redis = started(stack, RedisServer)
        server = stack.enter_context(running(redis.url, tmp_path))
        async with server.client() as alice:
            await execute(alice, "hello", sid)
            await result(alice, sid)
            await asyncio.to_thread(redis.kill9)
            body = {"agent_type": "manager", "message": "hi"}
            away = await asyncio.gather(
                alice.get("/healthz"),
                alice.get("/sessions"),
                alice.get(f"/sessions/{sid}"),
                alice.get(f"/stream/{sid}"),
                alice.post("/execute", json=body),
            )
            for response in away:
                assert_problem(response, 503, "store_unavailable")
                assert int(response.headers["retry-after"]) > 0
                assert str(redis.port) not in response.text, "where the store is, is nobody's business"
            await asyncio.to_thread(redis.start)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (await alice.get("/healthz")).status_code != 200:
                    pass
            assert (await alice.get(f"/sessions/{sid}")).status_code == 200
