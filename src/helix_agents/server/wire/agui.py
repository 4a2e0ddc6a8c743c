"""Chunks as AG-UI events: a pure function of the chunks of a turn that can be joined anywhere.

One encoder serves one connection. It opens and closes the paired events of AG-UI. To join in the middle, feed it the
earlier chunks and drop what it returns; `begin` then reopens what is open at that point. It applies the patches to the
state, for the snapshots that AG-UI needs before a change. It knows neither sessions nor sockets.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from ...chunks import Chunk
from ...codec import Json, encode
from ...errors import PatchError
from ...ids import step_id
from ...messages import message_id
from ...state import apply_patch

Event = dict[str, Any]

APPROVAL_SCHEMA: dict[str, Json] = {
    "type": "object",
    "required": ["approved"],
    "properties": {
        "approved": {"type": "boolean", "description": "Whether the call may run. Only true approves it."},
        "arguments": {"type": "object", "description": "Run the call with these arguments instead."},
        "reason": {"type": "string"},
    },
    "additionalProperties": False,
}
RESULT_SCHEMA: dict[str, Json] = {
    "oneOf": [
        {"type": "object", "required": ["result"], "properties": {"result": {}}, "additionalProperties": False},
        {
            "type": "object",
            "required": ["error"],
            "properties": {"error": {"type": "string"}},
            "additionalProperties": False,
        },
    ]
}
OUTCOME_SCHEMA: dict[str, Json] = {
    "type": "object",
    "required": ["happened"],
    "properties": {
        "happened": {
            "type": ["boolean", "null"],
            "description": "Whether the call took effect. With false it runs; null: unknown.",
        },
        "result": {"description": "With happened: true, what the call returned."},
        "reason": {"type": "string"},
    },
    "additionalProperties": False,
}
INTERRUPTS: dict[str, tuple[str, dict[str, Json]]] = {
    "approval": ("confirmation", APPROVAL_SCHEMA),
    "client": ("tool_call", RESULT_SCHEMA),
    "outcome": ("unknown_outcome", OUTCOME_SCHEMA),
}
CALLS = frozenset({"tool_start", "tool_approval_request", "client_tool_request", "tool_outcome_request"})
LIFECYCLE = frozenset(
    {"stream_rewound", "stream_resync", "branch_switched", "run_interrupted", "run_suspended", "step_committed"}
)

LIFECYCLE_FIELDS = ("checkpoint_id", "step_count", "reason", "branch_id", "message_count")


class AgUiEncoder:
    """The events of one AG-UI run: `thread_id` is the session, `run_id` what the client calls the run.

    `state`: custom state at the start of the turn.
    """

    def __init__(self, thread_id: str, run_id: str, state: Json = None) -> None:
        self._ids = {"threadId": thread_id, "runId": run_id}
        self._state = state
        self._committed = state
        self._texts: dict[str, Event] = {}
        self._thoughts: dict[str, Event] = {}
        self._calls: dict[str, Event] = {}
        self._subagents: dict[str, Event] = {}
        self._suspended: set[str] = set()
        """Sub-agents that are shown as suspended."""
        self._finished: Counter[str] = Counter()
        self._named: set[str] = set()

    def begin(self) -> list[Event]:
        """Return the events that every connection starts with."""
        events: list[Event] = [{"type": "RUN_STARTED", **self._ids}, self._snapshot()]
        events += self._subagents.values()
        events += self._texts.values()
        for opener in self._thoughts.values():
            events += _reasoning_start(opener)
        events += self._calls.values()
        return events

    def chunk(self, chunk: Chunk) -> list[Event]:
        """Return the events for one chunk."""
        who = self._owner(chunk)
        place = _place(chunk)
        match chunk:
            case {"type": "text_delta", "delta": str(delta)}:
                return self._text(place, delta, who) if delta else []
            case {"type": "thinking", "content": str(content)}:
                return self._thought(f"{place}-thinking", content, bool(chunk.get("is_complete")), who)
            case {"type": "tool_arg_delta", "tool_call_id": str(call), "delta": str(delta)}:
                return self._arguments(call, chunk.get("tool_name"), delta, place, who)
            case {"type": str(kind), "tool_call_id": str(call)} if kind in CALLS:
                return self._call(call, chunk, place, who)
            case {"type": "tool_end", "tool_call_id": str(call)}:
                return [*self._call(call, chunk, place, who), _result(call, chunk, who)]
            case {"type": "state_patch", "patches": list(patches)} if not who:
                return self._changed(patches)
            case {"type": "subagent_start", "sub_session_id": str(sub)}:
                return self._subagent(sub, chunk)
            case {"type": "subagent_end", "sub_session_id": str(sub)}:
                return self._subagent_end(sub)
            case {"type": "custom", "name": str(name)}:
                return [{"type": "CUSTOM", "name": name, "value": chunk.get("data"), **who}]
            case {"type": "user_message", "message": message}:
                # Not as a text message: a client that sent it has it, and would append the text to it.
                return [{"type": "CUSTOM", "name": "helix.user_message", "value": message}]
            case {"type": str(kind)} if kind in LIFECYCLE:
                return self._lifecycle(kind, chunk)
            case {"type": "run_started" | "run_resumed" | "output" | "error"}:
                return []  # the start, the result and the error of the run have events of their own
        return [{"type": "RAW", "event": chunk, "source": "helix"}]

    def ask(self, chunk: Chunk) -> list[Event]:
        """Return the events for a question, its call or its sub-agent, which the stream may not have; none if it
        has."""
        return (
            []
            if chunk["type"] == "subagent_start" and chunk["sub_session_id"] in self._suspended
            else self.chunk(chunk)
        )

    def end(self, name: str, data: dict[str, Json]) -> list[Event]:
        """Return the events for the final event of a feed (`feed.Event`)."""
        closing = self._close()
        if name == "end":
            outcome = {"type": "success"}
            return [*closing, {"type": "RUN_FINISHED", **self._ids, "result": data["output"], "outcome": outcome}]
        if name == "pause":
            questions = [each for each in data["suspended"] if each["kind"] not in ("deferred", "timer")]
            interrupts = [interrupt(question) for question in questions]
            rest = {"type": "interrupt", "interrupts": interrupts} if interrupts else {"type": "cancelled"}
            return [*closing, {"type": "RUN_FINISHED", **self._ids, "outcome": rest}]
        message = str(data.get("error") or f"The stream is {name}.")
        return [*closing, {"type": "RUN_ERROR", "message": message, "code": name}]

    # -- how

    def _snapshot(self) -> Event:
        return {"type": "STATE_SNAPSHOT", "snapshot": self._state}

    def _changed(self, patches: list[Any]) -> list[Event]:
        try:
            self._state = apply_patch(self._state, patches)
        except PatchError:
            return []  # the turn's first chunks are no longer stored: a client could not apply it either
        return [{"type": "STATE_DELTA", "delta": patches}]

    def _lifecycle(self, kind: str, chunk: Chunk) -> list[Event]:
        value = {key: chunk[key] for key in LIFECYCLE_FIELDS if key in chunk}
        events = [*self._close(), {"type": "CUSTOM", "name": f"helix.{kind}", "value": value}]
        if kind == "step_committed":
            self._committed = self._state
        elif kind == "stream_rewound":
            # The changes of the open step are discarded, and its calls are made again.
            self._state = self._committed
            events.append(self._snapshot())
        return events

    def _text(self, place: str, delta: str, who: Event) -> list[Event]:
        events: list[Event] = []
        if place not in self._texts:
            events += self._close_prose(who)
            self._texts[place] = {"type": "TEXT_MESSAGE_START", "messageId": place, "role": "assistant", **who}
            events.append(self._texts[place])
        return [*events, {"type": "TEXT_MESSAGE_CONTENT", "messageId": place, "delta": delta, **who}]

    def _thought(self, place: str, content: str, complete: bool, who: Event) -> list[Event]:
        events: list[Event] = []
        if content:
            if place not in self._thoughts:
                events += self._close_prose(who)
                self._thoughts[place] = {"messageId": place, **who}
                events += _reasoning_start(self._thoughts[place])
            events.append({"type": "REASONING_MESSAGE_CONTENT", "messageId": place, "delta": content, **who})
        if complete and place in self._thoughts:
            events += _reasoning_end(self._thoughts.pop(place))
        return events

    def _arguments(self, call: str, name: Json, delta: str, place: str, who: Event) -> list[Event]:
        if call in self._named:
            if call not in self._calls:
                return []
            return [{"type": "TOOL_CALL_ARGS", "toolCallId": call, "delta": delta, **who}] if delta else []
        if not isinstance(name, str) or not name:
            return []  # AG-UI cannot open a call without a name: it opens with `tool_start`
        events = self._open_call(call, name, place, who)
        return [*events, {"type": "TOOL_CALL_ARGS", "toolCallId": call, "delta": delta, **who}] if delta else events

    def _open_call(self, call: str, name: str, place: str, who: Event) -> list[Event]:
        closing = self._close_prose(who)
        self._named.add(call)
        self._calls[call] = {
            "type": "TOOL_CALL_START",
            "toolCallId": call,
            "toolCallName": name,
            "parentMessageId": place,
            **who,
        }
        return [*closing, self._calls[call]]

    def _call(self, call: str, chunk: Chunk, place: str, who: Event) -> list[Event]:
        """Return the events of a complete call: open it if necessary, then close it."""
        events: list[Event] = []
        if call not in self._named:
            given = chunk.get("arguments", chunk.get("input", {}))
            events += self._open_call(call, str(chunk.get("tool_name") or "unknown"), place, who)
            events.append({"type": "TOOL_CALL_ARGS", "toolCallId": call, "delta": encode(given), **who})
        if self._calls.pop(call, None) is not None:
            events.append({"type": "TOOL_CALL_END", "toolCallId": call, **who})
        return events

    def _owner(self, chunk: Chunk) -> Event:
        sub = chunk.get("sub_session_id")
        if not isinstance(sub, str) or chunk["type"].startswith("subagent_"):
            return {}
        return {"subagentRunId": self._subagent_id(sub)}

    def _subagent_id(self, sub: str) -> str:
        """Return an id for one call of a sub-agent: a persistent one is called several times in its session."""
        finished = self._finished[sub]
        return f"{sub}#{finished + 1}" if finished else sub

    def _subagent(self, sub: str, chunk: Chunk) -> list[Event]:
        if sub in self._subagents:
            return []
        name = str(chunk.get("agent_type") or "agent")
        event = {"type": "SUBAGENT_STARTED", "subagentRunId": self._subagent_id(sub), "name": name}
        if isinstance(chunk.get("tool_call_id"), str):
            event["parentToolCallId"] = chunk["tool_call_id"]
        self._subagents[sub] = event
        return [event]

    def _subagent_end(self, sub: str) -> list[Event]:
        who = {"subagentRunId": self._subagent_id(sub)}
        closing = self._close(who)
        self._finished[sub] += 1
        if self._subagents.pop(sub, None) is None:
            return closing
        return [*closing, {"type": "SUBAGENT_FINISHED", **who}]

    def _close_prose(self, who: Event) -> list[Event]:
        """Close the open text and reasoning of one speaker; others may speak at the same time."""
        events: list[Event] = []
        for place, opener in list(self._texts.items()):
            if _owner_of(opener) == who:
                del self._texts[place]
                events.append({"type": "TEXT_MESSAGE_END", "messageId": place, **who})
        for place, opener in list(self._thoughts.items()):
            if _owner_of(opener) == who:
                events += _reasoning_end(self._thoughts.pop(place))
        return events

    def _close(self, only: Event | None = None) -> list[Event]:
        """Close everything that is open, or all of one speaker."""
        speakers = [*self._texts.values(), *self._thoughts.values(), *self._calls.values()]
        owners = [only] if only is not None else [_owner_of(opener) for opener in speakers]
        events: list[Event] = []
        for who in owners:
            events += self._close_prose(who)
            for call, opener in list(self._calls.items()):
                if _owner_of(opener) == who:
                    del self._calls[call]
                    events.append({"type": "TOOL_CALL_END", "toolCallId": call, **who})
        if only is None:
            for sub in list(self._subagents):
                del self._subagents[sub]
                self._suspended.add(sub)
                who = {"subagentRunId": self._subagent_id(sub)}
                events.append({"type": "SUBAGENT_FINISHED", **who, "outcome": {"type": "suspended"}})
        return events


def _owner_of(opener: Event) -> Event:
    return {"subagentRunId": opener["subagentRunId"]} if "subagentRunId" in opener else {}


def _place(chunk: Chunk) -> str:
    """Return the id of the message that a chunk belongs to, usually the one under which it will be stored."""
    number: Any = chunk.get("sub_step", chunk.get("step", 0))
    return message_id(step_id(chunk.get("agent_id", "run"), number))


def _reasoning_start(opener: Event) -> list[Event]:
    return [
        {"type": "REASONING_START", **opener},
        {"type": "REASONING_MESSAGE_START", **opener, "role": "reasoning"},
    ]


def _reasoning_end(opener: Event) -> list[Event]:
    return [{"type": "REASONING_MESSAGE_END", **opener}, {"type": "REASONING_END", **opener}]


def _result(call: str, chunk: Chunk, who: Event) -> Event:
    if chunk.get("success", True):
        value = chunk.get("result")
        content = value if isinstance(value, str) else encode(value)
    else:
        content = f"Error: {chunk.get('error')}"
    return {"type": "TOOL_CALL_RESULT", "messageId": f"{call}-result", "toolCallId": call, "content": content, **who}


def interrupt(question: dict[str, Json]) -> Event:
    """Return a pending call as an interrupt. A question to a person has its own id, so that a late answer reaches no
    other question."""
    reason, schema = INTERRUPTS[question["kind"]]
    event = {
        "id": question["approval_id"] or question["tool_call_id"],
        "reason": reason,
        "toolCallId": question["tool_call_id"],
        "responseSchema": schema,
        "metadata": {"toolName": question["tool_name"], "input": question["input"], "kind": question["kind"]},
    }
    if question["kind"] == "outcome":
        event["metadata"]["effectKey"] = question["effect_key"]
    if (asked := question.get("question")) is not None:
        event |= {"reason": "question", "message": asked if isinstance(asked, str) else str(asked.get("message", ""))}
        event["metadata"]["question"] = asked
    if question.get("deadline_at") is not None:
        event["expiresAt"] = datetime.fromtimestamp(question["deadline_at"] / 1000, UTC).isoformat()
    return event
