"""An agent that lives in a Durable Object: sessions, streams and the executor in one place, woken by an alarm.

    class Assistant(AgentServer):
        agents = [researcher]

        def model(self, env):
            return OpenAILLM("gpt-x", api_key=env.OPENAI_API_KEY)

        def authenticate(self, env):
            return bearer_tokens({env.TOKEN: User("me")})

    class Default(WorkerEntrypoint):
        async def fetch(self, request):
            return await route(self.env.ASSISTANTS, request)

A session is an object, and its sub-agents live in the same one. The routes are those of the HTTP server; WebSockets are
accepted by the object itself, so that it may sleep while they stay open. Imported only inside a Worker.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

from starlette.requests import HTTPConnection
from workers import DurableObject, Request, Response, asgi

from ..agent import Agent
from ..backends.cloudflare.bindings import ObjectStorage, unwrapped
from ..backends.cloudflare.durable_object import DOStateStore, DOStreamManager, DOUsageStore
from ..clock import random_id
from ..codec import decode, encode
from ..errors import AlreadyRunning, HelixError, NotResumable
from ..executor import AgentExecutor
from ..llm.contract import LLM
from ..server.app import create_app
from ..server.auth import Authenticate
from ..server.cleaning import clean
from ..server.problems import Problem, problem_of
from ..server.requests import start_of_stream
from ..streams.base import DEFAULT_MAX_CHUNKS, DEFAULT_TTL_SECONDS

logger = logging.getLogger("helix_agents.runtimes.cloudflare")

MARGIN_SECONDS = 5.0
SESSIONS_AT_ONCE = 200


class AgentServer(DurableObject):  # type: ignore[misc]  # untyped: it exists only inside a Worker
    """A Durable Object that runs agents. Subclass it, name the agents, say which model and who may."""

    agents: ClassVar[Sequence[Agent]] = ()
    allow_unauthenticated: ClassVar[bool] = False
    allow_origins: ClassVar[Sequence[str]] = ()
    lease_seconds: ClassVar[float] = 10.0
    poll_seconds: ClassVar[float] = 1.0
    """How often a run looks for an interrupt: those that come through this object do not wait for it."""
    max_chunks: ClassVar[int] = DEFAULT_MAX_CHUNKS
    stream_ttl_seconds: ClassVar[int] = DEFAULT_TTL_SECONDS

    def model(self, env: Any) -> LLM:
        """The model that the agents ask."""
        raise NotImplementedError(f"{type(self).__name__}.model(env) must return the model that the agents ask.")

    def authenticate(self, env: Any) -> Authenticate | None:
        """Who may: a function from a connection to a `User`. None needs `allow_unauthenticated = True`."""
        return None

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self.storage = ObjectStorage(self.ctx.storage)
        self.state = DOStateStore(self.storage)
        self.usage = DOUsageStore(self.storage)
        self.streams = DOStreamManager(
            self.ctx, storage=self.storage, max_chunks=self.max_chunks, ttl=self.stream_ttl_seconds
        )
        self.executor = AgentExecutor(
            self.state,
            self.streams,
            self.model(self.env),
            usage_store=self.usage,
            agents=self.agents,
            lease_seconds=self.lease_seconds,
            poll_seconds=self.poll_seconds,
        )
        self.app = create_app(
            self.executor,
            authenticate=self.authenticate(self.env),
            allow_unauthenticated=self.allow_unauthenticated,
            allow_origins=self.allow_origins,
        )

    async def fetch(self, request: Any) -> Any:
        """The routes of the HTTP server, and `/ws/{session_id}`."""
        if (request.headers.get("upgrade") or "").lower() == "websocket":
            return await self._open_socket(request)
        if request.method == "POST":
            # Whatever it starts: if this object dies in the middle, nothing else wakes it up again.
            await self._wake_later()
        return await asgi.fetch(self.app, request, self.env)

    async def alarm(self, info: Any = None) -> None:
        """Take up runs that died with an earlier life of this object; come again while there are any."""
        page = await self.state.list_sessions(
            status="active", parent_session_id=None, limit=SESSIONS_AT_ONCE, count=False
        )
        for session in page.items:
            if session.agent_type not in self.executor.agents:
                continue
            try:
                if (await self.executor.can_resume(session.session_id)).can_resume:
                    await self.executor.resume(session.agent_type, session.session_id)
            except (AlreadyRunning, NotResumable):
                pass  # it is at work
            except HelixError as error:
                logger.warning("Session %r could not be resumed: %s", session.session_id, error)
        if page.items:
            await self._wake_later()

    async def _wake_later(self) -> None:
        now, seconds = self.executor.services.clock(), self.lease_seconds + MARGIN_SECONDS
        await unwrapped(self.ctx.storage).setAlarm(now + int(seconds * 1000))

    # -- WebSockets

    async def _open_socket(self, request: Any) -> Any:
        scope = asgi.request_to_scope(request, self.env, ws=True)
        clean(scope)
        connection = HTTPConnection(scope)
        path = [unquote(part) for part in urlsplit(request.url).path.split("/")]
        try:
            if len(path) != 3 or path[1] != "ws":
                raise Problem(404, "not_found", "There is no WebSocket here: ask for /ws/{session_id}.")
            desk = self.app.state.desk
            user = await desk.user(connection)
            session = await desk.session(user, path[2])
            place = start_of_stream(connection, _place(connection.query_params.get("from_sequence", "0")))
            told = {"session_id": session.session_id, "status": session.status, "step_count": session.step_count}
            client = await self.streams.accept(session.stream_id, from_sequence=place, tell=told)
        except Exception as error:
            return _sent(problem_of(error))
        return Response(None, status=101, web_socket=client)

    async def webSocketMessage(self, socket: Any, message: Any) -> None:  # the runtime's name
        """Clients only listen."""

    async def webSocketClose(self, socket: Any, code: int, reason: str, clean: bool) -> None:
        """Close our side as well."""
        with suppress(Exception):
            socket.close(1000)


async def route(namespace: Any, request: Any) -> Any:
    """Pass a request to the object of its session: the one that the path, the body or `?object=` names."""
    url = urlsplit(request.url)
    path = [unquote(part) for part in url.path.split("/")[1:]]
    named = parse_qs(url.query).get("object", [""])[0]
    if path == ["execute"] and request.method == "POST":
        return await _route_execute(namespace, request, named)
    if not named and len(path) > 1 and path[0] in ("stream", "ws", "result", "sessions"):
        named = path[1]
    if not named and path[0] in ("sessions", "waiting", "stats"):
        problem = Problem(404, "not_found", "Every session is an object of its own here: ask for one by its id.")
        return _sent(problem)
    return await namespace.getByName(named or "helix").fetch(request.js_object)


async def _route_execute(namespace: Any, request: Any, named: str) -> Any:
    """A run goes to the object of its session; a session that has no id yet gets one, since it names the object."""
    try:
        body = decode(await request.text())
    except HelixError:
        return _sent(Problem(400, "invalid_argument", "The body is not JSON."))
    if isinstance(body, dict):
        body["session_id"] = body.get("session_id") or random_id()
        named = named or str(body["session_id"])
    again = Request(request.url, method="POST", headers=dict(request.headers.items()), body=encode(body))
    return await namespace.getByName(named or "helix").fetch(again.js_object)


def _sent(problem: Problem) -> Any:
    refused = problem.response()
    return Response(bytes(refused.body).decode(), status=refused.status_code, headers=dict(refused.headers))


def _place(text: str) -> int:
    if not text.isdecimal():
        raise Problem(400, "invalid_argument", f"from_sequence is a sequence seen before, or 0, not {text!r}.")
    return int(text)
