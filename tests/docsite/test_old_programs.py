"""The old sides of the pages for those who come from elsewhere run on the versions that the pages name.

They need the environments of the benchmarks (`./dev bench steps` prepares them); without one, the test says so.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.docsite.test_blocks import before, blocks
from tests.test_docs import ROOT

ENVIRONMENTS = ROOT / ".cache" / "bench"

LANGGRAPH = """
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

class Scripted(BaseChatModel):
    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **options):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **options):
        last = messages[-1]
        if last.type == "human":
            message = AIMessage("", tool_calls=[{"name": "search", "args": {"query": "ants"}, "id": "c1"}])
        elif last.name == "search":
            message = AIMessage("", tool_calls=[{"name": "send_mail", "args": {"to": "ann@example.org"}, "id": "c2"}])
        else:
            assert last.content == "sent to ann@example.org", last
            message = AIMessage("Sent.")
        return ChatResult(generations=[ChatGeneration(message=message)])

model = Scripted()
"""

OPENAI_AGENTS = """
import json
from agents import Model, ModelResponse, Usage, set_tracing_disabled
from openai.types.responses import (Response, ResponseCompletedEvent, ResponseFunctionToolCall, ResponseOutputMessage,
    ResponseOutputText)

set_tracing_disabled(True)

def call(name, arguments, call_id):
    return ResponseFunctionToolCall(type="function_call", name=name, arguments=json.dumps(arguments), call_id=call_id)

class Scripted(Model):
    def reply(self, items):
        items = [] if isinstance(items, str) else items
        done = [each["output"] for each in items if each.get("type") == "function_call_output"]
        if not done:
            return call("search", {"query": "ants"}, "c1")
        if len(done) == 1:
            return call("send_mail", {"to": "ann@example.org"}, "c2")
        assert done[-1] == "sent to ann@example.org", done
        text = ResponseOutputText(text="Sent.", type="output_text", annotations=[])
        return ResponseOutputMessage(id="m", role="assistant", status="completed", type="message", content=[text])

    async def get_response(self, system_instructions, input, *arguments, **options):
        return ModelResponse(output=[self.reply(input)], usage=Usage(), response_id=None)

    async def stream_response(self, system_instructions, input, *arguments, **options):
        response = Response(id="r", created_at=0, model="m", object="response", output=[self.reply(input)],
            parallel_tool_calls=True, tool_choice="auto", tools=[])
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=1)

model = Scripted()
"""

PYDANTIC_AI = """
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

def script(messages, info):
    done = [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if not done:
        return ModelResponse(parts=[ToolCallPart("search", {"query": "ants"})])
    if len(done) == 1:
        return ModelResponse(parts=[ToolCallPart("send_mail", {"to": "ann@example.org"})])
    assert done[-1] == "sent to ann@example.org", done
    return ModelResponse(parts=[TextPart("Sent.")])

model = FunctionModel(script)
"""

MODELS = {"langgraph": LANGGRAPH, "openai-agents": OPENAI_AGENTS, "pydantic-ai": PYDANTIC_AI}


@pytest.mark.parametrize("framework", MODELS)
def test_the_old_program_runs(framework: str, tmp_path: Path) -> None:
    folder = ENVIRONMENTS / framework
    if not (folder / "done").exists():
        pytest.skip("./dev bench steps prepares the environments of other frameworks")
    (block,) = [each for each in blocks("diff") if each.page.name == f"coming-from-{framework}.md"]
    (tmp_path / "old.py").write_text(MODELS[framework] + before(block.code), encoding="utf-8")
    done = subprocess.run(
        [str(folder / "bin" / "python"), "old.py"],
        cwd=tmp_path,
        env={**os.environ, "OPENAI_API_KEY": "none"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("Sent."), done.stdout
