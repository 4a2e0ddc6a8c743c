"""Spans of runs, and one trace across a suspension."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from helix_agents.agent import Agent
from helix_agents.backends.registry import open_stores
from helix_agents.errors import ModelError
from helix_agents.executor import AgentExecutor
from helix_agents.llm import Call, ModelEvent, ModelRequest, Reply, ScriptedLLM, TextDelta, TokenUsage
from helix_agents.llm.contract import ToolCallDelta
from helix_agents.telemetry import OpenTelemetryHooks
from helix_agents.tools import ModelRetry, tool


class Kept(SpanExporter):
    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += spans
        return SpanExportResult.SUCCESS


def hooks_into(kept: Kept) -> OpenTelemetryHooks:
    """Return hooks as another process would set them up: only the span exporter is shared."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    return OpenTelemetryHooks(provider.get_tracer("test"))


@tool
def work() -> str:
    """Work."""
    return "ok"


@tool(execute="client")
def ask(question: str) -> str:
    """Ask a person."""
    raise NotImplementedError


async def test_a_trace_goes_on_over_suspension_and_into_sub_agents() -> None:
    kept = Kept()
    child = Agent("child", tools=[work])
    agent = Agent("main", tools=[ask, work, child.as_tool()])
    llm = ScriptedLLM(
        {
            "main": [[Call("ask", {"question": "?"}), Call("child", {"input": "x"})], "Done."],
            "child": [[Call("work")], "ok"],
        }
    )
    async with open_stores("memory:") as stores:
        async with AgentExecutor(stores.state, stores.streams, llm, hooks=[hooks_into(kept)]) as executor:
            await (await executor.execute(agent, "Go", session_id="s")).result()
            await executor.submit_tool_result("s", "call_1_1", result="yes")
        async with AgentExecutor(stores.state, stores.streams, llm, hooks=[hooks_into(kept)]) as executor:
            await (await executor.resume(agent, "s")).result()
        session = await stores.state.load_state("s")
    assert session is not None
    assert session.tracing_context is not None
    assert {f"{span.context.trace_id:032x}" for span in kept.spans if span.context} == {
        session.tracing_context.trace_id
    }
    names = [span.name for span in kept.spans]
    assert names.count("invoke_agent main") == 2
    assert names.count("invoke_agent child") == 1
    assert {"execute_tool work", "chat scripted", "step 1", "step 2"} <= set(names)
    delegated = next(span for span in kept.spans if span.name == "execute_tool child")
    below = next(span for span in kept.spans if span.name == "invoke_agent child")
    assert below.parent is not None
    assert delegated.context is not None
    assert below.parent.span_id == delegated.context.span_id
    resumed = [span for span in kept.spans if span.name == "invoke_agent main"][-1]
    assert resumed.parent is not None
    assert f"{resumed.parent.span_id:016x}" == session.tracing_context.root_span_id


async def test_spans_follow_the_conventions_and_hold_no_contents() -> None:
    @tool
    def fail(secret: str) -> str:
        """Fail."""
        raise ValueError(f"no more room for {secret}")

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    hooks = OpenTelemetryHooks(provider.get_tracer("test"))
    usage = TokenUsage("model-1", prompt=7, completion=3)
    reply = Reply("A secret.", [Call("fail", {"secret": "secret"})], usage=usage, finish_reason="tool_calls")
    async with open_stores("memory:") as stores:
        async with AgentExecutor(
            stores.state, stores.streams, ScriptedLLM([reply, "secret"]), hooks=[hooks]
        ) as executor:
            await (await executor.execute(Agent("main", tools=[fail]), "secret", session_id="s")).result()
    spans = {span.name: span for span in reversed(exporter.get_finished_spans())}
    run, chat, call = spans["invoke_agent main"], spans["chat model-1"], spans["execute_tool fail"]
    assert dict(run.attributes or {}) | {"gen_ai.agent.name": "main", "gen_ai.conversation.id": "s"} == run.attributes
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "model-1",
        "gen_ai.response.model": "model-1",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.response.finish_reasons": ("tool_calls",),
    }
    assert dict(chat.attributes or {}) | expected == chat.attributes
    failed = {"gen_ai.tool.name": "fail", "gen_ai.tool.call.id": "call_1_1", "error.type": "ValueError"}
    assert dict(call.attributes or {}) | failed == call.attributes
    assert [event.name for event in call.events] == ["exception"]
    assert "secret" not in "".join(span.to_json() for span in exporter.get_finished_spans())


class Broken:
    """An adapter that says what it is, and fails."""

    model, provider = "model-2", "acme"

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        raise ModelError("The endpoint answered 500.")
        yield


async def test_a_model_call_that_fails_is_named_like_one_that_does_not() -> None:
    kept = Kept()
    async with open_stores("memory:") as stores:
        await AgentExecutor(stores, Broken(), hooks=[hooks_into(kept)]).run(Agent("main"), "Go")
    chat = next(span for span in kept.spans if span.name == "chat model-2")
    expected = {"gen_ai.request.model": "model-2", "gen_ai.provider.name": "acme", "error.type": "ModelError"}
    assert dict(chat.attributes or {}) | expected == chat.attributes
    assert dict(chat.events[0].attributes or {}) == {"exception.type": "ModelError"}
    assert next(span for span in kept.spans if span.name == "step 1").attributes == {"helix.step": 1}


async def test_what_an_error_quotes_is_in_no_span() -> None:
    @tool
    def fail(text: str) -> str:
        """Fail with what the model said."""
        raise ModelRetry(f"Jane: {text}")

    class Quoting:
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            if request.step == 2:
                raise ModelError("Jane Doe: secret")
            yield ToolCallDelta(0, name="fail", arguments='{"text": "secret"}')

    kept = Kept()
    async with open_stores("memory:") as stores:
        await AgentExecutor(stores, Quoting(), hooks=[hooks_into(kept)]).run(Agent("main", tools=[fail]), "secret")
    written = "".join(span.to_json() for span in kept.spans)
    assert [word for word in ("secret", "Jane") if word in written] == []
    assert '"error.type": "ModelError"' in written


async def test_a_model_that_was_cut_off_has_not_failed() -> None:
    kept, begun = Kept(), asyncio.Event()

    class Endless:
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            yield TextDelta("One")
            begun.set()
            await asyncio.Event().wait()

    async with open_stores("memory:") as stores:
        executor = AgentExecutor(stores, Endless(), hooks=[hooks_into(kept)])
        handle = await executor.execute(Agent("main"), "Go")
        await begun.wait()
        await handle.interrupt("enough")
        await handle.result()
    assert [span.name for span in kept.spans if span.status.status_code is StatusCode.ERROR] == []
    assert (next(span for span in kept.spans if span.name == "chat").attributes or {})["helix.interrupted"] is True
