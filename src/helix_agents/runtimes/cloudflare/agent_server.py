"""AgentServer: an agent that lives in a Durable Object, with its sessions, streams and executor in one place.

    def who(env):
        return bearer_tokens({env.TOKEN: User("me")})

    class Assistant(AgentServer):
        agents = [researcher]

        def model(self, env):
            return OpenAILLM("gpt-x", api_key=env.OPENAI_API_KEY)

        def authenticate(self, env):
            return who(env)

    class Default(WorkerEntrypoint):
        async def fetch(self, request):
            return await route(self.env.ASSISTANTS, request, authenticate=who(self.env))

A session is an object, and its sub-agents and forks live in the same one. The routes are those of the HTTP server;
WebSockets are accepted by the object itself, so that it may sleep while they stay open. An alarm wakes it when
something is due. Imported only inside a Worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

from workers import DurableObject, Response

from ...agent import Agent
from ...backends.cloudflare import sockets
from ...backends.cloudflare.bindings import ObjectStorage
from ...backends.cloudflare.durable_object import DOBlobStore, DOStateStore, DOStreamManager, DOUsageStore
from ...backends.sql_shared.beside import SqlBeside
from ...codec import Json, decode, encode
from ...errors import InvalidArgument, SessionNotFound
from ...executor import drop_leftover, outcome_without_stream
from ...llm.contract import LLM
from ...operations.cleanup import expired_session_cleanup
from ...server.app import create_app
from ...server.auth import Authenticate, User
from ...server.limits import too_many
from ...server.problems import Problem
from ...server.requests import start_of_stream
from ...server.routes.streams import socket_query
from ...server.wire.feed import final_event
from ...streams.base import DEFAULT_MAX_CHUNKS, DEFAULT_TTL_SECONDS
from ...streams.contract import StreamOutcome
from .object_executor import ObjectExecutor
from .upkeep import Upkeep
from .web import (
    OF_A_SESSION,
    Address,
    body_of,
    connection_of,
    is_upgrade,
    not_a_hook,
    rejection,
    serve,
    session_in,
    with_body,
)

MARGIN_MS = 5_000
SESSIONS_AT_ONCE = 200


class AgentServer(DurableObject):  # type: ignore[misc]  # untyped: it exists only inside a Worker
    """A Durable Object that runs agents. Subclass it and say which agents, which model, and who may use it."""

    agents: ClassVar[Sequence[Agent]] = ()
    allow_unauthenticated: ClassVar[bool] = False
    allow_origins: ClassVar[Sequence[str]] = ()
    lease_seconds: ClassVar[float] = 10.0
    poll_seconds: ClassVar[float] = 1.0
    """How often a run polls for an interrupt. Those that come through this object do not wait for it."""
    max_chunks: ClassVar[int] = DEFAULT_MAX_CHUNKS
    stream_ttl_seconds: ClassVar[int] = DEFAULT_TTL_SECONDS
    session_ttl_seconds: ClassVar[int | None] = None
    """How long a stopped session is stored after its last change. None: until it is deleted."""
    max_streams_per_user: ClassVar[int] = 100
    """How many WebSockets, and how many event streams, a user may have open in one object."""
    max_upload_bytes: ClassVar[int] = 5_000_000
    """How large an uploaded image or file may be. It is held in memory several times, of which there are 128 MB."""

    def model(self, env: Any) -> LLM | str:
        """Return the model that the agents ask, or its name."""
        raise NotImplementedError(f"{type(self).__name__}.model(env) must return the model that the agents ask.")

    def authenticate(self, env: Any) -> Authenticate | None:
        """Return who may use it, as for `create_app`. None requires `allow_unauthenticated = True`."""
        return None

    def executor_options(self, env: Any) -> dict[str, Any]:
        """Return more arguments of `AgentExecutor`, such as `deps_factory`, `hooks`, `secret` or `memory_store`.

        Stores of the same object share `self.storage`: `DOMemoryStore(self.storage)`.
        """
        return {}

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self._starting = 0
        self.storage = ObjectStorage(self.ctx.storage)
        self._upkeep = Upkeep(self.storage)
        self.usage = DOUsageStore(self.storage)
        self.streams = DOStreamManager(
            self.ctx,
            storage=self.storage,
            max_chunks=self.max_chunks,
            ttl=self.stream_ttl_seconds,
            last_word=self._last_word,
            exists=self._exists,
        )
        self.state = DOStateStore(self.storage, beside=SqlBeside(self.streams, self.usage))
        options: dict[str, Any] = {
            "usage_store": self.usage,
            "blob_store": DOBlobStore(self.storage),
            "agents": self.agents,
            "lease_seconds": self.lease_seconds,
            "poll_seconds": self.poll_seconds,
        }
        options |= self.executor_options(self.env)
        self.executor = ObjectExecutor(self.state, self.streams, self.model(self.env), wake=self._wake, **options)
        self.app = create_app(
            self.executor,
            authenticate=self.authenticate(self.env),
            allow_unauthenticated=self.allow_unauthenticated,
            allow_origins=self.allow_origins,
            allow_hosts=["*"],  # clients cannot choose the host name of an object
            recover=False,  # the alarm does it
            max_streams_per_user=self.max_streams_per_user,
            inspector=False,  # every object would hold its files, and workerd compresses what is compressed
        )

    # -- requests

    async def fetch(self, request: Any) -> Any:
        """Serve the routes of the HTTP server, and `/ws/{session_id}`.

        Nothing is stored, and no alarm is set, for a request that is rejected.
        """
        address = Address(request)
        try:
            if address.token is not None:
                if self.executor.services.hook_tokens.read(address.token) is None or self.storage.is_empty():
                    raise not_a_hook()
                return await self._change(request, address, None)
            if not address.is_public:
                user = await self.app.context.user(connection_of(request, self.env))
                if is_upgrade(request):
                    return await self._open_socket(request, address, user)
                if self.storage.is_empty() and address.kind in OF_A_SESSION and not address.starts_session:
                    raise SessionNotFound("/".join(address.rest[:1]) or address.object)
                if address.is_change:
                    return await self._change(request, address, user)
        except Exception as error:
            return rejection(error)
        return await serve(self.app, request, self.env)

    async def _change(self, request: Any, address: Address, user: User | None) -> Any:
        most = self.max_upload_bytes if address.is_upload else self.app.context.limits.max_body_bytes
        body = await body_of(request, most)
        if address.starts_session and address.object and user is not None:
            await self._ensure_may_enter(user, address.object, session_in(body, address)[1])
        self._starting += 1
        try:
            # Before anything starts: if this object dies in the middle, nothing else wakes it again.
            await self._wake()
            return await serve(self.app, with_body(request, body), self.env)
        finally:
            self._starting -= 1
            await self._after_change()

    async def _ensure_may_enter(self, user: User, name: str, session_id: str) -> None:
        """Raise `SessionNotFound` unless the user has a session in the object of this name, or starts its first one."""
        if name == session_id:
            return
        for each in (name, session_id) if not self.storage.is_empty() else ():
            with suppress(SessionNotFound, InvalidArgument):
                await self.app.context.session(user, each)
                return
        raise SessionNotFound(name)

    async def _after_change(self) -> None:
        """Empty the object if no session is left in it: then it costs nothing."""
        if not self._starting and self._upkeep.is_bare():
            sockets.close_all(self.ctx)
            await self.storage.empty()

    # -- the alarm

    async def alarm(self, info: Any = None) -> None:
        """Continue runs that died with an earlier life of this object, end what has expired, remove what is old."""
        if self.storage.is_empty():
            return
        try:
            await self.executor.recover(limit=SESSIONS_AT_ONCE)
            await expired_session_cleanup(self.state, stream_manager=self.streams)
            await self.streams.purge()
            if self.session_ttl_seconds is not None:
                for session_id in self._upkeep.idle_sessions(self._now() - self.session_ttl_seconds * 1000):
                    await self.executor.delete_session(session_id)
                await self._after_change()
        finally:  # the runtime gives up an alarm that fails several times
            await self._schedule()

    async def _schedule(self) -> None:
        """Set the alarm for the next thing that is due, if anything is."""
        idle_ms = None if self.session_ttl_seconds is None else self.session_ttl_seconds * 1000
        due = self._upkeep.next_due(stream_ttl_ms=self.stream_ttl_seconds * 1000, session_ttl_ms=idle_ms)
        if due is not None and due > self._now():
            await self.storage.wake_by(due + MARGIN_MS)
        # A request that starts a run at this moment has seen this alarm and relies on it. What is due and still here
        # could not be done now.
        if self._starting or self._upkeep.is_active() or (due is not None and due <= self._now()):
            await self._wake()

    async def _wake(self) -> None:
        """Set the alarm for when the lease of a run that starts now has expired, or when work must be looked for."""
        await self.storage.wake_by(self._now() + int(self.lease_seconds * 1000) + MARGIN_MS)

    def _now(self) -> int:
        return self.executor.services.clock()

    # -- WebSockets

    async def _open_socket(self, request: Any, address: Address, user: User) -> Any:
        if address.kind != "ws" or len(address.rest) != 1:
            raise Problem(404, "not_found", "There is no WebSocket here: ask for /ws/{session_id}.")
        if self.storage.is_empty():
            raise SessionNotFound(address.rest[0])
        connection = connection_of(request, self.env)
        query = socket_query(connection)
        most = self.app.context.limits.max_streams_per_user
        if sockets.count_of_user(self.ctx, user.id) >= most:
            raise too_many(f"You have {most} open streams: close one first.")
        session = await self.app.context.session(user, address.rest[0])
        await drop_leftover(self.streams, session)
        client = await self.streams.accept(
            session.stream_id,
            from_sequence=start_of_stream(connection, query.from_sequence),
            follow=query.follow,
            about=encode([session.session_id, session.incarnation]),
            user_id=user.id,
            tell={"session_id": session.session_id, "status": session.status, "step_count": session.step_count},
        )
        return Response(None, status=101, web_socket=client)

    def _exists(self, about: str) -> bool:
        """Return whether the session that a socket was opened for still exists."""
        return self._upkeep.has(*decode(about))

    async def _last_word(self, about: str, outcome: StreamOutcome | None) -> tuple[str, Json] | None:
        """Return the final event that the HTTP server sends at the end of a stream."""
        session_id, incarnation = decode(about)
        try:
            session = None if self.storage.is_empty() else await self.state.load_state(session_id)
            if session is None or session.incarnation != incarnation:
                return "gone", {}
            if outcome is None and session.status == "active":
                return None
            final = await final_event(self.executor, session, outcome or outcome_without_stream(session))
            return None if final is None else (final.name, final.data)
        except SessionNotFound:
            return "gone", {}

    async def webSocketMessage(self, socket: Any, message: Any) -> None:  # the runtime's name
        """Ignore it: clients only listen."""

    async def webSocketClose(self, socket: Any, code: int, reason: str, clean: bool) -> None:
        """Close our side as well."""
        with suppress(Exception):
            socket.close(sockets.NORMAL_CLOSURE)
