"""The stream of a run: the order of writes, how long chunks are buffered, and which fence applies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from helix_agents import Agent, AgentExecutor, ScriptedLLM, ToolContext, open_stores, tool
from helix_agents.backends.registry import Stores
from helix_agents.chunks import Chunk
from helix_agents.errors import NotSerializable, StoreUnavailable, StreamError, StreamFenced
from helix_agents.executor.stream import fenced
from helix_agents.executor.stream.fenced import FencedStream
from helix_agents.llm import Call
from helix_agents.state import StepWrites
from helix_agents.streams.contract import StreamWriter
from helix_agents.streams.queued import QueuedWriter
from helix_agents.streams.writer import MAX_BUFFERED_CHUNKS
from helix_agents.types import StagedChanges

HANGS_SECONDS = 30


@pytest.fixture(autouse=True)
def endless_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fenced, "LINGER_SECONDS", 3600)


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    async with open_stores("memory:") as opened:
        yield opened


async def allowed() -> None:
    """The session still belongs to the run."""


async def opened(
    stores: Stores,
    ensure_owner: Callable[[], Awaitable[None]] = allowed,
    *,
    writer: StreamWriter | None = None,
    carries: bool = False,
) -> tuple[FencedStream, StreamWriter]:
    writer = writer or await stores.streams.create_writer("s", "r", "main", fence=1)
    stream = FencedStream(
        stores.streams,
        writer,
        stream_id="s",
        fence=1,
        session_id="s",
        run_id="r",
        agent_type="main",
        step=1,
        ensure_owner=ensure_owner,
        carries=carries,
    )
    return stream, writer


async def stored(stores: Stores) -> list[str]:
    return [each.chunk["type"] for each in await stores.streams.get_all_chunks("s")]


async def test_the_first_chunk_finds_room(stores: Stores) -> None:
    stream, _ = await opened(stores)
    async with asyncio.timeout(HANGS_SECONDS):
        await stream.write({"type": "text_delta", "delta": "x"})
        await stream.close()
    assert await stored(stores) == ["text_delta"]


async def test_a_flush_does_not_wait_for_company(stores: Stores) -> None:
    stream, _ = await opened(stores)
    async with asyncio.timeout(HANGS_SECONDS):
        for count in (1, 2):
            stream.emit({"type": "state_patch", "patches": []})
            assert await stream.flush() == count
        await stream.close()


async def test_closing_writes_what_lingers_and_closes_the_writer(stores: Stores) -> None:
    stream, writer = await opened(stores)
    stream.emit({"type": "text_delta", "delta": "x"})
    async with asyncio.timeout(HANGS_SECONDS):
        await stream.flush()
        stream.emit({"type": "state_patch", "patches": []})
        await stream.close()
    assert await stored(stores) == ["text_delta", "state_patch"]
    with pytest.raises(StreamError, match="closed"):
        await writer.write({"type": "text_delta", "delta": "late"})


async def test_closing_with_discard_writes_nothing_more(stores: Stores) -> None:
    forever = asyncio.Event()

    async def wait() -> None:
        await forever.wait()

    stream, writer = await opened(stores, wait)
    stream.emit({"type": "text_delta", "delta": "x"})
    async with asyncio.timeout(HANGS_SECONDS):
        await stream.close(discard=True)
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
        for _ in range(MAX_BUFFERED_CHUNKS):
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

    stream, _ = await opened(stores, wait)
    for _ in range(MAX_BUFFERED_CHUNKS):
        stream.emit({"type": "state_patch", "patches": []})
    writing = asyncio.create_task(stream.write({"type": "text_delta", "delta": "x"}))
    async with asyncio.timeout(HANGS_SECONDS):
        await blocked.wait()
        assert not writing.done()
        let.set()
        await writing
        await stream.close()
    assert len(await stored(stores)) == MAX_BUFFERED_CHUNKS + 1


async def test_a_failure_is_told_to_who_waits_and_nothing_follows_it(stores: Stores) -> None:
    blocked, let = asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        blocked.set()
        await let.wait()
        raise StreamError("s", "away")

    stream, writer = await opened(stores, fail)
    for _ in range(MAX_BUFFERED_CHUNKS):
        stream.emit({"type": "state_patch", "patches": []})
    writing = asyncio.create_task(stream.write({"type": "text_delta", "delta": "x"}))
    flushing = asyncio.create_task(stream.flush())
    async with asyncio.timeout(HANGS_SECONDS):
        await blocked.wait()
        let.set()
        for task in (writing, flushing):
            with pytest.raises(StreamError, match="away"):
                await task
        stream.emit({"type": "text_delta", "delta": "late"})
        with pytest.raises(StreamError, match="away"):
            await stream.flush()
        await stream.close()
    await writer.close()
    assert await stored(stores) == []


async def test_a_newer_owner_shuts_every_write_out(stores: Stores) -> None:
    stream, _ = await opened(stores)
    await stream.write({"type": "text_delta", "delta": "x"})
    await stream.flush()
    await (await stores.streams.create_writer("s", "other", "main", fence=2)).close()
    for write in (stream.end(None), stream.fail("no"), stream.pause(), stream.rewind(0)):
        with pytest.raises(StreamFenced):
            await write
    stream.emit({"type": "text_delta", "delta": "late"})
    with pytest.raises(StreamFenced):
        await stream.flush()
    await stream.close()
    info = await stores.streams.get_stream_info("s")
    assert info is not None
    assert (info.status, info.latest_sequence) == ("active", 1)


class ForeignWriter(StreamWriter):
    """A writer with nothing but the contract, whose second write gets no reply."""

    def __init__(self, inner: StreamWriter) -> None:
        self.inner = inner
        self.writes = 0

    async def write(self, chunk: Chunk) -> None:
        self.writes += 1
        if self.writes == 2:
            raise StoreUnavailable("away")
        await self.inner.write(chunk)

    async def flush(self) -> int:
        return await self.inner.flush()

    async def close(self) -> None:
        await self.inner.close()


async def test_a_foreign_writer_gets_each_chunk_once_and_is_closed(stores: Stores) -> None:
    writer = ForeignWriter(await stores.streams.create_writer("s", "r", "main", fence=1))
    stream, _ = await opened(stores, writer=writer)
    for delta in ("a", "b", "c"):
        stream.emit({"type": "text_delta", "delta": delta})
    async with asyncio.timeout(HANGS_SECONDS):
        with pytest.raises(StoreUnavailable):
            await stream.flush()
        await stream.settle()
    assert [each.chunk["delta"] for each in await stores.streams.get_all_chunks("s")] == ["a", "b", "c"]
    queue = QueuedWriter(writer, stream_id="s", run_id="r", agent_type="main")
    await queue.close()
    with pytest.raises(StreamError, match="closed"):
        await writer.write({"type": "text_delta", "delta": "late"})


async def test_a_carrying_write_without_a_reply_is_not_repeated_with_later_chunks(stores: Stores) -> None:
    await stores.state.create_session("s", agent_type="main")
    stream, _ = await opened(stores, carries=True)
    stream.emit({"type": "state_patch", "patches": []})

    async def write() -> None:
        async with stream.carrying({"type": "custom", "name": "n", "data": 1}) as load:
            await stores.state.stage_calls("s", "step", [StagedChanges("call", 0, StepWrites())], along=load.along)
            raise StoreUnavailable("the reply was lost")

    with pytest.raises(StoreUnavailable):
        await write()
    stream.emit({"type": "text_delta", "delta": "x"})
    async with asyncio.timeout(HANGS_SECONDS):
        await stream.flush()
    assert await stored(stores) == ["state_patch", "custom", "text_delta"]


async def test_a_chunk_that_cannot_be_carried_leaves_the_stream_usable(stores: Stores) -> None:
    stream, _ = await opened(stores, carries=True)
    stream.emit({"type": "state_patch", "patches": []})
    with pytest.raises(NotSerializable):
        async with stream.carrying({"type": "custom", "name": "n", "data": object()}):
            pytest.fail("nothing may be written")
    async with asyncio.timeout(HANGS_SECONDS):
        await stream.flush()
    assert await stored(stores) == ["state_patch"]
