"""Questions to people and clients: calls to execute, to approve or to clarify, and their responses.

A question is a row in the session (`pending_client_tool_calls`); nothing waits in memory. A response is one guarded
write by any process; the run that asked, or the one that resumes, finds it there. The root session records which
descendant asked what (`client_tool_call_ownership`), so a response can always be sent to the root.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any, Literal, cast

import msgspec

from ...agent import AgentRegistry
from ...chunks import Chunk, ClientToolRequest, ToolApprovalRequest, ToolOutcomeRequest
from ...clock import Clock, IdSource
from ...codec import Json, ensure_json
from ...errors import InvalidArgument, SessionNotFound, StoreUnavailable, VersionConflict
from ...lifecycle import SESSION_TERMINAL, SUSPENDED
from ...messages import ToolCall
from ...retry import CONFLICT
from ...stores.state.contract import StateStore
from ...tools.tool import Tool
from ...types import (
    EffectQuestion,
    PendingClientToolCall,
    QuestionKind,
    SessionState,
    SuspendedChildWait,
    ToolQuestion,
)
from ..step.deadlines import deadline_of, has_expired, is_too_late
from ..step.decisions import Outcome

APPROVAL_PREFIX = "approval-"
APPROVAL_MARK = "."

UNKNOWN = "It is not known whether this call took effect"
CONFIRMED = "A person confirmed that this call took effect. Its result is not known."

MESSAGE_INSTEAD = "The user sent a message instead of answering."

REQUESTS: dict[QuestionKind, str] = {
    "client": "client_tool_request",
    "approval": "tool_approval_request",
    "outcome": "tool_outcome_request",
}
WANTED: dict[QuestionKind, str] = {
    "client": "a result or an error, not an approval",
    "approval": "approved=True or False",
    "outcome": "happened=True, False or None: an approval does not say whether it took effect",
    "deferred": "a result or an error",
    "timer": "no answer: it continues at its time",
}

ReceiptStatus = Literal["accepted", "duplicate", "late"]


class ToolResultReceipt(msgspec.Struct, frozen=True):
    """The result of submitting a response. `session_id` is the session that asked.

    `accepted`: it will be used. `duplicate`: an earlier response was stored, this one changed nothing. `late`: the call
    was settled without it, or its deadline had passed; it is recorded, but not used.
    """

    status: ReceiptStatus
    session_id: str
    tool_call_id: str


class Answer(msgspec.Struct, frozen=True):
    """A response from outside. `id` is the id of the call or of the approval request."""

    id: str
    response: dict[str, Json]
    answered_by: str | None = None

    @property
    def names(self) -> list[str]:
        """The calls that may be meant: the call's own id, or the suffix of an approval's id."""
        if not self.id.startswith(APPROVAL_PREFIX):
            return [self.id]
        return [self.id, self.id.partition(APPROVAL_MARK)[2]]

    def is_stale_for(self, pending: PendingClientToolCall) -> bool:
        """Return whether this responds to an approval request that is no longer current."""
        return self.id not in (pending.tool_call_id, pending.approval_id)


async def question_of(tool: Tool, call: ToolCall) -> QuestionKind | None:
    """Return the question to ask before this call can run; None if it can run, even if it will fail."""
    try:
        tool.input.parse(call["arguments"])
    except InvalidArgument:
        return None
    if tool.execute == "client":
        return "client"
    try:
        return "approval" if await tool.needs_approval(call["arguments"]) else None
    except Exception:
        return "approval"  # if the rule itself fails, ask


def pending_call(
    tool: Tool,
    call: ToolCall,
    question: QuestionKind,
    *,
    run_id: str,
    now: int,
    approval_id: str,
    effect: EffectQuestion | None = None,
    before: PendingClientToolCall | None = None,
) -> PendingClientToolCall:
    """Return the question to store. `effect`: the effect whose outcome is unknown.

    `before`: the question that this one replaces; answers to the call's function are retained.
    """
    answered = answered_questions(before)
    return PendingClientToolCall(
        tool_call_id=call["id"],
        tool_name=call["name"],
        input=call["arguments"],
        run_id=run_id,
        approval_id=None if question == "client" else approval_id,
        deadline_at=deadline_of(tool, now),
        asked_at=now,
        effect=effect,
        asked=ToolQuestion(None, answered) if answered else None,
    )


def answered_questions(pending: PendingClientToolCall | None) -> list[tuple[Json, Json]]:
    """Return the questions that the call's function has asked so far, with the answers."""
    if pending is None or pending.asked is None:
        return []
    match pending.response:
        case {"result": result} if pending.later == "asked":
            return [*pending.asked.answered, (pending.asked.question, result)]
    return [*pending.asked.answered]


def new_approval_id(ids: IdSource, tool_call_id: str) -> str:
    """Return the id of one question about a call. It ends with the call's id, so that a late response also finds it."""
    return f"{APPROVAL_PREFIX}{ids()}{APPROVAL_MARK}{tool_call_id}"


def request_chunk(pending: PendingClientToolCall) -> ToolApprovalRequest | ClientToolRequest | ToolOutcomeRequest:
    """Return the chunk that announces the question. Deferred calls have none."""
    chunk: Any = {"type": REQUESTS[pending.kind], "tool_call_id": pending.tool_call_id, "tool_name": pending.tool_name}
    chunk["input"] = pending.input
    if pending.approval_id is not None:
        chunk["approval_id"] = pending.approval_id
    if pending.later == "asked" and pending.asked is not None:
        chunk["question"] = pending.asked.question
    if pending.effect is not None:
        chunk["effect_key"] = pending.effect.key
        if pending.effect.recorded is not None:
            chunk["recorded"] = pending.effect.recorded
    if pending.deadline_at is not None:
        chunk["deadline_at"] = pending.deadline_at
    request: ToolApprovalRequest | ClientToolRequest | ToolOutcomeRequest = chunk
    return request


def answer_to(pending: PendingClientToolCall, now: int) -> Outcome | Literal["approved"] | None:
    """Return the outcome of an answered or expired question; None while it is open. `approved`: the call runs."""
    if pending.later == "timer":
        return "approved" if pending.deadline_at is None or now >= pending.deadline_at else None
    if has_expired(pending, now):
        return _unanswered(pending, "No answer came before the deadline.")
    if pending.submitted_at is None:
        return None
    if is_too_late(pending, pending.submitted_at):
        return _unanswered(pending, "The answer came after the deadline.")
    if pending.effect is not None:
        return _outcome_of(pending.effect, pending.response)
    match pending.response:
        case {"approved": True}:
            return "approved"
        case {"approved": False, "reason": reason}:
            return Outcome(success=False, error="A person refused this call" + (f": {reason}" if reason else "."))
        case {"error": error}:
            return Outcome(success=False, error=str(error))
        case {"result": _} if pending.later == "asked":
            return "approved"  # the function runs again and gets the answer
        case {"result": result}:
            return Outcome(success=True, result=result)
    return Outcome(success=False, error="The stored answer cannot be read.")


def _outcome_of(effect: EffectQuestion, response: Json) -> Outcome | Literal["approved"]:
    """Return the outcome that a person reported for an effect. A call with a part runs again, with the part's
    result."""
    match response:
        case {"happened": True} if effect.part is not None:
            return "approved"
        case {"happened": True, "result": result}:
            return Outcome(success=True, result=result, effect_key=effect.key)
        case {"happened": True}:
            result = CONFIRMED if effect.recorded is None else effect.recorded
            return Outcome(success=True, result=result, effect_key=effect.key)
        case {"happened": False}:
            return "approved"
    reason = response.get("reason") if isinstance(response, dict) else None
    return unknown_outcome(effect.key, str(reason or "it could not be determined."))


def unknown_outcome(effect_key: str, why: str) -> Outcome:
    """Return the outcome of a call that may or may not have taken effect."""
    return Outcome(success=False, error=f"{UNKNOWN}: {why}", effect_key=effect_key, unknown=True)


def _unanswered(pending: PendingClientToolCall, why: str) -> Outcome:
    if pending.effect is not None:
        return unknown_outcome(pending.effect.key, why)
    return Outcome(success=False, error=why)


def message_instead(pending: PendingClientToolCall | None) -> Outcome:
    """Return the outcome of a question that the user skipped by sending a message."""
    if pending is None:
        return Outcome(success=False, error=MESSAGE_INSTEAD)
    return _unanswered(pending, MESSAGE_INSTEAD)


def changed_arguments(pending: PendingClientToolCall, call: ToolCall) -> dict[str, Any] | None:
    """Return the arguments that a person changed; None if unchanged."""
    match pending.response:
        case {"approved": True, "arguments": dict() as arguments}:
            return arguments
    replaced = pending.effect is not None or pending.later is not None
    if replaced and isinstance(pending.input, dict) and pending.input != call["arguments"]:
        return pending.input  # changed by an earlier answer, which this question replaced
    return None


def waiting(session: SessionState, now: int) -> list[PendingClientToolCall]:
    """Return the open questions of one session."""
    return [pending for pending in session.pending_client_tool_calls.values() if answer_to(pending, now) is None]


async def open_requests(store: StateStore, session: SessionState, now: int) -> list[Chunk]:
    """Return the chunks that ask the open questions of a session and its suspended descendants.

    They are marked as on the session's stream: those of a sub-agent with its session, after a chunk that starts it.
    """
    chunks: list[Chunk] = []
    _, own_step = _suspended_step(session)
    async for each, wait in _suspended(store, session):
        run_id, step = _suspended_step(each)
        asked = [pending for pending in waiting(each, now) if pending.later in (None, "asked")]
        if not asked or each.status not in SUSPENDED or step is None or own_step is None:
            continue
        marks: Chunk = {"agent_id": run_id, "step": own_step}
        if wait is not None:
            sub: Chunk = {"sub_session_id": each.session_id, "agent_type": each.agent_type}
            chunks.append({"type": "subagent_start", "tool_call_id": wait.parent_tool_call_id, **sub, "step": own_step})
            marks |= {**sub, "sub_step": step}
        chunks += [{**request_chunk(pending), **marks} for pending in asked]
    return chunks


def _suspended_step(session: SessionState) -> tuple[str, int | None]:
    """Return the run and the number of a session's suspended step."""
    run_id, _, number = (session.suspended_step_id or "").rpartition("-")
    return run_id, int(number) if number.isdecimal() else None


async def all_waiting(store: StateStore, session: SessionState, now: int) -> list[PendingClientToolCall]:
    """Return the open questions of a session and its suspended descendants."""
    return [pending async for each, _ in _suspended(store, session) for pending in waiting(each, now)]


async def _suspended(
    store: StateStore, session: SessionState
) -> AsyncIterator[tuple[SessionState, SuspendedChildWait | None]]:
    """Yield a session, and its suspended descendants with the calls that wait for them."""
    seen, rest = {session.session_id}, [(session, cast("SuspendedChildWait | None", None))]
    while rest:
        each, called = rest.pop()
        yield each, called
        for wait in reversed(each.suspended_awaiting_children.values()):
            if wait.child_session_id not in seen:  # a store accepts cycles of sessions that wait for each other
                seen.add(wait.child_session_id)
                child = await store.load_state(wait.child_session_id)
                if child is not None and child.status not in SESSION_TERMINAL:
                    rest.append((child, wait))


async def own_calls(
    store: StateStore, session: SessionState, call_ids: list[str], ensure_owner: Callable[[], Awaitable[None]]
) -> None:
    """Record at the root session that `session` asked about these calls. Raises what `ensure_owner` raises."""
    root_id = session.root_session_id
    if not root_id or root_id == session.session_id:
        return
    owners = dict.fromkeys(call_ids, session.session_id)
    await change_session(
        store,
        root_id,
        lambda root: msgspec.structs.replace(
            root,
            client_tool_call_ownership={**root.client_tool_call_ownership, **owners},
            completed_client_tool_calls=without(root.completed_client_tool_calls, call_ids),
        ),
        ensure_owner,
    )


def without(stamps: dict[str, int], call_ids: Collection[str]) -> dict[str, int]:
    """Return the records of answered calls, except calls that are asked about again."""
    return {call_id: at for call_id, at in stamps.items() if call_id not in call_ids}


async def change_session(
    store: StateStore,
    session_id: str,
    change: Callable[[SessionState], SessionState | None],
    before_retry: Callable[[], Awaitable[None]] | None = None,
) -> SessionState:
    """Load, change and save a session that others may write; retry if another write came first."""
    for _ in CONFLICT.attempts():
        session = await store.load_state(session_id)
        if session is None:
            raise SessionNotFound(session_id)
        changed = change(session)
        if changed is None:
            return session
        try:
            await store.save_state(
                session_id, msgspec.structs.replace(changed, custom_state=None), expected_version=session.version
            )
        except VersionConflict:
            if before_retry is not None:
                await before_retry()
            continue
        return changed
    raise StoreUnavailable(f"Session {session_id!r} changes too fast to be written: try again.")


async def submit(
    store: StateStore,
    clock: Clock,
    agents: AgentRegistry,
    session_id: str,
    answer: Answer,
    *,
    incarnation: str | None = None,
    addressed: str | None = None,
) -> ToolResultReceipt:
    """Store a response in the session that asked. Raises `InvalidArgument` for an unknown call or an unsuitable
    response.

    `incarnation`: the expected incarnation of the session that asked; a session created since then under the same id
    did not ask. `addressed`: the expected incarnation of the session that the caller named.
    """
    response = answer.response
    ensure_json(response)
    tool_call_id, owner_id, root_id = await _find_owner(store, session_id, answer)
    now = clock()
    status: ReceiptStatus = "accepted"

    def record(owner: SessionState) -> SessionState | None:
        nonlocal status
        expected = incarnation or (addressed if owner_id == session_id else None)
        if expected not in (None, owner.incarnation):
            raise SessionNotFound(owner_id)
        pending = owner.pending_client_tool_calls.get(tool_call_id)
        settled = tool_call_id in owner.completed_client_tool_calls
        if pending is None:
            status = "duplicate" if settled else "late"
            return None if settled else _tombstone(owner, tool_call_id, now)
        if pending.submitted_at is not None:
            status = "duplicate"
            return None
        _ensure_fits(pending, answer)
        _ensure_arguments(agents, owner, pending, response)
        status = "late" if is_too_late(pending, now) else "accepted"
        answered = msgspec.structs.replace(pending, response=response, submitted_at=now, answered_by=answer.answered_by)
        calls = {**owner.pending_client_tool_calls, tool_call_id: answered}
        return _tombstone(msgspec.structs.replace(owner, pending_client_tool_calls=calls), tool_call_id, now)

    await change_session(store, owner_id, record)
    if root_id != owner_id:
        await change_session(store, root_id, lambda root: _tombstone(root, tool_call_id, now))
    return ToolResultReceipt(status, owner_id, tool_call_id)


def _tombstone(session: SessionState, tool_call_id: str, now: int) -> SessionState | None:
    """Return the session with a record of the response, which outlives the question; None if it has one already."""
    if tool_call_id in session.completed_client_tool_calls and tool_call_id not in session.pending_client_tool_calls:
        return None
    stamps = {**session.completed_client_tool_calls, tool_call_id: now}
    return msgspec.structs.replace(session, completed_client_tool_calls=stamps)


async def _find_owner(store: StateStore, session_id: str, answer: Answer) -> tuple[str, str, str]:
    """Return the call that the response is for, the session that asked, and its root."""
    session = await store.load_state(session_id)
    if session is None:
        raise SessionNotFound(session_id)
    root_id = session.root_session_id or session_id
    root = session if root_id == session_id else await store.load_state(root_id)
    for name in answer.names:
        if name in session.pending_client_tool_calls:
            return name, session_id, root_id
        owner = (root.client_tool_call_ownership if root else {}).get(name)
        if owner is not None and await store.session_exists(owner):
            return name, owner, root_id
        if name in session.completed_client_tool_calls:
            return name, session_id, root_id
    raise InvalidArgument(f"Session {session_id!r} has no pending call or approval {answer.id!r}: check the id.")


def _ensure_fits(pending: PendingClientToolCall, answer: Answer) -> None:
    if answer.is_stale_for(pending):
        raise InvalidArgument(
            f"Approval {answer.id!r} is no longer pending: call {pending.tool_call_id!r} has a new request, "
            f"{pending.approval_id!r}."
        )
    given: QuestionKind = (
        "outcome" if "happened" in answer.response else "approval" if "approved" in answer.response else "client"
    )
    if given != ("client" if pending.kind == "deferred" else pending.kind):
        raise InvalidArgument(f"Call {pending.tool_call_id!r} of {pending.tool_name!r} needs {WANTED[pending.kind]}.")


def _ensure_arguments(
    agents: AgentRegistry, owner: SessionState, pending: PendingClientToolCall, response: dict[str, Json]
) -> None:
    """Reject changed arguments that the tool does not accept. A tool that is unknown here checks them when it runs."""
    tool = agents.get(owner.agent_type).tools.get(pending.tool_name) if owner.agent_type in agents else None
    if "arguments" not in response or tool is None:
        return
    try:
        tool.input.parse(response["arguments"])
    except InvalidArgument as error:
        raise InvalidArgument(f"The changed arguments do not fit tool {pending.tool_name!r}: {error}") from error
