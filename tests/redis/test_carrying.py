"""Writes that carry chunks and usage, where Redis differs: on a cluster, without scripts, on the oldest server.

`tests/executor/test_servers.py` runs the same checks on one Valkey with scripts.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from helix_agents import Agent, AgentExecutor, ScriptedLLM, VersionConflict
from helix_agents.backends.registry import open_stores
from helix_agents.conformance.contracts import checks_for
from helix_agents.conformance.registry import Check
from helix_agents.conformance.run import run_check
from helix_agents.stores.along import Along
from helix_agents.types import CheckpointMeta
from tests.executor.harnesses import UrlHarness
from tests.redis.harnesses import administrators, forget_prefix, new_prefix

CHECKS = [each for each in checks_for(UrlHarness) if each.run.__module__.endswith(("x2_carry", "x2_turns"))]


@pytest.mark.parametrize("server", ["valkey_without_scripts", "oldest_redis", "cluster"])
@pytest.mark.parametrize("check", CHECKS, ids=[check.name for check in CHECKS])
def test_carrying(check: Check[Any], server: str, request: pytest.FixtureRequest) -> None:
    address, prefix = request.getfixturevalue(server), new_prefix()

    class RedisHarness(UrlHarness):
        url = f"{address}?prefix={prefix}"

    result = asyncio.run(run_check(check, RedisHarness))
    forget_prefix(address, prefix)
    assert result.outcome == "passed", f"{check.title}: {result.detail}"


@pytest.mark.parametrize("server", ["valkey_without_scripts", "oldest_redis", "cluster"])
async def test_redis_carries(server: str, request: pytest.FixtureRequest) -> None:
    async with open_stores(request.getfixturevalue(server)) as stores:
        assert stores.state.carries(stores.streams, stores.usage)
        assert stores.state.carries_to("a", "a")
        assert stores.state.carries_to("a", "b") == (server != "cluster")


async def test_a_stream_on_another_server_of_the_cluster_keeps_the_order(cluster: str, prefix: str) -> None:
    async with open_stores(f"{cluster}?prefix={prefix}") as stores:
        await stores.state.create_session("a", agent_type="main", stream_id="b")
        await stores.state.update_status("a", "completed")
        executor = AgentExecutor(stores, ScriptedLLM(["Done."]))
        result = await (await executor.execute(Agent("main"), "Go", session_id="a")).result()
        types = [each.chunk["type"] for each in await stores.streams.get_all_chunks("b")]
        assert (result.output, types.count("step_committed")) == ("Done.", 1)


async def test_a_refused_commit_leaves_no_usage_in_the_index_of_a_cluster(cluster: str, prefix: str) -> None:
    entry = {"kind": "custom", "id": "e", "session_id": "a", "name": "pages", "value": 1}
    async with open_stores(f"{cluster}?prefix={prefix}") as stores:
        session = await stores.state.create_session("a", agent_type="main")
        meta = CheckpointMeta("step", 1, 0)
        with pytest.raises(VersionConflict):
            await stores.state.save_state_and_promote_staging(
                "a", session, [], meta, expected_version=7, along=Along(usage=[entry])
            )
    members = [key for client in administrators(cluster) for key in client.scan_iter(match=f"{prefix}:usage*")]
    assert members == []
