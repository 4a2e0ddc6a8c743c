"""The effects recorded in a conversation: by key, what happened and what the model read. Pure.

The message of a committed call with an effect has an `effect_key`. Effects that a session abandons, because it is
restored, forked or fails with an open step, are recorded in a message of the role `effects`, which is never sent to a
model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ...codec import Json
from ...messages import EFFECTS_ROLE, Message, ToolCall
from ...tools.tool import UNDO_PREFIX
from ...types import StagedChanges
from .decisions import StagedAnswer, StagedOutcome, tool_message, unanswered_calls
from .open_step import OpenStep


class EffectRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """An effect that happened, or may have happened (`unknown`). `content`: the result that the model read.

    `abandoned`: it belongs to an abandoned part of the conversation.
    """

    effect_key: str
    tool_name: str
    arguments: dict[str, Any] = {}
    content: Json = None
    unknown: bool = False
    abandoned: bool = False
    undo: dict[str, Json] | None = None
    """What the tool needs to undo it; None if it cannot."""
    undone: bool = False
    """Whether it was undone; with `unknown`, it may have been."""


def recorded_effects(messages: Sequence[Message]) -> list[EffectRecord]:
    """Return the effects of a conversation in order; the last one with a key counts."""
    calls: dict[str, ToolCall] = {}
    found: list[EffectRecord] = []
    for message in messages:
        for call in message.get("tool_calls", ()):
            calls[call["id"]] = call
        if message["role"] == EFFECTS_ROLE:
            found += [msgspec.convert(each, EffectRecord) for each in message["effects"]]
        elif message["role"] == "tool" and "effect_key" in message:
            found.append(_of_message(message, calls.get(message["tool_call_id"])))
    return found


def _of_message(message: Message, call: ToolCall | None) -> EffectRecord:
    arguments = message.get("arguments", call["arguments"] if call else {})
    unknown = message.get("outcome") == "unknown"
    return _record(
        message["effect_key"], message["tool_name"], arguments, message["content"], unknown, undo=message.get("undo")
    )


def _record(key: str, tool_name: str, arguments: dict[str, Any], *rest: Any, **more: Any) -> EffectRecord:
    """Return the record of a call's effect. For a call that undid an effect, return the record of that effect."""
    if not tool_name.startswith(UNDO_PREFIX):
        return EffectRecord(key, tool_name, arguments, *rest, **more)
    name, of = tool_name.removeprefix(UNDO_PREFIX), arguments["effect_key"]
    return msgspec.structs.replace(EffectRecord(of, name, arguments["arguments"], *rest, **more), undone=True)


def open_effects(answer: Message | None, rows: Sequence[StagedChanges]) -> list[EffectRecord]:
    """Return the effects of a step that will not be committed: of its finished calls, and of begun ones."""
    for row in rows:
        if row.kind == "answer" and answer is None:
            answer = msgspec.convert(row.result, StagedAnswer).message
    calls: dict[str, ToolCall] = {call["id"]: call for call in (answer or {}).get("tool_calls", ())}
    done = {row.tool_call_id: msgspec.convert(row.result, StagedOutcome).outcome for row in rows if row.kind == "call"}
    found = [
        _of_message(tool_message(calls[call_id], outcome), calls[call_id])
        for call_id, outcome in done.items()
        if outcome.effect_key is not None and call_id in calls
    ]
    for row in rows:
        call = calls.get(row.tool_call_id)
        if row.kind == "begun" and row.tool_call_id not in done and call is not None:
            found.append(unknown_record(row.result["effect_key"], call))
    return found


def unknown_record(key: str, call: ToolCall) -> EffectRecord:
    """Return the record of a call that may have taken effect."""
    return _record(key, call["name"], call["arguments"], unknown=True)


def step_records(step: OpenStep) -> list[EffectRecord]:
    """Return the effects of the finished calls of an open step."""
    return [
        _of_message(tool_message(call, outcome), call)
        for call in step.calls
        if (outcome := step.outcomes.get(call["id"])) is not None and outcome.effect_key is not None
    ]


def abandoned_effects(messages: Sequence[Message], kept: int, rows: Sequence[StagedChanges] = ()) -> list[Message]:
    """Return the message that records effects after the first `kept` messages and in the open step."""
    records = recorded_effects(messages)[len(recorded_effects(messages[:kept])) :]
    answer, calls = unanswered_calls(messages)
    return effects_message([*records, *open_effects(answer if calls else None, rows)])


def effects_message(records: Iterable[EffectRecord]) -> list[Message]:
    """Return the message that records effects which the conversation no longer shows; [] if there are none."""
    kept: list[EffectRecord] = []
    for record in records:
        record = msgspec.structs.replace(record, abandoned=True)
        if record not in kept:
            kept.append(record)
    if not kept:
        return []
    return [{"role": EFFECTS_ROLE, "effects": msgspec.to_builtins(kept)}]


def find_record(
    records: Sequence[EffectRecord], tool_name: str, arguments: Mapping[str, Any], key: str | None
) -> EffectRecord | None:
    """Return the last effect that a call would repeat: one with the same key.

    A tool without `key` repeats only abandoned effects, and only with the same arguments. An undone effect may happen
    again. An effect that the conversation shows is not abandoned, even if another branch records it as such.
    """
    if tool_name.startswith(UNDO_PREFIX):
        return _undone(records, arguments["effect_key"])
    shown, undone = _shown_keys(records), set[str]()
    for record in reversed(records):
        if record.undone and not record.unknown:
            undone.add(record.effect_key)
        if record.tool_name != tool_name or record.effect_key in undone:
            continue
        if record.abandoned and not record.unknown and record.effect_key in shown:
            continue
        if record.effect_key == key if key is not None else record.abandoned and record.arguments == arguments:
            return record
    return None


def _shown_keys(records: Sequence[EffectRecord]) -> set[str]:
    """Return the keys of effects that the conversation itself shows and that were not undone since."""
    shown: set[str] = set()
    for record in records:
        if record.undone and not record.unknown:
            shown.discard(record.effect_key)
        elif not record.abandoned:
            shown.add(record.effect_key)
    return shown


def _undone(records: Sequence[EffectRecord], key: str) -> EffectRecord | None:
    """Return the latest record of an effect if it says that the effect was, or may have been, undone; else None."""
    latest = next((record for record in reversed(records) if record.effect_key == key), None)
    return latest if latest is not None and latest.undone else None
