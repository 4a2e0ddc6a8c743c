"""X7: blocks that a provider needs back are stored unchanged with the reply and sent again with the conversation."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ...errors import ModelError
from ...llm.contract import ModelEvent, ModelRequest, NativeContent, TextDelta
from ...llm.fallback import FallbackLLM
from ...llm.native import blocks_of
from ...llm.scripted import Call, Reply, Script, ScriptedLLM
from ...messages import Message
from ...tools.tool import tool
from ..expect import expect, expect_same
from ..harness import Harness
from .cast import NATIVE
from .harness import check, executing, simple_agent, transcript

SCRIPT: Script = [Reply("I look.", [Call("look")], native=NATIVE), Reply("Seen.", native=NATIVE[:1]), "Yes.", "No."]


@tool
async def look() -> str:
    """Look."""
    return "a tree"


def blocks(message: Message) -> object:
    """Return the blocks that are sent back to the scripted provider."""
    return blocks_of(message, "scripted", "scripted")


@check("X7", "a provider's blocks are unchanged in the next step, another process, a restore and a fork")
async def native_content_survives(harness: Harness) -> None:
    agent = simple_agent(look)
    llm = ScriptedLLM(SCRIPT)
    stores = await harness.open_stores()
    async with executing(stores, llm) as executor:
        await executor.run(agent, "Go", session_id="s")
    expect_same(blocks(llm.requests[1].messages[1]), NATIVE, "what the second step sent to the model")
    expect(blocks({**llm.requests[1].messages[1], "content": "changed"}) is None, "a changed message kept its blocks")
    stores = await harness.open_stores()
    async with executing(stores, llm) as executor:
        await executor.run(agent, "Sure?", session_id="s")
        expect_same([blocks(m) for m in llm.requests[2].messages[1:4:2]], [NATIVE, NATIVE[:1]], "the next turn")
        second = [c for c in (await stores.state.list_checkpoints("s")).items if c.step_count == 2][-1]
        await stores.state.fork_session("s", "fork", checkpoint_id=second.checkpoint_id)
        await stores.state.restore_checkpoint("s", second.checkpoint_id)
        for session_id in ("s", "fork"):
            await executor.run(agent, "And?", session_id=session_id)
            expect_same([blocks(m) for m in llm.requests[-1].messages[1:4:2]], [NATIVE, NATIVE[:1]], session_id)


@check("X7", "a provider's blocks survive an edit, a regeneration and a branch switch, also in a sub-agent")
async def native_content_on_branches(harness: Harness) -> None:
    stores, child = await harness.open_stores(), simple_agent(look)
    child.name = "child"
    agent = simple_agent(child.as_tool())
    asks = [Reply("I ask.", [Call("child", {"input": "look"})], native=NATIVE), Reply("Seen.", native=NATIVE[:1])]
    llm = ScriptedLLM({"child": SCRIPT, "main": [*asks, "Yes.", "No."]})
    async with executing(stores, llm, agents=[agent]) as executor:
        await executor.run(agent, "Go", session_id="s")
        below = [request for request in llm.requests if request.agent_type == "child"]
        expect_same(blocks(below[1].messages[1]), NATIVE, "what the sub-agent's second step sent to the model")
        await executor.run(agent, "Sure?", session_id="s")
        asked = (await stores.state.get_messages("s", limit=None)).items[4]
        await (await executor.regenerate("s")).result()
        await (await executor.edit("s", asked["id"], "Really?")).result()
        other = next(branch for branch in await stores.state.list_branches("s") if not branch.is_active)
        await executor.switch_branch("s", other.branch_id)
        await executor.run(agent, "And?", session_id="s")
    again = [request for request in llm.requests if request.agent_type == "main"][2:]
    expect(len(again) == 4, f"{len(again)} requests instead of four")
    for request in again:
        told = [blocks(message) for message in request.messages[1:4:2]]
        expect_same(told, [NATIVE, NATIVE[:1]], f"what {request.messages[-1]['content']!r} was asked with")


class _Failing:
    """A model that sends a whole reply and then fails."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the reply and raise."""
        yield TextDelta("Half")
        yield NativeContent({"dialect": "scripted", "issuer": "scripted", "model": "m", "blocks": NATIVE})
        raise ModelError("lost")


@check("X7", "a discarded reply leaves none of its blocks in the reply that replaces it")
async def native_content_is_taken_back(harness: Harness) -> None:
    stores = await harness.open_stores()
    async with executing(stores, FallbackLLM([_Failing(), ScriptedLLM(["Whole."])])) as executor:
        await executor.run(simple_agent(), "Go", session_id="s")
    whole = [{"role": "user", "content": "Go"}, {"role": "assistant", "content": "Whole."}]
    expect_same(await transcript(stores, "s"), whole, "the conversation")
