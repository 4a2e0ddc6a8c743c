"""The step that an earlier run of the session left open: its answer, its outcomes so far, its chunks shown again."""

from __future__ import annotations

import msgspec

from ...agent import AgentTool
from ..run_context import RunContext
from ..session.questions import request_chunk
from ..step.decisions import StagedAnswer, step_id_of, unanswered_calls
from ..step.open_step import FinishedCall, OpenStep, tool_end_chunk, tool_start_chunk
from ..step.work import Children
from ..stream.prepare import shown_again


async def reopened_step(context: RunContext, children: Children) -> OpenStep | None:
    """Return the open step, if there is one; its chunks are emitted again if they are gone."""
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
    step_id = step_id_of(session, context.run_id)
    step = OpenStep(step_id, number, answer, context.owned.state, answer_is_stored=bool(unanswered))
    context.stream.step = number
    await context.hooks.call("step_started", number)
    finished = step.take_up(context.claim.staged)
    if context.rewound:
        await _show_again(context, children, step, finished)
    return step


async def _show_again(context: RunContext, children: Children, step: OpenStep, finished: list[FinishedCall]) -> None:
    stream = context.stream
    for chunk in shown_again(step):
        stream.emit(chunk)
    for call, outcome, patches, executed in finished:
        tool = context.find_tool(call["name"])
        if executed:
            stream.emit(tool_start_chunk(call))
        if isinstance(tool, AgentTool):
            await children.show_again(context, call, tool)
        if patches:
            stream.emit({"type": "state_patch", "patches": patches})
        stream.emit(tool_end_chunk(call, outcome))
    for pending in context.owned.session.pending_client_tool_calls.values():
        if pending.later in (None, "asked"):
            stream.emit(request_chunk(pending))
    for call in step.missing:
        deferred = context.owned.session.pending_client_tool_calls.get(call["id"])
        if deferred is not None and deferred.later == "deferred":
            stream.emit(tool_start_chunk(call))
            if shown := step.deferred.get(call["id"]):
                stream.emit({"type": "state_patch", "patches": shown})
