"""Routes about the server itself: agents, health, pending calls, statistics."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.responses import Response

from ...agent import Agent
from ...codec import Json
from ...errors import StoreUnavailable
from ...executor.workers import list_workers, recovered_today
from ...lifecycle import SUSPENDED
from ...schema.signature import json_schema
from ...telemetry.store_figures import measure_latency
from ...types import SessionStatus
from ..access import list_scope
from ..context import ServerContext
from ..endpoints import Call, Endpoint
from ..problems import Problem
from ..requests import Id, json_response, read_query
from .sessions import Items, Limit

HEALTH_SECONDS = 5
MAX_WAITS = 200


class WaitingQuery(msgspec.Struct):
    """Which pending calls to list."""

    agent_type: Id | None = None
    user_id: Id | None = None
    limit: Limit = 50
    cursor: str | None = None


class Health(msgspec.Struct):
    """The response of a healthy server."""

    status: str
    backend: str


class Stats(msgspec.Struct):
    """Statistics about all sessions. `approximate` names those that are not exact."""

    by_status: dict[SessionStatus, int]
    waiting: int
    oldest_waiting_since: int | None
    workers: list[dict[str, Any]]
    recovered_today: int
    backend: dict[str, Any]
    approximate: list[str]


async def agents(call: Call) -> Response:
    """Return the agents that clients may start."""
    return json_response({"items": [_described(agent) for agent in call.context.agents]})


def _described(agent: Agent) -> dict[str, Json]:
    return {
        "name": agent.name,
        "description": agent.description,
        "max_steps": agent.max_steps,
        "output_schema": None if agent.output is None else json_schema(agent.output),
        "tools": [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.input.schema,
                "execute": tool.execute,
                "requires_approval": tool.requires_approval,
            }
            for tool in agent.tools.values()
        ],
    }


def backend_name(context: ServerContext) -> str:
    """Return the technology of the state store: `sqlite` for a `SqliteStateStore`."""
    return type(context.store).__name__.removesuffix("StateStore").removeprefix("In").lower()


async def probe(context: ServerContext) -> float:
    """Make a small request to the store and return how long it took, in milliseconds."""
    try:
        async with asyncio.timeout(HEALTH_SECONDS):
            return await measure_latency(context.store) * 1000
    except TimeoutError as error:
        raise StoreUnavailable(f"The store did not respond within {HEALTH_SECONDS} s.") from error


async def health(call: Call) -> Response:
    """Return whether the store responds."""
    await probe(call.context)
    return json_response(Health("ok", backend_name(call.context)))


async def waiting(call: Call) -> Response:
    """List the calls that wait for a person or a client."""
    query = read_query(call.request, WaitingQuery)
    scope = list_scope(call.user, query.user_id)
    if scope.is_empty:
        return json_response({"items": [], "has_more": False, "next_cursor": None})
    page = await call.context.executor.list_waiting(
        user_id=scope.user_id, agent_type=query.agent_type, limit=query.limit, cursor=query.cursor
    )
    return json_response({"items": page.items, "has_more": page.has_more, "next_cursor": page.next_cursor})


async def stats(call: Call) -> Response:
    """Return figures about all sessions."""
    if not call.user.is_admin:
        raise Problem(403, "forbidden", "Only an admin may see figures about all sessions.")
    context, now = call.context, call.context.executor.services.clock()
    latency_ms = await probe(context)
    by_status = await context.store.count_by_status()
    waits = (await context.executor.list_waiting(limit=MAX_WAITS)).items
    return json_response(
        Stats(
            by_status=by_status,
            waiting=sum(count for status, count in by_status.items() if status in SUSPENDED),
            oldest_waiting_since=min((wait.since for wait in waits), default=None),
            workers=[msgspec.to_builtins(worker) for worker in await list_workers(context.streams, now)],
            recovered_today=await recovered_today(context.streams, now),
            backend={"name": backend_name(context), "latency_ms": round(latency_ms, 2)},
            # Sessions, not questions; and the oldest of the newest questions, if there are very many.
            approximate=[*(() if context.store.exact_counts else ["by_status"]), "waiting", "oldest_waiting_since"],
        )
    )


ENDPOINTS = (
    Endpoint("GET", "/agents", agents, "The agents that clients may start", returns=Items, tag="server"),
    Endpoint(
        "GET",
        "/waiting",
        waiting,
        "Calls that wait for a response",
        query=WaitingQuery,
        returns=Items,
        tag="server",
    ),
    Endpoint("GET", "/stats", stats, "Figures about all sessions", returns=Stats, tag="server"),
    Endpoint("GET", "/healthz", health, "Whether the store responds", returns=Health, public=True, tag="server"),
)
