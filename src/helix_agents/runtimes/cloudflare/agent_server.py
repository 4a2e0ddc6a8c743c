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

import hashlib
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

from starlette.requests import HTTPConnection
from workers import DurableObject, Request, Response, asgi

from ...agent import Agent
from ...backends.cloudflare.bindings import ObjectStorage
from ...backends.cloudflare.durable_object import DOStateStore, DOStreamManager, DOUsageStore
from ...clock import random_id
from ...codec import Json, decode, encode
from ...errors import HelixError, SessionNotFound
from ...executor import AgentExecutor
from ...llm.contract import LLM
from ...server.app import create_app
from ...server.auth import Authenticate
from ...server.middleware import normalize
from ...server.problems import Problem, problem_of
from ...server.requests import start_of_stream
from ...server.routes.streams import socket_query
from ...server.wire.feed import final_event, final_event_without_stream
from ...streams.base import DEFAULT_MAX_CHUNKS, DEFAULT_TTL_SECONDS
from ...streams.contract import StreamOutcome

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
        self._beginning = 0
        self.storage = ObjectStorage(self.ctx.storage)
        self.state = DOStateStore(self.storage)
        self.usage = DOUsageStore(self.storage)
        self.streams = DOStreamManager(
            self.ctx,
            storage=self.storage,
            max_chunks=self.max_chunks,
            ttl=self.stream_ttl_seconds,
            last_word=self._last_word,
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
            allow_hosts=["*"],  # nobody reaches an object under a host name of its own choice
            recover=False,  # the alarm does it
        )
        # The runtime runs the lifespan around every request, while streams stay open after it.
        self.app.router.lifespan_context = lambda app: nullcontext()

    async def fetch(self, request: Any) -> Any:
        """The routes of the HTTP server, and `/ws/{session_id}`."""
        if (request.headers.get("upgrade") or "").lower() == "websocket":
            return await self._open_socket(request)
        if request.method != "POST":
            return await asgi.fetch(self.app, request, self.env)
        self._beginning += 1
        try:
            # Whatever it starts: if this object dies in the middle, nothing else wakes it up again.
            await self._wake_later()
            return await asgi.fetch(self.app, request, self.env)
        finally:
            self._beginning -= 1

    async def alarm(self, info: Any = None) -> None:
        """Take up runs that died with an earlier life of this object; come again while there are any."""
        try:
            await self.executor.recover(limit=SESSIONS_AT_ONCE)
        finally:  # the runtime gives up an alarm that fails several times
            active = await self.state.list_sessions(
                status="active", parent_session_id=None, limit=SESSIONS_AT_ONCE, count=False
            )
            # A request that comes in this moment has seen this alarm and relies on it.
            if self._beginning or any(session.agent_type in self.executor.agents for session in active.items):
                await self._wake_later()

    async def _wake_later(self) -> None:
        """Unless something wakes this object sooner: who put an alarm off again and again would never hear it."""
        seconds = self.lease_seconds + MARGIN_SECONDS
        await self.storage.wake_by(self.executor.services.clock() + int(seconds * 1000))

    # -- WebSockets

    async def _open_socket(self, request: Any) -> Any:
        scope = asgi.request_to_scope(request, self.env, ws=True)
        normalize(scope)
        connection = HTTPConnection(scope)
        path = [unquote(part) for part in urlsplit(request.url).path.split("/")]
        try:
            if len(path) != 3 or path[1] != "ws":
                raise Problem(404, "not_found", "There is no WebSocket here: ask for /ws/{session_id}.")
            context = self.app.context
            user = await context.user(connection)
            query = socket_query(connection)
            session = await context.session(user, path[2])
            client = await self.streams.accept(
                session.stream_id,
                from_sequence=start_of_stream(connection, query.from_sequence),
                follow=query.follow,
                about=session.session_id,
                tell={"session_id": session.session_id, "status": session.status, "step_count": session.step_count},
            )
        except Exception as error:
            return _sent(problem_of(error))
        return Response(None, status=101, web_socket=client)

    async def _last_word(self, session_id: str, outcome: StreamOutcome | None) -> tuple[str, Json] | None:
        """As the HTTP server says it."""
        try:
            session = await self.state.load_state(session_id)
            if session is None:
                return "gone", {}
            if outcome is not None:
                return await final_event(self.executor, session, outcome)
            return await final_event_without_stream(self.executor, session)
        except SessionNotFound:
            return "gone", {}

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
    if request.method == "POST" and path[0] in _SESSION_IN_BODY:
        return await _route_by_body(namespace, request, named, _SESSION_IN_BODY[path[0]])
    if not named and len(path) > 1 and path[0] in ("stream", "ws", "result", "sessions", "chat"):
        named = path[1]
    if not named and path[0] in ("sessions", "waiting", "stats"):
        problem = Problem(404, "not_found", "Every session is an object of its own here: ask for one by its id.")
        return _sent(problem)
    return await namespace.getByName(named or "helix").fetch(request.js_object)


_SESSION_IN_BODY = {"execute": "session_id", "chat": "id", "agui": "threadId"}
"""Where a request that may begin a session says which."""


async def _route_by_body(namespace: Any, request: Any, named: str, member: str) -> Any:
    """A run goes to the object of its session; a session that has no id yet gets one, since it names the object."""
    try:
        body = decode(await request.text())
    except HelixError:
        return _sent(Problem(400, "invalid_argument", "The body is not JSON."))
    if isinstance(body, dict):
        if member == "session_id" and not body.get(member):
            body[member] = _new_session(request)
        named = named or str(body.get(member) or "")
    again = Request(request.url, method="POST", headers=dict(request.headers.items()), body=encode(body))
    return await namespace.getByName(named or "helix").fetch(again.js_object)


def _new_session(request: Any) -> str:
    """The same one for the same key of the same client, so that a request which is sent again starts nothing."""
    key = request.headers.get("idempotency-key")
    try:
        secret = request.headers.get("authorization")
        return random_id() if key is None else _digest(encode([secret, key]))
    except HelixError:
        return random_id()  # the object refuses such a key


def _digest(text: str) -> str:
    return f"session-{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


def _sent(problem: Problem) -> Any:
    refused = problem.response()
    return Response(bytes(refused.body).decode(), status=refused.status_code, headers=dict(refused.headers))
