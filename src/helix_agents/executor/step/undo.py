"""The plan to undo what a turn did, before the turn ends as failed. Pure.

A turn that fails or is aborted after effects whose tools have `undo` does not end immediately. Instead, the write that
would have ended it opens one more step: a message of the library's own, whose calls undo the effects, latest first.
Each is an ordinary call that must happen once: its intent is durable before it runs, and if its outcome is unknown, a
person is asked. So if a process dies, another one finishes the step. The commit of that step ends the turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...codec import encode
from ...ids import step_id
from ...lifecycle import SESSION_TERMINAL
from ...messages import Message, ToolCall, as_message, automatic_message, is_undo
from ...tools.tool import UNDO_PREFIX
from ...types import SessionState
from .decisions import abandoned
from .ledger import EffectRecord, recorded_effects

UNDO_SUFFIX = "-undo"


def undo_id(run_id: str, step_count: int) -> str:
    """Return the id of the step that undoes a turn. `step_count`: the session's when the turn failed."""
    return step_id(run_id, step_count + 1) + UNDO_SUFFIX


def is_undoing(session: SessionState) -> bool:
    """Return whether the session's turn has failed and its effects are being undone."""
    return session.status not in SESSION_TERMINAL and (session.suspended_step_id or "").endswith(UNDO_SUFFIX)


def undo_messages(
    turn: Sequence[Message], left: Sequence[Message], undo_id: str, error: str | None, reason: str | None
) -> list[Message]:
    """Return the messages to append to a failed turn, with the undo plan as the last one; [] if nothing can be undone.

    `turn`: the messages of the turn. `left`: the message that records the effects of an uncommitted step.
    """
    records = [*(each for each in recorded_effects(turn) if not each.abandoned), *recorded_effects(left)]
    calls = [_undo_call(record, f"{undo_id}-{at}") for at, record in enumerate(_to_undo(records), 1)]
    if not calls:
        return []
    failure = {"error": error, "failure_reason": reason}
    plan = as_message({"role": "assistant", "content": "", "tool_calls": calls, "undo": failure})
    return [*abandoned(turn, "The run ended before this call was executed."), *left, plan]


def _to_undo(records: Sequence[EffectRecord]) -> list[EffectRecord]:
    """Return the effects that happened and can be undone, latest first."""
    latest: dict[str, EffectRecord] = {}
    for record in records:
        latest.pop(record.effect_key, None)
        latest[record.effect_key] = record
    remaining = [each for each in latest.values() if each.undo is not None and not each.unknown and not each.undone]
    return remaining[::-1]


def _undo_call(record: EffectRecord, call_id: str) -> ToolCall:
    result = None if record.undo is None else record.undo["result"]
    arguments = {"effect_key": record.effect_key, "arguments": record.arguments, "result": result}
    return {"id": call_id, "name": UNDO_PREFIX + record.tool_name, "arguments": arguments}


class ModelReading:
    """Yields a conversation as the model sees it, part by part.

    A note replaces each step that undid effects, because the model did not make its calls.
    """

    def __init__(self) -> None:
        self._undone: dict[str, ToolCall] = {}
        self._lines: list[str] = []

    def read(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Yield what the model sees of messages that follow those read before."""
        for message in messages:
            call = self._undone.pop(message["tool_call_id"], None) if message["role"] == "tool" else None
            if is_undo(message):
                self._undone = {each["id"]: each for each in message["tool_calls"]}
                self._lines = [f"The run failed: {message['undo']['error']}", "What it had done was taken back:"]
            elif call is None:
                yield message
            else:
                self._lines.append(_line(call["name"].removeprefix(UNDO_PREFIX), call["arguments"], message))
                if not self._undone:
                    yield automatic_message("\n".join(self._lines))


def _line(tool_name: str, arguments: Mapping[str, Any], message: Message) -> str:
    return f"- {tool_name} {encode(arguments['arguments'])}: {message['content']}"
