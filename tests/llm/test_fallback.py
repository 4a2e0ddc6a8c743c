"""FallbackLLM: a reply is complete and from one model, whatever the others started."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents import Agent, AgentExecutor, FallbackLLM, InvalidArgument, ScriptedLLM, open_stores
from helix_agents.errors import ModelError
from helix_agents.executor import AgentResult, RetryPolicy
from helix_agents.llm import Call, Reply
from helix_agents.messages import without_id

BUSY = ModelError("busy", retryable=True)


async def run(llm: FallbackLLM) -> tuple[AgentResult, list[dict[str, Any]], list[dict[str, Any]]]:
    async with open_stores("memory:") as stores:
        retry = RetryPolicy(max_attempts=2, first_wait_seconds=0.001)
        async with AgentExecutor(stores.state, stores.streams, llm, retry=retry) as executor:
            result = await (await executor.execute(Agent("main"), "Go", session_id="s")).result()
        chunks = [stored.chunk for stored in await stores.streams.get_all_chunks("s")]
        return result, list((await stores.state.get_messages("s")).items), chunks


async def test_nothing_of_a_failed_models_half_answer_stays() -> None:
    broken = Reply("I think th", [Call("search", {"q": "x"})], thinking="Hm", fail_with=BUSY)
    result, messages, chunks = await run(FallbackLLM([ScriptedLLM([broken]), ScriptedLLM(["Whole."])]))
    assert result.output == "Whole."
    assert without_id(messages[-1]) == {"role": "assistant", "content": "Whole."}
    kept = [chunk for chunk in chunks if chunk["type"] in ("text_delta", "thinking", "tool_arg_delta")]
    assert [chunk["delta"] for chunk in kept] == ["Whole."]


async def test_an_adapter_that_breaks_is_a_model_that_failed() -> None:
    class Broken:
        def stream(self, request: Any) -> Any:
            raise KeyError("oops")

    result, _, _ = await run(FallbackLLM([Broken(), ScriptedLLM(["Fine."])]))
    assert result.output == "Fine."


async def test_when_all_fail_the_error_names_every_reason() -> None:
    llm = FallbackLLM([ScriptedLLM([BUSY]), ScriptedLLM([ModelError("no such model")])])
    result, _, _ = await run(llm)
    assert result.status == "failed"
    assert "All 2 models failed: busy; no such model" in (result.error or "")


@pytest.mark.parametrize("models", [[], "gpt", [print]])
def test_what_cannot_be_asked_is_refused_at_once(models: Any) -> None:
    with pytest.raises(InvalidArgument):
        FallbackLLM(models)
