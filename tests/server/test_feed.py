"""A feed belongs to the session it was opened for, not to a later session with its id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from helix_agents import Agent, AgentExecutor, ScriptedLLM, SessionNotFound, Stores, open_stores
from helix_agents.failures import DELETED_REASON
from helix_agents.server.wire.feed import Chunks, Event, Feed, Heartbeat, Item, open_feed
from helix_agents.types import SessionState

agent = Agent("a")
PATIENCE_SECONDS = 20


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    async with open_stores("memory:") as opened:
        yield opened


@pytest.fixture
def executor(stores: Stores) -> AgentExecutor:
    return AgentExecutor(stores, ScriptedLLM(["BOB'S SECRET"] * 5), agents=[agent])


async def following(executor: AgentExecutor, session: SessionState) -> Feed:
    return await open_feed(executor, session, from_sequence=0, follow=True, heartbeat_seconds=15)


async def rest_of(items: AsyncIterator[Item]) -> list[Item]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return [item async for item in items]


@pytest.mark.parametrize("owner", ["bob", "ann"])
async def test_a_feed_without_a_stream_does_not_follow_the_id(
    stores: Stores, executor: AgentExecutor, owner: str
) -> None:
    session = await stores.state.create_session("x", agent_type="a", user_id="ann")  # like a fork, it has no stream
    feed = await following(executor, session)
    items = aiter(feed.items())
    assert isinstance(await anext(items), Event)
    reading = asyncio.create_task(rest_of(items))
    await asyncio.sleep(0)
    await executor.delete_session("x")
    await executor.run(agent, "hi", session_id="x", user_id=owner)
    rest = await reading
    assert [item for item in rest if isinstance(item, Chunks)] == []
    assert rest[-1] == Event("gone", {})


async def test_a_feed_with_a_stream_does_not_follow_the_id(stores: Stores, executor: AgentExecutor) -> None:
    await executor.run(agent, "hi", session_id="x", user_id="ann")
    session = await stores.state.load_state("x")
    assert session is not None
    items = aiter((await following(executor, session)).items())
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for item in items:
            if isinstance(item, Event) and item.name == "end":
                break
    await executor.delete_session("x")
    await executor.run(agent, "hi", session_id="x", user_id="bob")
    assert await rest_of(items) == [Event("gone", {})]


async def test_a_session_that_is_replaced_while_its_feed_opens_is_not_found(
    stores: Stores, executor: AgentExecutor
) -> None:
    seen = await stores.state.create_session("x", agent_type="a", user_id="ann")
    await executor.delete_session("x")
    await executor.run(agent, "hi", session_id="x", user_id="bob")
    with pytest.raises(SessionNotFound):
        await following(executor, seen)


async def test_a_deletion_is_known_by_its_code(stores: Stores, executor: AgentExecutor) -> None:
    await executor.run(agent, "hi", session_id="x", user_id="ann")
    session = await stores.state.load_state("x")
    assert session is not None
    for error, name in ((DELETED_REASON, "gone"), ("the session is being deleted", "fail")):
        await stores.streams.reset_stream("x")
        await stores.streams.fail_stream("x", error)
        feed = await open_feed(executor, session, from_sequence=0, heartbeat_seconds=15)
        last = (await rest_of(aiter(feed.items())))[-1]
        assert isinstance(last, Event)
        assert last.name == name


async def test_a_stream_that_no_process_closes_ends_once(stores: Stores, executor: AgentExecutor) -> None:
    await executor.run(agent, "hi", session_id="x")
    session = await stores.state.load_state("x")
    assert session is not None
    # As a restore does that dies before it closes the stream.
    await stores.streams.reset_stream("x", fence=session.owner_epoch)
    feed = await open_feed(executor, session, from_sequence=0, follow=True, heartbeat_seconds=0.01)
    shown: list[Item] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for item in feed.items():
            shown.append(item)
            if len([each for each in shown if isinstance(each, Heartbeat)]) == 3:
                break
    events = [item.name for item in shown if isinstance(item, Event)]
    assert events == ["open", "end"]
