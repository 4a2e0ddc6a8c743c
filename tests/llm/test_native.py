"""Blocks that a provider needs back are sent back unchanged, through every store, and to no other provider."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from helix_agents.agent import Agent
from helix_agents.backends.registry import Stores, open_stores
from helix_agents.executor import AgentExecutor, RetryPolicy
from helix_agents.executor.run.hooks import Hooks
from helix_agents.history import last, summarized
from helix_agents.llm.contract import ModelRequest
from helix_agents.llm.fallback import FallbackLLM
from helix_agents.llm.scripted import ScriptedLLM
from helix_agents.messages import Message
from helix_agents.operations.transfer import export_sessions, import_sessions
from helix_agents.tools import tool
from tests.llm.dialects import (
    ENCRYPTED,
    INTERLEAVED,
    REDACTED,
    SAID,
    SECOND_THOUGHT,
    SIGNATURE_1,
    SIGNATURE_2,
    THOUGHT,
    Switching,
    ask,
    call_item,
    claude,
    claude_at,
    claude_problem,
    gemini,
    gemini_at,
    gemini_problem,
    gpt_at,
    message_item,
    reasoning_item,
    responses,
)
from tests.llm.endpoint import problem, serving

BACKENDS = ["memory:", "sqlite:{folder}/helix.db"]
"""The kit's X7 covers all of them; here the adapters are real."""


@tool
async def weather(city: str, scale: float) -> str:
    """Look out of the window."""
    return f"sunny in {city}"


AGENT = Agent("guide", instructions="Be brief.", tools=[weather])


async def stored(stores: Stores, session_id: str = "s") -> list[Message]:
    return list((await stores.state.get_messages(session_id, limit=None)).items)


@pytest.mark.parametrize("url", BACKENDS)
async def test_claude_over_two_turns(url: str, tmp_path: Path) -> None:
    answers = claude(*INTERLEAVED, stop="tool_use"), claude(SECOND_THOUGHT, SAID), claude(SAID), claude(SAID)
    async with serving(*answers) as endpoint, open_stores(url.format(folder=tmp_path)) as stores:
        result = await AgentExecutor(stores, claude_at(endpoint)).run(AGENT, "Weather?", session_id="s")
        assert (result.status, result.output) == ("completed", "Let me look.")
        assert endpoint.requests[1]["messages"][1] == {"role": "assistant", "content": INTERLEAVED}
        results = endpoint.requests[1]["messages"][2]["content"]
        assert [(block["tool_use_id"], block["content"]) for block in results] == [
            ("toolu_01A", "sunny in Paris"),
            ("toolu_01B", "sunny in Rome"),
        ]
        other = AgentExecutor(stores, claude_at(endpoint))  # another process, the next turn
        await other.run(AGENT, "And tomorrow?", session_id="s")
        assert endpoint.requests[2]["messages"][:3] == endpoint.requests[1]["messages"]
        assert endpoint.requests[2]["messages"][3] == {"role": "assistant", "content": [SECOND_THOUGHT, SAID]}
        checkpoint = (await stores.state.list_checkpoints("s")).items[0]
        await stores.state.fork_session("s", "fork", checkpoint_id=checkpoint.checkpoint_id)
        await other.run(AGENT, "And then?", session_id="fork")
        before = endpoint.requests[2]["messages"]
        assert endpoint.requests[3]["messages"][: len(before)] == before


@pytest.mark.parametrize("url", BACKENDS)
async def test_gpt_over_two_turns(url: str, tmp_path: Path) -> None:
    items = [
        reasoning_item("First.", "Second."),
        call_item("weather", '{"city": "Paris",  "scale": 1.0}'),
        call_item("weather", '{"scale":2,"city":"Rome"}', id="fc_2", call_id="call_def"),
    ]
    final = [reasoning_item("Done.", id="rs_2", encrypted=ENCRYPTED[::-1]), message_item("Sunny.")]
    answers = responses(*items), responses(*final), responses(message_item("Yes."))
    async with serving(*answers) as endpoint, open_stores(url.format(folder=tmp_path)) as stores:
        result = await AgentExecutor(stores, gpt_at(endpoint)).run(AGENT, "Weather?", session_id="s")
        assert (result.status, result.output) == ("completed", "Sunny.")
        await AgentExecutor(stores, gpt_at(endpoint)).run(AGENT, "Sure?", session_id="s")
        assert (await stored(stores))[1]["thinking"] == "First.\n\nSecond."
    sent = endpoint.requests[2]["input"]
    assert sent[1:4] == items  # with their ids, the encrypted content and the spaces in the arguments
    assert [item["call_id"] for item in sent[4:6]] == ["call_abc", "call_def"]
    assert sent[6:8] == final


@pytest.mark.parametrize("url", BACKENDS)
async def test_gemini_over_two_turns(url: str, tmp_path: Path) -> None:
    one, two = base64.b64encode(b"\x00\xffsig+/one").decode(), base64.b64encode(b"sig two").decode()
    calls: list[dict[str, Any]] = [
        {"functionCall": {"name": "weather", "args": {"city": "Paris", "scale": 1}}, "thoughtSignature": one},
        {"functionCall": {"name": "weather", "args": {"city": "Rome", "scale": 1}}},
    ]
    first = gemini([{"text": "Hm", "thought": True}], [{"text": "m.", "thought": True}], calls)
    final = gemini([{"text": "Sun"}], [{"text": "ny."}], [{"text": "", "thoughtSignature": two}])
    answers = first, final, gemini([{"text": "Yes."}])
    async with serving(*answers) as endpoint, open_stores(url.format(folder=tmp_path)) as stores:
        llm = gemini_at(endpoint)
        executor = AgentExecutor(stores, llm)
        result = await executor.run(AGENT, "Weather?", session_id="s")
        assert (result.status, result.output) == ("completed", "Sunny."), result.error
        await executor.run(AGENT, "Sure?", session_id="s")
        await llm.close()
    sent = endpoint.requests[2]["contents"]
    signatures = [base64.urlsafe_b64decode(part.get("thoughtSignature", "")) for part in sent[1]["parts"]]
    assert signatures == [b"", b"\x00\xffsig+/one", b""]
    assert sent[1]["parts"][0] == {"text": "Hmm.", "thought": True}
    assert [part["functionResponse"]["response"] for part in sent[2]["parts"]] == [
        {"output": "sunny in Paris"},
        {"output": "sunny in Rome"},
    ]
    assert base64.urlsafe_b64decode(sent[3]["parts"][1]["thoughtSignature"]) == b"sig two"


async def test_a_changed_message_is_sent_in_its_neutral_form() -> None:
    async with serving(claude(*INTERLEAVED, stop="tool_use"), claude(SAID), claude(SAID)) as endpoint:
        async with open_stores("memory:") as stores:
            await AgentExecutor(stores, claude_at(endpoint)).run(AGENT, "Weather?", session_id="s")
            messages = await stored(stores)
        messages[1] = {**messages[1], "content": "[removed]"}
        await ask(claude_at(endpoint), messages)
    sent = endpoint.requests[2]["messages"][1]["content"]
    assert [block["type"] for block in sent] == ["text", "tool_use", "tool_use"]
    assert SIGNATURE_1 not in str(endpoint.requests[2])


async def test_a_switch_of_provider_inside_a_tool_loop() -> None:
    """Claude starts, GPT continues, Claude ends: each gets only its own blocks."""
    call = call_item("weather", '{"city": "Oslo","scale":2}')
    answers = claude(*INTERLEAVED, stop="tool_use"), responses(reasoning_item("Hm."), call), claude(SAID)
    async with serving(*answers) as endpoint, open_stores("memory:") as stores:
        llm = Switching(claude_at(endpoint), gpt_at(endpoint), claude_at(endpoint))
        result = await AgentExecutor(stores, llm).run(AGENT, "Weather?", session_id="s")
    assert result.status == "completed", result.error
    asked = endpoint.requests[1]
    assert SIGNATURE_1 not in str(asked)
    assert REDACTED not in str(asked)
    kinds = ["user", "assistant", "function_call", "function_call", "function_call_output", "function_call_output"]
    assert [item.get("type", item.get("role")) for item in asked["input"]] == kinds
    back = endpoint.requests[2]["messages"]
    assert back[1] == {"role": "assistant", "content": INTERLEAVED}
    assert ENCRYPTED not in str(back)
    assert [block["type"] for block in back[3]["content"]] == ["tool_use"]


async def test_a_fallback_in_the_middle_stores_only_what_the_second_model_said() -> None:
    broken = claude(THOUGHT, SAID)[:9]
    async with serving(broken, responses(reasoning_item("Hm."), message_item("Hi."))) as endpoint:
        async with open_stores("memory:") as stores:
            llm = FallbackLLM([claude_at(endpoint), gpt_at(endpoint)])
            await AgentExecutor(stores, llm).run(AGENT, "Hi", session_id="s")
            (_, reply) = await stored(stores)
    assert (reply["content"], reply["native"]["dialect"]) == ("Hi.", "openai")


async def test_a_stream_that_broke_leaves_nothing_behind() -> None:
    async with serving(claude(THOUGHT, SAID)[:6], claude(SECOND_THOUGHT, SAID)) as endpoint:
        async with open_stores("memory:") as stores:
            retry = RetryPolicy(first_wait_seconds=0.001)
            await AgentExecutor(stores, claude_at(endpoint), retry=retry).run(AGENT, "Hi", session_id="s")
            reply = (await stored(stores))[-1]
    assert reply["native"]["blocks"] == [SECOND_THOUGHT, SAID]


BOUND = "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation"
REFUSED = claude_problem(400, "invalid_request_error", BOUND)


async def test_rejected_thinking_is_left_out_once_and_for_good() -> None:
    """Newer models bind thinking to everything before it; a history function or new instructions change that."""
    async with serving(claude(THOUGHT, SAID), REFUSED, claude(SECOND_THOUGHT, SAID), claude(SAID)) as endpoint:
        async with open_stores("memory:") as stores:
            executor = AgentExecutor(stores, claude_at(endpoint))
            for text in ("One", "Two", "Three"):
                assert (await executor.run(AGENT, text, session_id="s")).status == "completed"
    signatures = [(SIGNATURE_1 in str(request), SIGNATURE_2 in str(request)) for request in endpoint.requests]
    # In turn three, rejected blocks are not sent again, but later ones are.
    assert signatures == [(False, False), (True, False), (False, False), (False, True)]


async def test_a_healed_session_stays_healed_without_new_thinking() -> None:
    async with serving(claude(THOUGHT, SAID), REFUSED, claude(SAID), claude(SAID)) as endpoint:
        async with open_stores("memory:") as stores:
            executor = AgentExecutor(stores, claude_at(endpoint))
            for text in ("One", "Two", "Three"):
                await executor.run(AGENT, text, session_id="s")
    assert [SIGNATURE_1 in str(request) for request in endpoint.requests] == [False, True, False, False]


async def test_rejected_reasoning_of_gpt_is_left_out() -> None:
    unreadable = problem(400, "The encrypted content gAAA could not be verified.", code="invalid_encrypted_content")
    first = responses(reasoning_item("Hm."), message_item("One."))
    async with serving(first, unreadable, responses(message_item("Two.")), responses(message_item("3."))) as endpoint:
        async with open_stores("memory:") as stores:
            executor = AgentExecutor(stores, gpt_at(endpoint))
            for text in ("One", "Two", "Three"):
                assert (await executor.run(AGENT, text, session_id="s")).status == "completed"
    assert [ENCRYPTED in str(request) for request in endpoint.requests] == [False, True, False, False]


async def test_a_rejected_signature_of_gemini_is_replaced() -> None:
    signature = base64.b64encode(b"sig").decode()
    call = {"functionCall": {"name": "weather", "args": {"city": "Oslo", "scale": 1}}, "thoughtSignature": signature}
    rejected = gemini_problem(400, "Unable to submit request because Thought signature is not valid")
    hello = gemini([{"text": "Sunny."}])
    async with serving(gemini([call]), rejected, hello, hello) as endpoint, open_stores("memory:") as stores:
        llm = gemini_at(endpoint)
        executor = AgentExecutor(stores, llm)
        for text in ("One", "Two"):
            assert (await executor.run(AGENT, text, session_id="s")).status == "completed"
        await llm.close()
    sent = [[p.get("thoughtSignature") for p in request["contents"][1]["parts"]] for request in endpoint.requests[1:]]
    decoded = [base64.urlsafe_b64decode(each or "") for (each,) in sent]
    assert decoded == [b"sig", b"skip_thought_signature_validator", b"skip_thought_signature_validator"]


async def test_a_request_without_reasoning_is_not_repeated() -> None:
    async with serving(REFUSED) as endpoint, open_stores("memory:") as stores:
        result = await AgentExecutor(stores, claude_at(endpoint)).run(AGENT, "Hi", session_id="s")
    assert result.status == "failed"
    assert len(endpoint.requests) == 1


async def test_a_view_that_starts_later_keeps_its_blocks() -> None:
    async with serving(claude(THOUGHT, SAID), claude(SECOND_THOUGHT, SAID), claude(SAID)) as endpoint:
        async with open_stores("memory:") as stores:
            executor = AgentExecutor(stores, claude_at(endpoint))
            for text in ("One", "Two", "Three"):
                await executor.run(Agent("guide", history=last(3)), text, session_id="s")
    turns = endpoint.requests[2]["messages"]
    assert turns[1:] == [
        {"role": "assistant", "content": [SECOND_THOUGHT, SAID]},
        {"role": "user", "content": [{"type": "text", "text": "Three"}]},
    ]


async def test_ids_of_sub_agents_are_ours_in_the_store_and_theirs_on_the_wire() -> None:
    ask_child = {"type": "tool_use", "id": "toolu_P", "name": "child", "input": {"input": "go"}}
    answers = claude(ask_child, stop="tool_use"), claude(*INTERLEAVED, stop="tool_use"), claude(SAID), claude(SAID)
    async with serving(*answers) as endpoint, open_stores("memory:") as stores:
        parent = Agent("parent", tools=[Agent("child", tools=[weather]).as_tool()])
        result = await AgentExecutor(stores, claude_at(endpoint)).run(parent, "Go", session_id="s")
        assert result.status == "completed", result.error
        child = (await stores.state.list_sub_session_refs("s"))[0].sub_session_id
        ids = [call["id"] for call in (await stored(stores, child))[1]["tool_calls"]]
    assert [id.partition("-")[0] for id in ids] == ["toolu_01A", "toolu_01B"]
    assert all("-" in id for id in ids)
    sent = endpoint.requests[2]["messages"]
    assert sent[1]["content"] == INTERLEAVED
    assert [block["tool_use_id"] for block in sent[2]["content"]] == ["toolu_01A", "toolu_01B"]


async def test_an_export_brings_everything_back(tmp_path: Path) -> None:
    async with serving(claude(*INTERLEAVED, stop="tool_use"), claude(SAID), claude(SAID)) as endpoint:
        async with open_stores("memory:") as stores, open_stores(f"sqlite:{tmp_path}/other.db") as others:
            await AgentExecutor(stores, claude_at(endpoint)).run(AGENT, "Weather?", session_id="s")
            written: list[str] = []
            await export_sessions(stores, written.append, session_id="s")
            await import_sessions(others, "\n".join(written).split("\n"))
            await AgentExecutor(others, claude_at(endpoint)).run(AGENT, "Again?", session_id="s")
    assert endpoint.requests[2]["messages"][:3] == endpoint.requests[1]["messages"]


# -- who must not see it


async def test_hooks_do_not_see_it() -> None:
    class Seeing(Hooks):
        def __init__(self) -> None:
            self.messages: list[Any] = []

        async def model_ended(self, info: Any, step: int, message: Message | None, error: str | None) -> None:
            self.messages.append(message)

    seeing = Seeing()
    async with serving(claude(THOUGHT, SAID)) as endpoint, open_stores("memory:") as stores:
        await AgentExecutor(stores, claude_at(endpoint), hooks=[seeing]).run(AGENT, "Hi", session_id="s")
    assert [message["content"] for message in seeing.messages] == ["Let me look."]
    assert SIGNATURE_1 not in str(seeing.messages)


async def test_a_summarizing_model_does_not_get_it() -> None:
    asked: list[ModelRequest] = []
    summarizer = ScriptedLLM(lambda request: asked.append(request) or "Short.")
    agent = Agent("guide", history=summarized(summarizer, keep=1, after=2))
    async with serving(claude(THOUGHT, SAID), claude(SAID)) as endpoint, open_stores("memory:") as stores:
        executor = AgentExecutor(stores, claude_at(endpoint))
        for text in ("One", "Two"):
            await executor.run(agent, text, session_id="s")
    assert len(asked) == 1
    assert SIGNATURE_1 not in str(asked)
    assert "Ask for both" not in str(asked)
