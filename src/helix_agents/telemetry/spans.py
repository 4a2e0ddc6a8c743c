"""OpenTelemetry spans for runs, steps, model calls and tools, through the hooks, by the GenAI conventions (`gen_ai.*`).

Reports names, counts and reasons, never contents.

The spans of a session hang below one root span: its ids are stored in the session (`tracing_context`), so that a run
that another process resumes, days later, continues the same trace. Needs only the OpenTelemetry API; which spans are
kept and where they go is the application's set-up.
"""

from __future__ import annotations

import re
from typing import Any

from ..executor import INTERRUPTED, Hooks, ModelAnswer, Outcome, RunInfo
from ..messages import Message
from ..types import TracingContext

try:
    from opentelemetry import trace
except ImportError as error:  # pragma: no cover
    raise ImportError("OpenTelemetryHooks needs opentelemetry: pip install 'helix-agents[otel]'.") from error

_EXCEPTION_NAME = re.compile("[A-Z][A-Za-z0-9]{0,60}(Error|Exception|Exit|Interrupt|Timeout|Lost|Conflict|NotFound)")

FAILED_STATUSES = frozenset({"failed", "lost"})


class OpenTelemetryHooks(Hooks):
    """One span per run, step, model call and tool call."""

    def __init__(self, tracer: trace.Tracer | None = None) -> None:
        self._tracer = tracer or trace.get_tracer("helix_agents")
        self._spans: dict[tuple[str, str], trace.Span] = {}

    async def run_started(self, run: RunInfo) -> TracingContext | None:
        above = run.parent_run_id or ""
        parent = self._spans.get((above, f"tool {run.parent_tool_call_id}")) or self._spans.get((above, "run"))
        if parent is None and run.tracing_context is not None:
            parent = trace.NonRecordingSpan(_remote(run.tracing_context))
        span = self._start(run, "run", f"invoke_agent {run.agent_type}", parent)
        span.set_attributes(
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": run.agent_type,
                "gen_ai.conversation.id": run.session_id,
                "helix.session_id": run.session_id,
                "helix.run_id": run.run_id,
                "helix.agent_type": run.agent_type,
            }
        )
        if run.tracing_context is not None:
            return None
        context = span.get_span_context()
        if not context.is_valid:
            return None
        return TracingContext(trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id))

    async def run_ended(self, run: RunInfo, status: str, error: str | None) -> None:
        for owner, name in [key for key in self._spans if key[0] == run.run_id and key[1] != "run"]:
            self._spans.pop((owner, name)).end()  # what an end in between left open
        self._end(run, "run", {"helix.status": status}, error if status in FAILED_STATUSES else None)

    async def step_started(self, run: RunInfo, step: int) -> None:
        span = self._start(run, "step", f"step {step}", self._spans.get((run.run_id, "run")))
        span.set_attribute("helix.step", step)

    async def step_ended(self, run: RunInfo, step: int, status: str) -> None:
        self._end(run, "step", {"helix.status": status})

    async def model_started(self, run: RunInfo, step: int, attempt: int) -> None:
        name = "chat" if run.model is None else f"chat {run.model}"
        span = self._start(run, "model", name, self._spans.get((run.run_id, "step")), trace.SpanKind.CLIENT)
        span.set_attributes(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.conversation.id": run.session_id,
                "gen_ai.agent.name": run.agent_type,
                "helix.attempt": attempt,
                **({} if run.model is None else {"gen_ai.request.model": run.model}),
                **({} if run.provider is None else {"gen_ai.provider.name": run.provider}),
            }
        )

    async def model_answered(self, run: RunInfo, step: int, answer: ModelAnswer) -> None:
        span = self._spans.get((run.run_id, "model"))
        if span is None:
            return
        requested = answer.requested_model or answer.model
        if requested is not None:
            span.update_name(f"chat {requested}")
            span.set_attribute("gen_ai.request.model", requested)
        if answer.model is not None:
            span.set_attribute("gen_ai.response.model", answer.model)
        if answer.finish_reason is not None:
            span.set_attribute("gen_ai.response.finish_reasons", [answer.finish_reason])
        if answer.usage is not None:
            span.set_attribute("gen_ai.usage.input_tokens", answer.usage.prompt)
            span.set_attribute("gen_ai.usage.output_tokens", answer.usage.completion)

    async def model_ended(self, run: RunInfo, step: int, message: Message | None, error: str | None) -> None:
        calls = len(message.get("tool_calls", ())) if message else 0
        if error == INTERRUPTED:
            self._end(run, "model", {"helix.interrupted": True})
        else:
            self._end(run, "model", {"helix.tool_calls": calls}, error, "ModelError")

    async def tool_started(self, run: RunInfo, step: int, call: dict[str, Any]) -> None:
        parent = self._spans.get((run.run_id, "step"))
        span = self._start(run, f"tool {call['id']}", f"execute_tool {call['name']}", parent)
        span.set_attributes(
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": call["name"],
                "gen_ai.tool.call.id": call["id"],
                "gen_ai.tool.type": "function",
                "gen_ai.conversation.id": run.session_id,
            }
        )

    async def tool_ended(self, run: RunInfo, step: int, call: dict[str, Any], outcome: Outcome) -> None:
        attributes = {"helix.tool_call_id": call["id"], "helix.success": outcome.success}
        self._end(run, f"tool {call['id']}", attributes, outcome.error)

    def _start(
        self,
        run: RunInfo,
        key: str,
        name: str,
        parent: trace.Span | None,
        kind: trace.SpanKind = trace.SpanKind.INTERNAL,
    ) -> trace.Span:
        context = trace.set_span_in_context(parent) if parent is not None else None
        span = self._tracer.start_span(name, context=context, kind=kind)
        self._spans[run.run_id, key] = span
        return span

    def _end(
        self, run: RunInfo, key: str, attributes: dict[str, Any], error: str | None = None, usual_error: str = "_OTHER"
    ) -> None:
        span = self._spans.pop((run.run_id, key), None)
        if span is None:
            return
        span.set_attributes(attributes)
        if error is not None:
            kind = _error_type(error, usual_error)
            span.set_attribute("error.type", kind)
            span.add_event("exception", {"exception.type": kind})
            span.set_status(trace.Status(trace.StatusCode.ERROR, kind))
        span.end()


def _error_type(error: str, usual: str) -> str:
    """Return the exception name that an error starts with, or the usual one. The rest may quote user data."""
    name, _, message = error.partition(": ")
    return name if message and _EXCEPTION_NAME.fullmatch(name) else usual


def _remote(context: TracingContext) -> trace.SpanContext:
    return trace.SpanContext(
        trace_id=int(context.trace_id, 16),
        span_id=int(context.root_span_id, 16),
        is_remote=True,
        trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
    )
