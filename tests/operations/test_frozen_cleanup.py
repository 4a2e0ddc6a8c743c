"""A cleanup that stalls anywhere does not change a session that was continued or recreated since then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from helix_agents import Agent, AgentExecutor, ScriptedLLM, expired_session_cleanup, open_stores, tool
from helix_agents.conformance.executor.frozen import Freezer
from helix_agents.conformance.executor.harness import Clockwork
from helix_agents.llm.scripted import Call


@tool(execute="client")
def ask() -> str:
    """Ask a client."""
    raise NotImplementedError


AGENT = Agent("main", tools=[ask])


async def _remains(stores: Any, session_id: str) -> Any:
    session = await stores.state.load_state(session_id)
    info = await stores.streams.get_stream_info(session_id)
    runs = [(run.run_id, run.status) for run in await stores.state.list_runs(session_id)]
    return session, runs, info, await stores.streams.get_all_chunks(session_id)


@pytest.mark.parametrize("after", [False, True])
async def test_a_cleanup_that_stalls_anywhere_leaves_the_next_session_alone(after: bool) -> None:
    number, reached = 0, True
    while reached:
        number += 1
        async with open_stores("memory://") as stores:
            llm, clock = ScriptedLLM([[Call("ask")], "Two."]), Clockwork()
            async with AgentExecutor(stores.state, stores.streams, llm, clock=clock) as executor:
                await executor.run(AGENT, "One", session_id="s", expires_at=1)
                freezer = Freezer(number, after=after)
                slow = freezer.wrap(stores)
                cleaning = asyncio.ensure_future(expired_session_cleanup(slow.state, stream_manager=slow.streams))
                freezing = asyncio.create_task(freezer.frozen.wait())
                await asyncio.wait({cleaning, freezing}, return_when=asyncio.FIRST_COMPLETED)
                freezing.cancel()
                reached = not cleaning.done()
                if not reached or number == 1:
                    freezer.wake()
                    await cleaning
                    continue
                clock.pass_seconds(60)
                await executor.delete_session("s")
                await executor.run(AGENT, "Anew", session_id="s")
                before = await _remains(stores, "s")
                freezer.wake()
                await cleaning
                now = await _remains(stores, "s")
                for a, b in zip(now, before, strict=True):
                    assert repr(a) == repr(b), freezer.place
    assert number > 5
