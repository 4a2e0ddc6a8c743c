"""Spans of runs, and one trace across a suspension."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from helix_agents.agent import Agent
from helix_agents.backends.registry import open_stores
from helix_agents.executor import AgentExecutor
from helix_agents.executor.tracing import OpenTelemetryHooks
from helix_agents.llm import Call, ScriptedLLM
from helix_agents.tools import tool


class Kept(SpanExporter):
    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += spans
        return SpanExportResult.SUCCESS


def hooks_into(kept: Kept) -> OpenTelemetryHooks:
    """Hooks as another process would set them up: nothing shared but where the spans go."""
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
    assert names.count("run main") == 2
    assert names.count("run child") == 1
    assert {"tool work", "model", "step 1", "step 2"} <= set(names)
    resumed = [span for span in kept.spans if span.name == "run main"][-1]
    assert resumed.parent is not None
    assert f"{resumed.parent.span_id:016x}" == session.tracing_context.root_span_id
