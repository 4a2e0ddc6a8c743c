"""Routes that start, steer and ask about runs."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from ...codec import Json
from ...errors import AlreadyRunning, InvalidArgument, NotResumable, SessionNotFound
from ...executor import RunHandle, result_of
from ...messages import Message
from ...types import SessionState
from ..context import Desk
from ..endpoints import Call, Endpoint
from ..requests import Id, read_body, read_query, reply
from ..wire.feed import question

MAX_WAIT_SECONDS = 60
LOOK_AGAIN_SECONDS = 1.0


class Execute(msgspec.Struct, forbid_unknown_fields=True):
    """Begin a run: of a new session, or the next turn of one."""

    agent_type: Id
    message: str | list[dict[str, Any]]
    session_id: Id | None = None
    tags: list[Id] = []
    metadata: dict[str, str] | None = None
    expires_at: int | None = None


class Started(msgspec.Struct):
    """A run that has begun. `from_sequence`: where it begins in the stream; `stream_url` carries it."""

    session_id: str
    run_id: str
    stream_url: str
    from_sequence: int


class WaitQuery(msgspec.Struct):
    wait: Annotated[float, msgspec.Meta(ge=0, le=MAX_WAIT_SECONDS)] = 0


class Result(msgspec.Struct):
    """How a session stands."""

    session_id: str
    run_id: str | None
    status: str
    output: Any
    error: str | None
    suspended: list[dict[str, Any]]


class Resume(msgspec.Struct, forbid_unknown_fields=True):
    message: str | None = None


class Reason(msgspec.Struct, forbid_unknown_fields=True):
    reason: str | None = None


class ToolResult(msgspec.Struct, forbid_unknown_fields=True):
    """The answer to a question of a run: exactly one of `result`, `error` and `approved`.

    An approval is best named by its `approval_id`: it is rejected if something else is asked for since then.
    """

    tool_call_id: str | None = None
    approval_id: str | None = None
    result: Any | UnsetType = UNSET
    error: str | UnsetType = UNSET
    approved: bool | UnsetType = UNSET
    arguments: dict[str, Any] | UnsetType = UNSET
    reason: str | None = None
    resume: bool = True


class Receipt(msgspec.Struct, omit_defaults=True):
    """What became of an answer, and the run that goes on with it."""

    receipt: str
    can_resume: bool
    run_id: str | None = None


async def execute(call: Call) -> Response:
    desk = call.desk
    wanted = await read_body(call.request, Execute, max_bytes=desk.max_body_bytes)
    agent = desk.agent(wanted.agent_type)
    is_new = wanted.session_id is not None and await desk.existing(call.user, wanted.session_id) is None
    handle = await desk.executor.execute(
        agent,
        said(wanted.message),
        session_id=wanted.session_id,
        user_id=call.user.id or None,
        tags=wanted.tags,
        metadata=wanted.metadata,
        expires_at=wanted.expires_at,
        if_exists="reject" if is_new else "continue",
        idempotency_key=_key(call.request),
    )
    return reply(started(call.request, handle), 202)


def _key(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is not None and not key.strip():
        raise InvalidArgument("Idempotency-Key is a text that stands for one request, not an empty one.")
    return key


async def result(call: Call) -> Response:
    wait_seconds = read_query(call.request, WaitQuery).wait
    session = await call.desk.session(call.user, call.path("session_id"))
    if wait_seconds and session.status == "active":
        session = await _at_rest(call.desk, session, wait_seconds)
    run = await call.desk.store.get_current_run(session.session_id)
    found = await result_of(call.desk.executor.services, session)
    return reply(
        Result(
            session_id=session.session_id,
            run_id=run.run_id if run else None,
            status=found.status,
            output=session.output,
            error=found.error,
            suspended=[question(wait) for wait in found.suspended],
        )
    )


async def resume(call: Call) -> Response:
    message = (await read_body(call.request, Resume, max_bytes=call.desk.max_body_bytes)).message
    session = await call.desk.session(call.user, call.path("session_id"))
    agent = call.desk.agent(session.agent_type)
    handle = await call.desk.executor.resume(agent, session.session_id, message=message)
    return reply(started(call.request, handle), 202)


async def interrupt(call: Call) -> Response:
    reason = (await read_body(call.request, Reason, max_bytes=call.desk.max_body_bytes)).reason
    session = await call.desk.session(call.user, call.path("session_id"))
    await call.desk.executor.interrupt(session.session_id, reason)
    return reply({}, 202)


async def abort(call: Call) -> Response:
    reason = (await read_body(call.request, Reason, max_bytes=call.desk.max_body_bytes)).reason
    session = await call.desk.session(call.user, call.path("session_id"))
    await call.desk.executor.abort(session.session_id, reason)
    return reply({}, 202)


async def tool_results(call: Call) -> Response:
    given = await read_body(call.request, ToolResult, max_bytes=call.desk.max_body_bytes)
    session = await call.desk.session(call.user, call.path("session_id"))
    return reply(await answer_question(call.desk, session, given))


async def answer_question(desk: Desk, session: SessionState, given: ToolResult) -> Receipt:
    """Hand an answer in and, if nothing waits any more, let the run go on."""
    answer: dict[str, Json] = {
        name: value
        for name, value in msgspec.structs.asdict(given).items()
        if name in ("result", "error", "approved", "arguments") and value is not UNSET
    }
    if "arguments" in answer and answer.get("approved") is not True:
        raise InvalidArgument("arguments go with approved=true: they are what is approved instead.")
    receipt = await desk.executor.submit_tool_result(
        session.session_id, given.tool_call_id, approval_id=given.approval_id, **answer, reason=given.reason
    )
    root_id = session.root_session_id or session.session_id
    can_resume = (await desk.executor.can_resume(root_id)).can_resume
    run_id = await _go_on(desk, root_id) if can_resume and given.resume else None
    return Receipt(receipt.status, can_resume, run_id)


async def _go_on(desk: Desk, session_id: str) -> str | None:
    """Resume a session whose answers are in. Whoever else does the same at this moment does it for us."""
    session = await desk.store.load_state(session_id)
    if session is None or session.agent_type not in desk.executor.agents:
        return None
    try:
        return (await desk.executor.resume(session.agent_type, session_id)).run_id
    except (AlreadyRunning, NotResumable):
        run = await desk.store.get_current_run(session_id)
        return run.run_id if run else None


async def _at_rest(desk: Desk, session: SessionState, wait_seconds: float) -> SessionState:
    """Wait until a session is no longer active, or as long as that may take. The stream tells when to look."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_seconds
    info = await desk.streams.get_stream_info(session.stream_id)
    latest = info.latest_sequence if info else 0
    reader = await desk.streams.create_resumable_reader(session.stream_id, from_sequence=latest) if info else None
    try:
        while session.status == "active" and (left := until - loop.time()) > 0:
            if reader is None or reader.outcome is not None:
                await asyncio.sleep(min(left, LOOK_AGAIN_SECONDS / 10))
            else:
                await reader.read(timeout_seconds=min(left, LOOK_AGAIN_SECONDS))
            if reader is None or reader.outcome is not None or left <= LOOK_AGAIN_SECONDS:
                session = await _reload(desk, session.session_id)
    finally:
        if reader is not None:
            await reader.close()
    return await _reload(desk, session.session_id)


async def _reload(desk: Desk, session_id: str) -> SessionState:
    session = await desk.store.load_state(session_id)
    if session is None:
        raise SessionNotFound(session_id)
    return session


def said(message: str | list[dict[str, Any]]) -> str | list[Message]:
    """What a user says. A client speaks for its user only: other roles are the server's."""
    if isinstance(message, str):
        return message
    if not message:
        raise InvalidArgument("message is a text or a list of at least one message.")
    for each in message:
        if each.get("role") != "user" or "content" not in each:
            raise InvalidArgument("Each message is an object with role 'user' and a content.")
    return message


def started(request: Request, handle: RunHandle) -> Started:
    """The answer to whoever started a run."""
    root: str = request.scope.get("root_path", "")
    address = f"{root}/stream/{quote(handle.session_id, safe='')}?from_sequence={handle.start_sequence}"
    return Started(handle.session_id, handle.run_id, address, handle.start_sequence)


ENDPOINTS = (
    Endpoint(
        "POST",
        "/execute",
        execute,
        "Start a run",
        202,
        body=Execute,
        gives=Started,
        headers=("Idempotency-Key",),
        tag="runs",
    ),
    Endpoint(
        "GET", "/result/{session_id:id}", result, "How a session stands", query=WaitQuery, gives=Result, tag="runs"
    ),
    Endpoint(
        "POST",
        "/sessions/{session_id:id}/resume",
        resume,
        "Go on with a session",
        202,
        body=Resume,
        gives=Started,
        tag="runs",
    ),
    Endpoint(
        "POST",
        "/sessions/{session_id:id}/interrupt",
        interrupt,
        "Stop a run at the next safe point",
        202,
        body=Reason,
        tag="runs",
    ),
    Endpoint("POST", "/sessions/{session_id:id}/abort", abort, "Stop a run at once", 202, body=Reason, tag="runs"),
    Endpoint(
        "POST",
        "/sessions/{session_id:id}/tool-results",
        tool_results,
        "Answer a question of a run",
        body=ToolResult,
        gives=Receipt,
        tag="runs",
    ),
)
