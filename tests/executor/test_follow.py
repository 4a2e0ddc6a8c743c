"""The follower: waiting for a stream, idle streams, ends without a stream, and sessions that are replaced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from helix_agents import AgentExecutor, ScriptedLLM, SessionNotFound, Stores, StreamCursorAhead, open_stores
from helix_agents.executor import Follower, StreamPlace
from helix_agents.streams.contract import StreamOutcome
from helix_agents.types import SessionStatus

HANGS_SECONDS = 30


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    async with open_stores("memory:") as opened:
        await opened.state.create_session("s", agent_type="a")
        yield opened


@pytest.fixture
async def executor(stores: Stores) -> AsyncIterator[AgentExecutor]:
    async with AgentExecutor(stores, ScriptedLLM([])) as made:
        yield made


async def write(stores: Stores, *deltas: str) -> None:
    async with await stores.streams.create_writer("s", "r", "a") as writer:
        for delta in deltas:
            await writer.write({"type": "text_delta", "delta": delta})


async def test_a_silence_returns_nothing_and_the_stream_is_found_later(stores: Stores, executor: AgentExecutor) -> None:
    follower = Follower(executor.services, StreamPlace("s", "s", 0, wait=True), heartbeat_seconds=0.01)
    assert (await follower.read(), follower.outcome) == ([], None)
    await write(stores, "x")
    async with asyncio.timeout(HANGS_SECONDS):
        assert len(await follower.read()) == 1
        assert (await follower.read(), follower.outcome) == ([], None)
        await stores.streams.end_stream("s", "out")
        assert await follower.read() == []
    assert follower.outcome == StreamOutcome("ended", "out")
    await follower.close()


async def test_a_close_ends_the_wait_for_a_stream(executor: AgentExecutor) -> None:
    follower = Follower(executor.services, StreamPlace("s", "s", 0, follow=True))
    reading = asyncio.create_task(follower.read())
    await asyncio.sleep(0)
    await follower.close()
    async with asyncio.timeout(HANGS_SECONDS):
        assert await reading == []


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("completed", StreamOutcome("ended", "out")),
        ("failed", StreamOutcome("failed", error="broken")),
        ("interrupted", StreamOutcome("paused")),
    ],
)
async def test_a_stopped_session_without_a_stream_has_an_outcome(
    stores: Stores, executor: AgentExecutor, status: SessionStatus, outcome: StreamOutcome
) -> None:
    session = await stores.state.load_state("s")
    assert session is not None
    stopped = msgspec.structs.replace(session, status=status, output=outcome.final_output, error=outcome.error)
    await stores.state.save_state("s", stopped, expected_version=session.version)
    follower = Follower(executor.services, StreamPlace("s", "s", 0, wait=True))
    async with asyncio.timeout(HANGS_SECONDS):
        assert await follower.read() == []
    assert follower.outcome == outcome


async def test_a_replaced_session_is_not_followed(stores: Stores, executor: AgentExecutor) -> None:
    session = await stores.state.load_state("s")
    assert session is not None
    await stores.state.delete_session("s")
    await stores.state.create_session("s", agent_type="a")
    await write(stores, "of another session")
    place = StreamPlace("s", "s", 0, follow=True, incarnation=session.incarnation)
    with pytest.raises(SessionNotFound):
        await Follower(executor.services, place).read()


@pytest.mark.parametrize("starts_over", [True, False])
async def test_a_stream_that_starts_again_while_it_is_waited_for(
    stores: Stores, executor: AgentExecutor, starts_over: bool
) -> None:
    place = StreamPlace("s", "s", 7, follow=True, starts_over=starts_over)
    follower = Follower(executor.services, place, heartbeat_seconds=0.01)
    assert await follower.read() == []
    await write(stores, "x")
    if starts_over:
        assert [row.sequence for row in await follower.read()] == [1]
    else:
        with pytest.raises(StreamCursorAhead):
            await follower.read()
    await follower.close()
