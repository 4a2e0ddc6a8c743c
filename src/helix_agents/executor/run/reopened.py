"""Reopen the step that an earlier run of the session left open: its reply, its outcomes so far, its chunks."""

from __future__ import annotations

import msgspec

from ...agent import AgentTool
from ...messages import ToolCall
from ..run_context import RunContext
from ..session.questions import request_chunk
from ..step.decisions import StagedAnswer, step_id_of, unanswered_calls
from ..step.open_step import FinishedCall, OpenStep, tool_end_chunk, tool_start_chunk
from ..step.work import Children
from ..stream.prepare import chunks_of_reply
from .guardrails import new_input
from .user_messages import announce


async def reopened_step(context: RunContext, children: Children) -> OpenStep | None:
    """Return the open step, if there is one; emit its chunks again if the stream lost them."""
    session = context.owned.session
    stored, unanswered = unanswered_calls(context.owned.messages)
    answer = stored if unanswered else None
    for row in context.claim.staged:
        if row.kind == "answer" and answer is None:
            answer = msgspec.convert(row.result, StagedAnswer).message
    if answer is None:
        return None
    number = session.step_count + 1
    await context.agent.refresh_tools()
    if context.rewound and not unanswered:
        await announce(context, new_input(context.owned.messages))  # it may have died before the question was shown
    step_id = step_id_of(session, context.run_id)
    step = OpenStep(step_id, number, answer, context.owned.state, answer_is_stored=bool(unanswered))
    context.stream.step = number
    await context.hooks.call("step_started", number)
    finished = step.load_staged(context.claim.staged)
    if context.rewound:
        await _replay_chunks(context, children, step, finished)
    return step


async def _replay_chunks(context: RunContext, children: Children, step: OpenStep, finished: list[FinishedCall]) -> None:
    stream, pending_calls = context.stream, context.owned.session.pending_client_tool_calls
    for chunk in chunks_of_reply(step):
        stream.emit(chunk)
    for pending in pending_calls.values():
        if pending.later in (None, "asked"):
            stream.emit(request_chunk(pending))

    def replay_deferred(call: ToolCall) -> None:
        """Emit the start of a call that an external job finishes, and the patches of its function."""
        stream.emit(tool_start_chunk(call))
        if patches := step.deferred.get(call["id"]):
            stream.emit({"type": "state_patch", "patches": patches})

    deferred = {call_id for call_id, pending in pending_calls.items() if pending.later == "deferred"}
    for call, outcome, patches, executed in finished:
        tool = context.find_tool(call["name"])
        if call["id"] in deferred:
            replay_deferred(call)
        elif executed:
            stream.emit(tool_start_chunk(call))
        if isinstance(tool, AgentTool):
            await children.replay_chunks(context, call, tool)
        if patches:
            stream.emit({"type": "state_patch", "patches": patches})
        stream.emit(tool_end_chunk(call, outcome))
    for call in step.missing:
        if call["id"] in deferred:
            replay_deferred(call)
