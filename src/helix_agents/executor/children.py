"""Sub-agents: a tool call that is itself a run, in a child session of the parent's.

The child's session id is derived from the parent's and the call, so a resumed parent finds the child it had started and
continues it: a finished child is not run again, a waiting one makes the parent wait.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ..agent import AgentTool
from ..errors import (
    AlreadyRunning,
    IllegalTransition,
    NotResumable,
    RunLost,
    SessionExists,
    StreamFenced,
    StreamNotActive,
    VersionConflict,
)
from ..failures import PARENT_FAILED, PARENT_MOVED_ON, PARENT_SUSPENDED, PARENT_TIMEOUT, FailureReason
from ..ids import MAX_ID_LENGTH
from ..lifecycle import SESSION_TERMINAL, SUSPENDED
from ..messages import Message, ToolCall
from ..retry import CONFLICT
from ..safe_text import get_logger
from ..stores.usage.contract import SubagentEntry, UsageEntry
from ..types import ParentCall, RunRecord, SessionState, SubSessionRef, SuspendedChildWait
from .handle import AgentResult, result_of
from .opening import open_run
from .run.stop_signal import StopSignal
from .run_context import RunContext
from .services import Services
from .session.admin import delete_tree
from .session.claim import Claim, NewRun, create_turn, start_turn
from .session.closing import Ending, close, fail_session
from .session.observe import Found, find
from .session.questions import MESSAGE_INSTEAD, change_session
from .session.standing import Action, Intent, decide
from .session.take_over import take_over
from .step.decisions import Outcome
from .step.open_step import OpenStep, tool_start_chunk
from .step.work import ChildOutcome
from .stream.fenced import FORWARDED
from .tasks import finish_despite_cancel

logger = get_logger("helix_agents.executor")


LOST_TO_ANOTHER = (
    AlreadyRunning,
    IllegalTransition,
    NotResumable,
    RunLost,
    SessionExists,
    StreamFenced,
    StreamNotActive,
    VersionConflict,
)
"""Errors that mean another process has written to a sub-agent's session. The parent did not cause them."""


def child_session_id(parent_session_id: str, tool: AgentTool, call: ToolCall) -> str:
    """Return the id of the child session of a call: one per call, or one for all calls of a persistent child."""
    name = call["id"] if tool.mode == "ephemeral" else f"@{tool.name}"
    wanted = f"{parent_session_id}/{name}"
    if len(wanted) <= MAX_ID_LENGTH:
        return wanted
    return f"{parent_session_id[:180]}/{hashlib.sha256(wanted.encode()).hexdigest()[:32]}"


class ForeignSession(Exception):  # caught inside this module; the model reads its text
    """The id of a sub-agent's session is in use by a session that does not belong to this parent."""

    def __init__(self) -> None:
        super().__init__("The sub-agent is not available: its session id is in use by another session.")


class SubAgents:
    """Runs sub-agents in this process; see `step.work.Children`."""

    def __init__(self, services: Services) -> None:
        self.services = services

    def session_id(self, parent_session_id: str, tool: AgentTool, call: ToolCall) -> str:
        return child_session_id(parent_session_id, tool, call)

    async def call(
        self, parent: RunContext, step: OpenStep, call: ToolCall, tool: AgentTool, stop: StopSignal
    ) -> tuple[ChildOutcome, Sequence[UsageEntry]]:
        return await _ChildCall(self, parent, step.number, call, tool, stop).run()

    async def end(self, parent: RunContext, call: ToolCall, tool: AgentTool, error: str, reason: FailureReason) -> None:
        await _ChildCall(self, parent, 0, call, tool, parent.stop).end(error, reason)

    async def replay_chunks(self, parent: RunContext, call: ToolCall, tool: AgentTool) -> None:
        with suppress(ForeignSession):
            await _ChildCall(self, parent, 0, call, tool, parent.stop).replay_chunks()


class _ChildCall:
    """One call of one sub-agent."""

    def __init__(
        self,
        children: SubAgents,
        parent: RunContext,
        step_number: int,
        call: ToolCall,
        tool: AgentTool,
        stop: StopSignal,
    ) -> None:
        self._children = children
        self._parent = parent
        self._services = children.services
        self._step_number = step_number
        self._call = call
        self._tool = tool
        self._stop = stop
        self._agent = tool.agent
        self._session_id = child_session_id(parent.session_id, tool, call)
        # The input also counts: after a restore, the parent may repeat a call with another input.
        self._origin = ParentCall(call["id"], call["arguments"]["input"], parent.run_id)
        self._show_history = False
        self._started_at = 0
        self._incarnation: str | None = None
        """The child's incarnation as seen by this call; a child that was deleted and created again is another
        session."""
        self._has_emitted = False
        """Whether a run of this call has emitted chunks to the parent's stream."""
        self._input: Message = {"role": "user", "content": call["arguments"]["input"]}

    async def run(self) -> tuple[ChildOutcome, Sequence[UsageEntry]]:
        """Run the child until it stops; retry after conflicts with other writers while this run owns the parent's
        session.

        A conflict may come from a replaced run of the parent that wakes up and still owns a run of the child.
        """
        started_at = self._services.clock()
        for _ in CONFLICT.attempts():
            try:
                return await self._conclude(await self._continue(), started_at)
            except ForeignSession as error:
                self._parent.stream.emit(tool_start_chunk(self._call))
                return Outcome(success=False, error=str(error)), ()
            except LOST_TO_ANOTHER as error:
                if isinstance(error, RunLost) and error.session_id == self._parent.session_id:
                    raise
                await self._parent.watch.ensure_owner()
                await self._parent.owned.refresh()
                logger.warning("Session %s reloads its sub-agent: %s", self._parent.session_id, error)
                self._announce_rewind()
        why = f"other processes keep taking the session of its sub-agent {self._session_id!r}"
        raise RunLost(self._parent.session_id, self._parent.run_id, why)

    async def _continue(self) -> AgentResult:
        """Read the child and continue it in its current state."""
        found = await find(self._services, self._session_id, messages=True)
        session, run = found.session, found.run
        self._ensure_child(session)
        self._incarnation = session.incarnation if session is not None else self._incarnation
        # Only now: a parent that was replaced before this read would take the child over from its successor.
        await self._parent.watch.ensure_owner()
        show = self._call["id"] not in self._parent.shown_children
        self._parent.shown_children.add(self._call["id"])
        self._show_history |= show and self._parent.rewound
        mine = self._is_mine(session, run)
        if show and (session is None or self._parent.rewound or not mine):
            self._parent.stream.emit(tool_start_chunk(self._call))
            self._announce_start()
        action = decide(found.seen, Intent.CALL_CHILD if mine else Intent.CALL_CHILD_ANEW).action
        if action is Action.CLOSE_FIRST:
            await close(self._services, found)
            return await self._continue()
        if action is Action.RETURN:
            assert session is not None
            self._started_at = run.started_at if run is not None else session.created_at
            await self._forward_history(session)
            return await result_of(self._services, session)
        return await self._execute(found, action)

    async def _execute(self, found: Found, action: Action) -> AgentResult:
        await self._store_ref("active")
        try:
            async with asyncio.timeout(self._tool.timeout_seconds) as timer:
                claim = await self._claim(found, action)
                await self._forward_history(claim.session)  # after the claim, which drops uncommitted chunks
                child = await open_run(
                    self._services,
                    self._agent,
                    claim,
                    self._children,
                    stop=self._stop.child(),
                    parent=self._parent,
                )
                self._has_emitted = True
                return await child.drive()
        except TimeoutError:
            if not timer.expired():
                raise
            await self._parent.watch.ensure_owner()
            error = f"The sub-agent did not finish within {self._tool.timeout_seconds:g} seconds."
            await self._fail(error, PARENT_TIMEOUT)
            return AgentResult("failed", error=error)

    async def _claim(self, found: Found, action: Action) -> Claim:
        """Claim the child's session without waiting for its lease, because the parent owns it."""
        new = NewRun(f"run-{self._services.ids()}", parent_call=self._origin)
        if action is Action.CREATE:
            return await self._create(new)
        session, run = found.existing, found.run
        if action is Action.START:
            return await start_turn(self._services, found, [self._input], new)
        message = None
        if not self._is_mine(session, run):
            history = await found.history(self._services.store)
            if not history or history[-1] != self._input:
                message = self._input
        return await take_over(self._services, found, new, message=message)

    async def _create(self, new: NewRun) -> Claim:
        parent = self._parent.owned.session
        options: dict[str, Any] = {
            "parent_session_id": parent.session_id,
            "root_session_id": parent.root_session_id or parent.session_id,
            "user_id": parent.user_id,
            "tags": parent.tags,
            "expires_at": parent.expires_at,
        }
        claims: list[Claim] = []

        async def create() -> None:
            claims.append(await create_turn(self._services, self._agent, self._session_id, [self._input], new, options))
            await self._ensure_parent(claims[0].session)

        await finish_despite_cancel(create())  # otherwise a child could exist that its parent does not know
        self._incarnation = claims[0].session.incarnation
        return claims[0]

    async def _check(self) -> None:
        """Raise `RunLost` unless this run still owns the parent's session."""
        await self._parent.watch.ensure_owner()
        await self._parent.owned.refresh()

    async def _ensure_parent(self, child: SessionState) -> None:
        """Raise `RunLost` if the parent was lost. Delete a child that was created after its parent was deleted."""
        services, parent = self._services, self._parent.owned
        try:
            await parent.refresh()
        except RunLost:
            stored = await services.store.load_state(parent.session_id)
            if stored is None or stored.incarnation != parent.owner.incarnation:
                await delete_tree(services, services.usage, child)
            raise

    def _ensure_child(self, session: SessionState | None) -> None:
        """Raise `ForeignSession` for a session that has the child's id but was not created by this parent."""
        parent = self._parent.owned.session
        if session is not None and (
            session.parent_session_id != parent.session_id
            or session.root_session_id != (parent.root_session_id or parent.session_id)
            or session.user_id != parent.user_id
            or session.agent_type != self._agent.name
            or self._incarnation not in (None, session.incarnation)
        ):
            logger.warning(
                "Session %s cannot use session %s as its sub-agent: it belongs to another parent, user or agent.",
                parent.session_id,
                session.session_id,
            )
            raise ForeignSession

    def _is_mine(self, session: SessionState | None, run: RunRecord | None) -> bool:
        """Return whether the child's latest run was started for this call, and did not fail only because its parent
        did."""
        if session is None or run is None or session.failure_reason == PARENT_FAILED:
            return False
        call, mine = run.parent_call, self._origin
        return call is not None and (call.tool_call_id, call.input) == (mine.tool_call_id, mine.input)

    async def _mark_parent_suspended(self) -> None:
        """Record in the child's session that it was interrupted so that the parent could suspend."""
        if not self._parent.stop.requested:
            await change_session(
                self._services.store,
                self._session_id,
                lambda session: msgspec.structs.replace(session, failure_reason=PARENT_SUSPENDED),
            )

    async def end(self, error: str, reason: FailureReason) -> None:
        """End the child, if it exists, because no run will continue it."""
        with suppress(ForeignSession):
            self._ensure_child(await self._services.store.load_state(self._session_id))
            await self._fail(error, reason)

    async def _fail(self, error: str, reason: FailureReason) -> None:
        await fail_session(self._services, self._session_id, Ending("failed", error, reason), self._check)

    async def replay_chunks(self) -> None:
        """Emit the chunks of a child that finished before the parent's stream was rewound."""
        session = await self._services.store.load_state(self._session_id)
        if session is None:
            return
        self._ensure_child(session)
        self._show_history = True
        self._announce_start()
        await self._forward_history(session)
        self._announce_end(session.status)

    def _announce_rewind(self) -> None:
        """Announce a rewind of the child, if a run of it was lost, before its chunks are emitted again."""
        if not self._has_emitted:
            return
        self._has_emitted, self._show_history = False, True
        data = {"session_id": self._session_id, "step_count": 0}
        self._parent.stream.emit({"type": "custom", "name": "subagent_rewound", "data": data})

    def _announce_start(self) -> None:
        self._parent.stream.emit(
            {
                "type": "subagent_start",
                "sub_session_id": self._session_id,
                "agent_type": self._agent.name,
                "tool_call_id": self._call["id"],
            }
        )

    def _announce_end(self, status: str) -> None:
        self._parent.stream.emit(
            {
                "type": "subagent_end",
                "sub_session_id": self._session_id,
                "agent_type": self._agent.name,
                "tool_call_id": self._call["id"],
                "status": status,
            }
        )

    async def _forward_history(self, session: SessionState) -> None:
        """Emit the child's chunks again if the parent's stream was rewound."""
        if not self._show_history:
            return
        for stored in await self._services.streams.get_all_chunks(session.stream_id):
            if stored.chunk["type"] in FORWARDED:
                run_id = str(stored.chunk.get("agent_id"))
                self._parent.stream.forward(stored.chunk, self._session_id, run_id, self._agent.name)
        self._show_history = False

    async def _store_ref(self, status: str) -> None:
        """Store the parent's ref to the child. Raises `RunLost` if the parent has another owner by now."""
        now = self._services.clock()
        if status == "active":
            self._started_at = now
        await self._parent.owned.add_child_ref(
            SubSessionRef(
                sub_session_id=self._session_id,
                agent_type=self._agent.name,
                parent_tool_call_id=self._call["id"],
                status=status,
                mode=self._tool.mode,
                name=self._tool.name,
                started_at=self._started_at,
                completed_at=now if status in SESSION_TERMINAL else None,
            )
        )

    async def _conclude(self, result: AgentResult, started_at: int) -> tuple[ChildOutcome, Sequence[UsageEntry]]:
        """Return the outcome of the parent's call for the child's result."""
        if result.status in SUSPENDED and self._parent.follow_up:
            await self._fail(MESSAGE_INSTEAD, PARENT_MOVED_ON)
            result = AgentResult("failed", error=MESSAGE_INSTEAD)
        await self._store_ref(result.status)
        if result.status in SUSPENDED:
            return suspended_wait(self._call["id"], self._session_id, self._agent.name, result), ()
        if result.status == "interrupted" and self._stop.requested:
            await self._mark_parent_suspended()
            return None, ()
        self._announce_end(result.status)
        success = result.status == "completed"
        entry = SubagentEntry(
            id=f"subagent-{self._services.ids()}",
            session_id=self._parent.session_id,
            run_id=self._parent.run_id,
            step_count=self._step_number,
            source=self._parent.agent.name,
            timestamp=self._services.clock(),
            parent_session_id=self._parent.owned.session.parent_session_id,
            incarnation=self._parent.owned.session.incarnation,
            sub_session_id=self._session_id,
            agent_type=self._agent.name,
            duration_ms=max(0, self._services.clock() - started_at),
            success=success,
        )
        if success:
            return Outcome(success=True, result=result.output), [entry]
        return Outcome(success=False, error=result.error or f"The sub-agent is {result.status}."), [entry]


def suspended_wait(call_id: str, session_id: str, agent: str, result: AgentResult) -> SuspendedChildWait:
    """Return the parent's record of a waiting child: its questions, their last deadline, and its first timer."""
    deadlines = [wait.deadline_at for wait in result.suspended]
    last = None if None in deadlines else max((each for each in deadlines if each is not None), default=None)
    timers = (wait.deadline_at for wait in result.suspended if wait.later == "timer")
    first = min((each for each in timers if each is not None), default=None)
    waits = [wait.tool_call_id for wait in result.suspended]
    return SuspendedChildWait(call_id, session_id, agent, result.status, waits, last, first)
