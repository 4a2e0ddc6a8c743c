"""The chunks of a stream: plain dicts, stored and returned exactly as given.

    match chunk:
        case {"type": "text_delta", "delta": text}: ...

The TypedDicts describe what the executor writes; a stream accepts any JSON object with a string `type`.
"""

from __future__ import annotations

from typing import Any, Literal, Required, TypedDict

from .codec import ensure_object

Chunk = dict[str, Any]
"""Any JSON object with a string `type`."""


class Stamped(TypedDict, total=False):
    """What a writer adds to every chunk that lacks it."""

    agent_id: str
    agent_type: str
    timestamp: int
    step: int


class TextDelta(Stamped):
    type: Literal["text_delta"]
    delta: str


class Thinking(Stamped):
    type: Literal["thinking"]
    content: str
    is_complete: bool


class ToolArgDelta(Stamped):
    type: Literal["tool_arg_delta"]
    tool_call_id: str
    delta: str


class ToolStart(Stamped):
    type: Literal["tool_start"]
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]


class ToolEnd(Stamped):
    type: Literal["tool_end"]
    tool_call_id: str
    tool_name: str
    result: Any
    success: bool
    error: str | None


class ToolApprovalRequest(Stamped):
    type: Literal["tool_approval_request"]
    tool_call_id: str
    tool_name: str
    approval_id: str
    input: Any


class ClientToolRequest(Stamped):
    type: Literal["client_tool_request"]
    tool_call_id: str
    tool_name: str
    input: Any


class StatePatch(Stamped):
    type: Literal["state_patch"]
    patches: list[dict[str, Any]]


class SubagentStart(Stamped):
    type: Literal["subagent_start"]
    sub_session_id: str


class SubagentEnd(Stamped):
    type: Literal["subagent_end"]
    sub_session_id: str


class StepCommitted(Stamped, total=False):
    """`warnings`: writes of parallel tools that were lost. `finish_reason`: why the model stopped, if it said so."""

    type: Required[Literal["step_committed"]]
    checkpoint_id: Required[str]
    step_count: Required[int]
    warnings: list[str]
    finish_reason: str


class Output(Stamped):
    type: Literal["output"]
    output: Any


class ErrorChunk(Stamped):
    type: Literal["error"]
    error: str


class Lifecycle(Stamped):
    type: Literal["run_started", "run_interrupted", "run_resumed", "run_suspended", "stream_resync", "stream_rewound"]


class Custom(Stamped):
    type: Literal["custom"]
    name: str
    data: Any


def ensure_chunk(value: object) -> None:
    """Refuse what is not a chunk."""
    ensure_object(value, "chunk", "type")
