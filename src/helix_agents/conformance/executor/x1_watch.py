"""X1: a watcher of a session gets a snapshot and everything after it, once, across turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from ...errors import ModelError, SessionNotFound
from ...executor import AgentExecutor
from ...llm.scripted import Call, Reply, Script, ScriptedLLM
from ...streams.contract import StoredChunk
from ...tools.tool import tool
from ..expect import expect, expect_same, raises
from ..harness import Harness
from .harness import check, executing, simple_agent, transcript

SCRIPT: Script = [Reply(text=f"Step {number}. ", calls=[Call("work")]) for number in range(4)] + ["The end of it."]


def _texts(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "assistant"]


async def _until(chunks: AsyncIterator[StoredChunk], *kinds: str) -> list[StoredChunk]:
    found: list[StoredChunk] = []
    async for stored in chunks:
        found.append(stored)
        if stored.chunk["type"] in kinds:
            break
    return found


async def _watch_a_turn(executor: AgentExecutor, entered: asyncio.Event | None = None) -> list[str]:
    """Return the model's text at the end of the turn, as a watcher that attaches now sees it."""
    async with executor.watch("s") as view:
        if entered is not None:
            entered.set()
        said, step, last = _texts(view.messages), view.session.step_count, view.sequence
        later: dict[int, str] = {}
        if view.session.status == "completed":
            return said
        for stored in await _until(aiter(view), "output"):
            expect_same(stored.sequence, last + 1, "the next sequence")
            last = stored.sequence
            if stored.chunk["type"] == "text_delta":
                expect(stored.chunk["step"] > step, "a chunk repeats what the snapshot has")
                later[stored.chunk["step"]] = later.get(stored.chunk["step"], "") + stored.chunk["delta"]
        return said + [later[number] for number in sorted(later)]


@check(
    "X1",
    "a reader that attaches in the middle of a run gets all of it: a snapshot, then what follows",
    kind="tasks",
)
async def watching_from_anywhere(harness: Harness) -> None:
    stores, elsewhere = await harness.open_stores(), await harness.open_stores()

    @tool
    async def work() -> str:
        """Work."""
        await asyncio.sleep(0)
        return "worked"

    agent = simple_agent(work)
    watchers: list[asyncio.Task[list[str]]] = []
    async with (
        executing(stores, ScriptedLLM(SCRIPT, piece=2)) as executor,
        executing(elsewhere, ScriptedLLM([])) as tab,
    ):
        handle = await executor.execute(agent, "Go", session_id="s")
        async for _ in handle.stream():
            watchers.append(asyncio.create_task(_watch_a_turn(tab)))
        await handle.result()
        seen = await asyncio.gather(*watchers)
    wanted = _texts(await transcript(stores, "s"))
    expect(len(seen) > 10, "too few watchers")
    for said in seen:
        expect_same(said, wanted, "what a watcher has")


@check("X1", "a watcher sees the next turn, wherever it runs, also after a turn that failed or was suspended")
async def watching_over_turns(harness: Harness) -> None:
    stores, elsewhere = await harness.open_stores(), await harness.open_stores()
    script: Script = ["One.", ModelError("broken"), "Two.", [Call("ask")], "Three."]

    @tool(execute="client")
    def ask() -> str:
        """Ask a person."""
        raise NotImplementedError

    agent = simple_agent(ask)
    async with executing(stores, _InOrder(script)) as executor, executing(elsewhere, _InOrder([])) as tab:
        await (await executor.execute(agent, "Go", session_id="s")).result()
        async with tab.watch("s") as view:
            expect_same(_texts(view.messages), ["One."], "the snapshot")
            chunks = aiter(view)
            for end in ("error", "output", "run_suspended"):
                reading = asyncio.create_task(_until(chunks, end))
                await (await executor.execute(agent, "On", session_id="s")).result()
                found = await asyncio.wait_for(reading, 60)
                expect("run_started" in [stored.chunk["type"] for stored in found], f"no start before {end}")
            await executor.submit_tool_result("s", "call_3_1", result="so")
            await (await executor.resume(agent, "s")).result()
            found = await asyncio.wait_for(_until(chunks, "output"), 60)
            expect("run_resumed" in [stored.chunk["type"] for stored in found], "the resumed run is not seen")
            await executor.delete_session("s")
            await asyncio.wait_for(_until(chunks, "never"), 60)
    with raises(SessionNotFound, "watching a session that does not exist"):
        async with executor.watch("s"):
            pass


@check("X1", "a handle follows a session across turns, and a reader may attach before the first chunk")
async def following_a_handle(harness: Harness) -> None:
    stores, elsewhere = await harness.open_stores(), await harness.open_stores()
    agent = simple_agent()
    await stores.state.create_session("s", agent_type="main")
    async with executing(stores, _InOrder(["One.", "Two."])) as executor, executing(elsewhere, _InOrder([])) as tab:
        handle = await tab.get_handle(agent, "s")
        assert handle is not None
        expect_same([chunk async for chunk in handle.stream()], [], "what a reader that does not wait gets")
        early = asyncio.create_task(_types(handle.stream(wait=True)))
        following = handle.stored_chunks(follow=True)
        both = asyncio.create_task(_until(following, "output"))
        await (await executor.execute(agent, "Go", session_id="s")).result()
        expect_same((await asyncio.wait_for(early, 60))[-1], "output", "the last chunk of a reader that waited")
        await asyncio.wait_for(both, 60)
        both = asyncio.create_task(_until(following, "output"))
        await (await executor.execute(agent, "On", session_id="s")).result()
        found = await asyncio.wait_for(both, 60)
        await following.aclose()
        texts = "".join(stored.chunk["delta"] for stored in found if stored.chunk["type"] == "text_delta")
        expect_same(texts, "Two.", "the second turn")


async def _types(chunks: AsyncIterator[dict[str, Any]]) -> list[str]:
    return [chunk["type"] async for chunk in chunks]


class _InOrder(ScriptedLLM):
    """A model that replies with the next line at each call, whatever the conversation."""

    def __init__(self, lines: Any) -> None:
        said = iter(lines)
        super().__init__(lambda request: next(said))
