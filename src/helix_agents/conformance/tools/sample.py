"""Data that the checks write: unusual values, a session with every field set, op lists."""

from __future__ import annotations

from typing import Any

import msgspec

from ...state.writes import StepWrites
from ...types import (
    CheckpointMeta,
    PendingClientToolCall,
    SessionState,
    SubSessionRef,
    SuspendedChildWait,
    TracingContext,
)

AWKWARD_TEXTS = (
    "",
    "\x00",
    "before\x00after",
    "\ud800",
    "\udfff lone \udc80",
    "~0/~1/~",
    "a/b",
    "\U0001f600 \U0001f468‍\U0001f469",
    "é and é",
    "\u2028\u2029\x7f\x85",
    '"quoted" \\ back\\slash',
    "'; DROP TABLE sessions; --",
    "{curly} %s $1 ?1 :name",
    "\r\n\t\b",
    "null",
    "1",
    "\ufeffbom",
    "\uffff",
)

AWKWARD_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    1.0,
    -0.0,
    0.1,
    1e300,
    5e-324,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    [],
    {},
    [[]],
    [{}],
    {"": {"": []}},
    [None, [None, {"a": None}]],
    *AWKWARD_TEXTS,
)


def awkward_state() -> dict[str, Any]:
    """Return custom state that holds every unusual value, as a member, in a list and as a key."""
    members = {f"v{place}": value for place, value in enumerate(AWKWARD_VALUES)}
    keys = {text: {"inner " + text: place} for place, text in enumerate(AWKWARD_TEXTS)}
    return {**members, **keys, "all": list(AWKWARD_VALUES), "deep": {"list": [{"k": list(AWKWARD_VALUES)}]}}


def nested(depth: int) -> Any:
    """Return a list in a list in a list ..."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def full_state(session_id: str) -> SessionState:
    """Return a session with every field that a caller may change set to a value other than its default."""
    return SessionState(
        session_id=session_id,
        agent_type="agent",
        stream_id="stream of " + session_id,
        parent_session_id="some-parent",
        root_session_id="some-root",
        custom_state={"a": [1, {"b": 2.0}], "c": "text"},
        step_count=7,
        status="suspended_client_tool",
        output={"answer": [1, 2.5, None]},
        error="it broke \ud800\x00",
        failure_reason="why",
        suspended_awaiting_children={
            "call-1": SuspendedChildWait("call-1", "child-1", "kid", "suspended_step_partial", ["x", "y"], 1_900_000)
        },
        suspended_step_id="step-9",
        pending_client_tool_calls={
            "call-2": PendingClientToolCall(
                "call-2",
                "ask",
                {"q": ["?"]},
                "run-1",
                "approval-1",
                1_900_000_000_000,
                {"yes": True},
                1_800_000_000_000,
            ),
            "call-3": PendingClientToolCall("call-3", "wait"),
        },
        completed_client_tool_calls={"call-4": 1_800_000_000_001},
        client_tool_call_ownership={"call-2": "child-1"},
        interrupt_context={"at": ["step", 3]},
        tracing_context=TracingContext("trace-1", "span-1"),
        expires_at=1_900_000_000_005,
        tags=("b", "a", "ünï"),
        metadata={"k": "v", "~/": "", "emoji": "😀"},
        resume_count=3,
        wake_at=1_900_000_000_009,
        queued_messages=[{"id": "queued-1", "message": {"role": "user", "content": "\ud800 and"}}],
    )


def plain_state(session_id: str, **fields: Any) -> SessionState:
    """Return a session value to save; `custom_state=None` leaves the stored state alone."""
    return msgspec.structs.replace(
        SessionState(session_id=session_id, agent_type="agent", stream_id=session_id), **fields
    )


def meta(step_count: int = 1, step_id: str = "step-1", stream_sequence: int = 0) -> CheckpointMeta:
    """Return the metadata of a commit."""
    return CheckpointMeta(step_id=step_id, step_count=step_count, stream_sequence=stream_sequence)


def ref(sub_session_id: str, **fields: Any) -> SubSessionRef:
    """Return a ref to a child session."""
    return msgspec.structs.replace(
        SubSessionRef(sub_session_id, "kid", f"call-of-{sub_session_id}", started_at=1), **fields
    )


def user(text: str, **members: Any) -> dict[str, Any]:
    """Return a message."""
    return {"role": "user", "content": text, **members}


def writes(*ops: dict[str, Any]) -> StepWrites:
    """Return what one tool call wrote."""
    return StepWrites(ops=list(ops), warnings=[])


def put(*path: Any, value: Any) -> dict[str, Any]:
    """Set a value at a path."""
    return {"kind": "replace", "path": list(path), "value": value}


def drop(*path: Any) -> dict[str, Any]:
    """Delete a member."""
    return {"kind": "delete", "path": list(path)}


def push(*path: Any, items: list[Any]) -> dict[str, Any]:
    """Append to the list at a path."""
    return {"kind": "append", "path": list(path), "items": items}


def add(*path: Any, by: int | float = 1) -> dict[str, Any]:
    """Increment a number."""
    return {"kind": "increment", "path": list(path), "by": by, "value": by}


def ensure(*path: Any, value: Any) -> dict[str, Any]:
    """Create a container if it is missing."""
    return {"kind": "ensure", "path": list(path), "value": value}
