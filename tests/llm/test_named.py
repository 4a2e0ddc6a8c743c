"""Models by name."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from helix_agents import AgentExecutor, AnthropicLLM, GeminiLLM, OpenAILLM, OpenAIResponsesLLM, open_model, open_stores
from helix_agents.agent import Agent
from helix_agents.errors import InvalidArgument, ModelError
from helix_agents.history import summarized
from helix_agents.llm.contract import LLM, ModelEvent, ModelRequest, TextDelta
from helix_agents.llm.fallback import FallbackLLM
from helix_agents.llm.named import NamedLLM
from tests.llm.dialects import ASK, SAID, claude
from tests.llm.endpoint import delta, serving

HELLO = [delta(content="Hello."), delta("stop")]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "from-the-environment")


async def close(*models: LLM) -> None:
    for model in models:
        await model.close()  # type: ignore[attr-defined]


async def test_a_name_chooses_the_adapter_and_its_options() -> None:
    chat = open_model("openai-chat:qwen3?base_url=http://localhost:1/v1&temperature=0.5&stop=[1]&user=ann")
    assert isinstance(chat, OpenAILLM)
    assert (chat.model, chat.options) == ("qwen3", {"temperature": 0.5, "stop": [1], "user": "ann"})
    assert chat.issuer == "openai@localhost:1/v1"
    claude = open_model("anthropic:claude-x?max_tokens=99", thinking={"type": "adaptive"})
    assert isinstance(claude, AnthropicLLM)
    assert (claude.options["max_tokens"], claude.options["thinking"]) == (99, {"type": "adaptive"})
    assert (claude.issuer, claude.provider) == ("anthropic", "anthropic")
    gpt, gemini = open_model("openai:gpt-x"), open_model("google:gemini-x")
    assert isinstance(gpt, OpenAIResponsesLLM)
    assert isinstance(gemini, GeminiLLM)
    assert (gpt.issuer, gemini.issuer) == ("openai", "google")
    await close(chat, claude, gpt, gemini)


@pytest.mark.parametrize("name", ["claude", "nobody:x", "anthropic:", ":x", "", "openai:x?api_key=1"])
def test_a_name_that_is_not_valid_is_rejected_at_once(name: str) -> None:
    for use in (open_model, NamedLLM, lambda given: Agent("a", llm=given), lambda given: FallbackLLM([given])):
        with pytest.raises(InvalidArgument):
            use(name)


def test_what_is_not_a_model_is_rejected() -> None:
    with pytest.raises(InvalidArgument, match="must be an LLM or a name"):
        Agent("a", llm=7)  # type: ignore[arg-type]


async def test_an_executor_takes_a_name_and_closes_what_it_opened() -> None:
    async with serving(HELLO) as endpoint, open_stores("memory:") as stores:
        async with AgentExecutor(stores, f"openai-chat:m?base_url={endpoint.base_url}") as executor:
            result = await executor.run(Agent("a"), "Hi")
    assert result.output == "Hello."
    assert endpoint.headers[0]["authorization"] == "Bearer from-the-environment"


async def test_an_agent_a_fallback_and_a_summary_take_a_name() -> None:
    async with serving(HELLO, HELLO, claude(SAID)) as endpoint, open_stores("memory:") as stores:
        chat = f"openai-chat:m?base_url={endpoint.base_url}"
        nobody = "openai-chat:m?base_url=http://127.0.0.1:9/v1"
        agent = Agent("a", llm=FallbackLLM([nobody, chat]), history=summarized(chat, keep=1, after=2))
        executor = AgentExecutor(stores, nobody)
        assert (await executor.run(agent, "Hi", session_id="s")).output == "Hello."
        named = Agent("a", llm=f"anthropic:m?base_url={endpoint.url}", history=summarized(chat, keep=1, after=2))
        assert (await executor.run(named, "Hi", session_id="s")).output == "Let me look."
    assert [path.rpartition("/")[2] for path in endpoint.paths] == ["completions", "completions", "messages"]


async def test_a_missing_key_is_said_when_the_model_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("OPENAI_ADMIN_KEY", raising=False)
    with pytest.raises(InvalidArgument, match="OPENAI_API_KEY"):
        open_model("openai:gpt-x")
    model = NamedLLM("openai:gpt-x")
    for _ in range(2):
        with pytest.raises(ModelError, match="OPENAI_API_KEY") as caught:
            _ = [event async for event in model.stream(ASK)]
        assert not caught.value.retryable
    monkeypatch.setenv("OPENAI_API_KEY", "there now")
    assert isinstance(await model._open(), OpenAIResponsesLLM)
    await model.close()


def test_a_named_model_works_in_one_event_loop_after_the_other() -> None:
    """As in two calls of `run_sync`: a client's connections belong to the loop that opened them."""

    async def say(name: str) -> NamedLLM:
        models[name] = model = models.get(name) or NamedLLM(name)
        _ = [event async for event in model.stream(ASK)]
        return model

    async def main() -> None:
        async with serving(HELLO, HELLO) as endpoint:
            name = f"openai-chat:m?base_url={endpoint.base_url}"
            await say(name)
            await asyncio.to_thread(lambda: asyncio.run(say(name)))
            await models[name].close()

    models: dict[str, NamedLLM] = {}
    asyncio.run(main())


async def test_concurrent_first_requests_share_one_client() -> None:
    async with serving(HELLO, HELLO) as endpoint:
        model = NamedLLM(f"openai-chat:m?base_url={endpoint.base_url}")

        async def once() -> LLM:
            _ = [event async for event in model.stream(ASK)]
            return await model._open()

        first, second = await asyncio.gather(once(), once())
        await model.close()
    assert first is second


class Parrot:
    """A provider of another package."""

    def __init__(self, model: str, **options: Any) -> None:
        self.said = f"{model} {options}"

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        yield TextDelta(self.said)


async def test_other_packages_add_providers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "parrots-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: parrots\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[helix_agents.models]\nparrot = {__name__}:Parrot\n")
    monkeypatch.syspath_prepend(tmp_path)
    model = NamedLLM("parrot:grey?loud=true")
    assert [event async for event in model.stream(ASK)] == [TextDelta("grey {'loud': True}")]
    with pytest.raises(InvalidArgument, match="parrot"):
        open_model("nobody:x")


IMPORTED = """
import sys
from helix_agents import Agent, AgentExecutor, open_model
import helix_agents.llm
Agent("a", llm="anthropic:x")
loaded = {name.partition(".")[0] for name in sys.modules}
print(sorted(loaded & {"anthropic", "openai", "google", "httpx", "pydantic"}))
"""


def test_no_provider_is_imported_before_it_is_used() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
