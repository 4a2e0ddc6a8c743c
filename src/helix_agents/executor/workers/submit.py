"""Submitting: store a run that any worker may start, and take up runs that nobody has.

A submitted run is one whose lease belongs to nobody (`handover.py`). It is stored in the write that holds what the user
said: there is no queue besides the sessions. Whoever finds it by `list_claimable`, a pool (`pool.py`), a server or
`recover`, goes on with it.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from ...agent import Agent, AgentRegistry, Output
from ...codec import Json
from ...errors import AlreadyRunning, HelixError, InvalidArgument, NotResumable, RunLost, SessionNotFound
from ...limits import UsageLimits
from ...messages import Message
from ...stores.paging import ensure_limit
from ...types import RunRecord, SessionState, SessionStatus
from ..handle import AgentResult, RunHandle
from ..options import Input, as_messages, as_state, ensure_said
from ..run.budget import ensure_countable
from ..run.loop import Run
from ..services import Services
from ..session.claim import Claim
from ..session.idempotency import KeyedRun, chosen_session, run_of_key
from ..session.resumable import NOBODY, ensure_resumable, is_untouched, load_settled, waits_for_worker
from ..session.take_over import claim_unfinished
from ..session.turns import Seen, claim_turn
from .claimable import OthersBusiness, waiting_line
from .stats import note_recovered
from .wakeup import ring

logger = logging.getLogger("helix_agents.executor")

TAKEN_UP: tuple[SessionStatus, ...] = ("active", "completed", "failed")
"""What is looked for: runs to go on with, and such as died when their session had come to rest."""

ENGINE = "engine"
"""What the metadata of a run names if an engine outside decides where its steps run: others leave it alone."""


class Submitting(ABC):
    """The part of the executor that leaves runs to others, and takes up what others left."""

    services: Services
    agents: AgentRegistry
    _tasks: dict[asyncio.Task[AgentResult], Run]
    _of_engines: OthersBusiness

    async def submit(
        self,
        agent: Agent[Output] | str,
        input: Input,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        tags: Sequence[str] = (),
        metadata: Mapping[str, str] | None = None,
        expires_at: int | None = None,
        custom_state: Mapping[str, Json] | object | None = None,
        limits: UsageLimits | None = None,
        idempotency_key: str | None = None,
    ) -> RunHandle[Output]:
        """Store a run, in one commit with what the user said; any worker starts it. Takes what `execute` takes.

        The handle follows the run wherever it goes: `result` waits until the session comes to rest, also if nobody has
        started it yet, or if a worker dies and another goes on. A session that was interrupted or waits for an answer
        goes on with `input` as the next message. Raises `AlreadyRunning` for one that runs or waits for a worker.
        """
        self._ensure_open()
        options: dict[str, Any] = {"user_id": user_id, "tags": tags, "metadata": metadata, "expires_at": expires_at}
        handle = await self.leave(
            agent,
            input,
            {"submitted": True},
            session_id=session_id,
            custom_state=as_state(custom_state),
            limits=limits,
            idempotency_key=idempotency_key,
            **options,
        )
        await ring(self.services.streams)
        return handle

    async def leave(
        self,
        agent: Agent | str,
        input: Input,
        noted: Mapping[str, Json],
        *,
        session_id: str | None = None,
        limits: UsageLimits | None = None,
        idempotency_key: str | None = None,
        **options: Any,
    ) -> RunHandle:
        """Store a run that nobody has, and tell nobody. `noted`: what its record says of it."""
        agent = self.known(agent)
        ensure_countable(self.services, limits, agent.limits)
        messages = as_messages(input)
        session_id = chosen_session(session_id, idempotency_key, options.get("user_id"))
        if limits is not None:
            noted = {**noted, "limits": msgspec.to_builtins(limits)}
        if idempotency_key is None:
            return await self._leave(agent, session_id, messages, options, noted, None)
        given = [options.get(name) for name in ("metadata", "expires_at", "custom_state")]
        keyed = run_of_key(session_id, idempotency_key, [agent.name, messages, list(options.get("tags", ())), *given])
        if (found := await self._begun_before(agent, session_id, keyed)) is not None:
            return found
        try:
            return await self._leave(agent, session_id, messages, options, noted, keyed.new_run_id())
        except AlreadyRunning:
            # Perhaps by the same request, sent twice at once.
            if (found := await self._begun_before(agent, session_id, keyed)) is None:
                raise
            return found

    async def recover(self, *, limit: int = 100) -> list[RunHandle]:
        """Take up to `limit` sessions of known agents that wait for a worker or whose process died.

        One that has come to rest, but whose process died before it could close its stream, is closed on the way.
        """
        self._ensure_open()
        ensure_limit(limit)
        names, gone = [agent.name for agent in self.agents], set[str]()
        taken: list[RunHandle] = []
        async with aclosing(waiting_line(self.services, names, status=TAKEN_UP, gone=gone)) as line:
            async for session in line:
                if (handle := await self.take_up(session)) is None:
                    continue
                gone.add(session.session_id)
                if session.status == "active":
                    taken.append(handle)
                if len(gone) == limit:
                    break
        return taken

    async def take_up(self, session: SessionState, *, worker: str | None = None) -> RunHandle | None:
        """Go on with a session that `list_claimable` found; None if another process was faster, or has to do it.

        `worker`: the name under which the run's record says who works on it.
        """
        if session in self._of_engines:
            return None
        run = await self.services.store.get_current_run(session.session_id)
        if run is None or ENGINE in run.metadata:
            self._of_engines.add(session)
            return None
        try:
            handle = await self._take_up(self.agents.get(session.agent_type), session.session_id, worker)
        except (AlreadyRunning, NotResumable, RunLost, SessionNotFound):
            return None  # another process was faster
        except HelixError as error:
            logger.warning("Cannot take up session %s now: %s", session.session_id, error)
            return None
        if session.status == "active" and not waits_for_worker(run):
            await note_recovered(self.services.streams, session.session_id, self.services.clock())
        return handle

    async def hand_over(self, handles: Iterable[RunHandle[Any]] | None = None) -> None:
        """Finish the steps that these runs are at, or all that run here, and leave the rest to other processes."""
        chosen = None if handles is None else {handle.run_id for handle in handles}
        tasks = [task for task, run in self._tasks.items() if chosen is None or run.context.run_id in chosen]
        for task in tasks:
            self._tasks[task].hand_over()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _leave(
        self,
        agent: Agent,
        session_id: str,
        messages: list[Message],
        options: Mapping[str, Any],
        noted: Mapping[str, Json],
        run_id: str | None,
    ) -> RunHandle:
        services = self.services
        seen: Seen | None = None
        if await services.store.session_exists(session_id):
            session, run = await load_settled(services, agent, session_id)
            if session.status not in ("completed", "failed") and not is_untouched(session, run):
                claim = await self._leave_unfinished(session, run, messages, noted, run_id)
                return self._handle(agent, claim.session, claim.run, None)
            seen = Seen(session, run)
        ensure_said(messages)
        try:
            claim = await claim_turn(
                services,
                agent,
                session_id,
                messages,
                session_options=options,
                run_metadata=noted,
                run_id=run_id,
                seen=seen,
                waits=True,
            )
        except RunLost:
            # A worker found the run before its stream was ready here, and has readied it: the run is in good hands.
            if (taken := await services.store.load_state(session_id)) is None:
                raise
            return self._handle(agent, taken, await services.store.get_current_run(session_id), None)
        return self._handle(agent, claim.session, claim.run, None)

    async def _leave_unfinished(
        self,
        session: SessionState,
        run: RunRecord | None,
        messages: list[Message],
        noted: Mapping[str, Json],
        run_id: str | None,
    ) -> Claim:
        """Claim a session that was put aside, and let go of it again at once."""
        if session.status == "active":
            raise AlreadyRunning(session.session_id, run.run_id if run else None)
        if len(messages) > 1:
            raise InvalidArgument(f"Session {session.session_id!r} is {session.status}: go on with one message.")
        message = messages[0] if messages else None
        await ensure_resumable(self.services, session, run, message=message is not None)
        claim = await claim_unfinished(self.services, session, run, message=message, run_metadata=noted, run_id=run_id)
        await self.services.store.update_run_status(claim.run.run_id, "running", lease_until=NOBODY)
        return claim

    # -- of the executor

    @abstractmethod
    def _ensure_open(self) -> None: ...

    @abstractmethod
    def known(self, agent: Agent | str) -> Agent: ...

    @abstractmethod
    def _handle(self, agent: Agent, session: SessionState, run: RunRecord | None, task: Any) -> RunHandle: ...

    @abstractmethod
    async def _begun_before(self, agent: Agent, session_id: str, keyed: KeyedRun) -> RunHandle | None: ...

    @abstractmethod
    async def _take_up(self, agent: Agent, session_id: str, worker: str | None) -> RunHandle: ...
