"""Deletions that stall, and a session that is created again under the same id."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from helix_agents import Agent, AgentExecutor, ScriptedLLM, open_stores
from helix_agents.conformance.executor.frozen import Freezer

AGENT = Agent("a")
PICTURE: list[dict[str, Any]] = [{"type": "image", "media_type": "image/png", "data": "A" * 400_000}]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("url", ["memory://", "sqlite://:memory:"])
async def test_a_stalled_deletion_leaves_the_blobs_of_the_next_session(url: str, after: bool) -> None:
    async with open_stores(url) as stores:
        llm = ScriptedLLM(["One.", "Two."])
        freezer = Freezer(on="delete", after=after)
        frozen: Any = freezer._wrapped(stores.blobs)
        slow = AgentExecutor(stores.state, stores.streams, llm, usage_store=stores.usage, blob_store=frozen)
        quick = AgentExecutor(stores.state, stores.streams, llm, usage_store=stores.usage, blob_store=stores.blobs)
        async with slow, quick:
            await quick.run(AGENT, [{"role": "user", "content": PICTURE}], session_id="s")
            deleting = asyncio.create_task(slow.delete_session("s"))
            await freezer.frozen.wait()
            assert await quick.delete_session("s")
            assert (await stores.blobs.list("s")).items == []
            await quick.run(AGENT, [{"role": "user", "content": PICTURE}], session_id="s")
            freezer.wake()
            assert not await deleting
            assert len((await stores.blobs.list("s")).items) == 1
            assert await stores.usage.get_entries("s")
