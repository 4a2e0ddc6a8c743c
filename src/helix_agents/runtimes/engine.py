"""The base of all durable engines: start a run, do its steps, pass on responses, find lost runs.

An engine stores tickets; conversations stay in our stores. A run is stored before it is passed to the engine, so if the
process dies in between, the run can be found: every runtime searches for runs of its engine that have been idle for the
length of a lease, and asks the engine to continue them.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

import msgspec

from ..agent import Agent
from ..codec import Json
from ..errors import AlreadyRunning, HelixError, NotResumable, RunLost
from ..executor import (
    Action,
    AgentExecutor,
    Input,
    Intent,
    RunHandle,
    Standing,
    Stepper,
    Ticket,
    ToolResultReceipt,
    close,
    decide,
    decided,
    find,
)
from ..executor.workers import SkippedSessions, due_sessions
from ..retry import RESULT
from ..safe_text import get_logger
from ..types import SessionState

logger = get_logger("helix_agents.runtimes")

RESUMABLE = (Standing.READY, Standing.STOPPED, Standing.ORPHANED)


class EngineRuntime(ABC):
    """Runs the agents of an executor on a durable engine. Inside `async with`, this process is one of the workers."""

    def __init__(self, executor: AgentExecutor, engine: str) -> None:
        self._executor = executor
        self._services = executor.services
        self._engine = engine
        self._stepper = Stepper(executor, engine=engine)
        self._strangers: set[str] = set()
        self._skipped = SkippedSessions()

    async def submit(
        self, agent: Agent | str, input: Input, *, session_id: str | None = None, **options: Any
    ) -> RunHandle:
        """Store a run, as `executor.submit` does, and let the engine execute it.

        The handle follows the run in any process. A session that was interrupted or waits for a response continues with
        `input` as the next message.
        """
        agent = self._executor.runs.known(agent)
        handle = await self._stepper.submit(agent, input, session_id=session_id, **options)
        ticket = await self._stepper.look(agent, handle.session_id)
        if not ticket.done:
            await self._begin(ticket, anew=options.get("idempotency_key") is None)
        return handle

    async def answer(self, session_id: str, tool_call_id: str | None = None, **answer: Any) -> ToolResultReceipt:
        """Respond to a question, as `executor.submit_tool_result` does; after the last response the engine continues
        the run."""
        receipt = await self._executor.submit_tool_result(session_id, tool_call_id, **answer)
        await self.answered(receipt.session_id)
        return receipt

    async def answered(self, session_id: str) -> None:
        """Let the engine continue the session whose question was answered, if that was the last one."""
        asked = await self._services.store.load_state(session_id)
        root_id = session_id if asked is None else asked.root_session_id or session_id
        root = await find(self._services, root_id)
        if root.session is not None and root.seen.standing is Standing.READY:
            with suppress(AlreadyRunning, NotResumable, RunLost):  # another process has also responded and was faster
                await self.resume(root.session.agent_type, root_id)

    async def resume(self, agent: Agent | str, session_id: str, *, user_id: str | None = None) -> RunHandle:
        """Let the engine continue a session that was interrupted, restored or forked, or has all its responses."""
        agent = self._executor.runs.known(agent)
        found, _ = await decided(
            self._services, Intent.RESUME, session_id, agent=agent, user_id=user_id, engine=self._engine
        )
        if found.seen.standing not in RESUMABLE:
            raise NotResumable(session_id, f"it is {found.seen.status}")
        return await self.submit(agent, [], session_id=session_id)

    async def retry(
        self, session_id: str, *, agent: Agent | str | None = None, user_id: str | None = None
    ) -> RunHandle:
        """Let the engine run the failed turn of a session again, as `executor.retry` does."""
        if agent is None:
            agent = (await find(self._services, session_id, user_id=user_id)).existing.agent_type
        known = self._executor.runs.known(agent)
        handle = await self._executor.starter.retry(known, session_id, user_id=user_id, engine=self._engine)
        await self._begin(await self._stepper.look(known, session_id), anew=True)
        return handle

    # -- for the engine

    def knows(self, kept: dict[str, Json]) -> bool:
        """Return whether the agent of a ticket is known here; log each unknown one once."""
        name = str(kept["agent_type"])
        if name not in self._executor.agents and name not in self._strangers:
            self._strangers.add(name)
            logger.warning(
                "%s sends runs of agent %s, which this worker does not know: leaving them to other workers.",
                self._engine,
                name,
            )
        return name in self._executor.agents

    async def advance(self, kept: dict[str, Json]) -> dict[str, Json]:
        """Execute the next step of a run and return the new ticket. A late caller waits for the process that executes
        the step."""
        ticket = msgspec.convert(kept, Ticket)
        while True:
            try:
                return plain(await self._stepper.step(ticket.agent_type, ticket, retry=True))
            except (AlreadyRunning, RunLost):
                await asyncio.sleep(RESULT.first_seconds)

    async def watch(self) -> None:
        """Loop forever: find stalled runs, and ask the engine to continue them."""
        while True:
            try:
                await self._rescue_all()
            except Exception as error:  # the store or the engine is unavailable: both have their own errors
                logger.warning("Could not scan for runs that %s lost: %s", self._engine, error)
            await asyncio.sleep(self._services.lease_seconds / 2)

    async def _rescue_all(self) -> None:
        services = self._services
        now = services.clock()
        names = [agent.name for agent in self._executor.agents]
        async for session in due_sessions(services, names):
            if session in self._skipped or (
                session.status == "active" and session.updated_at + services.lease_ms > now
            ):
                continue  # in the second case most likely between two steps
            try:
                await self._rescue_one(session)
            except HelixError as error:
                logger.warning("Could not recover session %s: %s", session.session_id, error)

    async def _rescue_one(self, session: SessionState) -> None:
        found = await find(self._services, session.session_id)
        decision = decide(found.seen, Intent.RECOVER, engine=self._engine)
        if decision.action is Action.LEAVE:
            self._skipped.add(session)
        elif decision.action in (Action.CLOSE, Action.CLOSE_FIRST) and found.run is not None:
            await close(self._services, found)
        elif found.seen.standing is Standing.READY:
            await self.resume(session.agent_type, session.session_id)
        elif not await self._rescue(await self._stepper.look(session.agent_type, session.session_id)):
            await self._executor.interrupt(session.session_id, f"{self._engine} has given the run up.")

    @abstractmethod
    async def _begin(self, ticket: Ticket, *, anew: bool) -> None:
        """Let the engine execute a run. Unless `anew`, it may have started already."""

    @abstractmethod
    async def _rescue(self, ticket: Ticket) -> bool:
        """Let the engine continue a stalled run, unless it already does. Return False if it has given up the run."""


def is_newer(one: dict[str, Json], other: dict[str, Json]) -> bool:
    """Return whether a ticket was made after another one of the same turn."""
    return int(str(one["version"])) > int(str(other["version"]))


def plain(ticket: Ticket) -> dict[str, Json]:
    """Return a ticket in the form that engines store: without the model's reply."""
    kept: dict[str, Json] = msgspec.to_builtins(msgspec.structs.replace(ticket, output=None, error=None))
    return kept
