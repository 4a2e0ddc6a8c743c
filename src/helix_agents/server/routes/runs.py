"""Routes that start, steer and query runs."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ...agent import Agent
from ...errors import InvalidArgument
from ...executor import Follower, RunHandle, StreamPlace, result_of
from ...limits import UsageLimits
from ...messages import Message, is_from_user
from ...retry import LIVENESS
from ...types import Conversation, SessionState
from ..access import reload_session
from ..answers import Receipt, ToolResult, submit_answer
from ..context import ServerContext
from ..endpoints import Call, Endpoint
from ..requests import Id, NewId, json_response, read_query
from ..wire.feed import as_question

MAX_WAIT_SECONDS = 60

Count = Annotated[float, msgspec.Meta(ge=1, le=2**53, multiple_of=1)]
"""An integer. In JSON, 5.0 is one as well."""


class RunLimits(msgspec.Struct, forbid_unknown_fields=True):
    """What a run may use. The agent's limits also apply: the lower ones win."""

    steps: Count | None = None
    tokens: Count | None = None
    tool_calls: Count | None = None
    cost: Annotated[float, msgspec.Meta(gt=0)] | None = None


class Execute(msgspec.Struct, forbid_unknown_fields=True):
    """Start a run: of a new session, or the next turn of one."""

    agent_type: Id
    message: str | list[dict[str, Any]]
    session_id: NewId | None = None
    tags: list[Id] = []
    metadata: dict[str, str] | None = None
    expires_at: int | None = None
    if_running: Literal["reject", "enqueue", "interrupt"] = "reject"
    limits: RunLimits | None = None


class Started(msgspec.Struct):
    """A run that has started. `from_sequence`: its start in the stream; `stream_url` includes it."""

    session_id: str
    run_id: str
    stream_url: str
    from_sequence: int


class WaitQuery(msgspec.Struct):
    """How long to wait for the run to stop."""

    wait: Annotated[float, msgspec.Meta(ge=0, le=MAX_WAIT_SECONDS)] = 0


class Result(msgspec.Struct):
    """The outcome of a session's latest run, or its status while it runs."""

    session_id: str
    run_id: str | None
    status: str
    output: Any
    error: str | None
    suspended: list[dict[str, Any]]


class Resume(msgspec.Struct, forbid_unknown_fields=True):
    """Continue a session, with a message of the user if there is one."""

    message: str | None = None


class Reason(msgspec.Struct, forbid_unknown_fields=True):
    """Why a run is stopped."""

    reason: str | None = None


async def execute(call: Call) -> Response:
    """Start a run."""
    context = call.context
    wanted = await call.body(Execute)
    agent = context.agent(wanted.agent_type)
    session = None if wanted.session_id is None else await context.session_or_new(call.user, wanted.session_id)
    is_new = wanted.session_id is not None and session is None
    with call.starting_run():
        handle = await context.executor.execute(
            agent,
            user_messages(wanted.message),
            session_id=wanted.session_id,
            user_id=call.user.owner_id,
            tags=wanted.tags,
            metadata=wanted.metadata,
            expires_at=wanted.expires_at,
            limits=usage_limits(agent, wanted.limits),
            if_exists="reject" if is_new and wanted.if_running == "reject" else "continue",
            if_running=wanted.if_running,
            idempotency_key=idempotency_key(call.request),
        )
    return json_response(started(call.request, handle), 202)


def usage_limits(agent: Agent, wanted: RunLimits | None) -> UsageLimits | None:
    """Return the limits of a run. Prices come from the agent: a client may not say what a model costs."""
    if wanted is None:
        return None
    prices = {} if agent.limits is None else agent.limits.prices
    if wanted.cost is not None and not prices:
        raise InvalidArgument(f"Agent {agent.name!r} has no prices, so its cost cannot be limited.")
    return UsageLimits(
        steps=_whole(wanted.steps),
        tokens=_whole(wanted.tokens),
        tool_calls=_whole(wanted.tool_calls),
        cost=wanted.cost,
        prices=prices,
    )


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def idempotency_key(request: Request) -> str | None:
    """Return the key of a request that starts one run however often it is sent."""
    key = request.headers.get("idempotency-key")
    if key is not None and not key.strip():
        raise InvalidArgument("Idempotency-Key must be a non-empty string that identifies the request.")
    return key


async def result(call: Call) -> Response:
    """Return the result of a session, after waiting for its run to stop if requested."""
    wait_seconds = read_query(call.request, WaitQuery).wait
    context, stored = call.context, await call.found()
    if wait_seconds and stored.session.status == "active":
        slot = context.occupancy.stream_slot(call.user)
        try:
            stored = await _wait_until_stopped(context, stored.session, wait_seconds)
        finally:
            slot.release()
    session, run = stored.session, stored.run
    found = await result_of(context.executor.services, session)
    return json_response(
        Result(
            session_id=session.session_id,
            run_id=run.run_id if run else None,
            status=found.status,
            output=session.output,
            error=found.error,
            suspended=[as_question(pending) for pending in found.suspended],
        )
    )


async def resume(call: Call) -> Response:
    """Continue a session. A message is accepted only for an agent that clients may start."""
    message = (await call.body(Resume)).message
    context, session = call.context, await call.session()
    agent = session.agent_type if message is None else context.agent(session.agent_type)
    with call.starting_run():
        handle = await context.executor.resume(agent, session.session_id, message=message, user_id=session.user_id)
    return json_response(started(call.request, handle), 202)


async def retry(call: Call) -> Response:
    """Run a failed turn again."""
    session = await call.session()
    with call.starting_run():
        handle = await call.context.executor.retry(session.session_id, user_id=session.user_id)
    return json_response(started(call.request, handle), 202)


async def interrupt(call: Call) -> Response:
    """Stop a run at the next safe point."""
    reason = (await call.body(Reason)).reason
    session = await call.session()
    await call.context.executor.interrupt(session.session_id, reason, user_id=session.user_id)
    return json_response({}, 202)


async def abort(call: Call) -> Response:
    """Stop a run immediately."""
    reason = (await call.body(Reason)).reason
    session = await call.session()
    await call.context.executor.abort(session.session_id, reason, user_id=session.user_id)
    return json_response({}, 202)


async def tool_results(call: Call) -> Response:
    """Accept the response to a pending call."""
    given = await call.body(ToolResult)
    session = await call.session()
    return json_response(await submit_answer(call.context, call.user, session, given))


async def _wait_until_stopped(context: ServerContext, session: SessionState, wait_seconds: float) -> Conversation:
    """Wait until a session is no longer active, or time is up. The stream shows when to check the session."""
    info = await context.streams.get_stream_info(session.stream_id)
    latest = info.latest_sequence if info else 0
    place = StreamPlace(session.session_id, session.stream_id, latest, follow=True, starts_over=True)
    follower = Follower(context.executor.services, place, heartbeat_seconds=LIVENESS.first_seconds)
    stored = await reload_session(context.store, session)
    try:
        async with asyncio.timeout(wait_seconds) as limit:
            while stored.session.status == "active":
                if not await follower.read():
                    follower.go_on()
                    stored = await reload_session(context.store, session)
    except TimeoutError:
        if not limit.expired():
            raise
    finally:
        await follower.close()
    return stored


def user_messages(message: str | list[dict[str, Any]]) -> str | list[Message]:
    """Return a user's messages. A client may send user messages only: other roles belong to the server."""
    if isinstance(message, str):
        return message
    if not message:
        raise InvalidArgument("message must be a string or a list of at least one message.")
    for each in message:
        if each.get("role") != "user" or "content" not in each or not is_from_user(each):
            raise InvalidArgument("Each message must be an object with role 'user' and a content.")
    return message


def started(request: Request, handle: RunHandle) -> Started:
    """Return the response to a request that started a run."""
    root: str = request.scope.get("root_path", "")
    address = f"{root}/stream/{quote(handle.session_id, safe='')}?from_sequence={handle.start_sequence}"
    return Started(handle.session_id, handle.run_id, address, handle.start_sequence)


def _steer(name: str, handler: Any, summary: str, body: type[msgspec.Struct] | None, returns: Any = None) -> Endpoint:
    return Endpoint(
        "POST", f"/sessions/{{session_id:id}}/{name}", handler, summary, 202, body=body, returns=returns, tag="runs"
    )


ENDPOINTS = (
    Endpoint(
        "POST",
        "/execute",
        execute,
        "Start a run",
        202,
        body=Execute,
        returns=Started,
        headers=("Idempotency-Key",),
        tag="runs",
    ),
    Endpoint(
        "GET", "/result/{session_id:id}", result, "How a session stands", query=WaitQuery, returns=Result, tag="runs"
    ),
    _steer("resume", resume, "Continue a session", Resume, Started),
    _steer("retry", retry, "Run a failed turn again", None, Started),
    _steer("interrupt", interrupt, "Stop a run at the next safe point", Reason),
    _steer("abort", abort, "Stop a run immediately", Reason),
    Endpoint(
        "POST",
        "/sessions/{session_id:id}/tool-results",
        tool_results,
        "Respond to a pending call",
        body=ToolResult,
        returns=Receipt,
        tag="runs",
    ),
)
