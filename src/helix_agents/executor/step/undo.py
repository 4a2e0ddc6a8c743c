"""The plan to take back what a turn did, before the turn ends as failed. Pure.

A turn that fails or is aborted after effects whose tools have `undo` does not end at once. The write that would have
ended it leaves the session with one more open step instead: a message of the library's own, whose calls take the
effects back, latest first. Each is a call like any other that must happen once: its intent is durable before it runs,
and if its outcome is unknown, a person is asked. So a process that dies leaves what another one finishes. The commit of
that step ends the turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...codec import encode
from ...ids import step_id
from ...lifecycle import SESSION_TERMINAL
from ...messages import Message, ToolCall, automatic_message, is_undo
from ...tools.tool import UNDO_PREFIX
from ...types import SessionState
from .decisions import abandoned
from .ledger import EffectRecord, recorded_effects

UNDO_SUFFIX = "-undo"


def undo_id(run_id: str, step_count: int) -> str:
    """Return the id of the step that takes back what a turn did. `step_count`: of the session when the turn failed."""
    return step_id(run_id, step_count + 1) + UNDO_SUFFIX


def is_undoing(session: SessionState) -> bool:
    """Return whether the turn of a session has failed, and its effects are being taken back."""
    return session.status not in SESSION_TERMINAL and (session.suspended_step_id or "").endswith(UNDO_SUFFIX)


def undo_messages(
    turn: Sequence[Message], left: Sequence[Message], undo_id: str, error: str | None, reason: str | None
) -> list[Message]:
    """Return what the conversation of a failed turn gets besides, with the plan as the last message; [] if none.

    `turn`: the messages of the turn. `left`: the message that keeps the effects of a step that is not committed.
    """
    records = [*(each for each in recorded_effects(turn) if not each.abandoned), *recorded_effects(left)]
    calls = [_undo_call(record, f"{undo_id}-{at}") for at, record in enumerate(_to_undo(records), 1)]
    if not calls:
        return []
    failure = {"error": error, "failure_reason": reason}
    plan: Message = {"role": "assistant", "content": "", "tool_calls": calls, "undo": failure}
    return [*abandoned(turn, "The run ended before this call was executed."), *left, plan]


def _to_undo(records: Sequence[EffectRecord]) -> list[EffectRecord]:
    """Return the effects that stand and can be taken back, latest first."""
    latest: dict[str, EffectRecord] = {}
    for record in records:
        latest.pop(record.effect_key, None)
        latest[record.effect_key] = record
    stand = [each for each in latest.values() if each.undo is not None and not each.unknown and not each.undone]
    return stand[::-1]


def _undo_call(record: EffectRecord, call_id: str) -> ToolCall:
    result = None if record.undo is None else record.undo["result"]
    arguments = {"effect_key": record.effect_key, "arguments": record.arguments, "result": result}
    return {"id": call_id, "name": UNDO_PREFIX + record.tool_name, "arguments": arguments}


def as_the_model_reads(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the conversation with a note instead of each step that took effects back: the model made no such calls."""
    undone: dict[str, ToolCall] = {}
    lines: list[str] = []
    for message in messages:
        call = undone.pop(message["tool_call_id"], None) if message["role"] == "tool" else None
        if is_undo(message):
            undone = {each["id"]: each for each in message["tool_calls"]}
            lines = [f"The run failed: {message['undo']['error']}", "What it had done was taken back:"]
        elif call is None:
            yield message
        else:
            lines.append(_line(call["name"].removeprefix(UNDO_PREFIX), call["arguments"], message))
            if not undone:
                yield automatic_message("\n".join(lines))


def _line(tool_name: str, arguments: Mapping[str, Any], message: Message) -> str:
    return f"- {tool_name} {encode(arguments['arguments'])}: {message['content']}"
