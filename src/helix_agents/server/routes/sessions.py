"""Routes that read and change sessions. Values are the structs of the stores, as JSON."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import msgspec
from starlette.responses import Response

from ...clock import random_id
from ...codec import Json
from ...errors import CheckpointNotFound, SessionNotFound
from ...executor import take_snapshot
from ...messages import without_native
from ...stores.state.commit import SessionFilter
from ...stores.state.contract import UNSET
from ...stores.usage.contract import UsageRollup
from ...types import Checkpoint, Page, SessionState, SessionStatus
from ..context import Desk
from ..endpoints import Call, Endpoint
from ..requests import Id, read_body, read_query, reply

MAX_PAGE = 200
MAX_MESSAGES = 1000

Limit = Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class ListQuery(msgspec.Struct):
    """`parent_session_id` empty: only sessions without a parent. `q`: sessions whose ids begin with this text.

    Where the store has no index on ids (Redis) `q` finds the session of that very id.
    """

    status: list[SessionStatus] = []
    agent_type: Id | None = None
    tag: list[Id] = []
    user_id: Id | None = None
    parent_session_id: Annotated[str, msgspec.Meta(max_length=256, pattern=r"^[^\x00-\x1f\x7f-\x9f{}]*$")] | None = None
    q: Id | None = None
    include: list[Literal["usage"]] = []
    limit: Limit = 50
    cursor: str | None = None
    count: bool = False


class MessagesQuery(msgspec.Struct):
    """A negative `offset` counts from the end."""

    offset: Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_MESSAGES)] = 50


class PageQuery(msgspec.Struct):
    limit: Limit = 50
    offset: Offset = 0


class UsageQuery(msgspec.Struct):
    """`entries`: with the single entries of the session beside the sums."""

    tree: bool = True
    entries: bool = False


class SnapshotQuery(msgspec.Struct):
    """`offset`: leave out the messages before it, for a client that has them; a negative one counts from the end."""

    offset: Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)] = 0


class Fork(msgspec.Struct, forbid_unknown_fields=True):
    checkpoint_id: str | None = None
    new_session_id: Id | None = None


class Restore(msgspec.Struct, forbid_unknown_fields=True):
    checkpoint_id: str


class Items(msgspec.Struct):
    """A list. `total`, `has_more` and `next_cursor` are there where they are known."""

    items: list[dict[str, Any]]


class StateAnswer(msgspec.Struct):
    custom_state: Any
    version: int


class Snapshot(msgspec.Struct):
    """A session and its messages at one moment; streaming from `sequence` goes on from exactly there."""

    session: dict[str, Any]
    messages: list[dict[str, Any]]
    sequence: int
    message_count: int


# -- lists


async def list_sessions(call: Call) -> Response:
    query = read_query(call.request, ListQuery)
    user_id = query.user_id
    if not call.user.is_admin:
        if user_id not in (None, call.user.id):
            return reply({"items": [], "has_more": False, "next_cursor": None})
        user_id = call.user.id
    if query.q is not None:
        page = await _by_id(call, query, query.q, user_id)
    else:
        page = await call.desk.store.list_sessions(
            user_id=user_id,
            agent_type=query.agent_type,
            status=query.status or None,
            parent_session_id=UNSET if query.parent_session_id is None else query.parent_session_id or None,
            tags=query.tag,
            limit=query.limit,
            cursor=query.cursor,
            count=query.count,
        )
    items = [_listed(session) for session in page.items]
    if "usage" in query.include:
        spent = await asyncio.gather(*(_spent(call.desk, session.session_id) for session in page.items))
        for item, usage in zip(items, spent, strict=True):
            item["usage"] = usage
    answer: dict[str, Json] = {"items": items, "has_more": page.has_more, "next_cursor": page.next_cursor}
    if page.total is not None:
        answer["total"] = page.total
    return reply(answer)


async def _by_id(call: Call, query: ListQuery, text: str, user_id: str | None) -> Page[SessionState]:
    """What an index finds of the ids that begin with a text, newest first; there is no further page."""
    found = await call.desk.store.find_sessions(text, user_id=user_id, limit=MAX_PAGE)
    fits = SessionFilter(
        agent_type=query.agent_type,
        statuses=tuple(query.status),
        roots_only=query.parent_session_id == "",
        parent_session_id=query.parent_session_id or None,
        tags=tuple(query.tag),
    )
    kept = sorted(filter(fits.matches, found), key=lambda it: (it.created_at, it.session_id), reverse=True)
    total = len(kept) if query.count else None
    return Page(kept[: query.limit], total, 0, query.limit, len(kept) > query.limit)


async def _spent(desk: Desk, session_id: str) -> dict[str, Json]:
    rollup = await _rollup(desk, session_id, tree=True)
    return {"tokens": msgspec.to_builtins(rollup.tokens), "cost": rollup.custom.get("cost")}


def _listed(session: SessionState) -> dict[str, Json]:
    item: dict[str, Json] = msgspec.to_builtins(session)
    del item["custom_state"]
    return item


async def messages(call: Call) -> Response:
    query = read_query(call.request, MessagesQuery)
    session = await call.desk.session(call.user, call.path("session_id"))
    page = await call.desk.store.get_messages(session.session_id, offset=query.offset, limit=query.limit)
    shown = msgspec.structs.replace(page, items=[without_native(message) for message in page.items])
    return reply(_numbered(shown))


async def checkpoints(call: Call) -> Response:
    query = read_query(call.request, PageQuery)
    session = await call.desk.session(call.user, call.path("session_id"))
    page = await call.desk.store.list_checkpoints(session.session_id, limit=query.limit, offset=query.offset)
    return reply(_numbered(page))


def _numbered(page: Page[Any]) -> dict[str, Json]:
    return {
        "items": msgspec.to_builtins(page.items),
        "total": page.total,
        "offset": page.offset,
        "limit": page.limit,
        "has_more": page.has_more,
    }


async def runs(call: Call) -> Response:
    session = await call.desk.session(call.user, call.path("session_id"))
    return reply({"items": await call.desk.store.list_runs(session.session_id)})


async def children(call: Call) -> Response:
    session = await call.desk.session(call.user, call.path("session_id"))
    return reply({"items": await call.desk.store.list_sub_session_refs(session.session_id)})


# -- one session


async def get_session(call: Call) -> Response:
    session = await call.desk.session(call.user, call.path("session_id"))
    return reply(await _whole(call.desk, session))


async def _whole(desk: Desk, session: SessionState) -> dict[str, Json]:
    run = await desk.store.get_current_run(session.session_id)
    return {**msgspec.to_builtins(session), "current_run": msgspec.to_builtins(run)}


async def state(call: Call) -> Response:
    session = await call.desk.session(call.user, call.path("session_id"))
    return reply(StateAnswer(session.custom_state, session.version))


async def usage(call: Call) -> Response:
    query = read_query(call.request, UsageQuery)
    session = await call.desk.session(call.user, call.path("session_id"))
    rollup = await _rollup(call.desk, session.session_id, tree=query.tree)
    store = call.desk.executor.services.usage
    if not query.entries or store is None:
        return reply(rollup)
    return reply({**msgspec.to_builtins(rollup), "entries": await store.get_entries(session.session_id)})


async def _rollup(desk: Desk, session_id: str, *, tree: bool) -> UsageRollup:
    store = desk.executor.services.usage
    return UsageRollup() if store is None else await store.get_rollup(session_id, include_sub_sessions=tree)


async def get_checkpoint(call: Call) -> Response:
    session = await call.desk.session(call.user, call.path("session_id"))
    found = await call.desk.store.get_checkpoint(session.session_id, call.path("checkpoint_id"))
    if found is None:
        raise CheckpointNotFound(session.session_id, call.path("checkpoint_id"))
    return reply(found)


async def snapshot(call: Call) -> Response:
    query = read_query(call.request, SnapshotQuery)
    session = await call.desk.session(call.user, call.path("session_id"))
    taken = await take_snapshot(call.desk.executor.services, session.session_id, offset=query.offset)
    whole = await _whole(call.desk, taken.session)
    shown = [without_native(message) for message in taken.messages]
    return reply(Snapshot(whole, shown, taken.sequence, taken.message_count))


# -- changes


async def delete(call: Call) -> Response:
    session = await call.desk.session(call.user, call.path("session_id"))
    if not await call.desk.executor.delete_session(session.session_id):
        raise SessionNotFound(session.session_id)
    return Response(status_code=204)


async def fork(call: Call) -> Response:
    given = await read_body(call.request, Fork, max_bytes=call.desk.max_body_bytes)
    session = await call.desk.session(call.user, call.path("session_id"))
    new_id = given.new_session_id if given.new_session_id is not None else f"session-{random_id()}"
    made = await call.desk.store.fork_session(session.session_id, new_id, checkpoint_id=given.checkpoint_id)
    return reply(await _whole(call.desk, made), 201)


async def restore(call: Call) -> Response:
    given = await read_body(call.request, Restore, max_bytes=call.desk.max_body_bytes)
    desk = call.desk
    session = await desk.session(call.user, call.path("session_id"))
    restored = await desk.executor.restore(session.session_id, given.checkpoint_id)
    return reply(await _whole(desk, restored))


ENDPOINTS = (
    Endpoint("GET", "/sessions", list_sessions, "Sessions, newest first", query=ListQuery, gives=Items),
    Endpoint("GET", "/sessions/{session_id:id}", get_session, "One session", gives=SessionState),
    Endpoint("DELETE", "/sessions/{session_id:id}", delete, "Delete a session and all below it", 204),
    Endpoint("GET", "/sessions/{session_id:id}/messages", messages, "Its messages", query=MessagesQuery, gives=Items),
    Endpoint("GET", "/sessions/{session_id:id}/runs", runs, "Its runs", gives=Items),
    Endpoint(
        "GET",
        "/sessions/{session_id:id}/checkpoints",
        checkpoints,
        "Its checkpoints, newest first",
        query=PageQuery,
        gives=Items,
    ),
    Endpoint(
        "GET",
        "/sessions/{session_id:id}/checkpoints/{checkpoint_id:id}",
        get_checkpoint,
        "A checkpoint with its state",
        gives=Checkpoint,
    ),
    Endpoint("GET", "/sessions/{session_id:id}/usage", usage, "What it spent", query=UsageQuery, gives=UsageRollup),
    Endpoint("GET", "/sessions/{session_id:id}/state", state, "Its custom state", gives=StateAnswer),
    Endpoint("GET", "/sessions/{session_id:id}/children", children, "Its sub-sessions", gives=Items),
    Endpoint(
        "GET",
        "/sessions/{session_id:id}/snapshot",
        snapshot,
        "Session, messages and place in the stream",
        query=SnapshotQuery,
        gives=Snapshot,
    ),
    Endpoint(
        "POST",
        "/sessions/{session_id:id}/fork",
        fork,
        "Make an independent session from it",
        201,
        body=Fork,
        gives=SessionState,
    ),
    Endpoint(
        "POST",
        "/sessions/{session_id:id}/restore",
        restore,
        "Go back to a checkpoint",
        body=Restore,
        gives=SessionState,
    ),
)
