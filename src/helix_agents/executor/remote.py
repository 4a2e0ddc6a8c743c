"""Remote control: looking at sessions whose run may be anywhere, stopping them, answering them, deleting them.

Nothing here executes anything: a request is a write that the run finds, or a status that is swapped where none runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ..agent import Agent, AgentRegistry
from ..codec import Json
from ..errors import InvalidArgument, SessionNotFound
from ..ids import ensure_id
from ..lifecycle import SESSION_TERMINAL
from ..types import Page, SessionState, SessionStatus
from .handle import AgentResult
from .inbox import Waiting, list_waiting
from .run.loop import Run
from .services import Services
from .session.deletion import DELETING, delete_tree
from .session.resumable import WIND_UP_POLL_SECONDS, CanResume, can_resume, has_crashed, is_live, load
from .session.tidying import fail_children
from .step.questions import Answer, ToolResultReceipt, submit
from .stream.snapshot import SessionView

DELETE_PATIENCE_SECONDS = 2.0
LOOKS_AT_A_BUSY_SESSION = 5


class RemoteControl:
    """The part of the executor that works on sessions wherever they run."""

    services: Services
    agents: AgentRegistry
    _tasks: dict[asyncio.Task[AgentResult], Run]

    async def can_resume(self, session_id: str) -> CanResume:
        """Whether `resume` would go on with the session, and why or why not."""
        for _ in range(LOOKS_AT_A_BUSY_SESSION):
            session = await self._session(session_id)
            run = await self.services.store.get_current_run(session_id)
            verdict = await can_resume(self.services, session, run)
            # A run that ends between the two reads looks like one that died.
            if not verdict.can_resume or (await self._session(session_id)).version == session.version:
                return verdict
        return CanResume(False, "it is running")

    def watch(self, session_id: str) -> SessionView:
        """A session as a chat shows it: `async with executor.watch(session_id) as view:`.

        `view.session`, `view.messages` and `view.sequence` are read at one moment. `async for stored in view` goes on
        from exactly there: chunks with their sequences, live, over all turns, until the session is deleted.
        """
        return SessionView(self.services, ensure_id(session_id, "session_id"))

    async def interrupt(self, session_id: str, reason: str | None = None) -> None:
        """Ask a session's run to stop at the next safe point, wherever it runs; it can be resumed."""
        if reason is not None and not isinstance(reason, str):
            raise InvalidArgument(f"The reason of an interrupt must be a string, not {type(reason).__name__}.")
        await self._ask_to_stop(session_id, reason, "interrupted", set())

    async def abort(self, session_id: str, reason: str | None = None) -> None:
        """Stop a session's run at once, its tools included; the session ends `failed`."""
        await self._ask_to_stop(session_id, reason or "aborted", "failed", set())

    async def submit_tool_result(
        self,
        session_id: str,
        tool_call_id: str | None = None,
        *,
        approval_id: str | None = None,
        result: Json = ...,
        error: str | None = None,
        approved: bool | None = None,
        reason: str | None = None,
        arguments: Mapping[str, Json] | None = None,
    ) -> ToolResultReceipt:
        """Answer a question that a run has asked: with `result` or `error` of a client tool, or with `approved`.

        From any process, in any order, also to the root session of the one that asked. Twice is harmless. When nothing
        waits any more (`can_resume`) the session can be resumed. An approval may be named by its `approval_id` instead
        of the call's id. `arguments`: approve, but let the call run with these; the model is told.
        """
        if (tool_call_id is None) == (approval_id is None):
            raise InvalidArgument("Give the tool_call_id or the approval_id of the question.")
        given = [result is not ..., error is not None, approved is not None]
        if sum(given) != 1:
            raise InvalidArgument("Give exactly one of result, error and approved.")
        if approved is not None and not isinstance(approved, bool):
            raise InvalidArgument(f"approved is True or False, not {approved!r}: a string is not a decision.")
        if not isinstance(error, str | None) or not isinstance(reason, str | None):
            raise InvalidArgument("error and reason are texts.")
        if arguments is not None and (approved is not True or not isinstance(arguments, Mapping)):
            raise InvalidArgument("arguments is an object, and goes with approved=True.")
        response: dict[str, Json]
        if approved is not None:
            response = {"approved": approved, "reason": reason}
            if arguments is not None:
                response["arguments"] = dict(arguments)
        else:
            response = {"error": error} if error is not None else {"result": result}
        answer = Answer(ensure_id(tool_call_id or approval_id, "the id of a question"), response)
        return await submit(self.services.store, self.services.clock, self.agents, session_id, answer)

    async def list_waiting(
        self, *, user_id: str | None = None, agent_type: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[Waiting]:
        """The questions that wait for an answer, of all sessions, of one user's, or of one agent's."""
        return await list_waiting(
            self.services.store,
            self.services.clock(),
            user_id=user_id,
            agent_type=agent_type,
            limit=limit,
            cursor=cursor,
        )

    async def delete_session(self, session_id: str, *, keep_usage: bool = False) -> bool:
        """Remove a session, those below it, their streams and their usage; False if there was none.

        Stops what runs of it first. `keep_usage` leaves what they spent on the books, which may have to outlive them.
        """
        services = self.services
        if not await services.store.session_exists(session_id):
            return False
        await self.abort(session_id, DELETING)
        await self._wait_until_still(session_id)
        return await delete_tree(services.store, services.streams, services.usage, session_id, keep_usage=keep_usage)

    async def _ask_to_stop(self, session_id: str, reason: str | None, status: SessionStatus, asked: set[str]) -> None:
        asked.add(session_id)
        session = await self._session(session_id)
        run = await self.services.store.get_current_run(session_id)
        if session.status in SESSION_TERMINAL or session.status == status:
            return
        if session.status == "active" and not has_crashed(run, self.services.clock()):
            running = run.run_id if run is not None and run.status == "running" else None
            await self.services.store.set_interrupt_flag(session_id, reason, run_id=running, abort=status == "failed")
            for local in self._tasks.values():
                if local.context.run_id == running:
                    # No need to wait for the next look at the flag.
                    local.context.stop.request(reason, abort=status == "failed")
            return
        if status == "failed":
            await fail_children(self.services, [session_id], reason or "", "aborted")
            return
        for wait in session.suspended_awaiting_children.values():
            if wait.child_session_id not in asked:  # two sessions may wait for each other
                await self._ask_to_stop(wait.child_session_id, reason, status, asked)
        context = {"reason": reason, "run_id": run.run_id if run else None, "interrupted_at": self.services.clock()}
        await self.services.store.compare_and_set_status(
            session_id, [session.status], status, interrupt_context=context, expected_version=session.version
        )

    async def _make_room(self, agent: Agent, session_id: str) -> None:
        """Stop what runs of a session, and wait until it has come to rest or died."""
        if not await self.services.store.session_exists(session_id):
            return
        await self.interrupt(session_id, "Another message came.")
        while True:
            session, run = await load(self.services, agent, session_id)
            if session.status != "active" or has_crashed(run, self.services.clock()):
                return
            await asyncio.sleep(WIND_UP_POLL_SECONDS)

    async def _wait_until_still(self, session_id: str) -> None:
        """Give a run that was aborted the time to end; one that does not will find its session gone."""
        for _ in range(int(DELETE_PATIENCE_SECONDS / WIND_UP_POLL_SECONDS)):
            run = await self.services.store.get_current_run(session_id)
            if not is_live(run, self.services.clock()):
                return
            await asyncio.sleep(WIND_UP_POLL_SECONDS)

    async def _session(self, session_id: str) -> SessionState:
        session = await self.services.store.load_state(session_id)
        if session is None:
            raise SessionNotFound(session_id)
        return session
