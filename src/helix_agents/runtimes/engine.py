"""What all durable engines have in common: begin a run, do its steps, pass answers on, find what they lost.

An engine stores tickets, never a word of a conversation: those stay in our stores. A run is stored there before the
engine hears of it, so a process that dies in between leaves something to find: every runtime looks for runs of its
engine that have stood still for the length of a lease, and asks the engine to go on with them.
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
from ..safe_text import get_logger
from ..types import SessionState

logger = get_logger("helix_agents.runtimes")

AGAIN_SECONDS = 0.1


class EngineRuntime(ABC):
    """Runs the agents of an executor by a durable engine. `async with` makes this process do some of the work."""

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

        The handle follows the run wherever it goes. A session that was interrupted or waits for an answer goes on with
        `input` as the next message.
        """
        agent = self._executor.runs.known(agent)
        ticket = await self._stepper.begin(agent, input, session_id=session_id, **options)
        handle = await self._handle(ticket)
        if not ticket.done:
            await self._begin(ticket, anew=options.get("idempotency_key") is None)
        return handle

    async def answer(self, session_id: str, tool_call_id: str | None = None, **answer: Any) -> ToolResultReceipt:
        """Answer a question, as `executor.submit_tool_result` does; with the last answer the engine goes on."""
        receipt = await self._executor.submit_tool_result(session_id, tool_call_id, **answer)
        await self.answered(receipt)
        return receipt

    async def answered(self, receipt: ToolResultReceipt) -> None:
        """Let the engine continue the session whose question was answered, if that was the last one."""
        asked = await self._services.store.load_state(receipt.session_id)
        root_id = receipt.session_id if asked is None else asked.root_session_id or receipt.session_id
        root = await find(self._services, root_id)
        if root.session is not None and root.seen.standing is Standing.READY:
            with suppress(AlreadyRunning, NotResumable, RunLost):  # another process has answered, too, and was faster
                await self.resume(root.session.agent_type, root_id)

    async def resume(self, agent: Agent | str, session_id: str, *, user_id: str | None = None) -> RunHandle:
        """Let the engine continue a session that was interrupted, or whose answers are in."""
        agent = self._executor.runs.known(agent)
        found, _ = await decided(
            self._services, Intent.RESUME, session_id, agent=agent, user_id=user_id, engine=self._engine
        )
        if found.seen.standing not in (Standing.READY, Standing.STOPPED):
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

    async def _handle(self, ticket: Ticket) -> RunHandle:
        handle = await self._executor.get_handle(ticket.agent_type, ticket.session_id)
        if handle is None:
            raise RunLost(ticket.session_id, ticket.run_id, "the session was deleted")
        return handle

    # -- for the engine

    def knows(self, kept: dict[str, Json]) -> bool:
        """Whether the agent of a ticket is known here; says once of each that is not."""
        name = str(kept["agent_type"])
        if name not in self._executor.agents and name not in self._strangers:
            self._strangers.add(name)
            logger.warning("%s sends runs of agent %s here, which is not known: left to others.", self._engine, name)
        return name in self._executor.agents

    async def advance(self, kept: dict[str, Json]) -> dict[str, Json]:
        """Do the next step of a run; the ticket to keep. Whoever comes too late waits for what the others do."""
        ticket = msgspec.convert(kept, Ticket)
        while True:
            try:
                return plain(await self._stepper.step(ticket.agent_type, ticket, retry=True))
            except (AlreadyRunning, RunLost):
                await asyncio.sleep(AGAIN_SECONDS)

    async def watch(self) -> None:
        """For ever: find runs that stand still, and ask the engine to go on with them."""
        while True:
            try:
                await self._rescue_all()
            except Exception as error:  # the store or the engine is away: both have errors of their own
                logger.warning("Cannot look for runs that %s lost: %s", self._engine, error)
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
                logger.warning("Cannot rescue session %s now: %s", session.session_id, error)

    async def _rescue_one(self, session: SessionState) -> None:
        found = await find(self._services, session.session_id)
        decision = decide(found.seen, Intent.RECOVER, engine=self._engine)
        if decision.action is Action.LEAVE:
            self._skipped.add(session)
        elif decision.action in (Action.CLOSE, Action.CLOSE_FIRST) and found.run is not None:
            await close(self._services, found.existing, found.run)
        elif found.seen.standing is Standing.READY:
            await self.resume(session.agent_type, session.session_id)
        elif not await self._rescue(await self._stepper.look(session.agent_type, session.session_id)):
            await self._executor.interrupt(session.session_id, f"{self._engine} has given the run up.")

    @abstractmethod
    async def _begin(self, ticket: Ticket, *, anew: bool) -> None:
        """Let the engine execute a run. Unless `anew`, it may have begun with it already."""

    @abstractmethod
    async def _rescue(self, ticket: Ticket) -> bool:
        """Let the engine go on with a run that stands still, if it does not anyway. False if it has given it up."""


def is_newer(one: dict[str, Json], other: dict[str, Json]) -> bool:
    """Return whether a ticket was made after another one of the same turn."""
    return int(str(one["version"])) > int(str(other["version"]))


def plain(ticket: Ticket) -> dict[str, Json]:
    """A ticket as engines keep it: without what the model said."""
    kept: dict[str, Json] = msgspec.to_builtins(msgspec.structs.replace(ticket, output=None, error=None))
    return kept
