"""The values that stores return: frozen structs without behavior or knowledge of storage."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

import msgspec

from .codec import Json

SessionStatus = Literal[
    "active",
    "paused",
    "interrupted",
    "completed",
    "failed",
    "suspended_client_tool",
    "suspended_awaiting_children",
    "suspended_step_partial",
]
RunStatus = Literal[
    "running",
    "completed",
    "failed",
    "interrupted",
    "suspended_client_tool",
    "suspended_awaiting_children",
    "suspended_step_partial",
]
StreamStatus = Literal["active", "paused", "ended", "failed"]
SubSessionMode = Literal["ephemeral", "persistent"]

Item = TypeVar("Item")


class InterruptFlag(msgspec.Struct, frozen=True):
    """A durable request to stop; `run_id` limits it to one run. `abort`: stop immediately; the session ends
    `failed`."""

    reason: str | None = None
    run_id: str | None = None
    set_at: int = 0
    abort: bool = False


class TracingContext(msgspec.Struct, frozen=True):
    """The trace that a suspended run continues when it is resumed."""

    trace_id: str
    root_span_id: str


QuestionKind = Literal["client", "approval", "outcome", "deferred", "timer"]
"""What a call waits for: a client's result, a person's approval or finding, the result of a job, or a point in time."""


class EffectQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person is asked about an effect: whether it happened.

    `part`: the effect of a call that is meant, by its name in `ctx.once`; None: the call itself. `recorded`: what the
    model was told when the same effect happened in a part of the conversation that has been abandoned since.
    """

    key: str
    part: str | None = None
    recorded: Json = None


class ToolQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the function of a call asks a person, with `ctx.ask`.

    `answered`: the questions that it asked before, in order, each with its answer.
    """

    question: Json
    answered: list[tuple[Json, Json]] = []


class PendingClientToolCall(msgspec.Struct, frozen=True):
    """A tool call that waits for a response from outside: a client's result, a person's approval, or its real outcome.

    `approval_id` names the question to a person, also one about an outcome: an answer that gives it is rejected if
    another question has been asked since.
    """

    tool_call_id: str
    tool_name: str
    input: Json = None
    run_id: str | None = None
    approval_id: str | None = None
    deadline_at: int | None = None
    response: Json = None
    submitted_at: int | None = None
    asked_at: int | None = None
    answered_by: str | None = None
    effect: EffectQuestion | None = None
    later: Literal["deferred", "timer", "asked"] | None = None
    """Whether the call's function has handed its work to a job outside, waits until `deadline_at`, or asks a person."""
    waits: int = 0
    """Which of the waits in the call's function the timer belongs to; those before it are over."""
    asked: ToolQuestion | None = None
    """What the call's function asks, or has asked."""

    @property
    def kind(self) -> QuestionKind:
        """What kind of answer the call waits for."""
        if self.later == "asked":
            return "client"
        if self.later is not None:
            return self.later
        if self.effect is not None:
            return "outcome"
        return "client" if self.approval_id is None else "approval"


class SuspendedChildWait(msgspec.Struct, frozen=True):
    """A parent's tool call that waits for a suspended child session."""

    parent_tool_call_id: str
    child_session_id: str
    agent_type: str = ""
    status: str = "suspended_client_tool"
    tool_call_ids: list[str] = []
    """The questions that the child and its descendants wait for."""
    deadline_at: int | None = None
    """When the last of these questions expires; None if one of them never does."""
    wake_at: int | None = None
    """When the child must continue, whatever it still waits for."""


class ForkOrigin(msgspec.Struct, frozen=True):
    """The origin of a fork: a session, one of its checkpoints (None: its state at that time), and its first
    messages."""

    session_id: str
    checkpoint_id: str | None
    message_count: int


class SessionState(msgspec.Struct, frozen=True):
    """One session without its messages. `custom_state` is None if it was not requested."""

    session_id: str
    agent_type: str
    stream_id: str = ""
    parent_session_id: str | None = None
    root_session_id: str | None = None
    custom_state: Json = None
    step_count: int = 0
    status: SessionStatus = "active"
    output: Json = None
    error: str | None = None
    failure_reason: str | None = None
    suspended_awaiting_children: dict[str, SuspendedChildWait] = {}
    suspended_step_id: str | None = None
    pending_client_tool_calls: dict[str, PendingClientToolCall] = {}
    completed_client_tool_calls: dict[str, int] = {}
    client_tool_call_ownership: dict[str, str] = {}
    interrupt_context: Json = None
    interrupt_flag: InterruptFlag | None = None
    tracing_context: TracingContext | None = None
    expires_at: int | None = None
    user_id: str | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, str] = {}
    version: int = 0
    resume_count: int = 0
    created_at: int = 0
    updated_at: int = 0
    queued_messages: list[dict[str, Any]] = []
    """Messages that no run has read yet, in order: `{"id": ..., "message": ...}`."""
    wake_at: int | None = None
    """When a worker continues the suspended or paused session, even if it still waits for responses."""
    incarnation: str = ""
    """A random string, set when the session is created. A session deleted and created again has another one."""
    owner_epoch: int = 0
    """How often the session has been claimed. It only grows and is the fencing token of the session's stream."""
    forked_from: ForkOrigin | None = None
    """What the session was forked from, if it was. Set when the session is created, read only."""


class Owner(msgspec.Struct, frozen=True):
    """The claim that a writer holds: an incarnation of a session, and its owner epoch (None: any epoch).

    A guarded write is rejected if the session was deleted, created again or claimed by another process since.
    """

    incarnation: str
    epoch: int | None = None


class SubSessionRef(msgspec.Struct, frozen=True):
    """A parent's record of a child session."""

    sub_session_id: str
    agent_type: str
    parent_tool_call_id: str
    status: str = "active"
    mode: SubSessionMode = "ephemeral"
    name: str | None = None
    remote: Json = None
    started_at: int = 0
    completed_at: int | None = None


class ParentCall(msgspec.Struct, frozen=True):
    """The tool call that a run of a child session works on."""

    tool_call_id: str
    input: Json = None
    run_id: str | None = None
    """The parent's run that made the call."""


class RunRecord(msgspec.Struct, frozen=True):
    """One execution inside a session. `metadata` belongs to the caller; the library stores nothing in it."""

    run_id: str
    session_id: str
    turn: int
    """The user's turn, from 1. A run that continues another one stays in its turn. 0 in a new run: the next turn."""
    status: RunStatus = "running"
    step_count: int = 0
    start_sequence: int = 0
    started_at: int = 0
    completed_at: int | None = None
    error: str | None = None
    output: Json = None
    metadata: dict[str, Any] = {}
    lease_until: int | None = None
    attempt: int = 1
    """1 for the run that starts a turn, one more for each run that continues it."""
    first_step: int = 0
    """How many steps the session had when the turn started."""
    first_message: int = 0
    """How many messages the conversation had when the turn started."""
    claimed_step: int = 0
    """How many steps the session had when the run was claimed last."""
    resumes: str | None = None
    """The run that this one continues."""
    crashes: int = 0
    """How many runs in a row died without a commit before this one."""
    engine: str | None = None
    """The external scheduler that decides where the steps run; workers skip its runs."""
    worker: str | None = None
    """The name of the worker that claimed the run last."""
    queued: bool = False
    """Whether the run was submitted for any worker to start."""
    limits: Json = None
    """The usage limits of the run, as plain data."""
    follow_up: list[dict[str, Any]] = []
    """Messages that the commit of step `open_step` adds to the conversation."""
    open_step: int | None = None
    not_before: int | None = None
    """When workers may start the run at the earliest; None once a process has claimed it."""
    idempotency_key: str | None = None
    request_digest: str | None = None
    """A digest of the request that used the key."""
    parent_call: ParentCall | None = None

    @property
    def is_postponed(self) -> bool:
        """Whether the run was submitted for a later moment and has not been claimed: its lease ends at that moment."""
        return self.not_before is not None and self.lease_until == self.not_before


class Claimable(msgspec.Struct, frozen=True):
    """A session that a worker can continue or close now, without custom state, and its latest run.

    `due_at`: since when. A released run has been due since 0.
    """

    session: SessionState
    run: RunRecord | None
    due_at: int


CheckpointKind = Literal["step", "turn", "aside"]
"""What a checkpoint records: the end of a step, the start of a turn, or an open step set aside."""

StagedKind = Literal["call", "answer", "summary", "begun", "part", "deferred"]
"""What a staged row holds: the outcome of a tool call, the model's answer, a summary made to ask the model, the intent
of a call or of a part of it that must happen once, the result of such a part, or what a deferred call wrote."""

OF_A_CALL: frozenset[StagedKind] = frozenset({"call", "begun", "part", "deferred"})
"""The kinds of rows that name a call; the others belong to the step."""


class CheckpointMeta(msgspec.Struct, frozen=True):
    """What the caller of a commit says about it. Only the end of a step promotes what is staged for the step."""

    step_id: str
    step_count: int
    stream_sequence: int = 0
    kind: CheckpointKind = "step"
    request: dict[str, Json] | None = None
    """The fingerprint of the model request that led to the step."""


class Checkpoint(msgspec.Struct, frozen=True):
    """The record of one commit, and the session as it was then."""

    checkpoint_id: str
    session_id: str
    step_id: str
    step_count: int
    stream_sequence: int
    message_count: int
    status: SessionStatus
    version: int
    created_at: int
    state: SessionState
    kind: CheckpointKind = "step"
    request: dict[str, Json] | None = None
    """The fingerprint of the model request that led to the step."""


class Conversation(msgspec.Struct, frozen=True):
    """A session at one moment, with its last messages, its latest run and its latest checkpoint."""

    session: SessionState
    messages: list[dict[str, Any]]
    message_count: int
    """The count of all messages, including those not in `messages`."""
    run: RunRecord | None
    checkpoint: Checkpoint | None
    """The latest checkpoint, without custom state."""


class Branch(msgspec.Struct, frozen=True):
    """One continuation of a conversation after a message. Branches that diverge after the same message are siblings."""

    branch_id: str
    message_id: str | None
    """The message after which the branch diverges from its siblings; None: it has its own first message."""
    message_count: int
    """How many messages the conversation has on this branch, from the first one on."""
    created_at: int
    is_active: bool
    """Whether the branch is part of the current conversation."""


class BranchPoint(msgspec.Struct, frozen=True):
    """The start of a new branch: after this many messages, with the custom state of a checkpoint."""

    branch_id: str
    checkpoint_id: str
    message_count: int
    message_id: str | None = None
    """The last message before the branches diverge, as in `Branch.message_id`."""


class StagedChanges(msgspec.Struct, frozen=True):
    """What one tool call wrote, stored separately until its step commits.

    An `answer` or a `summary` belongs to the step, not to a call: its `tool_call_id` is empty.
    """

    tool_call_id: str
    index: int
    writes: Any
    result: Json = None
    staged_at: int = 0
    kind: StagedKind = "call"


class Committed(msgspec.Struct, frozen=True):
    """What a commit returns."""

    checkpoint_id: str
    new_version: int
    message_count: int
    warnings: list[str] = []
    sequence: int = 0
    """The sequence of the last chunk that the commit carried."""
    branch_id: str | None = None
    """The branch that the conversation is on, among those that diverge at the position the commit returned to."""


class StatusSwapped(msgspec.Struct, frozen=True):
    """`compare_and_set_status` won."""

    new_version: int
    ok: Literal[True] = True


class StatusConflict(msgspec.Struct, frozen=True):
    """`compare_and_set_status` lost; the fields are what the store found."""

    current_status: SessionStatus
    current_version: int
    ok: Literal[False] = False


class Page(msgspec.Struct, Generic[Item], frozen=True):
    """One page of a listing. `total` is None if it was not requested."""

    items: list[Item]
    total: int | None
    offset: int
    limit: int | None
    has_more: bool
    next_cursor: str | None = None


class CleanupSummary(msgspec.Struct, frozen=True):
    """What one sweep of expired sessions found and did."""

    detected: int = 0
    marked: int = 0
    already_terminal: int = 0
    snapshots_deleted: int = 0
    errors: list[str] = []
