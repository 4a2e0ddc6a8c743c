"""Images and files in tool results and histories."""

from __future__ import annotations

from typing import Any

from helix_agents.agent import Agent
from helix_agents.backends.registry import open_stores
from helix_agents.executor import AgentExecutor
from helix_agents.history import HistoryContext, summarized, within_tokens
from helix_agents.llm.contract import ModelRequest
from helix_agents.llm.scripted import Call, ScriptedLLM
from helix_agents.messages import Message
from helix_agents.tools import Image, tool

PNG = b"\x89PNG" + bytes(30_000)


@tool
async def chart(title: str) -> list[Any]:
    """Draw a chart."""
    return [f"The chart of {title}:", Image(PNG, name="chart.png")]


@tool(requires_approval=True)
def photo(subject: str) -> Image:
    """Take a photo."""
    return Image(PNG, name=f"{subject}.png")


@tool(execute="client")
def screenshot() -> str:
    """Ask the browser for a screenshot."""
    raise NotImplementedError


AGENT = Agent("artist", tools=[chart, photo, screenshot])


async def results_of(script: Any, *answers: dict[str, Any]) -> list[Message]:
    async with open_stores("memory:") as stores:
        executor = AgentExecutor(stores, ScriptedLLM(script), agents=[AGENT])
        result = await executor.run(AGENT, "Draw", session_id="s")
        for wait, answer in zip(result.suspended, answers, strict=True):
            await executor.submit_tool_result("s", wait.tool_call_id, **answer)
        if answers:
            await (await executor.resume(AGENT, "s")).result()
        messages = (await stores.state.get_messages("s", limit=None)).items
    return [message for message in messages if message["role"] == "tool"]


async def test_a_tool_returns_text_and_an_image() -> None:
    (result,) = await results_of([[Call("chart", {"title": "ants"})], "Done."])
    text, image = result["content"]
    assert text == {"type": "text", "text": "The chart of ants:"}
    assert (image["type"], image["media_type"], image["name"]) == ("image", "image/png", "chart.png")
    assert image["blob"].startswith("sha256:")  # too large to be kept in the message


async def test_the_model_gets_the_bytes() -> None:
    llm = ScriptedLLM([[Call("chart", {"title": "ants"})], "Done."])
    async with open_stores("memory:") as stores:
        await AgentExecutor(stores, llm).run(AGENT, "Draw", session_id="s")
    assert llm.requests[1].messages[-1]["content"][1] == Image(PNG, name="chart.png")


async def test_arguments_that_a_person_changed_are_said_before_the_image() -> None:
    script = [[Call("photo", {"subject": "a cat"})], "Done."]
    (result,) = await results_of(script, {"approved": True, "arguments": {"subject": "dog"}})
    note, image = result["content"]
    assert note["text"].endswith('{"subject":"dog"}')
    assert image["name"] == "dog.png"


async def test_a_client_returns_an_image() -> None:
    picture = {"type": "image", "media_type": "image/png", "data": "AAAA"}
    (result,) = await results_of([[Call("screenshot")], "Done."], {"result": picture})
    assert result["content"] == [picture]


def context() -> HistoryContext:
    async def keep(summary: object) -> None: ...

    return HistoryContext("s", "r", "artist", 1, {}, None, keep)


PICTURE: Message = {"role": "user", "content": [{"type": "text", "text": "Look:"}, Image(PNG, name="a.png")]}


def test_data_and_native_blocks_do_not_count_as_text() -> None:
    reply: Message = {"role": "assistant", "content": "Nice.", "native": {"blocks": [{"signature": "x" * 9_000}]}}
    messages = [PICTURE, reply, {"role": "user", "content": "And?"}]
    assert within_tokens(1_600)(messages, context()) == messages
    assert within_tokens(1_000)(messages, context()) == messages[1:]


async def test_a_summary_is_asked_for_without_the_data() -> None:
    asked: list[ModelRequest] = []
    summarizer = ScriptedLLM(lambda request: asked.append(request) or "Short.")
    messages = [PICTURE, {"role": "assistant", "content": "Nice."}, {"role": "user", "content": "And?"}]
    chosen: Any = summarized(summarizer, keep=1, after=2)(messages, context())
    await chosen
    assert asked[0].messages[0]["content"] == "user: Look:\n[image 'a.png' (image/png)]\nassistant: Nice."
