"""The chunks of a stream: plain dicts, stored and returned exactly as given.

    match chunk:
        case {"type": "text_delta", "delta": text}: ...

`AnyChunk` lists every chunk that the library itself writes, field by field; the type checker holds the executor to it,
and `docs/chunks.md` is tested against it. A stream accepts any JSON object with a string `type`.
"""

from __future__ import annotations

from typing import Any, Literal, Required, TypedDict, cast, get_args, get_type_hints

from .codec import ensure_object

Chunk = dict[str, Any]
"""Any JSON object with a string `type`."""


class Stamped(TypedDict, total=False):
    """What every chunk may carry. The writer adds the first four where they are missing.

    Chunks of a sub-agent on its parent's stream carry the last two; their `step` is the parent's.
    """

    agent_id: str
    agent_type: str
    timestamp: int
    step: int
    sub_session_id: str
    sub_step: int | None


class UserMessage(Stamped):
    """A run has read this message of a user, as it is stored. Ignore it if you have a message with its id."""

    type: Literal["user_message"]
    message: dict[str, Any]


class TextDelta(Stamped):
    """A piece of the model's text."""

    type: Literal["text_delta"]
    delta: str


class Thinking(Stamped):
    """A piece of the model's reasoning; the last one is empty and complete."""

    type: Literal["thinking"]
    content: str
    is_complete: bool


class ToolArgDelta(Stamped):
    """A piece of the arguments of a tool call, as JSON text."""

    type: Literal["tool_arg_delta"]
    tool_call_id: str
    tool_name: str
    delta: str


class ToolStart(Stamped):
    """A tool call starts."""

    type: Literal["tool_start"]
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]


class ToolEnd(Stamped):
    """A tool call has its outcome: a result, or an error."""

    type: Literal["tool_end"]
    tool_call_id: str
    tool_name: str
    result: Any
    success: bool
    error: str | None


class ToolApprovalRequest(Stamped, total=False):
    """A person must allow this call. `deadline_at`: until when, if there is a limit."""

    type: Required[Literal["tool_approval_request"]]
    tool_call_id: Required[str]
    tool_name: Required[str]
    approval_id: Required[str]
    input: Required[Any]
    deadline_at: int


class ClientToolRequest(Stamped, total=False):
    """The client executes this call, or answers the `question` that the tool asks during the call.

    `approval_id`: names the question, if there is one. `deadline_at`: until when, if there is a limit.
    """

    type: Required[Literal["client_tool_request"]]
    tool_call_id: Required[str]
    tool_name: Required[str]
    input: Required[Any]
    question: Any
    approval_id: str
    deadline_at: int


class ToolOutcomeRequest(Stamped, total=False):
    """A person must say whether this call took effect. `recorded`: what it led to in an abandoned part of the session.

    Not an approval: a call that took effect must not run again.
    """

    type: Required[Literal["tool_outcome_request"]]
    tool_call_id: Required[str]
    tool_name: Required[str]
    input: Required[Any]
    effect_key: Required[str]
    approval_id: Required[str]
    recorded: Any
    deadline_at: int


class StatePatch(Stamped):
    """How custom state changes, as RFC 6902 operations; in order they give the committed state."""

    type: Literal["state_patch"]
    patches: list[dict[str, Any]]


class SubagentStart(Stamped):
    """A sub-agent starts; its own chunks follow on this stream."""

    type: Literal["subagent_start"]
    tool_call_id: str


class SubagentEnd(Stamped):
    """A sub-agent has stopped."""

    type: Literal["subagent_end"]
    tool_call_id: str
    status: str


class StepCommitted(Stamped, total=False):
    """A step is stored. `message_id`: the assistant message. `warnings`: writes of parallel tools that were lost.

    `finish_reason`: why the model stopped.
    """

    type: Required[Literal["step_committed"]]
    checkpoint_id: Required[str]
    step_count: Required[int]
    message_id: str
    warnings: list[str]
    finish_reason: str


class Output(Stamped):
    """The run completed."""

    type: Literal["output"]
    output: Any


class ErrorChunk(Stamped):
    """The run failed."""

    type: Literal["error"]
    error: str | None


class RunStarted(Stamped):
    """A turn starts."""

    type: Literal["run_started"]
    run_id: str
    turn: int


class RunResumed(Stamped):
    """A run continues after a crash, an interrupt or a response."""

    type: Literal["run_resumed"]
    run_id: str
    turn: int


class RunInterrupted(Stamped):
    """The run stopped on request."""

    type: Literal["run_interrupted"]
    reason: str | None


class RunSuspended(Stamped):
    """The run waits for people or sub-agents; no process holds it."""

    type: Literal["run_suspended"]
    status: str
    tool_call_ids: list[str]


class StreamRewound(Stamped):
    """Chunks of steps after `step_count` are gone: drop what they showed."""

    type: Literal["stream_rewound"]
    step_count: int


class StreamResync(Stamped):
    """All earlier chunks are gone: start from an empty page."""

    type: Literal["stream_resync"]


class BranchSwitched(Stamped):
    """The conversation continues on another branch. It has `message_count` messages before what follows this chunk."""

    type: Literal["branch_switched"]
    branch_id: str
    message_count: int


class Custom(Stamped, total=False):
    """A value that a tool emitted with `ctx.emit(name, data)`."""

    type: Required[Literal["custom"]]
    name: Required[str]
    data: Required[Any]
    tool_call_id: str


AnyChunk = (
    UserMessage
    | TextDelta
    | Thinking
    | ToolArgDelta
    | ToolStart
    | ToolEnd
    | ToolApprovalRequest
    | ToolOutcomeRequest
    | ClientToolRequest
    | StatePatch
    | SubagentStart
    | SubagentEnd
    | StepCommitted
    | Output
    | ErrorChunk
    | RunStarted
    | RunResumed
    | RunInterrupted
    | RunSuspended
    | StreamRewound
    | StreamResync
    | BranchSwitched
    | Custom
)
"""Every chunk that the library writes."""


def chunk_types() -> dict[str, type]:
    """Return the TypedDict of each chunk, keyed by its `type`."""
    return {get_args(get_type_hints(kind)["type"])[0]: kind for kind in get_args(AnyChunk)}


def as_chunk(chunk: AnyChunk) -> Chunk:
    """Return the same dict typed as any chunk: to a type checker a TypedDict is not a dict."""
    return cast(Chunk, chunk)


def ensure_chunk(value: object) -> None:
    """Raise unless the value is a chunk."""
    ensure_object(value, "chunk", "type")
