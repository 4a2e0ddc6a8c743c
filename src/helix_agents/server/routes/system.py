"""Routes about the server itself: agents, health, what waits, figures."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
from starlette.responses import Response

from ...agent import Agent
from ...codec import Json
from ...errors import StoreUnavailable
from ...executor.workers import list_workers, recovered_today
from ...lifecycle import SUSPENDED
from ...schema.signature import json_schema
from ...types import SessionStatus
from ..context import Desk
from ..endpoints import Call, Endpoint
from ..problems import Problem
from ..requests import Id, read_query, reply
from .sessions import Items, Limit

HEALTH_SECONDS = 5
PROBE = "helix-health"
MAX_WAITS = 200


class WaitingQuery(msgspec.Struct):
    agent_type: Id | None = None
    user_id: Id | None = None
    limit: Limit = 50
    cursor: str | None = None


class Health(msgspec.Struct):
    status: str
    backend: str


class Stats(msgspec.Struct):
    """Figures for a glance. `approximate` names those that are not exact."""

    by_status: dict[SessionStatus, int]
    waiting: int
    oldest_waiting_since: int | None
    workers: list[dict[str, Any]]
    recovered_today: int
    backend: dict[str, Any]
    approximate: list[str]


async def agents(call: Call) -> Response:
    return reply({"items": [_described(agent) for agent in call.desk.executor.agents]})


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


def backend_name(desk: Desk) -> str:
    """What the state store calls its technology: `sqlite` for a `SqliteStateStore`."""
    return type(desk.store).__name__.removesuffix("StateStore").removeprefix("In").lower()


async def _probe(desk: Desk) -> float:
    """Ask the store something small; how long that took, in milliseconds."""
    began = time.perf_counter()
    try:
        async with asyncio.timeout(HEALTH_SECONDS):
            await desk.store.session_exists(PROBE)
    except TimeoutError as error:
        raise StoreUnavailable(f"The store did not respond within {HEALTH_SECONDS} s.") from error
    return (time.perf_counter() - began) * 1000


async def health(call: Call) -> Response:
    await _probe(call.desk)
    return reply(Health("ok", backend_name(call.desk)))


async def waiting(call: Call) -> Response:
    query = read_query(call.request, WaitingQuery)
    user_id = query.user_id if call.user.is_admin else call.user.id
    if not call.user.is_admin and query.user_id not in (None, call.user.id):
        return reply({"items": [], "has_more": False, "next_cursor": None})
    page = await call.desk.executor.list_waiting(
        user_id=user_id, agent_type=query.agent_type, limit=query.limit, cursor=query.cursor
    )
    return reply({"items": page.items, "has_more": page.has_more, "next_cursor": page.next_cursor})


async def stats(call: Call) -> Response:
    if not call.user.is_admin:
        raise Problem(403, "forbidden", "Only an admin may see figures about all sessions.")
    desk, now = call.desk, call.desk.executor.services.clock()
    latency_ms = await _probe(desk)
    by_status = await desk.store.count_by_status()
    waits = (await desk.executor.list_waiting(limit=MAX_WAITS)).items
    return reply(
        Stats(
            by_status=by_status,
            waiting=sum(count for status, count in by_status.items() if status in SUSPENDED),
            oldest_waiting_since=min((wait.since for wait in waits), default=None),
            workers=[msgspec.to_builtins(worker) for worker in await list_workers(desk.streams, now)],
            recovered_today=await recovered_today(desk.streams, now),
            backend={"name": backend_name(desk), "latency_ms": round(latency_ms, 2)},
            # Sessions, not questions; and the oldest of the newest questions, if there are very many.
            approximate=[*(() if desk.store.exact_counts else ["by_status"]), "waiting", "oldest_waiting_since"],
        )
    )


ENDPOINTS = (
    Endpoint("GET", "/agents", agents, "The registered agents", gives=Items, tag="server"),
    Endpoint(
        "GET", "/waiting", waiting, "Questions that wait for a person", query=WaitingQuery, gives=Items, tag="server"
    ),
    Endpoint("GET", "/stats", stats, "Figures about all sessions", gives=Stats, tag="server"),
    Endpoint("GET", "/healthz", health, "Whether the store responds", gives=Health, public=True, tag="server"),
)
