"""ScriptedLLM replies from the request alone."""

from __future__ import annotations

import pytest

from helix_agents.errors import ModelError
from helix_agents.llm import Call, ModelRequest, Reply, ScriptedLLM, TextDelta, ToolCallDelta
from helix_agents.messages import Message


def ask(*history: Message, agent: str = "main") -> ModelRequest:
    return ModelRequest(messages=[{"role": "user", "content": "Hi"}, *history], agent_type=agent)


async def text_of(llm: ScriptedLLM, request: ModelRequest) -> str:
    return "".join([event.text async for event in llm.stream(request) if isinstance(event, TextDelta)])


async def test_the_reply_follows_from_the_conversation_not_from_memory() -> None:
    llm = ScriptedLLM(["One.", "Two."])
    said: Message = {"role": "assistant", "content": "One."}
    assert await text_of(llm, ask(said)) == "Two."
    assert await text_of(llm, ask()) == "One."


async def test_a_reply_that_was_cut_off_is_given_again() -> None:
    llm = ScriptedLLM(["One.", "Two."])
    assert await text_of(llm, ask({"role": "assistant", "content": "On", "interrupted": True})) == "One."


async def test_agents_have_parts_of_their_own() -> None:
    llm = ScriptedLLM({"main": ["Mine."], "other": ["Theirs."]})
    assert await text_of(llm, ask(agent="other")) == "Theirs."
    with pytest.raises(ModelError, match="no part for agent 'third'"):
        await text_of(llm, ask(agent="third"))


async def test_a_script_that_is_over_says_so() -> None:
    with pytest.raises(ModelError, match="ends after 0 replies"):
        await text_of(ScriptedLLM([]), ask())


async def test_a_script_may_be_a_function_of_the_request() -> None:
    llm = ScriptedLLM(lambda request: Reply(f"{len(request.messages)} so far", [Call("look", {"n": 1})]))
    events = [event async for event in llm.stream(ask())]
    assert TextDelta("1 so far") in events
    assert [event.name for event in events if isinstance(event, ToolCallDelta) and event.name] == ["look"]
