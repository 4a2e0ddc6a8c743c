"""X1: a page that is reloaded while a step waits ends with exactly the committed state.

`Page` is a client like a browser: it starts from a snapshot, applies the chunks after it, and never reads the store
again.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ...agent import Agent
from ...chunks import Chunk
from ...executor import AgentExecutor
from ...executor.stream.snapshot import SessionView
from ...llm.scripted import Call, Reply, Script, ScriptedLLM
from ...state import apply_patch
from ...tools import ToolContext, tool
from ..expect import expect_same
from ..harness import Harness, StoreSet
from .harness import check, custom_state, executing, transcript

STATE: dict[str, list[str]] = {"notes": []}


class Page:
    """What a client knows: texts and tool results of the conversation, and custom state."""

    def __init__(self, view: SessionView) -> None:
        self.texts = [message["content"] for message in view.messages if message["role"] == "assistant"]
        self.results = {m["tool_call_id"]: m["content"] for m in view.messages if m["role"] == "tool"}
        self.state: Any = view.session.custom_state
        self._committed: Any = self.state
        self._open_text = ""
        self._open_results: dict[str, Any] = {}
        self._loaded_steps = view.session.step_count

    def take(self, chunk: Chunk) -> None:
        """Apply one chunk."""
        match chunk:
            case {"sub_session_id": _}:
                pass
            case {"type": "text_delta", "delta": text}:
                self._open_text += text
            case {"type": "state_patch", "patches": patches}:
                self.state = apply_patch(self.state, patches)
            case {"type": "tool_end", "tool_call_id": call_id}:
                self._open_results[call_id] = chunk["result"] if chunk["success"] else f"Error: {chunk['error']}"
            case {"type": "step_committed", "step_count": number} if number <= self._loaded_steps:
                pass  # the page was loaded between the commit of that step and its announcement
            case {"type": "step_committed"}:
                self.texts.append(self._open_text)
                self.results |= self._open_results
                self._start(self.state)
            case {"type": "stream_rewound" | "stream_resync"}:
                self._start(self._committed)

    def _start(self, state: Any) -> None:
        self.state = self._committed = state
        self._open_text, self._open_results = "", {}


async def _page(executor: AgentExecutor, loaded: asyncio.Event) -> Page:
    """Load a page now and keep it open until the turn ends."""
    async with executor.watch("s") as view:
        page = Page(view)
        loaded.set()
        async for stored in view:
            page.take(stored.chunk)
            if stored.chunk["type"] in ("output", "error") and "sub_session_id" not in stored.chunk:
                return page
    raise AssertionError("the stream ended without an output")


async def _load(executor: AgentExecutor) -> asyncio.Task[Page]:
    loaded = asyncio.Event()
    page = asyncio.create_task(_page(executor, loaded))
    waiting = asyncio.create_task(loaded.wait())
    await asyncio.wait({page, waiting}, return_when=asyncio.FIRST_COMPLETED)
    return page


async def _expect_committed(stores: StoreSet, pages: list[asyncio.Task[Page]]) -> None:
    messages = await transcript(stores, "s")
    texts = [message["content"] for message in messages if message["role"] == "assistant"]
    results = {message["tool_call_id"]: message["content"] for message in messages if message["role"] == "tool"}
    for number, task in enumerate(pages, 1):
        page = await asyncio.wait_for(task, 60)
        expect_same(page.state, await custom_state(stores, "s"), f"custom state on page {number}")
        expect_same(page.texts, texts, f"the texts on page {number}")
        expect_same(page.results, results, f"the tool results on page {number}")


@tool
async def note(text: str, ctx: ToolContext) -> str:
    """Note something."""
    ctx.update_state(lambda draft: draft["notes"].append(text))
    return f"noted {text}"


@tool(execute="client")
def ask() -> str:
    """Ask a person."""
    raise NotImplementedError


@check("X1", "a page reloaded while a question is pending ends with exactly the committed state, texts and results")
async def reloaded_while_asked(harness: Harness) -> None:
    stores, elsewhere = await harness.open_stores(), await harness.open_stores()

    @tool(requires_approval=True)
    async def publish(ctx: ToolContext) -> str:
        """Publish something."""
        ctx.update_state(lambda draft: draft["notes"].append("published"))
        return "published"

    child = Agent("child", tools=[ask])
    agent = Agent("main", tools=[note, publish, ask, child.as_tool()], state=STATE)
    calls = [Call("note", {"text": "fast"}), Call("publish"), Call("ask"), Call("child", {"input": "x"})]
    script: dict[str, Script] = {
        "main": [Reply("First.", [Call("note", {"text": "one"})]), Reply("Now this.", calls), "Bye."],
        "child": [Reply("I ask.", [Call("ask")]), "Asked."],
    }
    pages: list[asyncio.Task[Page]] = []
    async with executing(stores, ScriptedLLM(script)) as executor, executing(elsewhere, ScriptedLLM([])) as tab:
        result = await (await executor.execute(agent, "Go", session_id="s")).result()
        expect_same(len(result.suspended), 3, "the number of questions")
        for wait in result.suspended:
            pages.append(await _load(tab))
            given: dict[str, Any] = {"approved": True} if wait.tool_name == "publish" else {"result": "so"}
            await executor.submit_tool_result("s", wait.tool_call_id, **given)
        pages.append(await _load(tab))
        handle = await executor.resume(agent, "s")
        pages.append(await _load(tab))
        await handle.result()
        await _expect_committed(stores, pages)


@check("X1", "a page reloaded while a question is pending is correct even if the continued run dies in that step")
async def reloaded_before_a_crash(harness: Harness) -> None:
    stores = await harness.open_stores()
    started, dies = asyncio.Event(), [True]

    @tool(requires_approval=True)
    async def publish(ctx: ToolContext) -> str:
        """Publish something, if the process lives."""
        ctx.update_state(lambda draft: draft["notes"].append("published"))
        started.set()
        if dies.pop():
            await asyncio.Event().wait()
        return "published"

    agent = Agent("main", tools=[note, publish], state=STATE)
    script: Script = [Reply("Now this.", [Call("note", {"text": "fast"}), Call("publish")]), "Bye."]
    async with executing(stores, ScriptedLLM(script)) as tab:
        async with executing(stores, ScriptedLLM(script)) as executor:
            result = await (await executor.execute(agent, "Go", session_id="s")).result()
            pages = [await _load(tab)]
            await executor.submit_tool_result("s", result.suspended[0].tool_call_id, approved=True)
            await executor.resume(agent, "s")
            await asyncio.wait_for(started.wait(), 20)
            pages.append(await _load(tab))
        dies.append(False)
        async with executing(stores, ScriptedLLM(script)) as executor:
            pages.append(await _load(tab))
            await (await executor.resume(agent, "s")).result()
            await _expect_committed(stores, pages)


@check("X1", "a page reloaded after a waiting session was aborted has the committed state")
async def reloaded_after_an_abort(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = Agent("main", tools=[note, ask], state=STATE)
    script: Script = [[Call("note", {"text": "fast"}), Call("ask")]]
    async with executing(stores, ScriptedLLM(script)) as executor:
        await (await executor.execute(agent, "Go", session_id="s")).result()
        await executor.abort("s", "no longer needed")
        async with executor.watch("s") as view:
            page = Page(view)
            for stored in await stores.streams.get_all_chunks("s"):
                if stored.sequence > view.sequence:
                    page.take(stored.chunk)
        expect_same(page.state, await custom_state(stores, "s"), "custom state")
