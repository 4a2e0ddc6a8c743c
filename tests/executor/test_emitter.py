"""The emitter: who waits for whom on the way from a run to its stream, however long news may linger."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from helix_agents import Agent, AgentExecutor, ScriptedLLM, ToolContext, open_stores, tool
from helix_agents.backends.registry import Stores
from helix_agents.errors import StreamError
from helix_agents.executor.stream import emitter as emitting
from helix_agents.executor.stream.emitter import QUEUE_LIMIT, Emitter
from helix_agents.llm import Call
from helix_agents.streams.contract import StreamWriter

HANGS_SECONDS = 30


@pytest.fixture(autouse=True)
def endless_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emitting, "LINGER_SECONDS", 3600)


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    async with open_stores("memory:") as opened:
        yield opened


async def allowed() -> None:
    """Nobody has taken the session."""


async def opened(stores: Stores, ensure_owner: Callable[[], Awaitable[None]] = allowed) -> tuple[Emitter, StreamWriter]:
    writer = await stores.streams.create_writer("s", "r", "main")
    return Emitter(writer, session_id="s", run_id="r", agent_type="main", step=1, ensure_owner=ensure_owner), writer


async def stored(stores: Stores) -> list[str]:
    return [each.chunk["type"] for each in await stores.streams.get_all_chunks("s")]


async def test_the_first_chunk_finds_room(stores: Stores) -> None:
    emitter, _ = await opened(stores)
    async with asyncio.timeout(HANGS_SECONDS):
        await emitter.write({"type": "text_delta", "delta": "x"})
        await emitter.close()
    assert await stored(stores) == ["text_delta"]


async def test_a_flush_does_not_wait_for_company(stores: Stores) -> None:
    emitter, _ = await opened(stores)
    async with asyncio.timeout(HANGS_SECONDS):
        for count in (1, 2):
            emitter.emit({"type": "state_patch", "patches": []})
            assert await emitter.flush() == count
        await emitter.close()


async def test_closing_writes_what_lingers_and_closes_the_writer(stores: Stores) -> None:
    emitter, writer = await opened(stores)
    emitter.emit({"type": "text_delta", "delta": "x"})
    async with asyncio.timeout(HANGS_SECONDS):
        await emitter.flush()
        emitter.emit({"type": "state_patch", "patches": []})
        await emitter.close()
    assert await stored(stores) == ["text_delta", "state_patch"]
    with pytest.raises(StreamError, match="closed"):
        await writer.write({"type": "text_delta", "delta": "late"})


async def test_closing_with_discard_writes_nothing_more(stores: Stores) -> None:
    forever = asyncio.Event()

    async def wait() -> None:
        await forever.wait()

    emitter, writer = await opened(stores, wait)
    emitter.emit({"type": "text_delta", "delta": "x"})
    async with asyncio.timeout(HANGS_SECONDS):
        await emitter.close(discard=True)
    await writer.close()
    assert await stored(stores) == []


async def test_tokens_do_not_wait_for_company(stores: Stores) -> None:
    shown = asyncio.Event()

    @tool
    async def wait_for_the_reader(ctx: ToolContext) -> str:
        """Emit something, and wait until it was read."""
        ctx.emit("look")
        await shown.wait()
        return "seen"

    agent = Agent("main", tools=[wait_for_the_reader])
    async with AgentExecutor(stores, ScriptedLLM([[Call("wait_for_the_reader")], "Done."])) as executor:
        async with asyncio.timeout(HANGS_SECONDS):
            handle = await executor.execute(agent, "Go", session_id="s")
            async for chunk in handle.stream():
                if chunk["type"] == "custom":
                    shown.set()
            assert (await handle.result()).output == "Done."


async def test_a_long_queue_is_written_without_waiting_for_company(stores: Stores) -> None:
    shown = asyncio.Event()

    @tool
    async def change_much(ctx: ToolContext) -> str:
        """Change the state very often, and wait until a reader sees that."""
        for _ in range(QUEUE_LIMIT):
            ctx.update_state(lambda draft: draft.increment("n"))
        await shown.wait()
        return "seen"

    agent = Agent("main", tools=[change_much], state={"n": 0})
    async with AgentExecutor(stores, ScriptedLLM([[Call("change_much")], "Done."])) as executor:
        async with asyncio.timeout(HANGS_SECONDS):
            handle = await executor.execute(agent, "Go", session_id="s")
            async for chunk in handle.stream():
                if chunk["type"] == "state_patch":
                    shown.set()
            assert (await handle.result()).output == "Done."


async def test_who_writes_while_the_queue_is_long_waits_for_room(stores: Stores) -> None:
    blocked, let = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        blocked.set()
        await let.wait()

    emitter, _ = await opened(stores, wait)
    for _ in range(QUEUE_LIMIT):
        emitter.emit({"type": "state_patch", "patches": []})
    writing = asyncio.create_task(emitter.write({"type": "text_delta", "delta": "x"}))
    async with asyncio.timeout(HANGS_SECONDS):
        await blocked.wait()
        assert not writing.done()
        let.set()
        await writing
        await emitter.close()
    assert len(await stored(stores)) == QUEUE_LIMIT + 1


async def test_a_failure_is_told_to_who_waits_and_nothing_follows_it(stores: Stores) -> None:
    blocked, let = asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        blocked.set()
        await let.wait()
        raise StreamError("s", "away")

    emitter, writer = await opened(stores, fail)
    for _ in range(QUEUE_LIMIT):
        emitter.emit({"type": "state_patch", "patches": []})
    writing = asyncio.create_task(emitter.write({"type": "text_delta", "delta": "x"}))
    flushing = asyncio.create_task(emitter.flush())
    async with asyncio.timeout(HANGS_SECONDS):
        await blocked.wait()
        let.set()
        for task in (writing, flushing):
            with pytest.raises(StreamError, match="away"):
                await task
        emitter.emit({"type": "text_delta", "delta": "late"})
        with pytest.raises(StreamError, match="away"):
            await emitter.flush()
        await emitter.close()
    await writer.close()
    assert await stored(stores) == []
