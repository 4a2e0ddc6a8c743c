"""Routes that read and change sessions. Values are the structs of the stores, as JSON.

Whether the user may see the session is decided by `Call.session` and `list_scope`, once for each route.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET as UNSET_MEMBER
from msgspec import UnsetType
from starlette.responses import Response

from ...clock import random_id
from ...codec import Json, encode
from ...errors import CheckpointNotFound, SessionNotFound, StoreUnavailable, VersionConflict
from ...executor import all_waiting, take_snapshot
from ...ids import RESERVED_PREFIX
from ...lifecycle import SUSPENDED
from ...messages import Message, without_native
from ...retry import CONFLICT
from ...stores.state.commit import SessionFilter
from ...stores.state.contract import UNSET, StateStore
from ...stores.usage.contract import UsageRollup
from ...types import Checkpoint, Page, RunRecord, SessionState, SessionStatus
from ..access import ensure_new_id, list_scope, reload_session
from ..context import ServerContext
from ..endpoints import Call, Endpoint, Handler
from ..requests import Id, NewId, json_response, read_query
from ..wire.agui import interrupt
from ..wire.feed import as_question
from ..wire.history import agui_messages, ui_messages

MAX_PAGE = 200
MAX_MESSAGES = 1000

Limit = Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class ListQuery(msgspec.Struct):
    """`parent_session_id` empty: only sessions without a parent. `q`: sessions whose ids start with this string.

    Where the store has no index on ids (Redis), `q` finds the session with exactly that id.
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
    """A negative `offset` counts from the end. `format`: all messages, as clients of that protocol hold them."""

    offset: Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_MESSAGES)] = 50
    format: Literal["helix", "ag-ui", "ai-sdk"] = "helix"


class PageQuery(msgspec.Struct):
    """One page of a list."""

    limit: Limit = 50
    offset: Offset = 0


class UsageQuery(msgspec.Struct):
    """`entries`: include the single entries of the session besides the sums."""

    tree: bool = True
    entries: bool = False


class SnapshotQuery(msgspec.Struct):
    """`offset`: leave out the messages before it; a negative one counts from the end."""

    offset: Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)] = 0


class Fork(msgspec.Struct, forbid_unknown_fields=True):
    """Fork at a checkpoint, or at the current state; `new_session_id` is random unless given."""

    checkpoint_id: str | None = None
    new_session_id: NewId | None = None


class Restore(msgspec.Struct, forbid_unknown_fields=True):
    """The checkpoint to restore."""

    checkpoint_id: str


class Change(msgspec.Struct, forbid_unknown_fields=True):
    """What to change. `tags` replaces all tags; members of `metadata` are merged, and null removes one.

    `title` is the member `title` of the metadata.
    """

    title: str | UnsetType | None = UNSET_MEMBER
    tags: list[Id] | UnsetType = UNSET_MEMBER
    metadata: dict[str, str | None] | UnsetType = UNSET_MEMBER


class Items(msgspec.Struct):
    """A list. `total`, `has_more` and `next_cursor` are included where they are known."""

    items: list[dict[str, Any]]


class StateOnly(msgspec.Struct):
    """The custom state of a session, and the version it has."""

    custom_state: Any
    version: int


class Snapshot(msgspec.Struct):
    """A session and its messages at one point in time; streaming from `sequence` continues exactly there."""

    session: dict[str, Any]
    messages: list[dict[str, Any]]
    sequence: int
    message_count: int


# -- lists


async def list_sessions(call: Call) -> Response:
    """List sessions, newest first."""
    query = read_query(call.request, ListQuery)
    scope = list_scope(call.user, query.user_id)
    if scope.is_empty:
        return json_response({"items": [], "has_more": False, "next_cursor": None})
    if query.q is not None:
        page = await _by_id(call, query, query.q, scope.user_id)
    else:
        page = await call.context.store.list_sessions(
            user_id=scope.user_id,
            agent_type=query.agent_type,
            status=query.status or None,
            parent_session_id=UNSET if query.parent_session_id is None else query.parent_session_id or None,
            tags=query.tag,
            limit=query.limit,
            cursor=query.cursor,
            count=query.count,
        )
    sessions = [session for session in page.items if not session.session_id.startswith(RESERVED_PREFIX)]
    items = [_without_state(session) for session in sessions]
    if "usage" in query.include:
        usages = await asyncio.gather(*(_usage_summary(call.context, session) for session in sessions))
        for item, usage in zip(items, usages, strict=True):
            item["usage"] = usage
    listed: dict[str, Json] = {"items": items, "has_more": page.has_more, "next_cursor": page.next_cursor}
    if page.total is not None:
        listed["total"] = page.total
    return json_response(listed)


async def _by_id(call: Call, query: ListQuery, text: str, user_id: str | None) -> Page[SessionState]:
    """Return the sessions whose ids start with a string, newest first; there is no further page."""
    found = await call.context.store.find_sessions(text, user_id=user_id, limit=MAX_PAGE)
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


async def _usage_summary(context: ServerContext, session: SessionState) -> dict[str, Json]:
    rollup = await _rollup(context, session, tree=True)
    return {"tokens": msgspec.to_builtins(rollup.tokens), "cost": rollup.custom.get("cost")}


def _without_state(session: SessionState) -> dict[str, Json]:
    item: dict[str, Json] = msgspec.to_builtins(session)
    del item["custom_state"]
    return item


async def messages(call: Call) -> Response:
    """Return a session's messages."""
    query = read_query(call.request, MessagesQuery)
    session = await call.session()
    if query.format != "helix":
        return json_response(await _client_messages(call.context, session, query.format))
    page = await call.context.store.get_messages(session.session_id, offset=query.offset, limit=query.limit)
    shown = msgspec.structs.replace(page, items=[without_native(message) for message in page.items])
    return json_response(_numbered(shown))


async def _client_messages(
    context: ServerContext, session: SessionState, form: Literal["ag-ui", "ai-sdk"]
) -> dict[str, Json]:
    """Return the whole conversation, with the calls of an open step and their known results."""
    services = context.executor.services
    stored = [*(await context.store.get_messages(session.session_id, limit=None)).items]
    stored += await _finished_calls(context.store, session)
    if form == "ai-sdk":
        return {"messages": ui_messages(session.session_id, stored, session.pending_client_tool_calls)}
    waits = await all_waiting(services.store, session, services.clock())
    interrupts = [interrupt(as_question(wait)) for wait in waits]
    return {"messages": agui_messages(session.session_id, stored), "interrupts": interrupts}


async def _finished_calls(store: StateStore, session: SessionState) -> list[Message]:
    """Return the results of the calls that have finished in a step that waits for others."""
    if session.suspended_step_id is None or session.status not in SUSPENDED:
        return []
    found: list[Message] = []
    for row in await store.list_staged(session.session_id, session.suspended_step_id):
        match row.result:
            case {"outcome": {"success": bool(success), **outcome}} if row.kind == "call":
                content = outcome.get("result") if success else f"Error: {outcome.get('error')}"
                call = {"role": "tool", "tool_call_id": row.tool_call_id, "success": success}
                found.append({**call, "content": content if isinstance(content, str) else encode(content)})
    return found


async def checkpoints(call: Call) -> Response:
    """Return a session's checkpoints, newest first."""
    query = read_query(call.request, PageQuery)
    session = await call.session()
    page = await call.context.store.list_checkpoints(session.session_id, limit=query.limit, offset=query.offset)
    return json_response(_numbered(page))


def _numbered(page: Page[Any]) -> dict[str, Json]:
    return {
        "items": msgspec.to_builtins(page.items),
        "total": page.total,
        "offset": page.offset,
        "limit": page.limit,
        "has_more": page.has_more,
    }


async def runs(call: Call) -> Response:
    """Return a session's runs."""
    session = await call.session()
    found = await call.context.store.list_runs(session.session_id)
    return json_response({"items": [_visible_run(call, run) for run in found]})


async def children(call: Call) -> Response:
    """Return a session's sub-sessions."""
    session = await call.session()
    return json_response({"items": await call.context.store.list_sub_session_refs(session.session_id)})


# -- one session


async def get_session(call: Call) -> Response:
    """Return one session with its custom state."""
    return json_response(await _as_stored(call))


async def _as_stored(call: Call) -> dict[str, Json]:
    found = await call.found(custom_state=True)
    return _with_run(call, found.session, found.run)


def _with_run(call: Call, session: SessionState, run: RunRecord | None) -> dict[str, Json]:
    current = None if run is None else _visible_run(call, run)
    return {**msgspec.to_builtins(session), "current_run": current}


def _visible_run(call: Call, run: RunRecord) -> dict[str, Json]:
    """Return a run as this user may see it: the names of hosts and processes are for admins."""
    shown: dict[str, Json] = msgspec.to_builtins(run)
    if not call.user.is_admin:
        shown["worker"] = None
    return shown


async def state(call: Call) -> Response:
    """Return a session's custom state."""
    session = (await call.found(custom_state=True)).session
    return json_response(StateOnly(session.custom_state, session.version))


async def usage(call: Call) -> Response:
    """Return what a session used."""
    query = read_query(call.request, UsageQuery)
    session = await call.session()
    rollup = await _rollup(call.context, session, tree=query.tree)
    store = call.context.executor.services.usage
    if not query.entries or store is None:
        return json_response(rollup)
    entries = await store.get_entries(session.session_id, incarnation=session.incarnation)
    return json_response({**msgspec.to_builtins(rollup), "entries": entries})


async def _rollup(context: ServerContext, session: SessionState, *, tree: bool) -> UsageRollup:
    store = context.executor.services.usage
    if store is None:
        return UsageRollup()
    return await store.get_rollup(session.session_id, include_sub_sessions=tree, incarnation=session.incarnation)


async def get_checkpoint(call: Call) -> Response:
    """Return a checkpoint with its state."""
    session = await call.session()
    found = await call.context.store.get_checkpoint(session.session_id, call.path("checkpoint_id"))
    if found is None:
        raise CheckpointNotFound(session.session_id, call.path("checkpoint_id"))
    return json_response(found)


async def snapshot(call: Call) -> Response:
    """Return what a client renders first, from one snapshot."""
    query = read_query(call.request, SnapshotQuery)
    session = await call.session()
    taken = await take_snapshot(call.context.executor.services, session.session_id, offset=query.offset)
    whole = _with_run(call, taken.session, taken.run)
    shown = [without_native(message) for message in taken.messages]
    return json_response(Snapshot(whole, shown, taken.sequence, taken.message_count))


# -- changes


async def delete(call: Call) -> Response:
    """Delete a session and its descendants."""
    session = await call.session()
    if not await call.context.executor.delete_session(session.session_id, user_id=session.user_id):
        raise SessionNotFound(session.session_id)
    return Response(status_code=204)


async def fork(call: Call) -> Response:
    """Create an independent session from a checkpoint of one, or from its current state."""
    given = await call.body(Fork)
    session = await call.session()
    new_id = f"session-{random_id()}" if given.new_session_id is None else ensure_new_id(given.new_session_id)
    made = await call.context.executor.fork_session(session.session_id, new_id, checkpoint_id=given.checkpoint_id)
    return json_response(_with_run(call, made, None), 201)


async def restore(call: Call) -> Response:
    """Restore a session to one of its checkpoints."""
    given = await call.body(Restore)
    session = await call.session()
    restored = await call.context.executor.restore(session.session_id, given.checkpoint_id, user_id=session.user_id)
    return json_response(_with_run(call, restored, await call.context.store.get_current_run(session.session_id)))


async def change(call: Call) -> Response:
    """Change the title, tags and metadata of a session, even during a run."""
    given = await call.body(Change)
    seen = await call.session()
    store = call.context.store
    for _ in CONFLICT.attempts():
        changed = msgspec.structs.replace(_changed(seen, given), custom_state=None)
        try:
            await store.save_state(seen.session_id, changed, expected_version=seen.version)
            break
        except VersionConflict:
            seen = (await reload_session(store, seen)).session
    else:
        raise StoreUnavailable(f"Session {seen.session_id!r} changes too fast to be written: retry.")
    return json_response(await _as_stored(call))


def _changed(session: SessionState, given: Change) -> SessionState:
    updates = {} if given.metadata is UNSET_MEMBER else dict(given.metadata)
    if given.title is not UNSET_MEMBER:
        updates["title"] = given.title
    merged = {**session.metadata, **updates}
    return msgspec.structs.replace(
        session,
        metadata={name: value for name, value in merged.items() if value is not None},
        tags=session.tags if given.tags is UNSET_MEMBER else tuple(given.tags),
    )


def _of_session(method: str, path: str, handler: Handler, summary: str, status: int = 200, **more: Any) -> Endpoint:
    return Endpoint(method, f"/sessions/{{session_id:id}}{path}", handler, summary, status, **more)


ENDPOINTS = (
    Endpoint("GET", "/sessions", list_sessions, "Sessions, newest first", query=ListQuery, returns=Items, large=True),
    _of_session("GET", "", get_session, "One session", returns=SessionState, large=True),
    _of_session("PATCH", "", change, "Change title, tags and metadata", body=Change, returns=SessionState),
    _of_session("DELETE", "", delete, "Delete a session and its descendants", 204),
    _of_session("GET", "/messages", messages, "Its messages", query=MessagesQuery, returns=Items, large=True),
    _of_session("GET", "/runs", runs, "Its runs", returns=Items, large=True),
    _of_session("GET", "/checkpoints", checkpoints, "Its checkpoints", query=PageQuery, returns=Items, large=True),
    _of_session(
        "GET",
        "/checkpoints/{checkpoint_id:id}",
        get_checkpoint,
        "A checkpoint with its state",
        returns=Checkpoint,
        large=True,
    ),
    _of_session("GET", "/usage", usage, "What it used", query=UsageQuery, returns=UsageRollup, large=True),
    _of_session("GET", "/state", state, "Its custom state", returns=StateOnly, large=True),
    _of_session("GET", "/children", children, "Its sub-sessions", returns=Items, large=True),
    _of_session(
        "GET",
        "/snapshot",
        snapshot,
        "Session, messages and position in the stream",
        query=SnapshotQuery,
        returns=Snapshot,
        large=True,
    ),
    _of_session("POST", "/fork", fork, "Create an independent session from it", 201, body=Fork, returns=SessionState),
    _of_session("POST", "/restore", restore, "Go back to a checkpoint", body=Restore, returns=SessionState),
)
