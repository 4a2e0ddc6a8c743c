"""Chunks as the UI message stream of the AI SDK: a pure function of the chunks of a turn that can be joined anywhere.

Used like `agui.py`: one encoder per connection; to join in the middle, give it the chunks before and drop what it
returns; `begin` then opens again what is open there. The protocol has no sub-agents: their chunks become data parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...chunks import Chunk
from ...codec import Json

Part = dict[str, Any]

IN_A_STEP = frozenset(
    {"text_delta", "thinking", "tool_arg_delta", "tool_start", "tool_approval_request", "client_tool_request"}
)

ASKS = frozenset({"tool_approval_request", "client_tool_request", "tool_outcome_request"})


class _Shown(NamedTuple):
    """A question about a call, or the start of the sub-agent that the call is for."""

    sub_session_id: str | None
    call: str
    starts: bool


def reply_id(session_id: str, user_message_count: int) -> str:
    """Return the id of the reply to the last of this many user messages, both live and in the history."""
    return f"{session_id}-{user_message_count}"


class UiMessageEncoder:
    """The parts of one assistant message, which is one turn.

    `continues`: the client has the message so far, with the calls that it has responded to. Their outcomes must follow
    without a new step, or the client would show those calls twice. `can_reset`: the client knows `reset-step`.
    """

    def __init__(self, message_id: str, *, continues: bool = False, can_reset: bool = True) -> None:
        self._message_id = message_id
        self._continues = continues
        self._can_reset = can_reset
        self._in_step = False
        self._text: str | None = None
        self._thought: str | None = None
        self._calls: dict[str, Part] = {}
        """Calls without an outcome, each as the part that repeats it."""
        self._started: set[str] = set()
        self._settled: set[str] = set()
        self._inputs: dict[str, Part] = {}
        """Calls of the open step that have an outcome, in case it is corrected."""
        self._asked: set[_Shown] = set()
        """Questions and sub-agents that are shown."""

    def begin(self) -> list[Part]:
        """Return the parts that every connection starts with."""
        parts: list[Part] = [{"type": "start", "messageId": self._message_id}]
        if self._continues:
            return parts
        if self._in_step:
            parts.append({"type": "start-step"})
        parts += self._calls.values()
        if self._text is not None:
            parts.append({"type": "text-start", "id": self._text})
        if self._thought is not None:
            parts.append({"type": "reasoning-start", "id": self._thought})
        return parts

    def chunk(self, chunk: Chunk) -> list[Part]:
        """Return the parts for one chunk."""
        if chunk["type"] in ASKS or chunk["type"] == "subagent_start":
            self._asked.add(_shown(chunk))
        if isinstance(chunk.get("sub_session_id"), str):
            return [{"type": "data-helix-subagent", "data": chunk, "transient": True}]
        parts: list[Part] = []
        if chunk["type"] in IN_A_STEP and not self._in_step:
            self._in_step = True
            parts.append({"type": "start-step"})
        return parts + self._parts(chunk)

    def ask(self, chunk: Chunk) -> list[Part]:
        """Return the parts for a question that the stream may not have; none if it has."""
        return [] if _shown(chunk) in self._asked else self.chunk(chunk)

    def end(self, name: str, data: dict[str, Json]) -> list[Part]:
        """Return the parts for the final event of a feed."""
        parts = self._close()
        if self._in_step and name == "end":
            self._in_step = False
            parts.append({"type": "finish-step"})
        if name == "end" or (name == "pause" and data["status"] != "interrupted"):
            return [*parts, {"type": "finish"}]
        if name == "pause":
            return [*parts, {"type": "abort"}]
        return [*parts, {"type": "error", "errorText": str(data.get("error") or f"The stream is {name}.")}]

    def _parts(self, chunk: Chunk) -> list[Part]:
        part_id = f"{chunk.get('agent_id', 'run')}-{chunk.get('step', 0)}"
        match chunk:
            case {"type": "text_delta", "delta": str(delta)}:
                opening: list[Part] = []
                if self._text != part_id:
                    opening = [*self._close(), {"type": "text-start", "id": part_id}]
                    self._text = part_id
                return [*opening, {"type": "text-delta", "id": part_id, "delta": delta}]
            case {"type": "thinking", "content": str(content)}:
                return self._thinking(part_id, content, bool(chunk.get("is_complete")))
            case {"type": "tool_arg_delta", "tool_call_id": str(call), "delta": str(delta), "tool_name": str(name)}:
                return self._arguments(call, name, delta)
            case {"type": "tool_start", "tool_call_id": str(call)}:
                return self._call(call, chunk, chunk.get("arguments"))
            case {"type": "client_tool_request", "tool_call_id": str(call)}:
                asked = [question_part(call, chunk)] if "question" in chunk else []
                return [*self._call(call, chunk, chunk.get("input")), *asked]
            case {"type": "tool_approval_request", "tool_call_id": str(call), "approval_id": str(approval)}:
                request = {"type": "tool-approval-request", "toolCallId": call, "approvalId": approval}
                return [*self._call(call, chunk, chunk.get("input")), request]
            case {"type": "tool_outcome_request", "tool_call_id": str(call)}:
                # Not a tool-approval-request: an approval would let a call that took effect run again.
                return [*self._call(call, chunk, chunk.get("input")), outcome_request(call, chunk)]
            case {"type": "tool_end", "tool_call_id": str(call)}:
                return self._outcome(call, chunk)
            case {"type": "user_message", "message": message}:
                return [{"type": "data-helix-user-message", "data": message, "transient": True}]
            case {"type": "branch_switched"}:
                branch = {name: chunk.get(name) for name in ("branch_id", "message_count")}
                return [{"type": "data-helix-branch", "data": branch, "transient": True}]
            case {"type": "state_patch", "patches": patches}:
                return [{"type": "data-helix-state", "data": patches, "transient": True}]
            case {"type": "custom", "name": str(name)}:
                return [{"type": f"data-{name}", "data": chunk.get("data")}]
            case {"type": "step_committed"}:
                return self._end_step([{"type": "finish-step"}])
            case {"type": "stream_rewound" | "stream_resync"}:
                return self._rewind()
        return []

    def _thinking(self, part_id: str, content: str, complete: bool) -> list[Part]:
        parts: list[Part] = []
        if content:
            if self._thought != part_id:
                parts = [*self._close(), {"type": "reasoning-start", "id": part_id}]
                self._thought = part_id
            parts.append({"type": "reasoning-delta", "id": part_id, "delta": content})
        if complete and self._thought is not None:
            parts.append({"type": "reasoning-end", "id": self._thought})
            self._thought = None
        return parts

    def _arguments(self, call: str, name: str, delta: str) -> list[Part]:
        parts = self._close()
        if call not in self._started:
            self._started.add(call)
            opener = {"type": "tool-input-start", "toolCallId": call, "toolName": name, "dynamic": True}
            self._calls[call] = opener
            parts.append(opener)
        elif call not in self._calls:
            return parts
        return [*parts, {"type": "tool-input-delta", "toolCallId": call, "inputTextDelta": delta}]

    def _call(self, call: str, chunk: Chunk, given: Json) -> list[Part]:
        part = {
            "type": "tool-input-available",
            "toolCallId": call,
            "toolName": str(chunk.get("tool_name") or "unknown"),
            "input": given,
            "dynamic": True,
        }
        if call in self._settled or self._calls.get(call) == part:
            return self._close()  # it is shown already: repeating it would undo the user's response to it
        self._started.add(call)
        self._calls[call] = part
        return [*self._close(), part]

    def _outcome(self, call: str, chunk: Chunk) -> list[Part]:
        parts = self._close()
        known = self._calls.pop(call, None)
        if known is None and call in self._inputs:
            # The outcome could not be stored and is corrected; a client that joined after the first one has no call.
            parts.append(self._inputs[call])
        elif known is None or known["type"] != "tool-input-available":
            # An outcome needs an input before it: this call was answered without having been shown whole.
            parts += self._call(call, chunk, chunk.get("arguments", {}))
            known = self._calls.pop(call, None)
        if known is not None:
            self._inputs[call] = known
        self._settled.add(call)
        if chunk.get("success", True):
            output = chunk.get("result")
            return [*parts, {"type": "tool-output-available", "toolCallId": call, "output": output, "dynamic": True}]
        text = str(chunk.get("error"))
        return [*parts, {"type": "tool-output-error", "toolCallId": call, "errorText": text, "dynamic": True}]

    def _rewind(self) -> list[Part]:
        """Revert the open step: it is shown again from its start."""
        undone = {*self._calls, *self._inputs}
        self._started -= undone
        self._settled -= undone
        self._asked = {each for each in self._asked if each.sub_session_id is None and each.call not in undone}
        self._calls.clear()
        if self._can_reset:
            return self._end_step([{"type": "reset-step"}])
        return self._end_step([{"type": "data-helix-rewound", "data": {}, "transient": True}, {"type": "finish-step"}])

    def _end_step(self, closing: list[Part]) -> list[Part]:
        parts = self._close()
        self._inputs.clear()
        if self._in_step:
            self._in_step = False
            parts += closing
        return parts

    def _close(self) -> list[Part]:
        parts: list[Part] = []
        if self._text is not None:
            parts.append({"type": "text-end", "id": self._text})
        if self._thought is not None:
            parts.append({"type": "reasoning-end", "id": self._thought})
        self._text = self._thought = None
        return parts


def _shown(chunk: Chunk) -> _Shown:
    return _Shown(chunk.get("sub_session_id"), chunk["tool_call_id"], chunk["type"] == "subagent_start")


def question_part(call: str, chunk: Mapping[str, Any]) -> Part:
    """Return what a tool asks as a data part; the output that the client adds to the call is the answer."""
    data = {"toolCallId": call, "toolName": chunk.get("tool_name"), "question": chunk.get("question")}
    return {"type": "data-helix-question", "id": call, "data": {**data, "approvalId": chunk.get("approval_id")}}


def outcome_request(call: str, chunk: Chunk) -> Part:
    """Return a question about an unknown outcome as a data part; the client answers it with `tool-results`."""
    names = {"toolName": "tool_name", "input": "input", "effectKey": "effect_key", "approvalId": "approval_id"}
    data = {name: chunk.get(key) for name, key in names.items()}
    return {"type": "data-helix-outcome", "id": call, "data": {"toolCallId": call, **data}}
